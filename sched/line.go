package sched

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// headPlace says where the head of a blocked key stands.
type headPlace uint8

const (
	// headRetry: in PlaceRetry. Everything else of the key waits for it.
	headRetry headPlace = iota
	// headGone: it is finished. Parked rows go next, in order; ready ones are
	// parked behind them.
	headGone
)

// line is an ordering key that has rows in memory, or is blocked. It is a state
// of the actor, guarded by its lock.
//
//	free ──head fails──► blocked, headRetry ──head finishes──► headGone ──last parked row──► free
//	  │                        ▲                                  │ │         finishes
//	  │                        └──────── a parked row fails ──────┘ │
//	  └──too many wait in memory: parked────────────────────────────►
type line struct {
	key     delivery.KeyHash
	owner   *item    // the one row that is ready or in flight
	waiters itemList // rows in memory behind it: ready ones, or parked ones while blocked
	blocked bool     // the key has a head (B row)
	head    delivery.Seq
	where   headPlace // with blocked
	event   delivery.EventKey

	parking int          // rows on their way to PlaceParked
	parks   int          // how many went there in all
	parked  bool         // rows beyond after may stand in PlaceParked
	after   delivery.Seq // parked rows up to here are in memory, or done
	busy    bool         // parked rows are read, or wait for their lease
	wanted  bool         // it is in the actor's wanting
	leased  bool
	// stale: the key was blocked, and nothing stands behind the head any more, but
	// no fact has said so. The next one does.
	stale bool
}

// holdUp is a head that all of a strict subscriber waited for.
type holdUp struct {
	by    delivery.EventKey // zero = the head failed before the actor was made
	until time.Time         // wall; when it was finished
}

// lineLocked returns the line of a key.
func (a *actor) lineLocked(key delivery.KeyHash) *line {
	ln := a.lines[key]
	if ln == nil {
		if a.lines == nil {
			a.lines = map[delivery.KeyHash]*line{}
		}
		ln = &line{key: key}
		a.lines[key] = ln
	}
	return ln
}

// tidyLocked forgets a line that says nothing.
func (a *actor) tidyLocked(ln *line) {
	if ln.owner == nil && ln.waiters.n == 0 && !ln.blocked && ln.parking == 0 && !ln.stale && !ln.wanted {
		delete(a.lines, ln.key)
	}
}

// unload drops the line's rows from memory; see actor.unloadLocked, which drops
// an owner that is ready.
func (ln *line) unload(a *actor) {
	if it := ln.owner; it != nil && it.list != &a.flight {
		ln.owner = nil
	}
	a.dropAllLocked(&ln.waiters)
	// Parked rows that were settled since are gone, or filtered as known.
	ln.after, ln.parked, ln.busy = 0, ln.blocked, false
	a.wantLocked(ln)
	a.tidyLocked(ln)
}

// strictBlockedLocked reports whether the whole subscriber waits for one head.
func (a *actor) strictBlockedLocked() bool {
	if !a.open || !a.strictLocked() {
		return false
	}
	ln := a.lines[delivery.StrictKey]
	return ln != nil && ln.blocked
}

// parkLocked moves a row out of the way, behind the head of its key.
func (a *actor) parkLocked(ln *line, it *item, b *batch) *delivery.Moved {
	lease, now := a.s.queue.Lease(), a.s.wall()
	m := &delivery.Moved{
		Lease: lease, Row: it.row, At: now, Next: delivery.NextParked, Reason: delivery.ReasonOrder,
		Note: "waits for an earlier event of its ordering key",
	}
	if !ln.event.IsZero() {
		m.Note = "waits for event " + ln.event.String() + " of its ordering key"
	}
	a.leaveWindowLocked(it)
	b.move(it, m)
	ln.parking++
	ln.parks++
	ln.parked = true
	return m
}

// parkedLocked: a row of the key is visible in PlaceParked.
func (a *actor) parkedLocked(key delivery.KeyHash) {
	ln := a.lines[key]
	if ln == nil {
		return
	}
	ln.parking--
	a.wantLocked(ln)
}

