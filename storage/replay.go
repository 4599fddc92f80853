package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Replay asks for a finished delivery to be sent again.
type Replay struct {
	Event      delivery.EventKey
	Subscriber *delivery.Subscriber // its policy decides lane and ordering key
	// Force also replays what was delivered.
	Force bool
	// DiedBefore leaves a dead letter that died at or after it as it is; zero = none.
	DiedBefore time.Time
}

// stepSize is how many deliveries one step changes at most, so that publishes
// are not held up.
const stepSize = 256

// Replay puts finished deliveries back at the tail of their queues and returns
// one error each: nil when it is durable, [delivery.ErrState] for what is pending,
// canceled, purged, delivered without force, or died too late, [delivery.ErrNoDelivery], or
// [delivery.ErrEventGone] when no copy of the payload is left. Attempts go on
// counting, the maximum age counts from at. Looking and changing are one step,
// so two replays of the same delivery make one.
func (s *Store) Replay(ctx context.Context, at time.Time, list []Replay) []error {
	errs := make([]error, len(list))
	for from := 0; from < len(list); from += stepSize {
		part := list[from:min(from+stepSize, len(list))]
		result := make([]error, len(part)) // the step may outlive a caller that leaves
		err := s.step(ctx, &step{run: func(db *pebble.DB, b *building) error {
			for i := range part {
				result[i] = b.replay(db, at, &part[i])
			}
			return nil
		}})
		for i := range part {
			if err == nil {
				errs[from+i] = result[i]
			} else {
				errs[from+i] = fmt.Errorf("replay %s: %w", part[i].Event, err)
			}
		}
	}
	return errs
}

// replay replays one delivery on the committer's goroutine.
func (b *building) replay(db *pebble.DB, at time.Time, r *Replay) error {
	wrap := func(err error) error {
		return fmt.Errorf("replay %s for %s: %w", r.Event, r.Subscriber.ID, err)
	}
	ref := DeliveryRef{r.Event, r.Subscriber.Num}
	if _, ok := b.touched[ref]; ok {
		return wrap(delivery.ErrState)
	}
	attempts, deadCopy, dead, err := b.replayable(db, r)
	if err != nil {
		return wrap(err)
	}
	e, _, err := readEvent(db, r.Event, false)
	fact := &delivery.Replayed{
		Lease: b.c.lease, At: at, Event: r.Event, Subscriber: r.Subscriber.Num, Attempts: attempts, Dead: dead,
	}
	switch {
	case err == nil:
	case !errors.Is(err, delivery.ErrEventGone):
		return wrap(err)
	case deadCopy == nil:
		return wrap(delivery.ErrEventGone)
	default:
		if deadCopy.Spool != "" {
			deadCopy.Spool, err = b.c.spool.keep(deadCopy.Spool, r.Event, 0)
			if errors.Is(err, fs.ErrNotExist) {
				err = delivery.ErrEventGone
			}
			if err != nil {
				return wrap(err)
			}
		}
		e, fact.Copy = deadCopy, deadCopy
	}
	fact.Lane, fact.Key = r.Subscriber.Lane(e), r.Subscriber.KeyFor(e.OrderingKey)
	b.touched[ref] = struct{}{}
	b.apply(fact)
	return nil
}

// replayable decides whether a delivery may be replayed, and returns its
// attempts so far and, of a dead letter, its copy of the event and its name.
func (b *building) replayable(db *pebble.DB, r *Replay) (attempts int, e *delivery.Event, dead *delivery.DeadLetter, err error) {
	sub := r.Subscriber.Num
	p := delivery.PartitionOf(sub, b.c.meta.partitions)
	row, ok, err := readDead(db, p, r.Event, sub, true)
	if err != nil {
		return 0, nil, nil, err
	}
	if ok {
		if !r.DiedBefore.IsZero() && !row.at.Before(r.DiedBefore) {
			return 0, nil, nil, fmt.Errorf("it died at %s: %w", row.at.Format(time.RFC3339Nano), delivery.ErrState)
		}
		return row.attempts, row.event, row.name(r.Event, sub), nil
	}
	v, ok, err := getFrom(db, appendTimeRow(nil, p, sub, r.Event))
	if err != nil {
		return 0, nil, nil, err
	}
	if !ok {
		return 0, nil, nil, delivery.ErrNoDelivery
	}
	t := timeline{key: r.Event}
	if err := t.read(v, false); err != nil {
		return 0, nil, nil, err
	}
	if t.state != delivery.StateDelivered || !r.Force {
		return 0, nil, nil, fmt.Errorf("it is %s (%s): %w", t.state, t.reason, delivery.ErrState)
	}
	return t.attempts, nil, nil, nil
}

// DeliveryRef names a delivery by its numbers.
type DeliveryRef struct {
	Event      delivery.EventKey
	Subscriber delivery.SubscriberNum
}

// Purge removes dead letters for good and returns one error each: nil when it is
// durable, [delivery.ErrNoDelivery] where there is none.
func (s *Store) Purge(ctx context.Context, at time.Time, list []DeliveryRef) []error {
	errs := make([]error, len(list))
	for from := 0; from < len(list); from += stepSize {
		part := list[from:min(from+stepSize, len(list))]
		result := make([]error, len(part))
		err := s.step(ctx, &step{run: func(db *pebble.DB, b *building) error {
			for i := range part {
				result[i] = b.purge(db, at, part[i])
			}
			return nil
		}})
		for i := range part {
			errs[from+i] = err
			if err != nil {
				continue
			}
			if errs[from+i] = result[i]; result[i] == nil {
				s.discard([]string{spoolName(part[i].Event, part[i].Subscriber)})
			}
		}
	}
	return errs
}

func (b *building) purge(db *pebble.DB, at time.Time, d DeliveryRef) error {
	row, ok, err := readDead(db, delivery.PartitionOf(d.Subscriber, b.c.meta.partitions), d.Event, d.Subscriber, false)
	if _, touched := b.touched[d]; err == nil && (!ok || touched) {
		err = delivery.ErrNoDelivery
	}
	if err != nil {
		return fmt.Errorf("purge %s of subscriber %d: %w", d.Event, d.Subscriber, err)
	}
	b.touched[d] = struct{}{}
	b.apply(&delivery.Purged{Lease: b.c.lease, At: at, Event: d.Event, Subscriber: d.Subscriber, Dead: row.name(d.Event, d.Subscriber)})
	return nil
}
