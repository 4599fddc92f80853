package engine

import (
	"context"
	"errors"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// tell carries out a verdict. It returns when to look again, and false if the store
// takes nothing now.
func (a *alarms) tell(ctx context.Context, d due) (again time.Time, ok bool) {
	switch d.verdict {
	case verdictForget:
		return time.Time{}, a.forget(d)
	case verdictWait:
		return a.examine(ctx, d)
	default:
		return a.announce(ctx, d)
	}
}

// forget drops an alarm that nothing more will come of, and its record.
func (a *alarms) forget(d due) bool {
	if d.held.kept {
		if err := a.records.drop(d.key); err != nil {
			return a.refused(err)
		}
		d.held.kept = false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if v, _ := d.held.next(time.Now()); v == verdictForget || d.held.ended {
		a.dropLocked(d)
	}
	return true
}

func (a *alarms) dropLocked(d due) {
	if a.held[d.key] == d.held {
		delete(a.held, d.key)
		a.tenants[d.held.tenant].held--
	}
}

// examine finds out whether a dead letter of which the topic is not known was that
// of an alarm.
func (a *alarms) examine(ctx context.Context, d due) (again time.Time, ok bool) {
	dead, _ := d.held.alarm.(*deadAlarm)
	a.mu.Lock()
	suspect := dead.suspect
	a.mu.Unlock()
	topic, err := a.topic(ctx, suspect)
	if err != nil && !errors.Is(err, delivery.ErrEventGone) {
		return a.blocked, a.refused(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if dead.suspect == suspect {
		dead.suspect = delivery.EventKey{}
	}
	dead.armed = dead.armed || err == nil && !isAlarm(topic)
	return time.Now(), true
}

// announce publishes what a verdict says.
func (a *alarms) announce(ctx context.Context, d due) (again time.Time, ok bool) {
	tenant, id, err := a.about(d)
	switch {
	case errors.Is(err, delivery.ErrNoSubscriber), errors.Is(err, delivery.ErrNoTenant):
		a.mu.Lock()
		d.held.ended = true
		a.mu.Unlock()
		return time.Time{}, a.forget(d)
	case err != nil:
		ok = a.refused(err)
		return a.blocked, ok
	}
	heard, err := a.listeners(tenant, d)
	if err != nil {
		ok = a.refused(err)
		return a.blocked, ok
	}
	if len(heard) == 0 {
		return a.unheard(d)
	}
	now := time.Now()
	a.mu.Lock()
	t := a.tenants[d.held.tenant]
	if t.fill(now); t.tokens < 1 {
		a.mu.Unlock()
		return now.Add(time.Duration((1 - t.tokens) * float64(alarmEvery))), true
	}
	topic, data := d.held.event(d.verdict, id)
	a.mu.Unlock()
	if heard[topic] {
		if ok := a.published(a.publish(ctx, tenant, topic, data), topic); !ok {
			return a.blocked, false
		}
	}
	a.mu.Lock()
	t.tokens--
	d.held.told(d.verdict, now)
	v, again := d.held.next(time.Now())
	record := d.held.record(d.key)
	a.mu.Unlock()
	if v == verdictForget {
		return time.Time{}, a.forget(d)
	}
	if v != verdictWait {
		again = time.Now()
	}
	if record != nil {
		a.keep(d, *record)
	}
	return again, true
}

// published says what became of an event: false if it is to be tried again.
func (a *alarms) published(err error, topic string) bool {
	unavailable, isUnavailable := errors.AsType[*UnavailableError](err)
	switch {
	case err == nil:
		a.wait, a.blocked = 0, time.Time{}
		a.observed(topic, OperationalPublished)
		return true
	case isUnavailable || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		a.observed(topic, OperationalDelayed)
		if isUnavailable {
			err = unavailable
		}
		return a.refused(err)
	default:
		a.logger.Error("operational_event_failed", "topic", topic, "error", err.Error())
		a.observed(topic, OperationalDropped)
		return true
	}
}

// refused notes that the store does not do what it is asked. It is false.
func (a *alarms) refused(err error) bool {
	if a.wait == 0 {
		a.logger.Warn("operational_events_wait", "error", err.Error())
	}
	a.wait = min(max(alarmAgain, 2*a.wait), alarmMost)
	a.blocked = time.Now().Add(a.wait)
	return false
}

// about returns who hears of an alarm, and the id of the subscriber it is about.
func (a *alarms) about(d due) (delivery.TenantNum, string, error) {
	if d.key.kind == alarmDisk {
		return a.operator(), "", nil
	}
	id, err := a.identify(d.key.sub)
	return d.held.tenant, id, err
}

// listeners returns which of an alarm's topics anybody takes.
func (a *alarms) listeners(tenant delivery.TenantNum, d due) (map[string]bool, error) {
	if tenant == 0 {
		return nil, nil
	}
	heard := map[string]bool{}
	for _, topic := range d.held.topics() {
		yes, err := a.heard(tenant, topic)
		if err != nil {
			return nil, err
		}
		if yes {
			heard[topic] = true
		}
	}
	return heard, nil
}

// unheard drops an alarm that nobody wants to hear. That of the node stays, for an
// operator who begins to listen while it lasts.
func (a *alarms) unheard(d due) (again time.Time, ok bool) {
	if d.key.kind == alarmDisk && d.verdict == verdictRaise {
		return time.Now().Add(alarmEvery), true
	}
	a.mu.Lock()
	d.held.ended = true
	if len(a.deaf) >= maxDeaf {
		clear(a.deaf)
	}
	if d.key.kind != alarmDisk {
		a.deaf[deafKey{d.held.tenant, d.key.kind}] = struct{}{}
	}
	a.mu.Unlock()
	return time.Time{}, a.forget(d)
}
