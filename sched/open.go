package sched

import (
	"errors"
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// lineLimit is how many blocked keys an actor knows at a time; the others are
// looked up row by row. allKeys bounds the list that is read once after a
// restart.
const (
	lineLimit = 1024
	allKeys   = 1 << 20
	headPage  = 512
)

// opened is what an actor starts from.
type opened struct {
	sub       *delivery.Subscriber // nil = there is no such subscriber
	tenant    *tenant
	health    delivery.Health
	heads     map[delivery.KeyHash]head
	moreLines bool
}

type head struct {
	first delivery.Seq
	where headPlace
}

// openJobLocked reads what an actor starts from. What this process remembers of
// the subscriber need not be read.
func (a *actor) openJobLocked() job {
	var o opened
	m, unclean := a.memo, a.unclean
	return job{
		always: true,
		read: func() (err error) {
			o, err = a.s.readOpened(a.num, m, unclean)
			return err
		},
		merge: func() {
			a.joinLocked(o.tenant)
			if o.sub == nil {
				a.forgetLocked()
			}
			if !a.forgotten {
				a.openLocked(o)
			}
		},
	}
}

func (s *Scheduler) readOpened(num delivery.SubscriberNum, m memo, unclean bool) (o opened, err error) {
	sub, err := s.dir.Subscriber(num)
	if errors.Is(err, delivery.ErrNoSubscriber) || err == nil && sub.Status == delivery.SubscriberDeleted {
		return opened{}, nil
	}
	if err != nil {
		return o, fmt.Errorf("subscriber %d: %w", num, err)
	}
	if m&memoKnown == 0 || m&memoSick != 0 {
		if o.health, _, err = s.queue.Health(num); err != nil {
			return o, fmt.Errorf("health of subscriber %d: %w", num, err)
		}
	}
	if m&memoKnown == 0 || m&memoKeys != 0 {
		if o.heads, o.moreLines, err = s.readHeads(num, unclean); err != nil {
			return o, fmt.Errorf("blocked keys of subscriber %d: %w", num, err)
		}
	}
	if o.tenant, err = s.tenantOf(sub.Tenant); err != nil {
		return o, err
	}
	o.sub = sub
	return o, nil
}

// tenantOf returns a tenant for one more actor.
func (s *Scheduler) tenantOf(num delivery.TenantNum) (*tenant, error) {
	if t := s.dispatch.joinTenant(num); t != nil {
		return t, nil
	}
	record, err := s.dir.Tenant(num)
	if err != nil {
		return nil, fmt.Errorf("tenant %d: %w", num, err)
	}
	return s.dispatch.addTenant(record, 1), nil
}

// readHeads lists blocked keys. While this process serves a subscriber their
// heads stand in PlaceRetry; after a restart, or a failed commit, a head may be
// finished while rows are parked behind it, so the heads are looked for, once.
func (s *Scheduler) readHeads(num delivery.SubscriberNum, unclean bool) (map[delivery.KeyHash]head, bool, error) {
	limit := s.lineLimit + 1
	if unclean {
		limit = allKeys
	}
	keys, err := s.queue.BlockedKeys(num, limit)
	if err != nil || len(keys) == 0 {
		return nil, false, err
	}
	heads := make(map[delivery.KeyHash]head, len(keys))
	for _, key := range keys {
		first, ok, err := s.queue.Blocked(num, key)
		if err != nil {
			return nil, false, err
		}
		if ok {
			heads[key] = head{first: first}
		}
	}
	if unclean {
		if err := s.findHeads(num, heads); err != nil {
			return nil, false, err
		}
	}
	more := len(heads) > s.lineLimit
	trimHeads(heads, s.lineLimit)
	return heads, more, nil
}

// findHeads marks the heads that do not stand in PlaceRetry.
func (s *Scheduler) findHeads(num delivery.SubscriberNum, heads map[delivery.KeyHash]head) error {
	missing := len(heads)
	for key, h := range heads {
		h.where = headGone
		heads[key] = h
	}
	var due time.Time
	var seq delivery.Seq
	for missing > 0 {
		rows, err := s.queue.Retrying(num, due, seq, headPage)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if h, ok := heads[r.Key]; ok && r.Key != 0 && h.first == r.First && h.where == headGone {
				heads[r.Key] = head{first: h.first, where: headRetry}
				missing--
			}
			due, seq = r.Due, r.Seq
		}
		if len(rows) < headPage {
			break
		}
	}
	return nil
}

