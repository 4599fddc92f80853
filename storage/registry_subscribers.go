package storage

import (
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// CreateSubscriber registers one subscriber; see [Registry.CreateSubscribers].
func (r *Registry) CreateSubscriber(s *delivery.Subscriber) (*delivery.Subscriber, error) {
	out, err := r.CreateSubscribers([]*delivery.Subscriber{s})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// CreateSubscribers registers subscribers in one synced batch: all of them or,
// on an error, none. It fails with [ErrExists] when an id is taken in its
// tenant, with [delivery.ErrNoTenant], and with [ErrBadRecord]; the error names
// each subscriber at fault. Num, Version, CreatedAt and UpdatedAt are not read
// but given. The batch is built in memory: register a million in parts of some
// thousand.
func (r *Registry) CreateSubscribers(subs []*delivery.Subscriber) ([]*delivery.Subscriber, error) {
	out := make([]*delivery.Subscriber, len(subs))
	err := r.write(func(tx *registryTx) error {
		var errs []error
		added := make(map[delivery.TenantNum]int)
		for i, s := range subs {
			_, known := added[s.Tenant]
			out[i] = copySubscriber(s)
			if err := tx.createSubscriber(out[i], known); err != nil {
				errs = append(errs, fmt.Errorf("create subscriber %q: %w", clipID(s.ID), err))
				continue
			}
			added[s.Tenant]++
		}
		for tenant, n := range added {
			errs = append(errs, tx.addToTenant(tenant, n))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// createSubscriber writes one subscriber; with known, its tenant was found to
// exist in this batch.
func (tx *registryTx) createSubscriber(s *delivery.Subscriber, known bool) error {
	if err := checkSubscriber(s); err != nil {
		return err
	}
	if !known {
		if err := checkTenant(tx.b, s.Tenant); err != nil {
			return err
		}
	}
	taken, err := exists(tx.b, keyMember(s.Tenant, s.ID))
	if err != nil {
		return err
	}
	if taken {
		return ErrExists
	}
	if tx.counters.subscriber == math.MaxUint64 {
		return fmt.Errorf("subscribers: %w", ErrFull)
	}
	tx.counters.subscriber++
	s.Num, s.Version, s.CreatedAt, s.UpdatedAt = tx.counters.subscriber, 1, tx.now, tx.now
	key := keyOfSubscriber(regSubscriber, s.Num)
	if err := tx.set(keyMember(s.Tenant, s.ID), key[regPrefixBytes:]); err != nil {
		return err
	}
	if err := tx.index(s.Tenant, s.Num, nil, s.Topics); err != nil {
		return err
	}
	if err := tx.indexReserving(s.Tenant, s.Num, 0, s.Reserved); err != nil {
		return err
	}
	return tx.setSubscriber(s)
}

// checkSubscriber refuses what would break the registry's own keys. What a URL
// or a policy may be is checked where it comes in.
func checkSubscriber(s *delivery.Subscriber) error {
	if err := delivery.CheckName(s.ID); err != nil {
		return fmt.Errorf("%w: %w", err, ErrBadRecord)
	}
	if s.Status == delivery.SubscriberDeleted {
		return fmt.Errorf("status deleted is set by deleting: %w", ErrBadRecord)
	}
	if s.Reserved < 0 {
		return fmt.Errorf("%d reserved slots: %w", s.Reserved, ErrBadRecord)
	}
	return checkPatterns(s.Topics)
}

func (tx *registryTx) setSubscriber(s *delivery.Subscriber) error {
	key := keyOfSubscriber(regSubscriber, s.Num)
	value, err := encodeSubscriber(s, tx.seal, key)
	if err != nil {
		return err
	}
	tx.changed(Change{Tenant: s.Tenant, Subscriber: s.Num})
	return tx.set(key, value)
}

// GetSubscriber returns the subscriber with an id in a tenant, or
// [delivery.ErrNoSubscriber]. If its secrets cannot be opened, it returns the
// rest of it together with the error.
func (r *Registry) GetSubscriber(tenant delivery.TenantNum, id string) (s *delivery.Subscriber, err error) {
	err = r.read(func(db *pebble.DB) error {
		num, err := memberNum(db, tenant, id)
		if err != nil {
			return err
		}
		s, err = r.subscriber(db, num)
		return err
	})
	if err != nil {
		return s, fmt.Errorf("get subscriber %q: %w", clipID(id), err)
	}
	return s, nil
}

func memberNum(from pebble.Reader, tenant delivery.TenantNum, id string) (delivery.SubscriberNum, error) {
	b, ok, err := getFrom(from, keyMember(tenant, id))
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, delivery.ErrNoSubscriber
	}
	return lastSubscriber(b)
}

// SubscriberByNum returns the subscriber with a number, or
// [delivery.ErrNoSubscriber] also when it or its tenant was deleted. If its
// secrets cannot be opened, it returns the rest of it together with the error.
func (r *Registry) SubscriberByNum(num delivery.SubscriberNum) (s *delivery.Subscriber, err error) {
	err = r.read(func(db *pebble.DB) error {
		s, err = r.subscriber(db, num)
		return err
	})
	return s, err
}

func (r *Registry) subscriber(from pebble.Reader, num delivery.SubscriberNum) (*delivery.Subscriber, error) {
	value, err := subscriberValue(from, num)
	if err != nil {
		return nil, err
	}
	s, err := decodeSubscriber(num, value, r.seal, keyOfSubscriber(regSubscriber, num))
	if s == nil {
		return nil, err
	}
	if s.Status == delivery.SubscriberDeleted {
		return nil, fmt.Errorf("subscriber %d was deleted: %w", num, delivery.ErrNoSubscriber)
	}
	gone, goneErr := exists(from, keyOfTenant(regTenantGone, s.Tenant))
	if goneErr != nil {
		return nil, fmt.Errorf("read tenant %d: %w", s.Tenant, goneErr)
	}
	if gone {
		return nil, fmt.Errorf("subscriber %d was deleted with its tenant: %w", num, delivery.ErrNoSubscriber)
	}
	return s, err
}

func subscriberValue(from pebble.Reader, num delivery.SubscriberNum) ([]byte, error) {
	value, ok, err := getFrom(from, keyOfSubscriber(regSubscriber, num))
	if err != nil {
		return nil, fmt.Errorf("read subscriber %d: %w", num, err)
	}
	if !ok {
		return nil, fmt.Errorf("subscriber %d: %w", num, delivery.ErrNoSubscriber)
	}
	return value, nil
}

// Identify returns the tenant and the id that a number stands for, also after
// the subscriber was deleted, until [Registry.ForgetSubscribers]: a timeline
// outlives the subscriber that it names.
func (r *Registry) Identify(num delivery.SubscriberNum) (tenant delivery.TenantNum, id string, err error) {
	err = r.read(func(db *pebble.DB) error {
		tenant, id, err = identify(db, num)
		return err
	})
	return tenant, id, err
}

func identify(from pebble.Reader, num delivery.SubscriberNum) (delivery.TenantNum, string, error) {
	value, err := subscriberValue(from, num)
	if err != nil {
		return 0, "", err
	}
	rec, _, err := splitSubscriber(num, value)
	if err != nil {
		return 0, "", err
	}
	return delivery.TenantNum(rec.Tenant), rec.ID, nil
}

// ListSubscribers returns a page of a tenant's subscribers in the order of
// their ids, those after the id given first; next is "" at the end.
func (r *Registry) ListSubscribers(tenant delivery.TenantNum, after string, limit int) (page []Listed[*delivery.Subscriber], next string, err error) {
	err = r.snapshot(func(snap *pebble.Snapshot) error {
		if err := checkTenant(snap, tenant); err != nil {
			return err
		}
		next, err = eachID(snap, keyMember(tenant, ""), after, limit, func(id string, value []byte) error {
			row := Listed[*delivery.Subscriber]{}
			num, err := lastSubscriber(value)
			if err == nil {
				row.Value, err = r.subscriber(snap, num)
			}
			if row.Err = err; row.Value == nil {
				row.Value = &delivery.Subscriber{Num: num, Tenant: tenant, ID: id}
			}
			page = append(page, row)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list subscribers: %w", err)
	}
	return page, next, nil
}

// UpdateSubscriber changes a subscriber in one step: change is given the stored
// value to modify, what it leaves is stored with the next version and returned.
// expect is the version that the caller read, or [AnyVersion]. Num, Tenant, ID,
// Version and the two times stay as they are whatever change does. An error of
// change is returned, and nothing is written.
//
// change runs under the registry's lock: it must be quick and must not call the
// registry. A subscriber whose secrets cannot be opened is not changed, since
// that would lose them; it can be deleted.
func (r *Registry) UpdateSubscriber(num delivery.SubscriberNum, expect uint64, change func(*delivery.Subscriber) error) (*delivery.Subscriber, error) {
	var out *delivery.Subscriber
	err := r.write(func(tx *registryTx) error {
		old, err := r.subscriber(tx.b, num)
		if err != nil {
			return err
		}
		if err := checkVersion(expect, old.Version); err != nil {
			return err
		}
		s := copySubscriber(old)
		if err := change(s); err != nil {
			return err
		}
		s.Num, s.Tenant, s.ID, s.Version = num, old.Tenant, old.ID, old.Version+1
		s.CreatedAt, s.UpdatedAt = old.CreatedAt, tx.now
		if err := checkSubscriber(s); err != nil {
			return err
		}
		if err := tx.index(s.Tenant, num, old.Topics, s.Topics); err != nil {
			return err
		}
		if err := tx.indexReserving(s.Tenant, num, old.Reserved, s.Reserved); err != nil {
			return err
		}
		out = s
		return tx.setSubscriber(s)
	})
	if err != nil {
		return nil, fmt.Errorf("update subscriber %d: %w", num, err)
	}
	return copySubscriber(out), nil
}

// DeleteSubscriber makes a subscriber unreachable and forgets its secrets, in
// one batch. What is pending for it is removed by whoever walks
// [Registry.DeletedSubscribers]; until [Registry.SubscriberCleaned] it is listed
// there, over restarts too. Its id is free at once, its number never again.
//
// It opens no secret, and with [AnyVersion] it does not even need a readable
// record: a lost key or a damaged row does not keep a subscriber alive.
func (r *Registry) DeleteSubscriber(tenant delivery.TenantNum, id string, expect uint64) (num delivery.SubscriberNum, err error) {
	err = r.write(func(tx *registryTx) error {
		if err := checkTenant(tx.b, tenant); err != nil {
			return err
		}
		if num, err = memberNum(tx.b, tenant, id); err != nil {
			return err
		}
		value, err := subscriberValue(tx.b, num)
		if err != nil && !errors.Is(err, delivery.ErrNoSubscriber) {
			return err
		}
		rec, _, err := splitSubscriber(num, value)
		if err != nil {
			if expect != AnyVersion {
				return err
			}
			rec = &subscriberRecord{ID: id, Tenant: uint32(tenant)}
			if rec.Topics, err = patternsOf(tx.b, tenant, num); err != nil {
				return err
			}
		}
		if err := checkVersion(expect, rec.Version); err != nil {
			return err
		}
		return tx.deleteSubscriber(rec, num)
	})
	if err != nil {
		return 0, fmt.Errorf("delete subscriber %q: %w", clipID(id), err)
	}
	return num, nil
}

func (tx *registryTx) deleteSubscriber(rec *subscriberRecord, num delivery.SubscriberNum) error {
	tenant := delivery.TenantNum(rec.Tenant)
	key := keyOfSubscriber(regSubscriber, num)
	value, err := encodeSubscriber(tombstone(rec, num, tx.now), nil, key)
	if err != nil {
		return err
	}
	tx.changed(Change{Tenant: tenant, Subscriber: num, Deleted: true})
	return errors.Join(
		tx.set(key, value),
		tx.set(keyOfSubscriber(regSubGone, num), encodeMilli(tx.now)),
		tx.delete(keyMember(tenant, rec.ID)),
		tx.index(tenant, num, rec.Topics, nil),
		tx.delete(keyReserving(tenant, num)),
		tx.addToTenant(tenant, -1),
	)
}

// clipID keeps errors bounded whatever a caller gave as an id.
func clipID(id string) string {
	if len(id) > delivery.MaxNameLen {
		return id[:delivery.MaxNameLen] + "…"
	}
	return id
}
