package sched

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// retryWindow is the window over rows that wait for a due time.
type retryWindow struct {
	afterDue time.Time // rows up to (afterDue, afterSeq) are in memory, or done
	afterSeq delivery.Seq
	highDue  time.Time // the highest cursor so far: up to here rows may be known
	highSeq  delivery.Seq
	check    bool      // rows beyond the cursor may be due
	dirty    bool      // set while a page is read: there may be more than it saw
	again    bool      // set while a page is read: begin from the start after it
	busy     bool      // a page is read, or waits for its lease
	leased   bool      // a lease of a page stands
	rows     int       // rows in memory that are not in flight
	asOf     time.Time // rows at or before are due, whatever the wall clock says
	rewound  time.Time // a row came below the cursor while a page was read
}

// wakeLocked: the wake of a row with this due time fired.
func (r *retryWindow) wakeLocked(due time.Time) {
	r.check, r.dirty = true, true
	if due.After(r.asOf) {
		r.asOf = due
	}
}

// noticeLocked: a row with this due time became visible. When the cursor is
// already past it, the cursor goes back; the wake asks for the read.
func (r *retryWindow) noticeLocked(due time.Time) {
	if due.After(r.afterDue) && !r.busy {
		return
	}
	if r.rewound.IsZero() || due.Before(r.rewound) {
		r.rewound = due
	}
	if !r.busy {
		r.goBackLocked()
	}
}

// goBackLocked moves the cursor before a row that came below it.
func (r *retryWindow) goBackLocked() {
	if !r.rewound.IsZero() && !r.rewound.After(r.afterDue) {
		r.afterDue, r.afterSeq = r.rewound, 0
	}
	r.rewound = time.Time{}
}

// rewind forgets how far was read.
func (r *retryWindow) rewind() {
	r.afterDue, r.afterSeq = time.Time{}, 0
	r.check, r.dirty, r.again = true, true, true
}

// takeLocked puts a row that may be sent into its place: into the ready queue,
// or behind another row of its key. It returns the line that the row is to be
// parked behind, if it has to get out of the way.
func (a *actor) takeLocked(it *item) (park *line) {
	ln := a.lines[it.row.Key]
	v := orderView{strict: a.strictLocked() && it.row.Key == delivery.StrictKey}
	if ln != nil {
		v.blocked, v.head, v.owned = ln.blocked, ln.head, ln.owner != nil
	}
	switch orderRow(it.row.Key, it.row.Place, it.row.First, v) {
	case orderGo, orderHead:
		if it.row.Key != 0 {
			a.lineLocked(it.row.Key).owner = it
		}
		a.readyLocked(it, false)
	case orderWait:
		ln.waiters.pushBack(it)
	case orderPark:
		return ln
	case orderHold:
		// Found again when the head is finished; see unblockedLocked.
		a.dropLocked(it)
	}
	return nil
}

// takeAllLocked takes rows in their order, and parks those that have to be.
func (a *actor) takeAllLocked(rows ...*item) {
	var b *batch
	for _, it := range rows {
		it.leave()
		ln := a.takeLocked(it)
		if ln == nil {
			continue
		}
		if b == nil {
			b = a.newBatch()
		}
		a.parkLocked(ln, it, b)
	}
	if b != nil {
		a.commitLocked(b)
	}
}

// readyLocked makes a row claimable.
func (a *actor) readyLocked(it *item, front bool) {
	if it.readyAt == 0 {
		it.readyAt = a.s.time.mono()
	}
	if front {
		a.ready[it.row.Lane].pushFront(it)
	} else {
		a.ready[it.row.Lane].pushBack(it)
	}
}

// enterWindowLocked counts a row in memory.
func (a *actor) enterWindowLocked(it *item) {
	if it.windowed {
		return
	}
	it.windowed = true
	a.s.rows.Add(1)
	switch it.row.Place {
	case delivery.PlaceReady:
		a.lanes[it.row.Lane].rows++
	case delivery.PlaceRetry:
		a.retry.rows++
	}
}

