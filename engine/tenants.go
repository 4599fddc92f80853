package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/storage"
)

const (
	maxWeight   = 1000
	maxInFlight = 1 << 20
	maxNameText = 256
)

// PutTenant creates a tenant or replaces its settings.
func (e *Engine) PutTenant(_ context.Context, id string, in TenantInput) (*delivery.Tenant, bool, error) {
	var f faults
	f.name("tenant", id)
	if len(in.Name) > maxNameText {
		f.add("name", in.Name, "at most 256 bytes", "shorten it")
	}
	f.within("weight", in.Weight, maxWeight)
	f.within("max_in_flight", in.MaxShare, maxInFlight)
	f.within("reserved_in_flight", in.Reserved, maxInFlight)
	t := delivery.Tenant{ID: id, Name: in.Name, Weight: max(in.Weight, 1), MaxShare: cmp.Or(in.MaxShare, e.defaults.Load().MaxShare), Reserved: in.Reserved}
	if in.RateLimit != nil {
		f.rate("rate_limit", *in.RateLimit)
		t.RateLimit = *in.RateLimit
	}
	if err := f.err(); err != nil {
		return nil, false, err
	}
	e.reserving.Lock()
	defer e.reserving.Unlock()
	old, before := e.registry.GetTenant(id)
	if old == nil {
		old = &delivery.Tenant{}
	}
	beside, err := e.reservedBeside(old, 0)
	if err != nil {
		return nil, false, err
	}
	if beside.tenantRecord(&f, &t, old); f.err() != nil {
		return nil, false, f.err()
	}
	stored, err := e.registry.PutTenant(t, storage.AnyVersion)
	if err != nil {
		return nil, false, e.registryFault("tenant", id, err)
	}
	if err := e.sched.KickTenant(stored.Num); err != nil {
		return nil, false, e.storeFault(err)
	}
	return stored, errors.Is(before, delivery.ErrNoTenant), nil
}

func (f *faults) within(field string, v, most int) {
	if v < 0 || v > most {
		f.add(field, strconv.Itoa(v), fmt.Sprintf("0 (default) to %d", most), "leave it out")
	}
}

// GetTenant returns a tenant.
func (e *Engine) GetTenant(_ context.Context, id string) (*delivery.Tenant, error) {
	return e.tenant(id)
}

func (e *Engine) tenant(id string) (*delivery.Tenant, error) {
	t, err := e.directory.TenantByID(id)
	if err != nil {
		return nil, e.registryFault("tenant", id, err)
	}
	return t, nil
}

// ListTenants returns a page of tenants in the order of their ids.
func (e *Engine) ListTenants(_ context.Context, page Page) ([]*delivery.Tenant, string, error) {
	rows, next, err := e.registry.ListTenants(page.Cursor, page.limit())
	if err != nil {
		return nil, "", e.registryFault("cursor", page.Cursor, err)
	}
	return values(rows), next, nil
}

// values drops the rows' own errors: a damaged record is listed with what is
// known of it, and the damage is reported where the record is read alone.
func values[T any](rows []storage.Listed[T]) []T {
	out := make([]T, len(rows))
	for i, row := range rows {
		out[i] = row.Value
	}
	return out
}

// DeleteTenant makes a tenant unreachable at once; its deliveries, events and
// dead letters are removed in the background, over restarts if need be.
// Its API tokens end first, so that none outlives it.
func (e *Engine) DeleteTenant(_ context.Context, id string) error {
	t, err := e.tenant(id)
	if err != nil {
		return err
	}
	if err := e.revokeTokensOf(id); err != nil {
		return e.registryFault("token", id, err)
	}
	if _, err := e.registry.DeleteTenant(id, storage.AnyVersion); err != nil {
		return e.registryFault("tenant", id, err)
	}
	e.sourceChanged(id, "")
	e.cleaner.kick()
	if err := e.sched.KickTenant(t.Num); err != nil { // what it reserved is free
		return e.storeFault(err)
	}
	if err := e.revokeTokensOf(id); err != nil { // one may have been made meanwhile
		return e.registryFault("token", id, err)
	}
	return nil
}

// limit returns the page's limit inside its bounds.
func (p Page) limit() int {
	const most, usual = 1000, 100
	if p.Limit <= 0 {
		return usual
	}
	return min(p.Limit, most)
}

// registryFault translates the registry's errors, once.
func (e *Engine) registryFault(field, value string, err error) error {
	switch {
	case errors.Is(err, delivery.ErrNoTenant):
		return fmt.Errorf("tenant %q: %w; make it with PUT /v1/tenants/{tenant}", clipped(value), ErrNotFound)
	case errors.Is(err, delivery.ErrNoSubscriber):
		return fmt.Errorf("subscriber %q: %w", clipped(value), ErrNotFound)
	case errors.Is(err, storage.ErrNoDoc):
		return fmt.Errorf("%s %q: %w", field, clipped(value), ErrNotFound)
	case errors.Is(err, storage.ErrExists):
		return &ConflictError{Field: field, Value: value, Rule: "the id is taken", Hint: "choose another, or PATCH the one that exists"}
	case errors.Is(err, storage.ErrConflict):
		return &ConflictError{Field: field, Value: value, Rule: "changed by somebody else meanwhile", Hint: "read it again and repeat the change"}
	case errors.Is(err, storage.ErrBadRecord):
		return &InvalidError{Fields: []FieldError{{Field: field, Value: clipped(value), Rule: err.Error(), Hint: "change it"}}}
	}
	return e.storeFault(err)
}

// storeFault translates errors of a store that cannot take a write now.
func (e *Engine) storeFault(err error) error {
	if full, ok := errors.AsType[*delivery.StoreFullError](err); ok {
		return &UnavailableError{Reason: full.Error(), RetryAfter: full.RetryAfter}
	}
	if errors.Is(err, delivery.ErrNotReady) || errors.Is(err, delivery.ErrClosed) || errors.Is(err, delivery.ErrUnknownCommit) {
		return &UnavailableError{Reason: err.Error(), RetryAfter: unavailableRetry}
	}
	return err
}

const unavailableRetry = 5 * time.Second

func clipped(s string) string {
	const most = 128
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

func (e *Engine) reserveForTenants(ctx context.Context) error {
	for after := ""; ; {
		rows, next, err := e.registry.ListTenants(after, listPage)
		if err != nil {
			return fmt.Errorf("list tenants: %w", err)
		}
		for _, row := range rows {
			if row.Value.Reserved > 0 {
				if err := e.sched.KickTenant(row.Value.Num); err != nil {
					return fmt.Errorf("reserve for tenant %q: %w", row.Value.ID, err)
				}
			}
		}
		if after = next; next == "" || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}
