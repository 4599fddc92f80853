// Package engine is the composition root: it wires storage, scheduler,
// selector, transport and signing into one node and offers what the API, the
// command line and an embedding program call. It holds no policy of its own.
//
//	API, CLI ──► Engine.Publish ──► storage (group commit, synced) ──► 202
//	                                   │ Admit / Committed, in position order
//	                                   ▼
//	                                 sched: one actor per subscriber
//	                                   │ Send (signed request)
//	                                   ▼
//	                       protoselect ──► transport ──► receiver
//	                                   │ result
//	                                   ▼
//	                       sched ──► storage.Commit (outcome + timeline, one batch)
//
// What the ingress verified takes the same way: it is published to subscribers by
// topic, or to the one subscriber that is the origin of its source, for which the
// sender gathers deliveries into batches.
//
// It guarantees the order of start and stop: storage opens first and closes
// last, the ingress ends first, the scheduler stops before the transport, and a
// stop costs no delivery an attempt.
package engine
