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

// DeadLetters lists the dead letters of subscribers: by subscriber, newest event
// first. A tenant's are those of its subscribers. Reason, Signature, Topic, Since
// and Until of the filter count.
func (s *Store) DeadLetters(ctx context.Context, subs []delivery.SubscriberNum, f Filter, after string, limit int) (Page, error) {
	c, err := parseCursor(after, cursorDead)
	l := lister{s: s, f: &f, limit: clampLimit(limit)}
	if err == nil {
		sorted := slices.Compact(slices.Sorted(slices.Values(subs)))
		from, _ := slices.BinarySearch(sorted, c.sub)
		err = s.view(func(db *pebble.DB) error { return l.dead(ctx, db, sorted[from:], c) })
	}
	if err != nil {
		return Page{}, fmt.Errorf("dead letters: %w", err)
	}
	return l.page, nil
}

func (l *lister) dead(ctx context.Context, db *pebble.DB, subs []delivery.SubscriberNum, c cursor) error {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixDead}, UpperBound: []byte{prefixDead + 1}})
	if err != nil {
		return err
	}
	defer it.Close()
	from := firstEventKey(l.f.Since)
	for _, sub := range subs {
		below := l.f.upperEvent()
		if sub == c.sub && !c.event.IsZero() {
			below = c.event
		} else {
			c.sub, c.event = sub, delivery.EventKey{}
		}
		if !l.more(ctx, c) {
			return ctx.Err()
		}
		p := l.s.partition(sub)
		lower := appendDeadRow(nil, p, sub, from)
		for ok := it.SeekLT(appendDeadRow(nil, p, sub, below)); ok && string(it.Key()) >= string(lower); ok = it.Prev() {
			if !l.more(ctx, c) {
				return ctx.Err()
			}
			if len(it.Key()) != deadRowLen {
				return errCorrupt
			}
			c.event = delivery.EventKey(it.Key()[partSubLen:])
			v, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			l.addDead(c.event, sub, v)
		}
	}
	return it.Error()
}

func (l *lister) addDead(key delivery.EventKey, sub delivery.SubscriberNum, value []byte) {
	sum := Summary{Event: key, Subscriber: sub}
	row, err := decodeDead(key, value, false)
	if err != nil {
		sum.State, sum.Err = delivery.StateDead, err
		l.page.Items = append(l.page.Items, sum)
		return
	}
	row.summary(&sum)
	sum.Header = row.event
	if l.f.matchesEvent(sum.Header) && l.f.matchesState(&sum) {
		l.page.Items = append(l.page.Items, sum)
	}
}
