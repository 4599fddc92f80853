package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// eventKey finds an event of a tenant by its public id.
func (e *Engine) eventKey(ctx context.Context, tenant, id string) (*delivery.Tenant, delivery.EventKey, error) {
	t, err := e.tenant(tenant)
	if err != nil {
		return nil, delivery.EventKey{}, err
	}
	key, err := e.store.EventByID(ctx, t.Num, "", id)
	if source, _, ok := strings.Cut(id, ":"); ok && errors.Is(err, delivery.ErrEventGone) {
		// What came in through a source bears its name: "{source}:{id}".
		key, err = e.store.EventByID(ctx, t.Num, source, id)
	}
	if err != nil {
		return nil, key, e.eventFault(id, err)
	}
	return t, key, nil
}

func (e *Engine) eventFault(id string, err error) error {
	if errors.Is(err, delivery.ErrEventGone) || errors.Is(err, delivery.ErrNoDelivery) {
		return fmt.Errorf("event %q: %w; it was deleted, its retention has passed, or it was never published", clipped(id), ErrNotFound)
	}
	return e.storeFault(err)
}

// GetEvent returns an event with its payload unless that is spooled.
func (e *Engine) GetEvent(ctx context.Context, tenant, id string) (*delivery.Event, error) {
	_, key, err := e.eventKey(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	event, err := e.store.Event(ctx, key)
	if err != nil {
		return nil, e.eventFault(id, err)
	}
	return event, nil
}

// ListEvents returns a page of a tenant's events, newest first.
func (e *Engine) ListEvents(ctx context.Context, tenant string, page Page) ([]*delivery.Event, string, error) {
	t, err := e.tenant(tenant)
	if err != nil {
		return nil, "", err
	}
	rows, next, err := e.store.Events(ctx, storage.Filter{Tenant: t.Num}, page.Cursor, page.limit())
	if err != nil {
		return nil, "", e.listFault(page, err)
	}
	out := make([]*delivery.Event, 0, len(rows))
	for _, row := range rows {
		if row.Event != nil {
			out = append(out, row.Event)
			continue
		}
		e.logger.Error("event_unreadable", "event", row.Key.String(), "error", fmt.Sprint(row.Err))
	}
	return out, next, nil
}

func (e *Engine) listFault(page Page, err error) error {
	if errors.Is(err, storage.ErrBadCursor) {
		return &InvalidError{Fields: []FieldError{{Field: "cursor", Value: clipped(page.Cursor), Rule: "a next_cursor of the same list", Hint: "start again without a cursor"}}}
	}
	return e.storeFault(err)
}

// DeleteEvent removes an event's payload everywhere and cancels what is pending.
func (e *Engine) DeleteEvent(ctx context.Context, tenant, id string) error {
	_, key, err := e.eventKey(ctx, tenant, id)
	if err != nil {
		return err
	}
	_, targets, err := e.store.EventTargets(ctx, key)
	if err != nil {
		return e.eventFault(id, err)
	}
	if err := e.store.Expunge(ctx, time.Now(), key, delivery.ReasonEventDeleted); err != nil {
		return e.eventFault(id, err)
	}
	e.sched.EventDeleted()
	for _, target := range targets {
		e.sched.Kick(target.Subscriber)
	}
	return nil
}

// EventDeliveries lists an event's deliveries.
func (e *Engine) EventDeliveries(ctx context.Context, tenant, id string, page Page) ([]DeliveryInfo, string, error) {
	_, key, err := e.eventKey(ctx, tenant, id)
	if err != nil {
		return nil, "", err
	}
	rows, next, err := e.deliveries(ctx, storage.Filter{Event: key}, false, page)
	e.hashDead(ctx, rows)
	return rows, next, err
}

// deliveries lists by a filter; held keeps only what waits for a subscriber
// that is paused or disabled.
func (e *Engine) deliveries(ctx context.Context, f storage.Filter, held bool, page Page) ([]DeliveryInfo, string, error) {
	rows, err := e.store.Deliveries(ctx, f, page.Cursor, page.limit())
	if err != nil {
		return nil, "", e.listFault(page, err)
	}
	return e.infos(rows.Items, f.States, held), rows.Next, nil
}

// infos turns rows into what lists show. Held is derived here, so a filter on a
// pending state must drop what is held, and a filter on held everything else.
func (e *Engine) infos(rows []storage.Summary, states []delivery.State, held bool) []DeliveryInfo {
	out := make([]DeliveryInfo, 0, len(rows))
	for i := range rows {
		if rows[i].Err != nil {
			e.logger.Error("delivery_unreadable", "event", rows[i].Event.String(), "error", rows[i].Err.Error())
			continue
		}
		info := e.info(&rows[i])
		isHeld := info.State == delivery.StateHeld
		if len(states) == 0 || held == isHeld {
			out = append(out, info)
		}
	}
	return out
}

func (e *Engine) info(s *storage.Summary) DeliveryInfo {
	info := DeliveryInfo{
		Event: s.Header, State: s.State, Reason: s.Reason, Attempts: s.Attempts, NextAttempt: s.NextDue, UpdatedAt: s.ChangedAt,
		Signature: s.Signature,
	}
	tenant, id, err := e.registry.Identify(s.Subscriber)
	if err != nil {
		id = fmt.Sprintf("deleted-%d", s.Subscriber)
	}
	info.Subscriber = id
	info.ID = delivery.ID{Event: s.Event, Subscriber: id}.String()
	if t, err := e.directory.Tenant(tenant); err == nil {
		info.Tenant = t.ID
	}
	if s.State.Terminal() {
		return info
	}
	if sub, err := e.directory.Subscriber(s.Subscriber); err == nil && sub.Status != delivery.SubscriberActive {
		info.State, info.Reason = delivery.StateHeld, sub.StatusReason
	}
	return info
}

// locate resolves a delivery's public id.
func (e *Engine) locate(ctx context.Context, id string) (delivery.EventKey, delivery.SubscriberNum, error) {
	parsed, err := delivery.ParseID(id)
	if err != nil {
		return delivery.EventKey{}, 0, err
	}
	notFound := fmt.Errorf("delivery %q: %w", clipped(id), ErrNotFound)
	event, targets, err := e.store.EventTargets(ctx, parsed.Event)
	if err != nil {
		if errors.Is(err, delivery.ErrEventGone) {
			return e.locateDead(parsed, notFound)
		}
		return parsed.Event, 0, e.storeFault(err)
	}
	if s, err := e.registry.GetSubscriber(event.Tenant, parsed.Subscriber); err == nil {
		for _, target := range targets {
			if target.Subscriber == s.Num {
				return parsed.Event, s.Num, nil
			}
		}
	}
	// The subscriber may have been deleted, or its id used again since.
	for _, target := range targets {
		if _, name, err := e.registry.Identify(target.Subscriber); err == nil && name == parsed.Subscriber {
			return parsed.Event, target.Subscriber, nil
		}
	}
	return parsed.Event, 0, notFound
}

// locateDead finds a dead letter whose event is gone: its subscriber's number is
// looked for in every tenant that has a subscriber of that id.
func (e *Engine) locateDead(id delivery.ID, notFound error) (delivery.EventKey, delivery.SubscriberNum, error) {
	for after := ""; ; {
		tenants, next, err := e.registry.ListTenants(after, listPage)
		if err != nil {
			return id.Event, 0, e.storeFault(err)
		}
		for _, t := range tenants {
			s, err := e.registry.GetSubscriber(t.Value.Num, id.Subscriber)
			if err != nil {
				continue
			}
			if _, err := e.store.Delivery(context.Background(), id.Event, s.Num); err == nil {
				return id.Event, s.Num, nil
			}
		}
		if after = next; next == "" {
			return id.Event, 0, notFound
		}
	}
}

const listPage = 1000

// GetDelivery returns a delivery with its timeline.
func (e *Engine) GetDelivery(ctx context.Context, id string) (DeliveryInfo, []delivery.TimelineEntry, error) {
	key, sub, err := e.locate(ctx, id)
	if err != nil {
		return DeliveryInfo{}, nil, err
	}
	d, err := e.store.Delivery(ctx, key, sub)
	if errors.Is(err, delivery.ErrNoDelivery) {
		return DeliveryInfo{}, nil, fmt.Errorf("delivery %q: %w", clipped(id), ErrNotFound)
	}
	if err != nil {
		return DeliveryInfo{}, nil, e.storeFault(err)
	}
	info := e.info(&d.Summary)
	info.PayloadHash = e.payloadHash(ctx, key)
	// What is canceled because its event was deleted may be in flight still.
	ended := info.State.Terminal() && (len(d.Timeline) == 0 || d.Timeline[len(d.Timeline)-1].State.Terminal())
	if info.State == delivery.StateHeld || ended {
		return info, d.Timeline, nil
	}
	if pending, ok := e.sched.InFlight(key, sub); ok {
		if info.State == delivery.StateCanceled && pending.State != delivery.StateAttempted {
			return info, d.Timeline, nil
		}
		info.State, info.Reason = pending.State, pending.Waiting
	}
	return info, d.Timeline, nil
}

// DeliveryPayload opens the payload of a delivery, dead ones included. The caller
// closes it.
func (e *Engine) DeliveryPayload(ctx context.Context, id string) (*delivery.Event, io.ReadCloser, error) {
	key, _, err := e.locate(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	event, err := e.store.Event(ctx, key)
	if err != nil {
		return nil, nil, e.eventFault(id, err)
	}
	if event.Spool == "" {
		return event, io.NopCloser(bytes.NewReader(event.Payload)), nil
	}
	body, err := e.store.OpenPayload(event.Spool)
	if err != nil {
		return nil, nil, e.eventFault(id, err)
	}
	return event, body, nil
}
