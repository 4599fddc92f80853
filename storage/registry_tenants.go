package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Bounds of one page of a list.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

func pageSize(limit int) int {
	if limit <= 0 {
		return DefaultPage
	}
	return min(limit, MaxPage)
}

// Listed is one row of a list. A row that cannot be read does not spoil the
// others: Err says what is wrong with it, and Value holds what is known all the
// same, its id and number at least.
type Listed[T any] struct {
	Value T
	Err   error // wraps ErrWrongKey, ErrSealBroken or ErrDamaged
}

// PutTenant creates a tenant or replaces its record. expect is the version that
// the caller read, [MustNotExist] or [AnyVersion]. Num, Version, CreatedAt and
// UpdatedAt of t are not read; the stored tenant is returned.
func (r *Registry) PutTenant(t delivery.Tenant, expect uint64) (*delivery.Tenant, error) {
	if err := delivery.CheckName(t.ID); err != nil {
		return nil, fmt.Errorf("put tenant: %w: %w", err, ErrBadRecord)
	}
	err := r.write(func(tx *registryTx) error {
		old, err := tenantByID(tx.b, t.ID)
		switch {
		case errors.Is(err, delivery.ErrNoTenant):
			return tx.createTenant(&t, expect)
		case err != nil:
			return err
		}
		if err := checkVersion(expect, old.Version); err != nil {
			return err
		}
		t.Num, t.Version, t.CreatedAt, t.UpdatedAt = old.Num, old.Version+1, old.CreatedAt, tx.now
		return tx.setTenant(&t)
	})
	if err != nil {
		return nil, fmt.Errorf("put tenant %s: %w", t.ID, err)
	}
	return &t, nil
}

func (tx *registryTx) createTenant(t *delivery.Tenant, expect uint64) error {
	if expect != MustNotExist && expect != AnyVersion {
		return fmt.Errorf("expected version %d: %w", expect, delivery.ErrNoTenant)
	}
	if tx.counters.tenant == math.MaxUint32 {
		return fmt.Errorf("tenants: %w", ErrFull)
	}
	tx.counters.tenant++
	tx.counters.tenants++
	t.Num, t.Version, t.CreatedAt, t.UpdatedAt = tx.counters.tenant, 1, tx.now, tx.now
	if err := tx.set(keyTenantID(t.ID), binary.BigEndian.AppendUint32(nil, uint32(t.Num))); err != nil {
		return err
	}
	return tx.setTenant(t)
}

func (tx *registryTx) setTenant(t *delivery.Tenant) error {
	value, err := encodeTenant(t)
	if err != nil {
		return err
	}
	tx.changed(Change{Tenant: t.Num})
	return tx.set(keyOfTenant(regTenant, t.Num), value)
}

// checkVersion compares what a writer expects of an existing record with what
// is there.
func checkVersion(expect, have uint64) error {
	switch expect {
	case have, AnyVersion:
		return nil
	case MustNotExist:
		return fmt.Errorf("it has version %d: %w", have, ErrExists)
	}
	return fmt.Errorf("expected version %d, it has %d: %w", expect, have, ErrConflict)
}

