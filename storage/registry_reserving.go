package storage

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Reservation is a subscriber that reserves slots, whatever its status.
type Reservation struct {
	Tenant     delivery.TenantNum
	Subscriber delivery.SubscriberNum
	ID         string
	Slots      int // attempts in flight that nobody else can take
}

// indexReserving keeps the rows that [Registry.Reservations] walks.
func (tx *registryTx) indexReserving(tenant delivery.TenantNum, num delivery.SubscriberNum, before, after int) error {
	switch key := keyReserving(tenant, num); {
	case after > 0 && before <= 0:
		return tx.set(key, nil)
	case after <= 0 && before > 0:
		return tx.delete(key)
	}
	return nil
}

// Reservations lists the subscribers that reserve slots, by tenant and number.
// What it costs follows their number alone, however many are registered. The
// index says where to look, the records say how much: a record that a release
// which knows no reservations has written reserves nothing. One that cannot be
// read reserves nothing either.
func (r *Registry) Reservations() (out []Reservation, err error) {
	err = r.snapshot(func(snap *pebble.Snapshot) error {
		out, err = reservations(snap)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list reservations: %w", err)
	}
	return out, nil
}

func reservations(from pebble.Reader) (out []Reservation, err error) {
	prefix := regKey(regReserving, 0)
	it, err := from.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keyAfter(prefix)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for valid := it.First(); valid; valid = it.Next() {
		num, err := lastSubscriber(it.Key())
		if err != nil {
			return nil, err
		}
		value, err := subscriberValue(from, num)
		if errors.Is(err, delivery.ErrNoSubscriber) {
			continue
		}
		if err != nil {
			return nil, err
		}
		rec, _, err := splitSubscriber(num, value)
		if err != nil || rec.Reserved <= 0 {
			continue
		}
		out = append(out, Reservation{Tenant: delivery.TenantNum(rec.Tenant), Subscriber: num, ID: rec.ID, Slots: rec.Reserved})
	}
	return out, it.Error()
}
