package engine

import (
	"context"
	"fmt"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// ListDeliveries lists deliveries, newest event first; dead ones alone: what died
// last first. Without a tenant it goes
// through the tenants one after the other, in the order of their ids. Dead ones
// have the hash of their payload, until a page has read 32 MiB for that.
func (e *Engine) ListDeliveries(ctx context.Context, in DeliveryFilter, page Page) ([]DeliveryInfo, string, error) {
	rows, next, err := e.listDeliveries(ctx, in, page)
	e.hashDead(ctx, rows)
	return rows, next, err
}

func (e *Engine) listDeliveries(ctx context.Context, in DeliveryFilter, page Page) ([]DeliveryInfo, string, error) {
	f, held, err := e.filter(in)
	if err != nil {
		return nil, "", err
	}
	dead := len(f.States) == 1 && f.States[0] == delivery.StateDead
	list := func(ctx context.Context, f storage.Filter, p Page) ([]DeliveryInfo, string, error) {
		if dead {
			return e.deadOf(ctx, f, p)
		}
		return e.deliveries(ctx, f, held, p)
	}
	if f.Tenant != 0 {
		return list(ctx, f, page)
	}
	return e.acrossTenants(ctx, f, page, list)
}

// filter resolves names and reports everything that is wrong with them.
func (e *Engine) filter(in DeliveryFilter) (out storage.Filter, held bool, err error) {
	var f faults
	out = storage.Filter{Since: in.Since, Until: in.Until, Topic: in.Topic, Signature: in.Signature}
	if in.Topic != "" && !validPattern(in.Topic) {
		f.add("topic", in.Topic, "a topic pattern", `write "order.*"`)
	}
	dead := delivery.StateDead.String()
	if in.Signature != "" && in.State == "" {
		in.State = dead
	}
	if in.Signature != "" && in.State != dead {
		f.add("signature", clipped(in.Signature), "only dead letters have one", "leave out state, or ask for dead")
	}
	if in.State != "" {
		state, ok := delivery.ParseState(in.State)
		if !ok {
			f.add("state", in.State, fmt.Sprintf("one of %v", delivery.States()), "check the spelling")
		}
		if held = state == delivery.StateHeld; held {
			out.States = []delivery.State{delivery.StateReceived, delivery.StateLeased, delivery.StateRetrying}
		} else {
			out.States = []delivery.State{state}
		}
	}
	if in.Reason != "" {
		reason, ok := delivery.ParseReason(in.Reason)
		if !ok {
			f.add("reason", in.Reason, fmt.Sprintf("one of %v", delivery.Reasons()), "check the spelling; deliveries show theirs")
		}
		out.Reason = reason
	}
	if in.Tenant == "" {
		if in.Subscriber != "" {
			f.add("tenant", "", "required with subscriber", "subscriber ids are unique inside a tenant only")
		}
		return out, held, f.err()
	}
	if err := f.err(); err != nil {
		return out, held, err
	}
	t, err := e.tenant(in.Tenant)
	if err != nil {
		return out, held, err
	}
	out.Tenant = t.Num
	if in.Subscriber != "" {
		s, err := e.registry.GetSubscriber(t.Num, in.Subscriber)
		if err != nil {
			return out, held, e.registryFault("subscriber", in.Subscriber, err)
		}
		out.Subscriber = s.Num
	}
	return out, held, nil
}

type listing func(ctx context.Context, f storage.Filter, p Page) ([]DeliveryInfo, string, error)

// acrossTenants runs a listing tenant by tenant. The cursor is the tenant's id
// and the listing's own cursor; a page may come from one tenant only.
func (e *Engine) acrossTenants(ctx context.Context, f storage.Filter, page Page, list listing) ([]DeliveryInfo, string, error) {
	at, err := parseTenantCursor(page.Cursor)
	if err != nil {
		return nil, "", err
	}
	for {
		t, following, err := e.tenantFrom(at)
		if err != nil || t == nil {
			return nil, "", err
		}
		f.Tenant = t.Num
		rows, next, err := list(ctx, f, Page{Limit: page.Limit, Cursor: at.inner})
		if err != nil {
			return nil, "", err
		}
		switch {
		case next != "":
			return rows, tenantCursor{tenant: t.ID, inner: next}.String(), nil
		case following == "":
			return rows, "", nil
		case len(rows) > 0:
			return rows, tenantCursor{after: t.ID}.String(), nil
		}
		at = tenantCursor{after: t.ID}
		if ctx.Err() != nil {
			return nil, "", ctx.Err()
		}
	}
}

// tenantFrom returns the tenant a cursor stands at, and whether one follows.
func (e *Engine) tenantFrom(at tenantCursor) (*delivery.Tenant, string, error) {
	if at.tenant != "" {
		t, err := e.registry.GetTenant(at.tenant)
		if err == nil {
			return t, "?", nil // somebody may follow; the next call finds out
		}
		at = tenantCursor{after: at.tenant} // deleted since the last page
	}
	rows, next, err := e.registry.ListTenants(at.after, 1)
	if err != nil {
		return nil, "", e.storeFault(err)
	}
	if len(rows) == 0 {
		return nil, "", nil
	}
	return rows[0].Value, next, nil
}

// deadOf lists dead letters of one tenant or subscriber.
func (e *Engine) deadOf(ctx context.Context, f storage.Filter, page Page) ([]DeliveryInfo, string, error) {
	rows, err := e.store.DeadLetters(ctx, f, page.Cursor, page.limit())
	if err != nil {
		return nil, "", e.listFault(page, err)
	}
	return e.infos(rows.Items, nil, false), rows.Next, nil
}