// trimHeads keeps what an actor has room for: first of all the keys whose
// parked rows are to go on, since only they would be missed.
func trimHeads(heads map[delivery.KeyHash]head, limit int) {
	for key, h := range heads {
		if len(heads) <= limit {
			return
		}
		if h.where == headRetry {
			delete(heads, key)
		}
	}
}

// joinLocked makes the actor one of its tenant's, which it leaves when it is
// dismissed.
func (a *actor) joinLocked(t *tenant) {
	switch {
	case t == nil:
	case a.tenant == nil:
		a.tenant = t
	default:
		a.s.dispatch.leaveTenant(t) // counted before the actor started over
	}
}

// openLocked makes a shell an actor.
func (a *actor) openLocked(o opened) {
	a.sub, a.open = o.sub, true
	a.shareLocked()
	a.sweepAt = 0
	a.Health = o.health
	a.moreLines = o.moreLines
	for key, h := range o.heads {
		ln := a.lineLocked(key)
		ln.blocked, ln.head, ln.where, ln.parked = true, h.first, h.where, true
		a.wantLocked(ln)
	}
	if a.memo&memoKnown == 0 || a.memo&memoAsleep != 0 {
		// What is on disk was not attended to.
		for i := range a.lanes {
			a.lanes[i].rewind()
		}
		a.retry.rewind()
	}
	a.openBreakerLocked()
	if a.urlBefore != 0 && a.urlBefore != hashURL(o.sub.URL) {
		a.newURLLocked()
	}
}

// openBreakerLocked turns a stored wait into one on monotonic time. A clock
// that was set back does not prolong it.
func (a *actor) openBreakerLocked() {
	if a.Breaker == delivery.BreakerClosed {
		return
	}
	wall, now := a.s.time.read()
	most := a.s.breaker.Load().OpenMax
	most += most / 10
	a.Breaker = delivery.BreakerOpen
	a.openAt = now.add(min(max(0, a.OpenUntil.Sub(wall)), most))
	a.allowance = 1
}

// recordJobLocked reads the record again.
func (a *actor) recordJobLocked() job {
	var sub *delivery.Subscriber
	kicks := a.kicks
	return job{
		always: true,
		read: func() error {
			var err error
			sub, err = a.s.dir.Subscriber(a.num)
			if errors.Is(err, delivery.ErrNoSubscriber) {
				return nil
			}
			return err
		},
		merge: func() {
			a.reread = a.kicks != kicks
			a.recordLocked(sub)
		},
	}
}

func (a *actor) recordLocked(sub *delivery.Subscriber) {
	if sub == nil || sub.Status == delivery.SubscriberDeleted {
		a.forgetLocked()
		return
	}
	old := a.sub
	a.sub = sub
	a.shareLocked()
	if sub.Version != old.Version {
		a.disabling = false
	}
	if sub.URL != old.URL {
		a.newURLLocked()
	}
	a.sweepAt = 0
	if !a.servingLocked() {
		a.unloadLocked()
		return
	}
	for i := range a.lanes {
		a.lanes[i].rewind()
	}
	a.retry.rewind()
}

// newURLLocked: what was learnt about the old receiver is not about the new one.
func (a *actor) newURLLocked() {
	wall, now := a.s.time.read()
	a.urlChanged = wall
	a.latency = 0
	a.standing.Store(int32(classNew))
	if a.Breaker == delivery.BreakerOpen {
		a.openAt = now
	}
}
