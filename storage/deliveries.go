package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Deliveries lists deliveries: those of an event in the order of its targets,
// those of a subscriber or a tenant newest event first. It reads indexes and
// looks at a bounded number of rows. Rows that cannot be read are listed with
// their error.
func (s *Store) Deliveries(ctx context.Context, f Filter, after string, limit int) (Page, error) {
	l := lister{s: s, f: &f, limit: clampLimit(limit)}
	var kind byte
	var run func(context.Context, *pebble.DB, cursor) error
	switch {
	case !f.Event.IsZero():
		kind, run = cursorEvent, l.ofEvent
	case f.Subscriber != 0:
		kind, run = cursorSubscriber, l.ofSubscriber
	case f.Tenant != 0:
		kind, run = cursorTenant, l.ofTenant
	default:
		return Page{}, fmt.Errorf("deliveries: %w", ErrBadFilter)
	}
	c, err := parseCursor(after, kind)
	if err == nil {
		err = s.view(func(db *pebble.DB) error { return run(ctx, db, c) })
	}
	if err != nil {
		return Page{}, fmt.Errorf("deliveries: %w", err)
	}
	return l.page, nil
}

// lister fills a page.
type lister struct {
	s     *Store
	f     *Filter
	limit int
	page  Page
	seen  int // rows looked at
}

// more reports whether the page has room and the bound is not reached. If not,
// the listing goes on at c.
func (l *lister) more(ctx context.Context, c cursor) bool {
	l.seen++
	if len(l.page.Items) < l.limit && l.seen <= rowsPerPage && ctx.Err() == nil {
		return true
	}
	l.page.Next = c.String()
	return false
}

// add lists a delivery if it passes the filter. A nil header asks for it to be
// read.
func (l *lister) add(db *pebble.DB, key delivery.EventKey, sub delivery.SubscriberNum, header *delivery.Event, value []byte) {
	sum := Summary{Event: key, Subscriber: sub, Header: header}
	if err := l.fill(db, &sum, value); err != nil {
		sum.Err = err
		l.page.Items = append(l.page.Items, sum)
		return
	}
	if l.f.matchesEvent(sum.Header) && l.f.matchesState(&sum) {
		l.page.Items = append(l.page.Items, sum)
	}
}

func (l *lister) fill(db *pebble.DB, sum *Summary, value []byte) error {
	if sum.Header == nil {
		if err := l.s.header(db, sum, false); err != nil {
			return err
		}
	}
	t := timeline{key: sum.Event}
	if err := t.read(value, false); err != nil {
		return err
	}
	t.summary(sum)
	return nil
}

// target lists a delivery of an event whose header and targets were read.
func (l *lister) target(db *pebble.DB, e *delivery.Event, sub delivery.SubscriberNum) error {
	v, ok, err := getFrom(db, appendTimeRow(nil, l.s.partition(sub), sub, e.Key))
	if err != nil {
		return err
	}
	if !ok {
		return nil // its history has passed; the event goes with the next run
	}
	l.add(db, e.Key, sub, e, v)
	return nil
}

