// Package load is both ends of the engine's benchmark: what publishes to the
// node (or posts straight to the receiver, for the floor) and what receives.
// Each runs in a process of its own; package worker carries the calls.
//
//	Publish ─ API ─► node ─ signed POST ─┐
//	                                     ├─► Receiver: counts each delivery once,
//	Floor ── the same bodies ── POST ────┘    times it, checks some signatures
//
// Event n of a phase has the id "TAG-n" and goes to subscriber n modulo their
// number (or to all), whose path is "/s/SUBSCRIBER". From that the receiver
// knows for each slot (event, subscriber) how often it was delivered: lost and
// duplicated are counted, not estimated. A payload carries the machine's
// monotonic time of its publish.
//
// The generator is closed-loop on a number of connections, or open-loop at a
// rate; then the time that an event waits for a free connection counts.
package load
