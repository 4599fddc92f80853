// Package delivery is the shared vocabulary of the dispatcher: events,
// subscribers, deliveries, attempts, outcomes, reasons, facts and the state
// machine that ties them together. It imports the standard library only and
// does no I/O, so every other package can speak it without learning about a
// neighbour.
//
// # A delivery's life
//
// A delivery is one event for one subscriber. The drawing below is the only
// one in the repository; TestStateMachineMatchesItsDrawing holds it against
// the transition table in state.go, edge by edge.
//
//	received  -> leased      an actor took it
//	received  -> held        its subscriber is paused or disabled
//	received  -> dead        it expired before anybody could try it
//	received  -> canceled    its subscriber, event or tenant was deleted
//	leased    -> attempted   bytes may have left
//	leased    -> retrying    given back without an attempt (shutdown, policy change)
//	leased    -> dead        it expired while it waited for its turn
//	leased    -> canceled    its subscriber, event or tenant was deleted
//	attempted -> delivered   2xx
//	attempted -> retrying    retry, unknown, throttled
//	attempted -> dead        rejected, exhausted, expired, blocked, gone
//	attempted -> canceled    deleted while it was in flight
//	retrying  -> leased      due
//	retrying  -> held        its subscriber is paused or disabled
//	retrying  -> dead        its maximum age passed
//	retrying  -> canceled    its subscriber, event or tenant was deleted
//	held      -> leased      resumed
//	held      -> dead        its maximum age passed
//	held      -> canceled    its subscriber, event or tenant was deleted
//	dead      -> leased      replay
//	delivered -> leased      replay with force
//
//	          ┌───────────────── replay ─────────────────────────────┐
//	          ▼                                                      │
//	RECEIVED ─► LEASED ─► ATTEMPTED ─► DELIVERED ────── (force) ─────┤
//	   │  ▲       ▲           ├─ retry/unknown/throttled ─► RETRYING │
//	   │  │       └───────────┼───────────────────────────────┘      │
//	   ▼  │                   ├─ rejected/exhausted/… ─► DEAD ───────┘
//	  HELD┘                   └─ deleted ─► CANCELED
//
// HELD is derived, never stored per delivery: a pending delivery is held while
// its subscriber is paused or disabled. Pausing a subscriber with a million
// deliveries therefore costs one write.
//
// # Facts
//
// Everything that changes what is stored about a delivery is a [Fact]: a small
// typed record whose jitter, due times and ids were decided before it was
// written. Storage folds facts deterministically; the same facts in the same
// positions give the same bytes.
//
// # What this package does not do
//
// It never reads a clock, draws a random number, opens a file or a socket.
// Time, randomness and configuration are arguments.
package delivery
