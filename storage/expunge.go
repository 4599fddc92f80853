package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Expunge deletes an event: its payload goes, and so do the copies of it in dead
// letters, spool files included. Timelines stay until their retention. Deliveries
// that are pending are canceled when their turn comes. also names subscribers that
// may have a dead letter of an event whose row is gone already.
func (s *Store) Expunge(ctx context.Context, at time.Time, key delivery.EventKey, reason delivery.Reason, also ...delivery.SubscriberNum) error {
	var fact *delivery.Expunged
	// Alone: it must see the dead letter that the batch before has written, and
	// what comes after must not copy a payload that is gone.
	err := s.step(ctx, &step{alone: true, run: func(db *pebble.DB, b *building) error {
		var err error
		fact, err = b.expunge(db, at, key, reason, also)
		return err
	}})
	if err != nil {
		return fmt.Errorf("expunge event %s: %w", key, err)
	}
	s.discard(spoolNames(fact))
	return nil
}

func (b *building) expunge(db *pebble.DB, at time.Time, key delivery.EventKey, reason delivery.Reason, also []delivery.SubscriberNum) (*delivery.Expunged, error) {
	_, targets, err := readEvent(db, key, false)
	if err != nil && (!errors.Is(err, delivery.ErrEventGone) || len(also) == 0) {
		return nil, err
	}
	fact := &delivery.Expunged{Lease: b.c.lease, At: at, Event: key, Reason: reason}
	for i := range targets {
		fact.Targets = append(fact.Targets, targets[i].Subscriber)
	}
	fact.Targets = append(fact.Targets, also...)
	for _, sub := range fact.Targets {
		row, ok, err := readDead(db, delivery.PartitionOf(sub, b.c.meta.partitions), key, sub, false)
		if errors.Is(err, errCorrupt) {
			continue // it goes by its name; retention finds what lists it
		}
		if err != nil {
			return nil, err
		}
		if name := row.name(key, sub); ok && name != nil {
			fact.Dead = append(fact.Dead, *name)
		}
	}
	b.apply(fact)
	return fact, nil
}

func spoolNames(f *delivery.Expunged) []string {
	names := []string{spoolName(f.Event, 0)}
	for _, sub := range f.Targets {
		names = append(names, spoolName(f.Event, sub))
	}
	return names
}

// ExpungeTenant deletes the events of a tenant, in steps, and then what indexes
// them. Nothing may be published for it any more. Its subscribers' dead letters go
// with [Store.DropSubscriber].
func (s *Store) ExpungeTenant(ctx context.Context, at time.Time, tenant delivery.TenantNum) error {
	for more := true; more; {
		var facts []*delivery.Expunged
		err := s.step(ctx, &step{alone: true, run: func(db *pebble.DB, b *building) error {
			var err error
			facts, more, err = b.expungeTenant(db, at, tenant)
			return err
		}})
		if err != nil {
			return fmt.Errorf("expunge tenant %d: %w", tenant, err)
		}
		for _, f := range facts {
			s.discard(spoolNames(f))
		}
	}
	return nil
}

// expungeTenant deletes a tenant's next events together with their index rows,
// and reports whether there are more. At the end it deletes what is left of the
// tenant in indexes.
func (b *building) expungeTenant(db *pebble.DB, at time.Time, tenant delivery.TenantNum) (facts []*delivery.Expunged, more bool, err error) {
	prefix := appendTenantEvents(nil, tenant)
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keyAfter(prefix)})
	if err != nil {
		return nil, false, err
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		if len(it.Key()) != tenantRowLen {
			return nil, false, errCorrupt
		}
		if len(facts) == stepSize {
			// What was handled so far need not be looked at again.
			return facts, true, b.b.DeleteRange(prefix, it.Key(), nil)
		}
		fact, err := b.expunge(db, at, delivery.EventKey(it.Key()[6:]), delivery.ReasonTenantDeleted, nil)
		switch {
		case err == nil:
			facts = append(facts, fact)
		case errors.Is(err, errCorrupt):
			// It cannot be read, so it is deleted by its key alone.
			fact := &delivery.Expunged{Lease: b.c.lease, At: at, Event: delivery.EventKey(it.Key()[6:]), Reason: delivery.ReasonTenantDeleted}
			b.apply(fact)
			facts = append(facts, fact)
		case !errors.Is(err, delivery.ErrEventGone):
			return nil, false, err
		}
	}
	if err := it.Error(); err != nil {
		return nil, false, err
	}
	if err := b.b.DeleteRange(prefix, keyAfter(prefix), nil); err != nil {
		return nil, false, err
	}
	return facts, false, b.forgetDedupe(db, tenant)
}

// forgetDedupe deletes a tenant's dedupe rows, bucket by bucket.
func (b *building) forgetDedupe(db *pebble.DB, tenant delivery.TenantNum) error {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixDedupe}, UpperBound: []byte{prefixDedupe + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.First(); ok; {
		bucket := it.Key()[:3:3]
		from := binary.BigEndian.AppendUint32(bucket, uint32(tenant))
		if err := b.b.DeleteRange(from, keyAfter(from), nil); err != nil {
			return err
		}
		next := keyAfter(bucket)
		ok = it.SeekGE(next)
	}
	return it.Error()
}

// DropSubscriber cancels everything that is pending for a deleted subscriber, in
// steps, and removes its dead letters and what was remembered about it. Nothing
// may be published or sent for it any more.
func (s *Store) DropSubscriber(ctx context.Context, at time.Time, sub delivery.SubscriberNum, reason delivery.Reason) error {
	for last := false; !last; {
		err := s.step(ctx, &step{alone: true, run: func(_ *pebble.DB, b *building) error {
			if _, ok := b.touched[DeliveryRef{Subscriber: sub}]; ok {
				return nil // the last step of it is in this batch; look again
			}
			rows, err := b.c.pendingRows(sub, stepSize)
			if err != nil {
				return err
			}
			dead, err := b.c.deadOf(sub, stepSize-len(rows))
			if err != nil {
				return err
			}
			last = len(rows)+len(dead) == 0
			b.touched[DeliveryRef{Subscriber: sub}] = struct{}{}
			b.apply(&delivery.Dropped{
				Lease: b.c.lease, At: at, Subscriber: sub, Reason: reason, Rows: rows, Dead: dead, Last: last,
			})
			return nil
		}})
		if err != nil {
			return fmt.Errorf("drop subscriber %d: %w", sub, err)
		}
	}
	return nil
}

// pendingRows reads up to limit rows of a subscriber from all places.
func (c *committer) pendingRows(sub delivery.SubscriberNum, limit int) (rows []delivery.Row, err error) {
	p := delivery.PartitionOf(sub, c.meta.partitions)
	read := func(from, end []byte) {
		if err == nil {
			// Whether they were handed out does not matter, so no watermark is read.
			var more []delivery.Row
			more, err = readRows(c.db, from, end, limit-len(rows), nil)
			rows = append(rows, more...)
		}
	}
	for lane := range uint64(delivery.Lanes) {
		read(c.sweeps.heads.span(queueRef{prefixReady, p, sub, lane}, headAt{}))
	}
	read(c.sweeps.heads.span(queueRef{prefixRetry, p, sub, 0}, headAt{}))
	parked := appendPartSub(nil, prefixParked, p, sub)
	read(parked, keyAfter(parked))
	return rows, err
}