// GetTenant returns the tenant with an id, or [delivery.ErrNoTenant].
func (r *Registry) GetTenant(id string) (t *delivery.Tenant, err error) {
	err = r.read(func(db *pebble.DB) error {
		t, err = tenantByID(db, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("get tenant %q: %w", clipID(id), err)
	}
	return t, nil
}

// TenantByNum returns the tenant with a number, or [delivery.ErrNoTenant] also
// when it was deleted.
func (r *Registry) TenantByNum(num delivery.TenantNum) (t *delivery.Tenant, err error) {
	err = r.read(func(db *pebble.DB) error {
		if err := checkTenant(db, num); err != nil {
			return err
		}
		t, err = tenantByNum(db, num)
		return err
	})
	return t, err
}

func tenantByID(from pebble.Reader, id string) (*delivery.Tenant, error) {
	b, ok, err := getFrom(from, keyTenantID(id))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, delivery.ErrNoTenant
	}
	num, err := lastTenant(b)
	if err != nil {
		return nil, err
	}
	return tenantByNum(from, num)
}

// tenantByNum returns also a tenant that was deleted and not yet cleaned.
func tenantByNum(from pebble.Reader, num delivery.TenantNum) (*delivery.Tenant, error) {
	b, ok, err := getFrom(from, keyOfTenant(regTenant, num))
	if err != nil {
		return nil, fmt.Errorf("read tenant %d: %w", num, err)
	}
	if !ok {
		return nil, fmt.Errorf("tenant %d: %w", num, delivery.ErrNoTenant)
	}
	return decodeTenant(num, b)
}

// checkTenant returns nil if the tenant exists and was not deleted.
func checkTenant(from pebble.Reader, num delivery.TenantNum) error {
	known, err := exists(from, keyOfTenant(regTenant, num))
	if err != nil {
		return fmt.Errorf("read tenant %d: %w", num, err)
	}
	gone, err := exists(from, keyOfTenant(regTenantGone, num))
	if err != nil {
		return fmt.Errorf("read tenant %d: %w", num, err)
	}
	if !known || gone {
		return fmt.Errorf("tenant %d: %w", num, delivery.ErrNoTenant)
	}
	return nil
}

// ListTenants returns a page of tenants in the order of their ids, those after
// the id given first; next is "" at the end.
func (r *Registry) ListTenants(after string, limit int) (page []Listed[*delivery.Tenant], next string, err error) {
	err = r.snapshot(func(snap *pebble.Snapshot) error {
		next, err = eachID(snap, keyTenantID(""), after, limit, func(id string, value []byte) error {
			row := Listed[*delivery.Tenant]{}
			num, err := lastTenant(value)
			if err == nil {
				row.Value, err = tenantByNum(snap, num)
			}
			if row.Err = err; row.Value == nil {
				row.Value = &delivery.Tenant{Num: num, ID: id}
			}
			page = append(page, row)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list tenants: %w", err)
	}
	return page, next, nil
}

// snapshot runs fn on the store as it is at one moment.
func (r *Registry) snapshot(fn func(*pebble.Snapshot) error) error {
	return r.read(func(db *pebble.DB) (err error) {
		snap := db.NewSnapshot()
		defer func() { err = errors.Join(err, snap.Close()) }()
		return fn(snap)
	})
}

// eachID walks rows whose keys are a prefix and an id, from after the given id
// on, at most limit of them. It returns the id to go on after, "" at the end.
func eachID(from pebble.Reader, prefix []byte, after string, limit int, visit func(id string, value []byte) error) (next string, err error) {
	lower := append([]byte(nil), prefix...)
	if after != "" {
		lower = append(append(lower, after...), 0) // the id itself is passed
	}
	it, err := from.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: keyAfter(prefix)})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	left := pageSize(limit)
	for valid := it.First(); valid; valid = it.Next() {
		if left == 0 {
			return next, nil
		}
		left--
		next = string(it.Key()[len(prefix):])
		value, err := it.ValueAndErr()
		if err != nil {
			return "", err
		}
		if err := visit(next, value); err != nil {
			return "", err
		}
	}
	return "", it.Error()
}

// DeleteTenant makes a tenant, its subscribers and its documents unreachable in
// one batch whose size does not depend on how many there are. What belongs to
// them in the rest of the store is removed by whoever walks
// [Registry.DeletedTenants]; until [Registry.TenantCleaned] they are listed
// there, over restarts too. The id is free at once, the number never again.
func (r *Registry) DeleteTenant(id string, expect uint64) (num delivery.TenantNum, err error) {
	err = r.write(func(tx *registryTx) error {
		b, ok, err := getFrom(tx.b, keyTenantID(id))
		if err != nil {
			return err
		}
		if !ok {
			return delivery.ErrNoTenant
		}
		if num, err = lastTenant(b); err != nil {
			return err
		}
		// A record that cannot be read must not keep its tenant from being deleted.
		if expect != AnyVersion {
			t, err := tenantByNum(tx.b, num)
			if err != nil {
				return err
			}
			if err := checkVersion(expect, t.Version); err != nil {
				return err
			}
		}
		return tx.deleteTenant(id, num)
	})
	if err != nil {
		return 0, fmt.Errorf("delete tenant %q: %w", clipID(id), err)
	}
	return num, nil
}

func (tx *registryTx) deleteTenant(id string, num delivery.TenantNum) error {
	size, err := tenantSize(tx.b, num)
	if err != nil {
		return err
	}
	tx.counters.tenants--
	tx.counters.subscribers -= size
	tx.changed(Change{Tenant: num, Deleted: true})
	tx.indexed = append(tx.indexed, num)
	return errors.Join(
		tx.delete(keyTenantID(id)),
		tx.delete(keyOfTenant(regTenantSize, num)),
		tx.set(keyOfTenant(regTenantGone, num), encodeMilli(tx.now)),
		tx.deletePrefix(keyTopics(num)),
		tx.deletePrefix(keyReservingOf(num)),
		tx.deletePrefix(keyOfTenant(regDoc, num)),
	)
}

// TenantSize returns how many subscribers a tenant has.
func (r *Registry) TenantSize(num delivery.TenantNum) (size uint64, err error) {
	err = r.read(func(db *pebble.DB) error {
		size, err = tenantSize(db, num)
		return err
	})
	return size, err
}

func tenantSize(from pebble.Reader, num delivery.TenantNum) (uint64, error) {
	b, ok, err := getFrom(from, keyOfTenant(regTenantSize, num))
	if err != nil {
		return 0, fmt.Errorf("read size of tenant %d: %w", num, err)
	}
	if !ok {
		return 0, nil
	}
	if len(b) != 8 {
		return 0, fmt.Errorf("size of tenant %d: %w", num, ErrDamaged)
	}
	return binary.BigEndian.Uint64(b), nil
}

// addToTenant changes the number of a tenant's subscribers.
func (tx *registryTx) addToTenant(num delivery.TenantNum, delta int) error {
	size, err := tenantSize(tx.b, num)
	if err != nil {
		return err
	}
	tx.counters.subscribers += uint64(delta) //nolint:gosec // wraps around as a subtraction should
	size += uint64(delta)                    //nolint:gosec // likewise
	return tx.set(keyOfTenant(regTenantSize, num), binary.BigEndian.AppendUint64(nil, size))
}

func encodeMilli(t time.Time) []byte {
	return binary.BigEndian.AppendUint64(nil, uint64(t.UnixMilli())) //nolint:gosec // after 1970
}

func decodeMilli(b []byte) (time.Time, error) {
	if len(b) != 8 {
		return time.Time{}, fmt.Errorf("time of %d bytes: %w", len(b), ErrDamaged)
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b))).UTC(), nil //nolint:gosec // written by encodeMilli
}
