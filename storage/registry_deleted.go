package storage

import (
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Deleting ends in three steps, so that a crash between them loses no work and
// no deletion waits for a million rows:
//
//	Delete…            one batch: unreachable, listed here as to be cleaned
//	…Cleaned           the data is gone from the rest of the store; off the list
//	ForgetSubscribers  nothing names the number any more; the last trace goes
//
// A publish that matched a subscriber just before its deletion may still commit
// rows for it after it was cleaned. Whoever finds such a row learns from
// [Registry.SubscriberByNum] that it is nobody's, and cancels it.

// DeletedSubscriber is a subscriber that was deleted by itself, not with its
// tenant, and whose data has not been removed yet.
type DeletedSubscriber struct {
	Num    delivery.SubscriberNum
	Tenant delivery.TenantNum // 0 when its record is damaged
	ID     string             // "" when its record is damaged
	At     time.Time
}

// DeletedTenant is a tenant that was deleted and whose data, subscribers
// included, has not been removed yet.
type DeletedTenant struct {
	Num delivery.TenantNum
	ID  string // "" when its record is damaged
	At  time.Time
}

// DeletedSubscribers returns those after a number, at most limit; fewer than
// asked for means that there are no more.
func (r *Registry) DeletedSubscribers(after delivery.SubscriberNum, limit int) ([]DeletedSubscriber, error) {
	var out []DeletedSubscriber
	lower := keyOfSubscriber(regSubGone, after+1)
	err := r.scan(lower, keyAfter(regKey(regSubGone, 0)), limit, func(from pebble.Reader, key, value []byte) error {
		num, err := lastSubscriber(key)
		if err != nil {
			return err
		}
		row := DeletedSubscriber{Num: num}
		if row.At, err = decodeMilli(value); err != nil {
			return err
		}
		// Cleaning needs the number alone, so a damaged record must not stop it.
		row.Tenant, row.ID, err = identify(from, num)
		if err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, delivery.ErrNoSubscriber) {
			return err
		}
		out = append(out, row)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list deleted subscribers: %w", err)
	}
	return out, nil
}

// DeletedTenants returns those after a number, at most limit; fewer than asked
// for means that there are no more.
func (r *Registry) DeletedTenants(after delivery.TenantNum, limit int) ([]DeletedTenant, error) {
	var out []DeletedTenant
	lower := keyOfTenant(regTenantGone, after+1)
	err := r.scan(lower, keyAfter(regKey(regTenantGone, 0)), limit, func(from pebble.Reader, key, value []byte) error {
		num, err := lastTenant(key)
		if err != nil {
			return err
		}
		row := DeletedTenant{Num: num}
		if row.At, err = decodeMilli(value); err != nil {
			return err
		}
		switch t, err := tenantByNum(from, num); {
		case err == nil:
			row.ID = t.ID
		case !errors.Is(err, ErrDamaged) && !errors.Is(err, delivery.ErrNoTenant):
			return err
		}
		out = append(out, row)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list deleted tenants: %w", err)
	}
	return out, nil
}

// Member is a subscriber that was deleted with its tenant.
type Member struct {
	Num delivery.SubscriberNum
	ID  string
}

// Members returns subscribers of a deleted tenant that have not been cleaned
// yet, at most limit. Cleaned ones leave the list, so the caller asks again
// until it is empty. It needs no readable records.
func (r *Registry) Members(tenant delivery.TenantNum, limit int) ([]Member, error) {
	var out []Member
	prefix := keyMember(tenant, "")
	err := r.scan(prefix, keyAfter(prefix), limit, func(_ pebble.Reader, key, value []byte) error {
		num, err := lastSubscriber(value)
		out = append(out, Member{num, string(key[len(prefix):])})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list subscribers of tenant %d: %w", tenant, err)
	}
	return out, nil
}

func (r *Registry) scan(lower, upper []byte, limit int, visit func(from pebble.Reader, key, value []byte) error) error {
	return r.read(func(db *pebble.DB) error {
		return scan(db, lower, upper, limit, func(key, value []byte) error { return visit(db, key, value) })
	})
}

// scan visits at most limit rows from lower up to upper.
func scan(from pebble.Reader, lower, upper []byte, limit int, visit func(key, value []byte) error) (err error) {
	it, err := from.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	left := pageSize(limit)
	for valid := it.First(); valid && left > 0; valid = it.Next() {
		left--
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := visit(it.Key(), value); err != nil {
			return err
		}
	}
	return it.Error()
}

// SubscriberCleaned says that nothing of a deleted subscriber is left in the
// rest of the store. It may be called again after a crash.
func (r *Registry) SubscriberCleaned(num delivery.SubscriberNum) error {
	err := r.write(func(tx *registryTx) error {
		deletedAt, ok, err := getFrom(tx.b, keyOfSubscriber(regSubGone, num))
		if err != nil || !ok { // cleaned before
			return err
		}
		// Timelines may name it for as long as they are kept.
		return errors.Join(
			tx.delete(keyOfSubscriber(regSubGone, num)),
			tx.set(keySubForget(deletedAt, num), nil),
		)
	})
	if err != nil {
		return fmt.Errorf("subscriber %d cleaned: %w", num, err)
	}
	return nil
}

// MembersCleaned says that nothing of these subscribers of a deleted tenant is
// left in the rest of the store. It may be called again after a crash; it fails
// with [ErrBadRecord] if the tenant was not deleted.
func (r *Registry) MembersCleaned(tenant delivery.TenantNum, members []Member) error {
	err := r.write(func(tx *registryTx) error {
		if checkTenant(tx.b, tenant) == nil {
			return fmt.Errorf("it is not deleted: %w", ErrBadRecord)
		}
		var errs []error
		for _, m := range members {
			errs = append(errs, tx.delete(keyMember(tenant, m.ID)), tx.delete(keyOfSubscriber(regSubscriber, m.Num)))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return fmt.Errorf("subscribers of tenant %d cleaned: %w", tenant, err)
	}
	return nil
}

// TenantCleaned says that nothing of a deleted tenant is left in the rest of the
// store. It fails with [ErrBadRecord] if the tenant was not deleted, and while
// [Registry.Members] is not empty. It may be called again after a crash.
func (r *Registry) TenantCleaned(num delivery.TenantNum) error {
	err := r.write(func(tx *registryTx) error {
		if checkTenant(tx.b, num) == nil {
			return fmt.Errorf("it is not deleted: %w", ErrBadRecord)
		}
		prefix := keyMember(num, "")
		err := scan(tx.b, prefix, keyAfter(prefix), 1, func(key, _ []byte) error {
			return fmt.Errorf("subscriber %q is not cleaned: %w", key[len(prefix):], ErrBadRecord)
		})
		if err != nil {
			return err
		}
		return errors.Join(
			tx.delete(keyOfTenant(regTenantGone, num)),
			tx.delete(keyOfTenant(regTenant, num)),
		)
	})
	if err != nil {
		return fmt.Errorf("tenant %d cleaned: %w", num, err)
	}
	return nil
}

// ForgetSubscribers removes the last trace, tenant and id, of up to limit
// cleaned subscribers that were deleted before a time, and returns how many.
// Call it with the age after which no timeline is kept.
func (r *Registry) ForgetSubscribers(before time.Time, limit int) (forgotten int, err error) {
	err = r.write(func(tx *registryTx) error {
		upper := append(regKey(regSubForget, 8), encodeMilli(before)...)
		return scan(tx.b, regKey(regSubForget, 0), upper, limit, func(key, _ []byte) error {
			num, err := lastSubscriber(key)
			if err != nil {
				return err
			}
			forgotten++
			return errors.Join(tx.delete(key), tx.delete(keyOfSubscriber(regSubscriber, num)))
		})
	})
	if err != nil {
		return 0, fmt.Errorf("forget deleted subscribers: %w", err)
	}
	return forgotten, nil
}
