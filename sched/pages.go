package sched

import (
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// parkedPage is how many parked rows of one key are read at a time. They go one
// after the other, so more would only stand in memory.
const parkedPage = 16

// laneJobLocked reads the next page of a lane.
func (a *actor) laneJobLocked(which delivery.Priority) job {
	l := &a.lanes[which]
	l.busy, l.dirty, l.again = true, false, false
	a.growLocked(l.rows, a.quickLocked(l))
	after, limit := l.after, max(1, a.worthLocked()-l.rows)
	var known map[delivery.Seq]struct{}
	if after < l.high {
		known = a.knownLocked(delivery.PlaceReady)
	}
	var p lanePage
	return job{
		read: func() error {
			p.rows, p.last, p.more = nil, after, true
			for len(p.rows) == 0 && p.more {
				page, err := a.s.queue.Ready(a.num, which, p.last, limit+len(known))
				if err != nil {
					return fmt.Errorf("ready rows: %w", err)
				}
				p.more = len(page) == limit+len(known)
				if len(page) > 0 {
					p.last = page[len(page)-1].Seq
				}
				p.rows = without(page, known)
			}
			if len(p.rows) > limit {
				p.rows, p.last, p.more = p.rows[:limit], p.rows[limit-1].Seq, true
			}
			var err error
			if p.blocked, err = a.lookUpKeys(p.rows); err != nil {
				return err
			}
			p.events, err = a.s.readAhead(p.rows)
			return err
		},
		failed: func() { l.busy, l.disk = false, true },
		merge: func() {
			l.high = max(l.high, p.last)
			if !l.again {
				l.after = p.last
			}
			l.disk = p.more || l.dirty
			a.blockedLocked(p.blocked)
			lease := &delivery.Leased{Place: delivery.PlaceReady, Lane: which, UpTo: p.last}
			l.leased = l.leased || len(p.rows) > 0
			a.leaseLocked(p.rows, p.events, lease, func() { l.busy = false })
			l.page, l.pageAt = l.rows, a.s.time.mono()
		},
	}
}

// lanePage is a page of a lane, as it was read.
type lanePage struct {
	rows    []delivery.Row
	events  pageEvents
	blocked map[delivery.KeyHash]delivery.Seq
	last    delivery.Seq
	more    bool // there may be rows beyond last
}

// growWithin is how quickly half a window must be used up for a larger one to be
// worth its memory.
const growWithin = time.Second

// growLocked doubles the window of an actor that has used it up, or uses it up
// quickly.
func (a *actor) growLocked(left int, quick bool) {
	if a.lanesReadLocked() && (left == 0 || quick) {
		a.window = min(2*a.window, a.s.cfg.WindowRows)
	}
}

// quickLocked reports whether a lane's pages are used up so quickly that larger
// ones pay: each costs a read and a lease of its own.
func (a *actor) quickLocked(l *lane) bool {
	return l.page > 0 && l.page-l.rows >= a.window/2 && a.s.time.mono().sub(l.pageAt) < growWithin && a.s.roomy()
}

// roomy reports whether windows may grow: should all double, memory would be half
// full. What is beyond half of the payloads' room is not read ahead.
func (s *Scheduler) roomy() bool {
	return s.rows.Load() < int64(s.cfg.MaxRows/4) && s.payloads.used.Load() < s.payloads.most/4
}

// lanesReadLocked reports whether any page was read since the window was made.
func (a *actor) lanesReadLocked() bool {
	for i := range a.lanes {
		if a.lanes[i].after > 0 {
			return true
		}
	}
	return !a.retry.afterDue.IsZero()
}

// retryJobLocked reads the next page of rows that are due.
func (a *actor) retryJobLocked() job {
	r := &a.retry
	r.busy, r.dirty, r.again = true, false, false
	a.growLocked(r.rows, false)
	due, seq, limit := r.afterDue, r.afterSeq, max(1, a.worthLocked()-r.rows)
	wall := a.s.wall()
	if r.asOf.After(wall) {
		wall = r.asOf
	}
	var known map[delivery.Seq]struct{}
	if due.Before(r.highDue) || due.Equal(r.highDue) && seq < r.highSeq {
		known = a.knownLocked(delivery.PlaceRetry)
	}
	var p retryPage
	var blocked map[delivery.KeyHash]delivery.Seq
	return job{
		read: func() (err error) {
			if p, err = a.readRetrying(due, seq, wall, limit, known); err != nil {
				return fmt.Errorf("retrying rows: %w", err)
			}
			blocked, err = a.lookUpKeys(p.rows)
			return err
		},
		failed: func() {
			r.busy, r.check = false, true
			r.goBackLocked()
		},
		merge: func() {
			if !r.again {
				r.afterDue, r.afterSeq = p.lastDue, p.lastSeq
			}
			if p.lastDue.After(r.highDue) || p.lastDue.Equal(r.highDue) && p.lastSeq > r.highSeq {
				r.highDue, r.highSeq = p.lastDue, p.lastSeq
			}
			r.check = p.more || r.dirty
			if !p.next.IsZero() {
				a.s.clock.notice(a.num, p.next)
			}
			a.blockedLocked(blocked)
			lease := &delivery.Leased{Place: delivery.PlaceRetry, Due: p.lastDue, UpTo: p.lastSeq}
			r.leased = r.leased || len(p.rows) > 0
			a.leaseLocked(p.rows, pageEvents{}, lease, func() {
				r.busy = false
				r.goBackLocked()
			})
		},
	}
}

// retryPage is a page of rows that are due.
type retryPage struct {
	rows    []delivery.Row
	lastDue time.Time
	lastSeq delivery.Seq
	next    time.Time // the first row that is not due, if the page got there
	more    bool      // it did not: more rows may be due
}

func (a *actor) readRetrying(due time.Time, seq delivery.Seq, wall time.Time, limit int, known map[delivery.Seq]struct{}) (retryPage, error) {
	p := retryPage{lastDue: due, lastSeq: seq, more: true}
	for len(p.rows) == 0 && p.more {
		size := limit + 1 + len(known)
		page, err := a.s.queue.Retrying(a.num, p.lastDue, p.lastSeq, size)
		if err != nil {
			return p, err
		}
		p.more = len(page) == size
		for i, row := range page {
			if row.Due.After(wall) {
				p.next, p.more = row.Due, false
				page = page[:i]
				break
			}
		}
		if len(page) > 0 {
			p.lastDue, p.lastSeq = page[len(page)-1].Due, page[len(page)-1].Seq
		}
		p.rows = without(page, known)
	}
	if len(p.rows) > limit {
		p.rows = p.rows[:limit]
		p.lastDue, p.lastSeq = p.rows[limit-1].Due, p.rows[limit-1].Seq
		p.more, p.next = true, time.Time{}
	}
	return p, nil
}

// lineJobLocked reads the next parked rows of a key whose head is finished.
func (a *actor) lineJobLocked() job {
	key := a.wanting[0]
	a.wanting = a.wanting[1:]
	ln := a.lines[key]
	if ln == nil {
		return job{read: func() error { return nil }, merge: func() {}}
	}
	ln.wanted, ln.busy = false, true
	after, parks, known := ln.after, ln.parks, a.knownLocked(delivery.PlaceParked)
	parking := ln.parking > 0 // on their way: the read may miss them
	limit := min(parkedPage, a.worthLocked())
	var rows []delivery.Row
	var last delivery.Seq
	var more bool
	return job{
		read: func() error {
			page, err := a.s.queue.Parked(a.num, key, after, limit+len(known))
			if err != nil {
				return fmt.Errorf("parked rows: %w", err)
			}
			more, last = len(page) == limit+len(known), after
			if len(page) > 0 {
				last = page[len(page)-1].Seq
			}
			if rows = without(page, known); len(rows) > limit {
				rows, last, more = rows[:limit], rows[limit-1].Seq, true
			}
			return nil
		},
		failed: func() {
			ln.busy = false
			a.wantLocked(ln)
		},
		merge: func() {
			ln.after, ln.parked = last, more || parking || ln.parks != parks
			if len(rows) == 0 && !ln.parked {
				a.staleLocked(ln)
				return
			}
			ln.leased = ln.leased || len(rows) > 0
			lease := &delivery.Leased{Place: delivery.PlaceParked, Key: key, UpTo: last}
			a.leaseLocked(rows, pageEvents{}, lease, func() { ln.busy = false })
			a.wantLocked(ln)
		},
	}
}

// staleLocked: a key is blocked, but nothing is parked behind its finished
// head. The next outcome of the key says so; until then the actor knows.
func (a *actor) staleLocked(ln *line) {
	ln.busy, ln.blocked, ln.stale = false, false, true
	a.unblockedLocked(ln)
	a.nextOfLineLocked(ln)
}

// leaseLocked takes a page of rows into memory. They may be sent when their
// lease is durable; release then clears what was busy. read are the events that
// were read with them.
func (a *actor) leaseLocked(rows []delivery.Row, read pageEvents, lease *delivery.Leased, release func()) {
	if len(rows) == 0 {
		release()
		return
	}
	a.retreating = false
	lease.Lease, lease.Subscriber = a.s.queue.Lease(), a.num
	b := a.newBatch()
	b.facts = append(b.facts, lease)
	b.release, b.leased = release, make([]*item, 0, len(rows))
	wall := a.s.wall()
	for i, row := range rows {
		it := newItem(row, wall)
		if i < len(read.events) && read.events[i] != nil {
			it.held = a.s.payloads.hold(read.events[i], read.era)
		}
		it.prior = a.s.mayHaveBeenSent(row)
		if row.Place == delivery.PlaceRetry && row.Attempts == 0 && !it.prior && row.Due.After(row.EnteredAt) {
			it.row.EnteredAt = row.Due // deliver_at: its age counts from then
		}
		a.enterWindowLocked(it)
		a.leasing.pushBack(it)
		b.leased = append(b.leased, it)
	}
	a.commitLocked(b)
}

// readAheadBytes bounds what is read with one page.
const readAheadBytes = 256 << 10

// pageEvents is what was read with a page of rows: its events, nil where there is none,
// and the era of the payloads in which they were there.
type pageEvents struct {
	events []*delivery.Event
	era    uint64
}

// readAhead reads the events of a page of rows in one go, which costs a third of
// reading them one by one. What another actor holds is shared. It leaves half of
// the room to what is published right now. It runs without the lock.
func (s *Scheduler) readAhead(rows []delivery.Row) (pageEvents, error) {
	const least = 4 // below that there is nothing to gain
	if len(rows) < least || s.payloads.used.Load() > s.payloads.most/2 {
		return pageEvents{}, nil
	}
	out := pageEvents{events: make([]*delivery.Event, len(rows)), era: s.payloads.era.Load()}
	keys := make([]delivery.EventKey, 0, len(rows))
	var at []int // rows of keys
	for i := range rows {
		if out.events[i] = s.payloads.find(rows[i].Event); out.events[i] == nil {
			keys, at = append(keys, rows[i].Event), append(at, i)
		}
	}
	if len(keys) == 0 {
		return out, nil
	}
	events, err := s.queue.EventPage(keys, readAheadBytes)
	if err != nil {
		return pageEvents{}, fmt.Errorf("events of a page: %w", err)
	}
	for i, e := range events {
		out.events[at[i]] = e
	}
	return out, nil
}

// mayHaveBeenSent reports whether a node that died had a row in hand.
func (s *Scheduler) mayHaveBeenSent(row delivery.Row) bool {
	return row.LeasedBy > 0 && row.LeasedBy < s.epoch
}

func newItem(row delivery.Row, wall time.Time) *item {
	it := items.Get().(*item) //nolint:errcheck // the pool's only type
	it.row, it.takenAt = row, wall
	return it
}

// without drops the rows that are in memory already.
func without(page []delivery.Row, known map[delivery.Seq]struct{}) []delivery.Row {
	if len(known) == 0 {
		return page
	}
	out := page[:0]
	for _, row := range page {
		if _, ok := known[row.Seq]; !ok {
			out = append(out, row)
		}
	}
	return out
}

// lookUpKeys asks the queue about keys of a page, when there are more blocked
// keys than the actor knows. It runs without the lock. A key without a line
// whose outcome is settling was just unblocked; the queue may not say so yet.
func (a *actor) lookUpKeys(rows []delivery.Row) (map[delivery.KeyHash]delivery.Seq, error) {
	a.mu.Lock()
	var ask []delivery.KeyHash
	if a.moreLines {
		settling := a.settlingKeysLocked()
		for _, row := range rows {
			if row.Key != 0 && a.lines[row.Key] == nil && !settling[row.Key] {
				ask = append(ask, row.Key)
			}
		}
	}
	a.unlock()
	var blocked map[delivery.KeyHash]delivery.Seq
	for _, key := range ask {
		first, ok, err := a.s.queue.Blocked(a.num, key)
		if err != nil {
			return nil, fmt.Errorf("blocked key: %w", err)
		}
		if ok {
			if blocked == nil {
				blocked = map[delivery.KeyHash]delivery.Seq{}
			}
			blocked[key] = first
		}
	}
	return blocked, nil
}

// blockedLocked learns of keys that are blocked. One that has rows in memory
// already is known better.
func (a *actor) blockedLocked(blocked map[delivery.KeyHash]delivery.Seq) {
	for key, first := range blocked {
		if a.lines[key] != nil {
			continue
		}
		ln := a.lineLocked(key)
		ln.blocked, ln.head, ln.where, ln.parked = true, first, headRetry, true
	}
}

func (a *actor) settlingKeysLocked() map[delivery.KeyHash]bool {
	keys := map[delivery.KeyHash]bool{}
	for it := a.settling.head; it != nil; it = it.next {
		keys[it.row.Key] = true
	}
	return keys
}

// trimLinesLocked keeps the number of lines bounded: keys whose head waits in
// PlaceRetry are looked up again when a row of theirs comes. What is not durable
// could not be looked up, and stays; and nothing is forgotten while rows are on
// their way into memory that count on what was known when they set out.
func (a *actor) trimLinesLocked() {
	if len(a.lines) <= 2*a.s.lineLimit || a.loading || a.promised > 0 || a.leasing.n > 0 {
		return
	}
	settling := a.settlingKeysLocked()
	for key, ln := range a.lines {
		if len(a.lines) <= a.s.lineLimit {
			return
		}
		if ln.blocked && ln.where == headRetry && ln.owner == nil && ln.waiters.n == 0 &&
			ln.parking == 0 && !ln.busy && !settling[key] {
			delete(a.lines, key)
			a.moreLines = true
		}
	}
}