// leaveWindowLocked ends that.
func (a *actor) leaveWindowLocked(it *item) {
	if !it.windowed {
		return
	}
	it.windowed = false
	a.s.rows.Add(-1)
	switch it.row.Place {
	case delivery.PlaceReady:
		a.lanes[it.row.Lane].rows--
	case delivery.PlaceRetry:
		a.retry.rows--
	}
}

// putBackLocked drops a row from memory: it stands on disk, and is found there
// again.
func (a *actor) putBackLocked(it *item) {
	ln := a.lines[it.row.Key]
	if ln != nil && ln.owner == it {
		ln.owner = nil
	}
	switch it.row.Place {
	case delivery.PlaceReady:
		a.lanes[it.row.Lane].rewind()
	case delivery.PlaceRetry:
		a.retry.rewind()
	case delivery.PlaceParked:
		if ln != nil {
			ln.parked, ln.after = true, min(ln.after, it.row.Seq-1)
			a.wantLocked(ln)
		}
	}
	a.dropLocked(it)
}

// dropLocked ends an item whose row stands on disk.
func (a *actor) dropLocked(it *item) {
	a.leaveWindowLocked(it)
	it.leave()
	it.free()
}

// unloadLocked throws the window away: every row that is not in flight or
// settling stands on disk and is read again when it can be sent. The breaker,
// pauses and failed commits use it, so that the queue is the one truth about
// what comes first.
func (a *actor) unloadLocked() {
	a.generation++
	for _, ln := range a.lines {
		ln.unload(a) // first: it looks at owners that are dropped next
	}
	for i := range a.ready {
		a.dropAllLocked(&a.ready[i])
		a.lanes[i].rewind()
		a.lanes[i].busy = false
	}
	a.dropAllLocked(&a.leasing)
	a.retry.rewind()
	a.retry.busy, a.retry.rewound = false, time.Time{}
	a.window, a.retreating = firstWindow, true
}

func (a *actor) dropAllLocked(l *itemList) {
	for l.head != nil {
		a.dropLocked(l.head)
	}
}

// retreatLocked takes back the leases of pages: the rows in them were not sent,
// and must not count as "may have been sent" should the node die. Rows in
// flight need theirs, so it waits for them; a new page makes it needless.
func (a *actor) retreatLocked() {
	if !a.retreating || a.flight.n > 0 || a.s.stalled.Load() {
		return
	}
	a.retreating = false
	b := a.newBatch()
	lease := a.s.queue.Lease()
	for i := range a.lanes {
		if l := &a.lanes[i]; l.leased {
			l.leased = false
			b.facts = append(b.facts, &delivery.Leased{
				Lease: lease, Subscriber: a.num, Place: delivery.PlaceReady, Lane: delivery.Priority(i), //nolint:gosec // three lanes
			})
		}
	}
	if a.retry.leased {
		a.retry.leased = false
		b.facts = append(b.facts, &delivery.Leased{Lease: lease, Subscriber: a.num, Place: delivery.PlaceRetry})
	}
	for _, ln := range a.lines {
		if ln.leased {
			ln.leased = false
			b.facts = append(b.facts, &delivery.Leased{
				Lease: lease, Subscriber: a.num, Place: delivery.PlaceParked, Key: ln.key,
			})
		}
	}
	a.commitLocked(b)
}

// knownLocked lists the rows of a place in memory, for pages that are read
// again from before them.
func (a *actor) knownLocked(place delivery.Place) map[delivery.Seq]struct{} {
	known := map[delivery.Seq]struct{}{}
	add := func(l *itemList) {
		for it := l.head; it != nil; it = it.next {
			if it.row.Place == place {
				known[it.row.Seq] = struct{}{}
			}
		}
	}
	for i := range a.ready {
		add(&a.ready[i])
	}
	add(&a.leasing)
	add(&a.flight)
	add(&a.settling)
	for _, ln := range a.lines {
		add(&ln.waiters)
	}
	return known
}
