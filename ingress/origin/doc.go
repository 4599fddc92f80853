// Package origin holds what is particular to handing a source's events to one
// origin in batches, as two pure parts that the engine's sender uses:
//
//   - [Write], the JSON in which a batch travels;
//   - [Judge], what an answer to a batch says about its events.
//
// What an answer says decides whether the event at fault is looked for:
//
//	delivered    ─► all of them were taken
//	rejected     ─► one at least cannot be accepted     ─► halve the batch
//	suspect      ─► the origin had them and failed      ─► halve it, the second time
//	down         ─► the origin said nothing about them  ─► retry all of them
//	interrupted  ─► we stopped                          ─► as if nothing had been
//
// # Guarantee
//
// A body that is written decodes to the very bytes that were received, and the
// same events give the same bytes. No body is held in memory.
//
// # What it deliberately does not do
//
// It has no queue, clock, goroutine or socket: an origin is a subscriber, and
// its deliveries wait, retry and end as all others do. Gathering and halving
// batches is the engine's sender's.
package origin
