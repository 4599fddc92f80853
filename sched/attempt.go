package sched

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// pump gives slots to whoever may run, until nobody may. Each gets a worker.
func (s *Scheduler) pump() {
	for s.dispatch.mayStart() {
		a, it, sl := s.nextWork()
		if a == nil {
			return
		}
		go s.work(a, it, sl)
	}
}

// passOn sees to it that whoever was queued by a worker, which takes one row for
// its own slot and no more, gets one of the slots that are free: it may have been
// queued after everybody else had looked.
func (s *Scheduler) passOn() {
	if s.dispatch.mayStart() && s.open() {
		go s.pump()
	}
}

// nextWork takes the next actor from the fair queue, and its row.
func (s *Scheduler) nextWork() (*actor, *item, *slot) {
	for {
		wall, now := s.time.read()
		a, sl := s.dispatch.next(now)
		if a == nil {
			return nil, nil, nil
		}
		a.mu.Lock()
		ticket := a.node.since // it was picked, and is not queued again before queued is false
		a.queued = false
		it := a.claimLocked(wall, now)
		if it != nil {
			it.ticket = ticket
		}
		a.advanceLocked()
		a.unlock()
		if it != nil {
			return a, it, sl
		}
		s.dispatch.release(sl)
	}
}

// work makes attempts, one after the other, as long as there is something to do
// for its slot: for the same actor while nobody else waits, which costs neither
// a goroutine nor a global lock, else for whoever is next.
func (s *Scheduler) work(a *actor, it *item, sl *slot) {
	for a != nil {
		s.passOn()
		it.slot = sl
		sl.begin(it.claimedAt)
		next := s.serve(a, it)
		if next != nil {
			it = next
			continue
		}
		s.dispatch.release(sl)
		a, it, sl = s.nextWork()
	}
}

// claimLocked takes the next row: it is in flight from now on.
func (a *actor) claimLocked(wall time.Time, now instant) *item {
	if a.s.halted() || !a.runnableLocked(now) {
		return nil
	}
	it := a.pickLocked(now)
	it.leave()
	a.leaveWindowLocked(it)
	it.sub = a.sub
	it.expired = expired(a.sub, a.s.time.age(it.row.EnteredAt, wall))
	it.claimedAt, it.ticket = now, now
	it.probe = a.Breaker == delivery.BreakerHalfOpen
	a.flight.pushBack(it)
	return it
}

// pickLocked picks the next ready row.
func (a *actor) pickLocked(now instant) *item {
	var views [delivery.Lanes]laneView
	for i := range a.ready {
		if it := a.ready[i].head; it != nil {
			views[i] = laneView{waiting: true, priority: a.sub.Effective(delivery.Priority(i)), since: it.readyAt} //nolint:gosec // three lanes
		}
	}
	i, why := pickLane(views, a.streak, a.s.cfg.AgedEvery, a.s.cfg.AgeAfter, now)
	a.streak++
	if why == pickAged {
		a.streak = 0
	}
	return a.ready[i].head
}

// serve brings one claimed row to an outcome. It returns the actor's next row
// if the worker may go on with it.
func (s *Scheduler) serve(a *actor, it *item) *item {
	if it.expired {
		return s.conclude(a, it, &batch{a: a}, conclusion{disposition: disposition{next: delivery.NextDead, reason: delivery.ReasonExpired}})
	}
	if !s.draw(a, it) {
		return nil
	}
	event, err := s.event(it)
	if errors.Is(err, delivery.ErrEventGone) {
		return s.conclude(a, it, &batch{a: a}, conclusion{disposition: disposition{next: delivery.NextCanceled, reason: delivery.ReasonEventDeleted}})
	}
	started := s.wall()
	var result delivery.Result
	if err != nil {
		result = delivery.Result{
			Cause: delivery.CauseLocal, Sent: delivery.SentNever, Detail: clip("payload cannot be read: " + err.Error()),
		}
	} else {
		result = s.send(it, event)
	}
	// Not before: it would be held while the attempt is in flight.
	b := &batch{a: a}
	b.attempt.StartedAt, b.attempt.Result = started, result
	return s.judge(a, it, event, b)
}

