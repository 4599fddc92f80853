// Package storage is the durable queue: events, what is pending for whom, what
// happened to each delivery, dead letters, and the configuration records, in one
// Pebble database per node.
//
// # What it guarantees
//
//   - Durable before acknowledged: a receipt without an error means that the event
//     and its deliveries were synced to disk, in one batch.
//   - One truth: an attempt's outcome, the timeline's entry and the row's new place
//     are one fact in one batch. There is no instant, crashes included, at which
//     they disagree.
//   - Positions strictly increase and are never used twice, also after a crash.
//   - Rows, keys and values are a pure function of the facts: [Apply].
//   - A disk that fails makes the store not ready and says why. Nothing is
//     acknowledged any more, the process lives, and [Store.Reopen] is the way back.
//   - Opening scans nothing, and no list, no publish and no read of a queue does.
//
// # How it moves
//
//	Publish ──► dedupe ──┐                       ┌─► Committed hook, receipts
//	Commit  ──► check  ──┼─► fold ─► batch ─► sync ─► done(nil)
//	Replay  ──► look   ──┘     │       │
//	(one goroutine: committer) │       └─ what arrives meanwhile: the next batch
//	                           ▼
//	E event   D ids   O open per hour   I by tenant            shared
//	Q ready   R retry + W wake-ups   K parked + B blocked keys ┐
//	L leases  H health   T timelines   X dead letters          ┘ per partition
//
// A row is written once where it stands and single-deleted when it leaves; it
// moves to a key with a fresh sequence, which is the position of the fact that
// moved it. Handing rows out writes nothing per row: a watermark covers a whole
// window. Timelines and counters grow by a merge operator, unread.
//
//	publish            retry                    last failure
//	  ├───────► Q ──────────────► R + W ─────────────┐
//	  │         │ ▲ replay        │                  ▼
//	  │  parked │ └───────────────┼───────────────── X
//	  │         ▼                 │
//	  │         K ──► delivered, canceled: the row is gone,
//	  └► later: R                  its timeline stays until retention
//
// # Where to look
//
//	apply.go, apply_move.go   facts to rows          codec_*.go  rows to bytes
//	commit.go, batch.go       batches and syncs      fuse.go     disks that fail
//	queue.go, wakes.go        what sched reads       retention.go, expunge.go
//	deliveries.go, dead.go    what the API lists     registry*.go  configuration
//
// # What it does not do
//
// It does not decide: due times, jitter, ids, lanes and the order of attempts come
// in with the facts. It replicates nothing: this disk is the system of record. It
// reads no clock to decide what a fact means; the clock only says what retention
// may remove.
package storage
