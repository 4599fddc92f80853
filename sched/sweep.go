package sched

import (
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// A held subscriber's rows are not sent, but they do grow too old. The actor
// looks for the oldest, disposes of those that are, and sleeps until the next
// one is.

// sweepPage is how many rows are looked at in one read; sweepSpacing is the
// least wait between two sweeps over more rows than that.
const (
	sweepPage    = 256
	sweepSpacing = 10 * time.Minute
)

// swept is what a sweep found.
type swept struct {
	dead   []*delivery.Moved
	oldest time.Duration // age of the oldest row that is not dead
	rows   int           // rows looked at
	left   int           // rows that are not dead
	again  bool          // there were more dead rows than one commit should hold
}

// sweepJobLocked looks for rows that are too old. Nothing is in flight, and
// nothing else reads or writes the subscriber's queue.
func (a *actor) sweepJobLocked() job {
	var found swept
	sub, wall := a.sub, a.s.wall()
	return job{
		read: func() error {
			found = swept{}
			for lane := range delivery.Lanes {
				if err := a.sweepLane(sub, delivery.Priority(lane), wall, &found); err != nil { //nolint:gosec // three lanes
					return err
				}
			}
			return a.sweepRetrying(sub, wall, &found)
		},
		merge: func() { a.sweptLocked(sub, found) },
	}
}

// sweepLane looks at a lane's first rows. They are in the order in which they
// entered, so the oldest come first.
func (a *actor) sweepLane(sub *delivery.Subscriber, lane delivery.Priority, wall time.Time, found *swept) error {
	rows, err := a.s.queue.Ready(a.num, lane, 0, sweepPage)
	if err != nil {
		return fmt.Errorf("ready rows: %w", err)
	}
	for _, row := range rows {
		a.sweepRow(sub, row, wall, found)
	}
	found.again = found.again || len(rows) == sweepPage && found.left == 0
	return nil
}

// sweepRetrying looks at all rows that wait for a due time: the oldest have the
// longest waits. A head that dies lets its key go on if nothing is parked.
func (a *actor) sweepRetrying(sub *delivery.Subscriber, wall time.Time, found *swept) error {
	var due time.Time
	var seq delivery.Seq
	for len(found.dead) < sweepPage {
		rows, err := a.s.queue.Retrying(a.num, due, seq, sweepPage)
		if err != nil {
			return fmt.Errorf("retrying rows: %w", err)
		}
		for _, row := range rows {
			due, seq = row.Due, row.Seq
			if m := a.sweepRow(sub, row, wall, found); m != nil && row.Key != 0 {
				if m.Unblock, err = a.isLast(row); err != nil {
					return err
				}
			}
		}
		if len(rows) < sweepPage {
			return nil
		}
	}
	found.again = true
	return nil
}

// isLast reports whether a row is the head of its key and nothing is parked.
func (a *actor) isLast(row delivery.Row) (bool, error) {
	first, ok, err := a.s.queue.Blocked(a.num, row.Key)
	if err != nil || !ok || first != row.First {
		return false, err
	}
	parked, err := a.s.queue.Parked(a.num, row.Key, 0, 1)
	return len(parked) == 0, err
}

func (a *actor) sweepRow(sub *delivery.Subscriber, row delivery.Row, wall time.Time, found *swept) *delivery.Moved {
	found.rows++
	entered := row.EnteredAt
	if row.Place == delivery.PlaceRetry && row.Attempts == 0 && row.Due.After(entered) {
		entered = row.Due
	}
	age := a.s.time.age(entered, wall)
	if !expired(sub, age) {
		found.left++
		found.oldest = max(found.oldest, age)
		return nil
	}
	m := &delivery.Moved{
		Lease: a.s.queue.Lease(), Row: row, At: wall, Next: delivery.NextDead, Reason: delivery.ReasonExpired,
		Signature: signature(delivery.ReasonExpired, nil),
		Note:      "while its subscriber was " + sub.Status.String(),
	}
	if a.s.mayHaveBeenSent(row) {
		m.Prior = priorAttempt(row, m.Lease, wall)
	}
	found.dead = append(found.dead, m)
	return m
}

// sweptLocked hands over what is dead, and sleeps until more is.
func (a *actor) sweptLocked(sub *delivery.Subscriber, found swept) {
	b := a.newBatch()
	for _, m := range found.dead {
		it := newItem(m.Row, m.At)
		b.move(it, m)
		a.decidedLocked(m)
	}
	a.commitLocked(b)
	switch {
	case found.again:
		a.sweepAt = 0 // go on when this is durable
	case found.left == 0:
		a.sweepAt = -1 // nothing to wait for
	default:
		wait := maxAge(sub) - found.oldest + time.Millisecond
		if found.rows > sweepPage {
			wait = max(wait, sweepSpacing)
		}
		a.sweepAt = a.s.time.mono().add(wait)
	}
}
