package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func (r *deadRow) summary(s *Summary) {
	s.State, s.Reason, s.Attempts = delivery.StateDead, r.reason, r.attempts
	s.ChangedAt, s.Signature, s.NextDue = r.at, r.signature, time.Time{}
}

// dead reads a dead letter.
func (s *Store) dead(db *pebble.DB, key delivery.EventKey, sub delivery.SubscriberNum, payload bool) (deadRow, bool, error) {
	return readDead(db, s.partition(sub), key, sub, payload)
}

func readDead(db *pebble.DB, p delivery.Partition, key delivery.EventKey, sub delivery.SubscriberNum, payload bool) (deadRow, bool, error) {
	v, closer, err := db.Get(appendDeadRow(nil, p, sub, key))
	if errors.Is(err, pebble.ErrNotFound) {
		return deadRow{}, false, nil
	}
	if err != nil {
		return deadRow{}, false, err
	}
	row, err := decodeDead(key, v, payload)
	return row, err == nil, errors.Join(err, closer.Close())
}

// DeadLetter returns a dead letter with its own copy of the event, payload
// included; [delivery.ErrNoDelivery] if there is none. The copy is nil if the
// event was deleted before the delivery died.
func (s *Store) DeadLetter(_ context.Context, key delivery.EventKey, sub delivery.SubscriberNum) (sum Summary, e *delivery.Event, err error) {
	sum = Summary{Event: key, Subscriber: sub}
	err = s.view(func(db *pebble.DB) error {
		row, ok, err := s.dead(db, key, sub, true)
		if err == nil && !ok {
			err = delivery.ErrNoDelivery
		}
		row.summary(&sum)
		e = row.event
		return err
	})
	if err != nil {
		return Summary{}, nil, fmt.Errorf("dead letter %s of subscriber %d: %w", key, sub, err)
	}
	if e != nil {
		header := *e
		header.Payload = nil
		sum.Header = &header
	}
	return sum, e, nil
}

// DeadLetters lists the dead letters of a subscriber or of a tenant: what died last
// comes first. Subscriber or Tenant, Reason, Signature, Topic, Since, Until and
// DiedBefore of the filter count.
func (s *Store) DeadLetters(ctx context.Context, f Filter, after string, limit int) (Page, error) {
	c, err := parseCursor(after, cursorDead)
	l := lister{s: s, f: &f, limit: clampLimit(limit)}
	if err == nil && f.Subscriber == 0 && f.Tenant == 0 {
		err = ErrBadFilter
	}
	if err == nil {
		err = s.view(func(db *pebble.DB) error { return l.dead(ctx, db, c) })
	}
	if err != nil {
		return Page{}, fmt.Errorf("dead letters: %w", err)
	}
	return l.page, nil
}

// deadSpan returns the keys that list what the filter asks for, and where a
// listing goes on: below the dead letter of the cursor.
func (l *lister) deadSpan(c cursor) keyRange {
	prefix := appendTenantDead(nil, l.f.Tenant)
	if sub := l.f.Subscriber; sub != 0 {
		prefix = appendPartSub(nil, prefixDied, l.s.partition(sub), sub)
	}
	// Nothing dies before it was accepted.
	r := keyRange{appendMilli48(slices.Clip(prefix), l.f.Since), keyAfter(prefix)}
	if !l.f.DiedBefore.IsZero() {
		r.end = appendMilli48(slices.Clip(prefix), l.f.DiedBefore.Add(time.Millisecond))
	}
	if c.event.IsZero() {
		return r
	}
	at := delivery.DeadLetter{
		Tenant: l.f.Tenant, Subscriber: c.sub, Event: c.event, At: milliTime(c.index),
	}
	below := appendTenantDeadRow(nil, &at)
	if l.f.Subscriber != 0 {
		below = appendDiedRow(nil, l.s.partition(l.f.Subscriber), &at)
	}
	if string(below) < string(r.end) {
		r.end = below
	}
	return r
}

func (l *lister) dead(ctx context.Context, db *pebble.DB, c cursor) error {
	span := l.deadSpan(c)
	if string(span.start) >= string(span.end) {
		return nil
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: span.start, UpperBound: span.end})
	if err != nil {
		return err
	}
	defer it.Close()
	for ok := it.Last(); ok; ok = it.Prev() {
		if !l.more(ctx, c) {
			return ctx.Err()
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		name, err := parseDied(it.Key(), v)
		if err != nil {
			return err
		}
		c.event, c.sub, c.index = name.Event, name.Subscriber, milliOf(name.At)
		if !l.f.inTime(name.Event) {
			continue
		}
		if err := l.addDead(db, &name); err != nil {
			return err
		}
	}
	return it.Error()
}

func (l *lister) addDead(db *pebble.DB, name *delivery.DeadLetter) error {
	sum := Summary{Event: name.Event, Subscriber: name.Subscriber}
	row, ok, err := l.s.dead(db, name.Event, name.Subscriber, false)
	switch {
	case errors.Is(err, errCorrupt):
		sum.State, sum.Err = delivery.StateDead, err
		l.page.Items = append(l.page.Items, sum)
		return nil
	case err != nil:
		return err
	case !ok || !diedAt(row.at, name.Event).Equal(name.At):
		return nil // left over from a dead letter that could not be read when it went
	case !l.f.DiedBefore.IsZero() && !row.at.Before(l.f.DiedBefore):
		return nil // in the same millisecond
	}
	row.summary(&sum)
	sum.Header = row.event
	if l.f.matchesEvent(sum.Header) && l.f.matchesState(&sum) {
		l.page.Items = append(l.page.Items, sum)
	}
	return nil
}
