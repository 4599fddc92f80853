package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Summary is where a delivery stands.
type Summary struct {
	Event      delivery.EventKey
	Subscriber delivery.SubscriberNum
	// State is never held: that is derived from the subscriber's status. A replay
	// that waits for its turn is leased with reason replay.
	State     delivery.State
	Reason    delivery.Reason // of the last transition
	Attempts  int             // tries so far, over replays too
	NextDue   time.Time       // zero unless it waits for a time
	ChangedAt time.Time       // of the last transition
	Signature string          // what a dead letter died of
	// Header is the event without its payload; nil = it is gone.
	Header *delivery.Event
	// Err is set where a listed row could not be read. The listing goes on.
	Err error
}

// Delivery is a delivery with its history.
type Delivery struct {
	Summary
	Timeline []delivery.TimelineEntry // oldest first
}

// Delivery returns a delivery, or [delivery.ErrNoDelivery].
func (s *Store) Delivery(_ context.Context, key delivery.EventKey, sub delivery.SubscriberNum) (*Delivery, error) {
	out := &Delivery{Summary: Summary{Event: key, Subscriber: sub}}
	err := s.view(func(db *pebble.DB) error {
		v, ok, err := getFrom(db, appendTimeRow(nil, s.partition(sub), sub, key))
		if err != nil {
			return err
		}
		if err := s.header(db, &out.Summary, !ok); err != nil || !ok {
			return err
		}
		t := timeline{key: key}
		if err := t.read(v, true); err != nil {
			return err
		}
		t.summary(&out.Summary)
		out.Timeline = t.entries
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("delivery %s of subscriber %d: %w", key, sub, err)
	}
	return out, nil
}

// header fills in the event of a summary: from its row, else from a dead letter.
// If alone is set there is no timeline, and the dead letter says all there is.
func (s *Store) header(db *pebble.DB, sum *Summary, alone bool) error {
	e, _, err := readEvent(db, sum.Event, false)
	switch {
	case err == nil:
		sum.Header = e
	case !errors.Is(err, delivery.ErrEventGone):
		return err
	}
	if !alone && sum.Header != nil {
		return nil
	}
	row, ok, err := s.dead(db, sum.Event, sum.Subscriber, false)
	if err != nil {
		return err
	}
	if ok {
		if sum.Header == nil {
			sum.Header = row.event
		}
		row.summary(sum)
	} else if alone {
		return delivery.ErrNoDelivery
	}
	return nil
}

// timeline expands stored entries into transitions.
type timeline struct {
	key     delivery.EventKey
	full    bool // keep entries, else only the summary
	entries []delivery.TimelineEntry

	state     delivery.State
	reason    delivery.Reason
	attempts  int
	due       time.Time
	at        time.Time
	signature string
	expunged  delivery.Reason // the event was deleted, and why; 0 = it was not
}

// read expands a stored timeline. What comes after a damaged entry is lost with
// it.
func (t *timeline) read(value []byte, full bool) error {
	t.full = full
	d := decoder{b: value}
	for d.err == nil && len(d.b) > 0 {
		e := d.entry(t.key, full)
		if d.err == nil {
			t.add(&e)
		}
	}
	return d.end("timeline")
}

func (t *timeline) summary(s *Summary) {
	s.State, s.Reason, s.Attempts = t.state, t.reason, t.attempts
	s.NextDue, s.ChangedAt, s.Signature = t.due, t.at, t.signature
	if t.state == delivery.StateReceived && s.Header != nil {
		s.NextDue = s.Header.DeliverAt
	}
	if t.expunged != 0 && !t.state.Terminal() {
		// Its row goes when its turn comes; nothing is sent any more.
		s.State, s.Reason, s.NextDue = delivery.StateCanceled, t.expunged, time.Time{}
	}
}

func (t *timeline) add(e *entry) {
	if e.kind == entrySkipped {
		if t.full {
			note := fmt.Sprintf("%d entries are left out here", e.skipped)
			t.entries = append(t.entries, delivery.TimelineEntry{At: t.at, State: t.state, Reason: t.reason, Note: note})
		}
		return
	}
	if e.kind == entryExpunged {
		t.deleted(e)
		return
	}
	t.due, t.signature = time.Time{}, ""
	switch e.kind {
	case entryReceived:
		t.to(delivery.TimelineEntry{At: e.at, State: delivery.StateReceived, Lease: e.lease})
		if e.leased {
			t.to(delivery.TimelineEntry{At: e.at, State: delivery.StateLeased, Lease: e.lease})
		}
	case entryMoved:
		t.moved(e)
	case entryReplayed:
		t.attempts = e.attempts
		t.to(delivery.TimelineEntry{At: e.at, State: delivery.StateLeased, Reason: delivery.ReasonReplay, Lease: e.lease})
	case entryPurged:
		t.to(delivery.TimelineEntry{At: e.at, State: delivery.StateDead, Reason: delivery.ReasonPurged, Lease: e.lease})
	case entryDropped:
		t.to(delivery.TimelineEntry{At: e.at, State: delivery.StateCanceled, Reason: e.reason, Lease: e.lease})
	}
}

// deleted says on the timeline that the event is gone. The state stays: an attempt
// may be in flight, and what waits is canceled when its turn comes.
func (t *timeline) deleted(e *entry) {
	t.expunged, t.at = e.reason, e.at
	if t.state == 0 {
		t.state = delivery.StateDead // a dead letter that has outlived its timeline
	}
	if t.full {
		t.entries = append(t.entries, delivery.TimelineEntry{
			At: e.at, State: t.state, Reason: e.reason, Lease: e.lease, Note: "its payload was deleted",
		})
	}
}

func (t *timeline) moved(e *entry) {
	t.attempts = e.attempts
	if e.prior != nil {
		// It was lost with a dead node: when it ended nobody knows.
		t.attempt(e.prior, e.at)
		t.to(delivery.TimelineEntry{At: e.at, State: delivery.StateRetrying, Reason: delivery.ReasonRecovered, Lease: e.lease})
	}
	if e.attempt != nil {
		t.attempt(e.attempt, e.at)
	}
	last := delivery.TimelineEntry{At: e.at, Reason: e.reason, Lease: e.lease, Note: e.note}
	switch e.next {
	case delivery.NextDelivered:
		last.State = delivery.StateDelivered
	case delivery.NextRetry:
		last.State, last.Next = delivery.StateRetrying, e.due
		t.due = e.due
	case delivery.NextDead:
		last.State = delivery.StateDead
		t.signature = e.signature
	case delivery.NextCanceled:
		last.State = delivery.StateCanceled
	case delivery.NextParked:
		last.State = delivery.StateRetrying
	}
	t.to(last)
}

// attempt adds the lease of an attempt and the attempt itself.
func (t *timeline) attempt(a *delivery.Attempt, at time.Time) {
	leased, ended := a.LeasedAt, a.EndedAt
	if ended.IsZero() {
		ended = at
	}
	if leased.IsZero() {
		leased = ended
	}
	t.to(delivery.TimelineEntry{At: leased, State: delivery.StateLeased, Lease: a.Lease})
	t.to(delivery.TimelineEntry{
		At: ended, State: delivery.StateAttempted, Reason: a.Outcome.Reason, Lease: a.Lease, Attempt: a,
	})
}

// to adds a transition. That a row was handed out is not written for every row,
// so a lease that the next transition implies is filled in; one that is there
// already is not repeated.
func (t *timeline) to(next delivery.TimelineEntry) {
	if next.State == delivery.StateLeased && t.state == delivery.StateLeased {
		return
	}
	if t.state != 0 && !t.state.CanMove(next.State) && t.state.CanMove(delivery.StateLeased) &&
		delivery.StateLeased.CanMove(next.State) {
		t.to(delivery.TimelineEntry{At: next.At, State: delivery.StateLeased, Lease: next.Lease})
	}
	t.state, t.reason, t.at = next.State, next.Reason, next.At
	if t.full {
		t.entries = append(t.entries, next)
	}
}
