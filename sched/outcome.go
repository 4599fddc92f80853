package sched

import (
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// conclusion is what was found out about a claimed row.
type conclusion struct {
	disposition
	attempt *delivery.Attempt // in the batch; nil = it was not tried
	event   *delivery.Event   // with attempt, unless it could not be read
}

// conclude hands over what becomes of a claimed row: outcome, order and health
// in one commit, for which b has room. It returns the actor's next row if the
// worker may go on with it.
func (s *Scheduler) conclude(a *actor, it *item, b *batch, c conclusion) *item {
	var unread error
	if it.row.Key != 0 && c.final() {
		unread = a.peekParked(it)
	}
	sl := it.slot
	a.mu.Lock()
	if unread != nil {
		// What becomes of the key is found out when the queue can be read.
		a.rereadLaterLocked(unread)
		a.reset = true
	}
	if a.forgotten {
		// Whoever deleted the subscriber cancels its rows, this one too.
		it.leave()
		it.free()
		a.advanceLocked()
		a.unlock()
		return nil
	}
	b.begin()
	a.moveLocked(it, c, b)
	disable := a.healthLocked(it, c, b)
	if disable != delivery.ReasonNone {
		a.disabling, b.disable = true, disable
		a.unloadLocked()
	}
	a.commitLocked(b)
	var next *item
	if disable == delivery.ReasonNone && s.mayGoOn(a, sl) {
		next = a.claimLocked(s.time.read())
	}
	a.advanceLocked()
	a.unlock()
	b.tell()
	return next
}

// mayGoOn reports whether the worker that holds a slot of an actor may make the
// actor's next attempt with it: nobody else waits, no bound of the tenant keeps
// its other actors waiting, and this one stands where it stood.
func (s *Scheduler) mayGoOn(a *actor, sl *slot) bool {
	return !s.dispatch.wanted(sl) && a.tenant.linked.Load() && !a.tenant.scarce.Load() && !a.tenant.over.Load() &&
		a.class() == sl.granted && !sl.moved.Load() && s.open()
}

// peekParked finds out whether anything is parked behind a row that is about to
// finish. Only this row's end makes parked rows go, so what is read stays true
// but for rows that are parked meanwhile.
func (a *actor) peekParked(it *item) error {
	a.mu.Lock()
	ln := a.lines[it.row.Key]
	if ln == nil || !ln.blocked || !ln.parked || ln.waiters.n > 0 || ln.parking > 0 {
		a.unlock()
		return nil
	}
	after, parks, known := ln.after, ln.parks, a.knownLocked(delivery.PlaceParked)
	a.unlock()
	rows, err := a.s.queue.Parked(a.num, it.row.Key, after, 1+len(known))
	if err != nil {
		return fmt.Errorf("parked rows: %w", err)
	}
	a.mu.Lock()
	if len(rows) <= len(known) && len(without(rows, known)) == 0 && ln.parks == parks {
		ln.parked = false
	}
	a.unlock()
	return nil
}

// moveLocked makes the fact that says what becomes of a row, and keeps its key
// in order.
func (a *actor) moveLocked(it *item, c conclusion, b *batch) {
	b.moved = delivery.Moved{
		Lease: a.s.queue.Lease(), Row: it.row, Next: c.next, Reason: c.reason, Due: c.due,
	}
	m := &b.moved
	if c.attempt != nil {
		m.Attempt, m.At = c.attempt, c.attempt.EndedAt
	} else {
		m.At = a.s.wall()
	}
	if it.prior {
		m.Prior = priorAttempt(it.row, m.Lease, it.takenAt)
	}
	if m.Next == delivery.NextDead {
		m.Signature = signature(m.Reason, m.Attempt)
	}
	m.Note = a.noteLocked(it)
	a.noteNewsLocked(it, c, b)
	b.move(it, m)
	if it.row.Key != 0 {
		ln := a.lineLocked(it.row.Key)
		if c.final() {
			if ln.blocked && ln.where == headRetry {
				ln.event = it.row.Event // forgotten if the actor was away meanwhile
			}
			// A dead letter may be more than the queue can hold; it fails alone.
			m.Unblock = a.headDoneLocked(ln, b, m.Next != delivery.NextDead)
		} else {
			m.Block = true
			a.headFailedLocked(ln, it, b)
			a.trimLinesLocked()
		}
	}
}

// noteLocked says, for the timeline, what happened to a row while it was pending
// that its states do not say.
func (a *actor) noteLocked(it *item) string {
	switch {
	case a.urlChanged.After(it.row.EnteredAt):
		return "the subscriber's url was changed while this delivery was pending"
	case it.row.Place == delivery.PlaceParked:
		return "had waited for earlier events of its ordering key"
	case it.row.Place == delivery.PlaceReady && a.held.until.After(it.row.EnteredAt):
		if a.held.by.IsZero() {
			return "had waited for an earlier event of its strict subscriber"
		}
		return "had waited for event " + a.held.by.String() + " of its strict subscriber"
	}
	return ""
}

// noteNewsLocked notes what the observer hears of a claimed row: when it is told the
// item is not the actor's any more.
func (a *actor) noteNewsLocked(it *item, c conclusion, b *batch) {
	m := &b.moved
	if c.attempt == nil {
		b.decided = &Decided{Subscriber: a.num, Tenant: a.tenant.num, Event: it.row.Event, Next: m.Next, Reason: m.Reason}
		return
	}
	b.tried = AttemptFinished{
		Subscriber: it.sub, Event: c.event, Attempt: m.Attempt, Next: m.Next, Reason: m.Reason, Due: m.Due,
		Lateness: it.claimedAt.sub(it.readyAt), Prior: it.prior,
	}
}

// tell tells the observer, once the actor's lock is released.
func (b *batch) tell() {
	if o := b.a.s.obs; b.decided != nil {
		o.moved(*b.decided)
	} else {
		o.attemptFinished(b.tried)
	}
}

func (a *actor) decidedLocked(m *delivery.Moved) {
	e := Decided{Subscriber: m.Row.Subscriber, Tenant: a.tenant.num, Event: m.Row.Event, Next: m.Next, Reason: m.Reason}
	a.news = append(a.news, func() { a.s.obs.moved(e) })
}

// latencyShare is the weight of the newest attempt in the recent latency.
const latencyShare = 0.3

// healthLocked learns from an attempt: breaker, allowance, latency. It returns
// why the subscriber is to be disabled, if it is.
func (a *actor) healthLocked(it *item, c conclusion, b *batch) delivery.Reason {
	probe := it.probe && a.Breaker == delivery.BreakerHalfOpen
	if c.attempt == nil {
		if probe {
			a.disposed++
		}
		return delivery.ReasonNone
	}
	if a.disabling || a.sub.Status != delivery.SubscriberActive {
		// The verdict has fallen: what was in flight then says nothing about the
		// day when it is enabled again.
		return delivery.ReasonNone
	}
	out := c.attempt.Outcome
	if out.Class != delivery.ClassInterrupted {
		a.latencyLocked(c.attempt.EndedAt.Sub(c.attempt.StartedAt))
	}
	sig := signalOf(out)
	if probe && sig == signalNone && out.Class != delivery.ClassInterrupted {
		sig = signalUndecided
	}
	topic := ""
	if c.event != nil {
		topic = c.event.Topic
	}
	a.beatLocked(sig, probe, topic, b)
	switch {
	case out.Class == delivery.ClassGone:
		return a.disablingLocked(delivery.ReasonGone, b)
	case sig == signalFailure:
		failing := a.s.time.age(a.FailingSince, c.attempt.EndedAt)
		return a.disablingLocked(disableReason(a.sub, a.Health, failing), b)
	}
	return delivery.ReasonNone
}

// beatLocked lets the attempt of a batch, made of an event of a topic, change the
// subscriber's health.
func (a *actor) beatLocked(sig signal, probe bool, topic string, b *batch) {
	from, now := a.Breaker, b.attempt.EndedAt
	step := a.beat(sig, probe, *a.s.breaker.Load(), now, a.s.cfg.Rand())
	a.pulse = step.pulse
	if sig == signalSuccess && a.allowance < 1<<30 {
		a.allowance++
	}
	if step.persist {
		b.facts = append(b.facts, a.healthFactLocked())
	}
	if step.why == "" {
		return
	}
	// Whichever way it changed: begin gently, and with what is first on disk.
	a.allowance = 1
	if a.Breaker == delivery.BreakerOpen {
		_, mono := a.s.time.read()
		a.openAt = mono.add(a.OpenUntil.Sub(now))
		a.unloadLocked()
	}
	a.reportBreakerLocked(from, step.why, topic)
}

func (a *actor) healthFactLocked() *delivery.HealthChanged {
	return &delivery.HealthChanged{Lease: a.s.queue.Lease(), Subscriber: a.num, Health: a.Health}
}

func (a *actor) reportBreakerLocked(from delivery.BreakerState, why BreakerWhy, topic string) {
	e := BreakerChanged{
		Subscriber: a.num, Tenant: a.sub.Tenant, From: from, To: a.Breaker, Why: why, OpenUntil: a.OpenUntil, Topic: topic,
	}
	a.news = append(a.news, func() { a.s.obs.breakerChanged(e) })
}

// latencyLocked follows how long attempts take, and charges the subscriber to
// the slow budget while that is long.
func (a *actor) latencyLocked(took time.Duration) {
	if a.latency == 0 {
		a.latency = took
	} else {
		a.latency += time.Duration(latencyShare * float64(took-a.latency))
	}
	if a.latency > a.s.cfg.SlowAfter {
		a.standing.Store(int32(classSlow))
	} else {
		a.standing.Store(int32(classFast))
	}
}

// disablingLocked notes that the subscriber is to be disabled. Its health
// starts afresh, for the day when it is enabled again.
func (a *actor) disablingLocked(reason delivery.Reason, b *batch) delivery.Reason {
	if reason == delivery.ReasonNone {
		return delivery.ReasonNone
	}
	a.pulse = pulse{Health: delivery.Health{LastSuccess: a.LastSuccess}}
	b.facts = append(b.facts, a.healthFactLocked())
	return reason
}

// disableLocked has the subscriber disabled now that the outcome that led to it
// is durable: whoever sees it disabled also sees why. That takes a goroutine of
// its own, since it is the committer that brings the news. Until it is done the
// actor stays, and Stop waits.
func (a *actor) disableLocked(reason delivery.Reason) {
	a.outstanding++
	a.s.commits.Add(1)
	go a.s.disable(a, reason)
}

// disable asks the engine, and waits for its answer.
func (s *Scheduler) disable(a *actor, reason delivery.Reason) {
	at := s.wall()
	s.cfg.Disable(a.num, reason, at)
	s.obs.disabled(Disabled{Subscriber: a.num, Tenant: a.tenant.num, Reason: reason, At: at})
	a.mu.Lock()
	a.outstanding--
	a.advanceLocked()
	a.unlock()
	s.commitDone()
}
