// Package sched decides when a delivery is tried and which one is next. Each
// subscriber is a virtual actor: it exists on disk, and becomes an object in
// memory only while it has work that can be done now.
//
//	  publish: Admit, Committed      Kick, Forget, Resume        Observer, Disable
//	              │                          │                          ▲
//	              ▼                          ▼                          │
//	┌─────────────────────────── actor of one subscriber ───────────────┴────────┐
//	│ windows of rows        lines (order)                breaker, allowance     │
//	│ high   ▐▐▐  ┐          key 1: owner ◄ waiting rows                         │
//	│ normal ▐▐▐▐ ├► ready ──────────► claim ──► in flight ──► outcome           │
//	│ low    ▐    ┘                     ▲            │            │              │
//	└──────▲────────────────────────────┼────────────┼────────────┼──────────────┘
//	       │ rows, once their           │ slot       ▼            │ Moved (Block,
//	       │ lease is durable     ┌─────┴──────┐   worker ─► Sender  Unblock),
//	       │                      │ dispatcher │     Limiter      │ HealthChanged
//	     loader                   │ lanes      │                  ▼
//	       │ Ready, Retrying,     │  tenants   │            Queue.Commit ─► done
//	       ▼ Parked, Blocked      │   actors   │           (asynchronous)
//	┌─────────────────┐           └────────────┘
//	│ Queue (on disk) │ Wakes, NextWake
//	│ Q R K B W       ├────────────► retry clock: near wakes in a heap, far ones
//	└─────────────────┘              on disk only; it wakes actors
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
//   - Low priority, small tenants and subscribers beside hanging ones all move
//     on: see pickLane, fairQueue and dispatcher. Attempts in flight are bounded
//     by node, tenant and subscriber, and tenants and subscribers can have slots
//     that others cannot take (share); those of receivers that are slow, or that
//     nothing is known about, have budgets of their own.
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
// order: actor, then one of {shard, loader, dispatcher, retry clock}, the
// dispatcher before the retry clock; an actor's lock is never taken under one of
// these. No lock is held across I/O: [Queue.Commit] is called under an actor's
// lock, since the order of calls is the order of facts, and therefore must not
// block. The functions that decide something (ladder.go, breaker.go, order.go,
// lanes.go, room.go) are pure: time and random numbers are arguments.
package sched