// wantLocked asks for the line's parked rows when it is their turn.
func (a *actor) wantLocked(ln *line) {
	if ln.wanted || !ln.blocked || ln.where != headGone || ln.owner != nil || ln.waiters.n > 0 ||
		ln.parking > 0 || ln.busy {
		return
	}
	ln.wanted = true
	a.wanting = append(a.wanting, ln.key)
}

// headFailedLocked: the owner goes to PlaceRetry and blocks its key. What waits
// in memory is parked, in order; rows that are parked already stay there; a
// strict subscriber has nothing that could go past, so its rows stay where they
// are.
func (a *actor) headFailedLocked(ln *line, it *item, b *batch) {
	ln.owner, ln.blocked, ln.where = nil, true, headRetry
	ln.head, ln.event, ln.stale = it.row.First, it.row.Event, false
	if a.strictLocked() && ln.key == delivery.StrictKey {
		a.unloadLocked()
		return
	}
	for ln.waiters.head != nil {
		next := ln.waiters.head
		if next.row.Place == delivery.PlaceParked {
			ln.after = min(ln.after, next.row.Seq-1)
			ln.parked = true
			a.dropLocked(next)
			continue
		}
		a.parkLocked(ln, next, b)
	}
}

// headDoneLocked: the owner is finished. It reports whether its fact is to
// unblock the key. mayPark allows other rows' facts in the same commit.
func (a *actor) headDoneLocked(ln *line, b *batch, mayPark bool) (unblock bool) {
	ln.owner = nil
	unblock = ln.stale
	ln.stale = false
	if ln.blocked {
		if ln.waiters.n > 0 || ln.parking > 0 || ln.parked {
			ln.where, ln.event = headGone, delivery.EventKey{}
		} else {
			ln.blocked, unblock = false, true
			a.unblockedLocked(ln)
		}
	} else if mayPark && a.crowdedLocked(ln) {
		a.demoteLocked(ln, b)
	}
	a.nextOfLineLocked(ln)
	return unblock
}

// nextOfLineLocked gives the line's place to its next row.
func (a *actor) nextOfLineLocked(ln *line) {
	if ln.owner != nil || ln.blocked && ln.where == headRetry {
		return
	}
	if it := ln.waiters.head; it != nil {
		it.leave()
		ln.owner = it
		a.readyLocked(it, true)
		return
	}
	a.wantLocked(ln)
	a.tidyLocked(ln)
}

// unblockedLocked: rows of a strict subscriber that were left on disk may go.
func (a *actor) unblockedLocked(ln *line) {
	event := ln.event
	ln.event = delivery.EventKey{}
	if !a.strictLocked() || ln.key != delivery.StrictKey {
		return
	}
	a.held = holdUp{by: event, until: a.s.wall()}
	for i := range a.lanes {
		a.lanes[i].rewind()
	}
	a.retry.rewind()
}

// crowdedLocked reports whether a key that is not blocked fills so much of the
// window that other rows behind it cannot come in.
func (a *actor) crowdedLocked(ln *line) bool {
	return ln.waiters.n >= max(2, a.s.cfg.WindowRows/4) && a.lanes[delivery.PriorityNormal].disk && !a.strictLocked()
}

// demoteLocked parks the waiting rows of a busy key, so that it holds up nobody
// else. It happens between two of its rows: were one in flight, it could come
// back after a crash behind rows that follow it.
func (a *actor) demoteLocked(ln *line, b *batch) {
	first := ln.waiters.head
	ln.blocked, ln.where, ln.head, ln.event = true, headGone, first.row.First, delivery.EventKey{}
	// They wait for their turn, not for a head: nothing to tell.
	m := a.parkLocked(ln, first, b)
	m.Block, m.Note = true, ""
	for ln.waiters.head != nil {
		a.parkLocked(ln, ln.waiters.head, b).Note = ""
	}
}
