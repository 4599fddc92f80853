package engine

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// CreateSubscriber registers an endpoint. The returned value carries the
// secrets that were made.
func (e *Engine) CreateSubscriber(_ context.Context, tenant string, in SubscriberInput) (*delivery.Subscriber, error) {
	t, err := e.tenant(tenant)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	sub := e.newSubscriber(t.Num)
	var f faults
	if in.ID != nil {
		f.name("id", *in.ID)
		if isOrigin(*in.ID) {
			f.add("id", *in.ID, `ids that begin with "origin-" are those of origins of sources`, "choose another id")
		}
		sub.ID = *in.ID
	}
	if err := applySubscriber(sub, in, e.guard, now); err != nil {
		if invalid, ok := errors.AsType[*InvalidError](err); ok {
			f = append(f, invalid.Fields...)
		} else {
			return nil, err
		}
	}
	if sub.Reserved > 0 {
		e.reserving.Lock()
		defer e.reserving.Unlock()
		beside, err := e.reservedBeside(t, 0)
		if err != nil {
			return nil, err
		}
		beside.subscriber(&f, sub.Reserved)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	stored, err := e.registry.CreateSubscriber(sub)
	if err != nil {
		return nil, e.registryFault("id", sub.ID, err)
	}
	if stored.Reserved > 0 {
		e.sched.Kick(stored.Num)
	}
	return stored, nil
}

// newSubscriber returns a subscriber with every default filled in.
func (e *Engine) newSubscriber(tenant delivery.TenantNum) *delivery.Subscriber {
	return &delivery.Subscriber{
		Tenant: tenant, ID: newSubscriberID(), Topics: []string{"*"}, Concurrency: e.defaults.Load().Concurrency,
		Timeout: e.defaults.Load().Timeout, DisableAfter: delivery.DefaultDisableAfter, Priority: delivery.PriorityNormal,
	}
}

func newSubscriberID() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return "sub_" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// subscriber finds a subscriber by its public ids.
func (e *Engine) subscriber(tenant, id string) (*delivery.Subscriber, error) {
	t, err := e.tenant(tenant)
	if err != nil {
		return nil, err
	}
	s, err := e.registry.GetSubscriber(t.Num, id)
	if err != nil {
		return nil, e.registryFault("id", id, err)
	}
	return s, nil
}

// GetSubscriber returns a subscriber and how it is doing.
func (e *Engine) GetSubscriber(_ context.Context, tenant, id string) (*delivery.Subscriber, SubscriberStatus, error) {
	s, err := e.subscriber(tenant, id)
	if err != nil {
		return nil, SubscriberStatus{}, err
	}
	status, err := e.status(s)
	return s, status, err
}

// ListSubscribers returns a page of a tenant's subscribers in the order of
// their ids.
func (e *Engine) ListSubscribers(_ context.Context, tenant string, page Page) ([]*delivery.Subscriber, string, error) {
	t, err := e.tenant(tenant)
	if err != nil {
		return nil, "", err
	}
	rows, next, err := e.registry.ListSubscribers(t.Num, page.Cursor, page.limit())
	if err != nil {
		return nil, "", e.registryFault("cursor", page.Cursor, err)
	}
	return values(rows), next, nil
}

// UpdateSubscriber changes the given fields. What is pending follows the new
// record: a new URL, new limits, new secrets.
func (e *Engine) UpdateSubscriber(_ context.Context, tenant, id string, in SubscriberInput) (*delivery.Subscriber, error) {
	if in.ID != nil && *in.ID != id {
		return nil, &InvalidError{Fields: []FieldError{{Field: "id", Value: *in.ID, Rule: "fixed once made", Hint: "leave it out, or register a new subscriber"}}}
	}
	if err := originOnly(id); err != nil {
		return nil, err
	}
	apply := func(s *delivery.Subscriber) error { return applySubscriber(s, in, e.guard, time.Now().UTC()) }
	if in.Reserved == nil {
		return e.change(tenant, id, apply)
	}
	return e.changeReserved(tenant, id, apply)
}

// changeReserved is a change that may reserve slots.
func (e *Engine) changeReserved(tenant, id string, apply func(*delivery.Subscriber) error) (*delivery.Subscriber, error) {
	e.reserving.Lock()
	defer e.reserving.Unlock()
	t, err := e.tenant(tenant)
	if err != nil {
		return nil, err
	}
	old, err := e.subscriber(tenant, id)
	if err != nil {
		return nil, err
	}
	beside, err := e.reservedBeside(t, old.Num)
	if err != nil {
		return nil, err
	}
	return e.change(tenant, id, func(s *delivery.Subscriber) error {
		before := s.Reserved
		if err := apply(s); err != nil {
			return err
		}
		var f faults
		if s.Reserved > before {
			beside.subscriber(&f, s.Reserved)
		}
		return f.err()
	})
}

// change applies one change to a stored subscriber and wakes its actor.
func (e *Engine) change(tenant, id string, change func(*delivery.Subscriber) error) (*delivery.Subscriber, error) {
	s, err := e.subscriber(tenant, id)
	if err != nil {
		return nil, err
	}
	updated, err := e.registry.UpdateSubscriber(s.Num, storage.AnyVersion, func(s *delivery.Subscriber) error {
		s.Headers, s.Topics, s.Signing = maps.Clone(s.Headers), slices.Clone(s.Topics), slices.Clone(s.Signing)
		return change(s)
	})
	if err != nil {
		if _, invalid := errors.AsType[*InvalidError](err); invalid {
			return nil, err
		}
		return nil, e.registryFault("id", id, err)
	}
	e.sched.Kick(updated.Num)
	return updated, nil
}

// DeleteSubscriber makes a subscriber unreachable at once; what is pending for
// it is canceled in the background, with the reason on each timeline.
func (e *Engine) DeleteSubscriber(_ context.Context, tenant, id string) error {
	if err := originOnly(id); err != nil {
		return err
	}
	s, err := e.subscriber(tenant, id)
	if err != nil {
		return err
	}
	if _, err := e.registry.DeleteSubscriber(s.Tenant, id, storage.AnyVersion); err != nil {
		return e.registryFault("id", id, err)
	}
	e.sched.Forget(s.Num)
	e.cleaner.kick()
	return nil
}

// PauseSubscriber holds what is pending and what comes, until resumed.
func (e *Engine) PauseSubscriber(_ context.Context, tenant, id string) (*delivery.Subscriber, error) {
	return e.change(tenant, id, func(s *delivery.Subscriber) error {
		if s.Status == delivery.SubscriberActive {
			s.Status, s.StatusReason = delivery.SubscriberPaused, delivery.ReasonOperator
		}
		return nil
	})
}

// ResumeSubscriber delivers again, whether it was paused or disabled.
func (e *Engine) ResumeSubscriber(_ context.Context, tenant, id string) (*delivery.Subscriber, error) {
	return e.change(tenant, id, func(s *delivery.Subscriber) error {
		s.Status, s.StatusReason = delivery.SubscriberActive, delivery.ReasonNone
		return nil
	})
}

// RotateSecret puts a new secret in front; the old one stays valid for a while.
func (e *Engine) RotateSecret(_ context.Context, tenant, id string, in RotateInput) (*delivery.Subscriber, error) {
	if err := originOnly(id); err != nil {
		return nil, err
	}
	return e.change(tenant, id, func(s *delivery.Subscriber) error { return rotate(s, in, time.Now().UTC()) })
}

// TestSubscriber publishes one synthetic event to this subscriber alone.
func (e *Engine) TestSubscriber(ctx context.Context, tenant, id string) (Receipt, error) {
	s, err := e.subscriber(tenant, id)
	if err != nil {
		return Receipt{}, err
	}
	payload := fmt.Sprintf(`{"type":"dispatcher.test","subscriber":%q,"at":%q}`, s.ID, time.Now().UTC().Format(time.RFC3339))
	return e.Publish(ctx, tenant, EventInput{
		Topic: topicTest, Payload: []byte(payload), Subscribers: []string{s.ID}, operational: true,
	})
}

// disable is the scheduler's verdict on a subscriber that is gone or has failed
// for too long: one change of its record and one operational event.
func (e *Engine) disable(num delivery.SubscriberNum, reason delivery.Reason, at time.Time) {
	changed := false
	updated, err := e.registry.UpdateSubscriber(num, storage.AnyVersion, func(s *delivery.Subscriber) error {
		if changed = s.Status == delivery.SubscriberActive; changed {
			s.Status, s.StatusReason = delivery.SubscriberDisabled, reason
		}
		return nil
	})
	if err != nil {
		e.logger.Error("disable_failed", "subscriber", uint64(num), "reason", reason.String(), "error", err.Error())
		return
	}
	if !changed {
		return
	}
	e.logger.Warn("subscriber_disabled", "subscriber", updated.ID, "reason", reason.String())
	e.sched.Kick(num)
	e.alarms.disabled(updated.Tenant, num, reason, at)
}
