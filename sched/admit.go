package sched

import "github.com/dispatcher-engine/dispatcher/delivery"

// Admit decides which deliveries of a publish go straight into memory, and sets
// Target.Leased accordingly. It is called in the order of positions, before the
// publish is committed, and followed by Committed or Aborted.
func (s *Scheduler) Admit(p *delivery.Published) {
	for i := range p.Targets {
		t := &p.Targets[i]
		t.Leased = false
		if !t.Due.IsZero() {
			continue // goes to PlaceRetry
		}
		a := s.lock(t.Subscriber)
		a.openKnownLocked()
		t.Leased = a.admitLocked(t)
		a.unlock()
	}
}

// openKnownLocked opens a shell of a subscriber of which everything is known, so
// that its next delivery need not touch the queue. The records come from the
// directory's cache, where the publish has just used them; nobody but this
// publish can be waiting for the lock of a shell.
func (a *actor) openKnownLocked() {
	if a.open || a.loading || a.reset || !a.memo.clean() || a.s.halted() {
		return
	}
	o, err := a.s.readOpened(a.num, a.memo, false)
	if err != nil || o.sub == nil {
		return // the loader finds out what is wrong
	}
	a.joinLocked(o.tenant)
	a.openLocked(o)
}

// admitLocked reports whether a row may go straight into memory: the actor has
// room, and nothing older of the lane is on disk or on its way there.
func (a *actor) admitLocked(t *delivery.Target) bool {
	l := &a.lanes[t.Lane]
	a.promised++
	if a.s.halted() || !a.servingLocked() || a.Breaker != delivery.BreakerClosed || a.reread ||
		l.disk || l.busy || l.coming > 0 || t.Key != 0 && a.moreLines || a.strictBlockedLocked() ||
		l.rows+l.reserved >= a.s.cfg.WindowRows || a.s.rows.Load() >= int64(a.s.cfg.MaxRows) {
		l.coming++
		return false
	}
	l.reserved++
	return true
}

// Committed tells that a publish is durable at a position, and visible in reads.
func (s *Scheduler) Committed(p *delivery.Published, at delivery.Position) {
	var held *payload
	for i := range p.Targets {
		t := &p.Targets[i]
		if !t.Due.IsZero() {
			s.noticeRetry(t)
			continue
		}
		if t.Leased && held == nil {
			held = s.payloads.hold(p.Event, s.payloads.era.Load())
		}
		a := s.lock(t.Subscriber)
		a.committedLocked(p, t, at, held)
		a.advanceLocked()
		a.unlock()
	}
	held.release()
	s.pump()
}

// committedLocked resolves what Admit promised.
func (a *actor) committedLocked(p *delivery.Published, t *delivery.Target, at delivery.Position, held *payload) {
	l := &a.lanes[t.Lane]
	a.promised--
	a.wanted = true
	if !t.Leased {
		l.coming--
		l.disk, l.dirty = true, true
		if a.sweepAt < 0 {
			a.sweepAt = 0 // it is held, and was empty
		}
		return
	}
	l.reserved--
	if l.disk || l.busy || !a.servingLocked() || a.s.halted() {
		l.disk, l.dirty = true, true // the window was thrown away meanwhile
		return
	}
	row := delivery.Row{
		Subscriber: a.num, Event: p.Event.Key, Place: delivery.PlaceReady, Lane: t.Lane, Seq: at, First: at,
		Key: t.Key, LeasedBy: p.Lease.Epoch, EnteredAt: p.Event.AcceptedAt(),
	}
	it := newItem(row, a.s.wall())
	it.fast = true
	if held != nil {
		held.refs.Add(1)
		it.held = held
	}
	l.after, l.high = at, max(l.high, at)
	a.enterWindowLocked(it)
	a.takeAllLocked(it)
}

// Aborted tells that a publish was not committed.
func (s *Scheduler) Aborted(p *delivery.Published) {
	for i := range p.Targets {
		t := &p.Targets[i]
		if !t.Due.IsZero() {
			continue
		}
		a := s.lock(t.Subscriber)
		a.promised--
		if l := &a.lanes[t.Lane]; t.Leased {
			l.reserved--
		} else {
			l.coming--
		}
		a.advanceLocked()
		a.unlock()
	}
	s.pump()
}

// noticeRetry is told of a delivery that is to be made later.
func (s *Scheduler) noticeRetry(t *delivery.Target) {
	if a := s.lockExisting(t.Subscriber); a != nil {
		a.retry.noticeLocked(t.Due)
		a.unlock()
	}
	s.clock.notice(t.Subscriber, t.Due)
}
