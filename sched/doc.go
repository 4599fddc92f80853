// Package sched decides when a delivery is tried and which one is next. Each
// subscriber is a virtual actor: it exists on disk, and becomes an object in
// memory only while it has work that can be done now.
//
//	 publish                                        ┌── Observer, Disable
//	    │ Admit, Committed          Kick, Forget    │
//	    ▼                                ▼          │
//	┌────────────────────────── actor of one subscriber ───────────────────────┐
//	│  lanes (window of rows)     keys (order)      breaker      allowance     │
//	│  high  ▐▐▐  ┐                k1: owner ▸▸ waiting rows                   │
//	│  normal▐▐▐▐ ├─ ready ─► claim ───────────► in flight ─► outcome          │
//	│  low   ▐    ┘   ▲                               │          │             │
//	└────▲────────────┼───────────────────────────────┼──────────┼─────────────┘
//	     │ rows       │ durable lease                 │          │ Moved, Block,
//	   loader ◄───────┴──────────┐                    ▼          ▼ HealthChanged
//	     │ Ready Retrying Parked │      ┌─ fair queue ─┐    Queue.Commit (async)
//	     ▼                       │      │ lanes        │         │ done
//	 ┌── Queue (disk) ──┐        │      │  └ tenants   ├─ slot ─ worker ─► Sender
//	 │ Q ready R retry  │◄───────┼──────┤     └ actors │  (fast or slow budget)
//	 │ K parked B heads │  Wakes │      └──────────────┘
//	 └──────┬───────────┘        │
//	        └──── retry clock ───┘   near wakes in a heap, far ones on disk only
//
// # What it guarantees
//
//   - A row is sent only after its lease is durable, and leaves memory only when
//     the fact that says what became of it is durable. Whatever is lost in a
//     crash is sent again, never forgotten.
//   - Rows of one ordering key are in flight one at a time, and in order, also
//     across retries, restarts and commit failures.
//   - Memory is bounded: an actor holds a window of rows, payloads in memory
//     share one budget of bytes, a subscriber without work holds nothing but a
//     byte of memory of what is known about it.
//   - Low priority, small tenants and subscribers behind slow ones all move on:
//     see pickLane, fairQueue and dispatcher.
//   - An idle scheduler has no goroutine but the retry clock's, which waits on
//     at most one timer.
//
// # What it deliberately does not do
//
// It does not know how a request is sent (Sender), how a row is stored (Queue),
// or what an answer means ([delivery.Classify]). It does not promise exactly
// once. It keeps no order between ordering keys, nor between an event with
// deliver_at or a replay and what was published meanwhile.
//
// # Concurrency
//
// Actors are state machines behind a mutex, run by whoever brings work. Lock
// order: actor, then one of {shard, dispatcher, loader, retry clock}; those are
// leaves and never held while an actor's lock is taken. No lock is held across
// I/O: [Queue.Commit] is called under an actor's lock, since the order of calls
// is the order of facts, and therefore must not block. The functions that
// decide something (ladder.go, breaker.go, order.go, lanes.go) are pure: time
// and random numbers are arguments.
package sched