// draw takes the tokens that an attempt needs. Without them the row goes back,
// and it is false.
func (s *Scheduler) draw(a *actor, it *item) bool {
	tenantLimit := a.tenant.record.Load().RateLimit
	d := Draw{Subscriber: a.num, SubscriberLimit: it.sub.RateLimit, Tenant: it.sub.Tenant, TenantLimit: tenantLimit}
	if !d.limited() {
		return true
	}
	drawn := s.cfg.Limiter.Take(s.sending, d)
	if drawn.Wait > 0 {
		s.giveBack(a, it, drawn)
		return false
	}
	if tenantLimit.PerSecond > 0 {
		s.dispatch.answered(it.slot, 0)
		s.pump()
	}
	return true
}

// clip bounds a text that is stored with each attempt.
func clip(text string) string {
	if len(text) > maxNote {
		return text[:maxNote]
	}
	return text
}

func (s *Scheduler) event(it *item) (*delivery.Event, error) {
	if it.held.current() {
		return it.held.event, nil
	}
	return s.queue.Event(s.sending, it.row.Event)
}

// number is the number of the attempt that is made of a row.
func (it *item) number() int {
	if it.prior {
		return it.row.Attempts + 2
	}
	return it.row.Attempts + 1
}

// send makes the attempt. A sender that panics has one poisoned delivery, not a
// node that dies of it again after each restart.
func (s *Scheduler) send(it *item, event *delivery.Event) (result delivery.Result) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("sender panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			result = delivery.Result{Cause: delivery.CauseLocal, Detail: "sender panicked"}
		}
	}()
	result = s.sender.Send(s.sending, it.sub, event, it.number())
	if result.Status == 0 && errors.Is(context.Cause(s.sending), errStopping) {
		// However the sender names it: we broke it off.
		result.Cause = delivery.CauseShutdown
	}
	return result
}

// judge decides what an ended attempt means for its row.
func (s *Scheduler) judge(a *actor, it *item, event *delivery.Event, b *batch) *item {
	at := &b.attempt
	at.EndedAt = s.wall()
	at.Number, at.LeasedAt, at.Lease = it.number(), it.takenAt, s.queue.Lease()
	at.Outcome = delivery.Classify(at.Result, at.EndedAt)
	t := tried{
		tries: at.Number - it.row.Base, keyed: it.row.Key != 0, out: at.Outcome,
		age: s.time.age(it.row.EnteredAt, at.EndedAt), now: at.EndedAt,
	}
	return s.conclude(a, it, b, conclusion{
		disposition: afterAttempt(it.sub, t, s.cfg.Rand()), attempt: at, event: event,
	})
}

// giveBack puts a row back that got no token. Nothing happened to it. If it was
// its tenant that had none, the actor keeps its place among the tenant's: it is
// served before those that came later when there are tokens again.
func (s *Scheduler) giveBack(a *actor, it *item, drawn Drawn) {
	at := s.time.mono().add(drawn.Wait)
	ticket, sl := it.ticket, it.slot
	a.mu.Lock()
	a.unclaimLocked(it)
	if !drawn.Tenant {
		a.limitedUntil = at
	} else {
		s.dispatch.answered(sl, at)
		a.keepPlaceLocked(ticket)
	}
	a.advanceLocked()
	a.unlock()
}

// unclaimLocked makes a claimed row ready again, as the first.
func (a *actor) unclaimLocked(it *item) {
	it.leave()
	it.sub, it.slot, it.probe, it.expired = nil, nil, false, false
	if !a.servingLocked() || a.concurrencyLocked() == 0 {
		a.putBackLocked(it)
		return
	}
	a.enterWindowLocked(it)
	a.readyLocked(it, true)
}
