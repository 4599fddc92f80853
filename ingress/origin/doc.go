// Package origin hands a source's events to one origin in batches: at least
// once, without one bad event holding up the others. It holds two pure parts,
// which the engine drives through its scheduler and transport:
//
//   - [Batcher], the state machine that decides what goes out when, and finds
//     the event that an origin cannot take by halving batches;
//   - [Write], the JSON in which a batch travels.
//
// # A batch's life
//
//	Add ─► fresh ──(50 events, bytes or 2 s)──► batch ─► Next ─► in flight
//	                                             ▲                  │ Result
//	                                             │                  ▼
//	              wait, doubled up to 5 min ─────┴── suspect, several events, first time
//	              two halves ────────────────────┴── rejected or suspect, several events
//	                                                 rejected, one event      ─► dead
//	                                                 suspect, one event,
//	                                                 and others get through   ─► dead
//	              the whole origin waits ────────┬── down: no fault of the events
//	                                                 delivered                ─► delivered
//
// What an answer says about the events decides. An origin that was not reached,
// or asks for patience, has said nothing about them: the batch stays whole and
// the origin as a whole waits. One that was given the events and failed may
// have failed because of one of them: the batch is suspect, and is halved until
// the culprit stands alone. An event that stands alone and still fails is dead
// only once another one got through after its first failure: as long as nothing
// gets through, the origin is to blame and no event.
//
// # Guarantee
//
// Every event that was added is decided once, delivered or dead, unless the
// machine is dropped; then it must be added again, and may be delivered twice.
// An origin that fails is asked by one request at a time, at most one per wait.
// Memory is bounded by [Config].Window and one event per wait of an outage.
//
// # What it deliberately does not do
//
// It has no goroutine, clock, lock or socket: time and jitter are arguments, and
// one goroutine owns it. It keeps no order between events, as no provider
// promises one. It does not persist: the queue behind it does.
package origin