func (l *lister) ofEvent(ctx context.Context, db *pebble.DB, c cursor) error {
	e, targets, err := readEvent(db, l.f.Event, false)
	if err != nil {
		return err
	}
	for i := c.index; i < uint64(len(targets)); i++ {
		c.index = i
		if !l.more(ctx, c) {
			break
		}
		if sub := targets[i].Subscriber; l.f.Subscriber == 0 || l.f.Subscriber == sub {
			if err := l.target(db, e, sub); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// ofSubscriber walks the hours back and skips what belongs to others in the same
// partition: two seeks an hour, and none for an hour in which the partition has
// nothing.
func (l *lister) ofSubscriber(ctx context.Context, db *pebble.DB, c cursor) error {
	sub, p := l.f.Subscriber, l.s.partition(l.f.Subscriber)
	prefix := appendPart(nil, prefixTime, p)
	it, err := db.NewIter(&pebble.IterOptions{
		LowerBound: binary.BigEndian.AppendUint32(prefix[:3:3], uint32(hourOf(l.f.Since))), UpperBound: keyAfter(prefix),
	})
	if err != nil {
		return err
	}
	defer it.Close()
	// The listing goes on below this key.
	if c.event.IsZero() && c.hour == 0 {
		c.event = l.f.upperEvent()
		c.hour = hourOfEvent(c.event)
	}
	below := append(appendTimeSub(nil, p, c.hour, sub), c.event[:]...)
	for ok := it.SeekLT(below); ok; {
		k := it.Key()
		if len(k) != timeRowLen {
			return errCorrupt
		}
		h, other := hour(binary.BigEndian.Uint32(k[3:])), delivery.SubscriberNum(binary.BigEndian.Uint64(k[7:]))
		switch {
		case other > sub: // the hour may have ours, before
			c.hour, c.event = h, lastEventKey
		case other < sub: // it has no more
			c.hour, c.event = h, delivery.EventKey{}
		default:
			if !l.more(ctx, c) {
				return ctx.Err()
			}
			c.hour, c.event = h, delivery.EventKey(k[15:])
			if l.f.inTime(c.event) {
				v, err := it.ValueAndErr()
				if err != nil {
					return err
				}
				l.add(db, c.event, sub, nil, v)
			}
			ok = it.Prev()
			continue
		}
		if !l.more(ctx, c) {
			return ctx.Err()
		}
		below = append(appendTimeSub(below[:0], p, c.hour, sub), c.event[:]...)
		if other < sub {
			below = appendTimeSub(below[:0], p, h, 0)
		}
		ok = it.SeekLT(below)
	}
	return it.Error()
}

func (l *lister) ofTenant(ctx context.Context, db *pebble.DB, c cursor) error {
	it, err := tenantEvents(db, l.f)
	if err != nil {
		return err
	}
	defer it.Close()
	first := c
	for ok := seekTenantEvent(it, l.f, c); ok; ok = it.Prev() {
		k := it.Key()
		if len(k) != tenantRowLen {
			return errCorrupt
		}
		c = cursor{kind: c.kind, event: delivery.EventKey(k[6:])}
		if c.event == first.event {
			c.index = first.index // a page ended inside this event
		}
		if !l.more(ctx, c) {
			return ctx.Err()
		}
		done, err := l.eventOfTenant(ctx, db, c)
		if err != nil || !done {
			return err
		}
	}
	return it.Error()
}

// eventOfTenant lists the deliveries of one event, from c.index on. done is
// false if the page ended inside.
func (l *lister) eventOfTenant(ctx context.Context, db *pebble.DB, c cursor) (done bool, err error) {
	e, targets, err := readEvent(db, c.event, false)
	switch {
	case errors.Is(err, delivery.ErrEventGone):
		return true, nil // deleted: the index outlives it
	case err != nil:
		l.page.Items = append(l.page.Items, Summary{Event: c.event, Err: err})
		return true, nil
	case !l.f.matchesEvent(e):
		return true, nil
	}
	for i := c.index; i < uint64(len(targets)); i++ {
		c.index = i
		if !l.more(ctx, c) {
			return false, ctx.Err()
		}
		if err := l.target(db, e, targets[i].Subscriber); err != nil {
			return false, err
		}
	}
	return true, nil
}

// tenantEvents iterates over a tenant's events in the filter's time.
func tenantEvents(db *pebble.DB, f *Filter) (*pebble.Iterator, error) {
	prefix := appendTenantEvents(nil, f.Tenant)
	from := firstEventKey(f.Since)
	upper := keyAfter(prefix)
	if !f.Until.IsZero() {
		to := f.upperEvent()
		upper = append(prefix[:6:6], to[:]...)
	}
	return db.NewIter(&pebble.IterOptions{LowerBound: append(prefix[:6:6], from[:]...), UpperBound: upper})
}

// seekTenantEvent goes to the event of a cursor, which a page may have left in
// the middle, or the newest one.
func seekTenantEvent(it *pebble.Iterator, f *Filter, c cursor) bool {
	if c.event.IsZero() {
		return it.Last()
	}
	return it.SeekLT(append(appendTenantEventRow(nil, f.Tenant, c.event), 0))
}

// EventSummary is an event of a listing.
type EventSummary struct {
	Event      *delivery.Event // without payload; nil with Err
	Key        delivery.EventKey
	Deliveries int
	Err        error // the row could not be read
}

// Events lists a tenant's events, newest first. Tenant, Topic, Since and Until of
// the filter count.
func (s *Store) Events(ctx context.Context, f Filter, after string, limit int) (items []EventSummary, next string, err error) {
	if f.Tenant == 0 {
		return nil, "", fmt.Errorf("events: %w", ErrBadFilter)
	}
	c, err := parseCursor(after, cursorEvents)
	if err == nil {
		err = s.view(func(db *pebble.DB) error {
			items, next, err = listEvents(ctx, db, &f, c, clampLimit(limit))
			return err
		})
	}
	if err != nil {
		return nil, "", fmt.Errorf("events: %w", err)
	}
	return items, next, nil
}

func listEvents(ctx context.Context, db *pebble.DB, f *Filter, c cursor, limit int) (items []EventSummary, next string, err error) {
	it, err := tenantEvents(db, f)
	if err != nil {
		return nil, "", err
	}
	defer it.Close()
	seen := 0
	for ok := seekTenantEvent(it, f, c); ok; ok = it.Prev() {
		k := it.Key()
		if len(k) != tenantRowLen {
			return nil, "", errCorrupt
		}
		c.event = delivery.EventKey(k[6:])
		if len(items) == limit || seen == rowsPerPage {
			return items, c.String(), ctx.Err()
		}
		seen++
		e, targets, err := readEvent(db, c.event, false)
		switch {
		case errors.Is(err, delivery.ErrEventGone):
		case err != nil:
			items = append(items, EventSummary{Key: c.event, Err: err})
		case f.matchesEvent(e):
			items = append(items, EventSummary{Event: e, Key: c.event, Deliveries: len(targets)})
		}
	}
	return items, "", errors.Join(it.Error(), ctx.Err())
}
