package sched

import (
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// SubscriberState is what the scheduler knows about a subscriber.
type SubscriberState struct {
	Health   delivery.Health
	InFlight int
	Ready    int             // rows in memory that could be sent
	Slow     bool            // charged to the slow budget
	Latency  time.Duration   // of recent attempts; 0 = none
	Waiting  delivery.Reason // why nothing more is sent right now; none = nothing waits
	Until    time.Time       // with breaker_open and rate_limited: until when
	NextDue  time.Time       // of the first row that waits for a due time; zero = none
}

// Status describes a subscriber. One that is not in memory has no work that
// could be done now: what waits for a due time is on disk.
func (s *Scheduler) Status(sub delivery.SubscriberNum) (SubscriberState, error) {
	st, known := s.liveStatus(sub)
	if !known {
		var err error
		if st, err = s.storedStatus(sub); err != nil {
			return SubscriberState{}, fmt.Errorf("status of subscriber %d: %w", sub, err)
		}
	}
	rows, err := s.queue.Retrying(sub, time.Time{}, 0, 1)
	if err != nil {
		return SubscriberState{}, fmt.Errorf("status of subscriber %d: %w", sub, err)
	}
	if len(rows) > 0 {
		st.NextDue = rows[0].Due
		if st.Waiting == delivery.ReasonNone && st.Ready == 0 && st.InFlight == 0 {
			st.Waiting = delivery.ReasonDue
		}
	}
	return st, nil
}

// storedStatus is about a subscriber that is not in memory.
func (s *Scheduler) storedStatus(num delivery.SubscriberNum) (SubscriberState, error) {
	sub, err := s.dir.Subscriber(num)
	if err != nil {
		return SubscriberState{}, err
	}
	h, _, err := s.queue.Health(num)
	if err != nil {
		return SubscriberState{}, err
	}
	st := SubscriberState{Health: h}
	switch {
	case sub.Status == delivery.SubscriberPaused:
		st.Waiting = delivery.ReasonPaused
	case sub.Status == delivery.SubscriberDisabled:
		st.Waiting = delivery.ReasonDisabled
	case h.Breaker != delivery.BreakerClosed:
		st.Waiting, st.Until = delivery.ReasonBreakerOpen, h.OpenUntil
	}
	return st, nil
}

func (s *Scheduler) liveStatus(sub delivery.SubscriberNum) (SubscriberState, bool) {
	a := s.lockExisting(sub)
	if a == nil {
		return SubscriberState{}, false
	}
	defer a.unlock()
	if !a.open {
		return SubscriberState{}, false
	}
	return a.statusLocked(), true
}

func (a *actor) statusLocked() SubscriberState {
	st := SubscriberState{
		Health: a.Health, InFlight: a.flight.n, Ready: a.readyRowsLocked(), Slow: a.class() == classSlow, Latency: a.latency,
	}
	wall, now := a.s.time.read()
	st.Waiting = a.waitingLocked(now)
	switch st.Waiting {
	case delivery.ReasonBreakerOpen:
		st.Until = wall.Add(a.openAt.sub(now))
	case delivery.ReasonRateLimited:
		st.Until = wall.Add(a.limitedUntil.sub(now))
	}
	return st
}

// waitingLocked names what keeps the next row from being sent.
func (a *actor) waitingLocked(now instant) delivery.Reason {
	switch {
	case a.sub.Status == delivery.SubscriberPaused:
		return delivery.ReasonPaused
	case a.sub.Status == delivery.SubscriberDisabled, a.disabling:
		return delivery.ReasonDisabled
	case a.Breaker == delivery.BreakerOpen:
		return delivery.ReasonBreakerOpen
	case a.readyRowsLocked() == 0:
		for _, ln := range a.lines {
			if ln.blocked || ln.waiters.n > 0 {
				return delivery.ReasonOrder
			}
		}
		return delivery.ReasonNone
	case now.before(a.limitedUntil):
		return delivery.ReasonRateLimited
	case a.flight.n >= a.concurrencyLocked():
		return delivery.ReasonConcurrency
	case a.queued:
		return a.s.dispatch.bounded(a, now)
	default:
		return delivery.ReasonNone
	}
}

// Pending is a delivery in the scheduler's memory.
type Pending struct {
	State   delivery.State  // leased: it may be sent any moment; attempted: it is being sent
	Waiting delivery.Reason // with leased: what it waits for
	Attempt int             // the number of its current or next attempt
}

// InFlight tells about a delivery that is in memory; false if it is not.
func (s *Scheduler) InFlight(event delivery.EventKey, sub delivery.SubscriberNum) (Pending, bool) {
	a := s.lockExisting(sub)
	if a == nil {
		return Pending{}, false
	}
	defer a.unlock()
	if it := findEvent(&a.flight, event); it != nil {
		return Pending{State: delivery.StateAttempted, Attempt: it.number()}, true
	}
	if !a.open {
		return Pending{}, false
	}
	for _, ln := range a.lines {
		if it := findEvent(&ln.waiters, event); it != nil {
			return Pending{State: delivery.StateLeased, Waiting: delivery.ReasonOrder, Attempt: it.number()}, true
		}
	}
	for i := range a.ready {
		if it := findEvent(&a.ready[i], event); it != nil {
			return Pending{State: delivery.StateLeased, Waiting: a.waitingLocked(s.time.mono()), Attempt: it.number()}, true
		}
	}
	return Pending{}, false
}

func findEvent(l *itemList, event delivery.EventKey) *item {
	for it := l.head; it != nil; it = it.next {
		if it.row.Event == event {
			return it
		}
	}
	return nil
}

// Stats is a reading of the scheduler's gauges.
type Stats struct {
	Actors       int   // subscribers in memory
	InFlight     int   // attempts in flight, slow ones included
	Slow         int   // attempts in flight that are charged to the slow budget
	Reserved     int   // slots that are set aside for subscribers that reserve them
	Promised     int   // slots that subscribers and tenants reserve; more than may be are scaled down
	Kept         int   // free slots that nobody else may take now
	Contending   int   // actors that wait for a slot
	Rows         int64 // rows in windows
	PayloadBytes int64 // payloads held in memory
	Uncommitted  int64 // outcomes that are not durable
	Wakes        int   // near deadlines in memory
	Stalled      bool  // the queue refused a commit; nothing is sent
}

// Stats reads the gauges.
func (s *Scheduler) Stats() Stats {
	d := s.dispatch
	d.mu.Lock()
	inFlight, slow, own := d.totalLocked(), d.inFlight[classSlow], d.bound[classOwn]
	promised, kept := d.promised, d.keptLocked()
	d.mu.Unlock()
	return Stats{
		Actors: int(s.inMemory.Load()), InFlight: inFlight, Slow: slow, Reserved: own, Promised: promised, Kept: kept,
		Contending: int(d.contending()),
		Rows:       s.rows.Load(), PayloadBytes: s.payloads.used.Load(),
		Uncommitted: s.uncommitted.Load(), Wakes: s.clock.count(), Stalled: s.stalled.Load(),
	}
}

// MaxInFlight is the node's bound of attempts in flight.
func (s *Scheduler) MaxInFlight() int {
	s.dispatch.mu.Lock()
	defer s.dispatch.mu.Unlock()
	return s.dispatch.most
}

// ReservedForTenants is what the records of tenants reserve, without what their
// subscribers do.
func (s *Scheduler) ReservedForTenants() map[delivery.TenantNum]int {
	d := s.dispatch
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[delivery.TenantNum]int, len(d.reserving))
	for _, t := range d.reserving {
		out[t.num] = t.record.Load().Reserved
	}
	return out
}
