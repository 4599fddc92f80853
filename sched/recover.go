package sched

import (
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// stall is called when a commit failed. The queue cannot write: whatever was
// sent now would be sent again. Attempts in flight end, their outcomes are
// kept, and nothing starts until Resume. What failed before the last Resume and
// is heard of after it does not count: era tells.
func (s *Scheduler) stall(err error, era int64) {
	s.stalling.Lock()
	first := s.era.Load() == era && !s.stalled.Swap(true)
	s.stalling.Unlock()
	if !first {
		return
	}
	s.log.Error("queue refused a commit; sending stops until it is ready", "error", err)
	s.obs.stalled(err)
}

// Resume tells that the queue can read and write again. Actors whose commits
// failed throw their memory away and start over from the queue; outcomes that
// were lost are committed again where their rows still stand.
func (s *Scheduler) Resume() {
	s.life.Lock()
	defer s.life.Unlock()
	s.stalling.Lock()
	s.era.Add(1)
	was := s.stalled.Swap(false)
	s.stalling.Unlock()
	if was {
		s.log.Info("queue is ready again")
		s.obs.resumed()
	}
	for _, a := range s.actors.all() {
		a.mu.Lock()
		a.rereadAt = 0
		a.advanceLocked()
		a.unlock()
	}
	s.pump()
}

// lostFact is a fact whose commit failed.
type lostFact struct {
	fact  delivery.Fact
	tries int // commits that failed
	err   error
}

// lostTries is how often an outcome is committed in vain, with a queue that is
// ready, before its delivery is given up: the queue cannot hold it (a dead
// letter of a payload that cannot be read), and its subscriber must go on.
const lostTries = 5

// giveUp turns an outcome that the queue cannot hold into one that it can.
func (l lostFact) giveUp() {
	m, ok := l.fact.(*delivery.Moved)
	if !ok || l.tries < lostTries || m.Next != delivery.NextDead {
		return
	}
	m.Next, m.Reason, m.Signature = delivery.NextCanceled, delivery.ReasonLocalError, ""
	m.Note = clip("its dead letter cannot be written: " + l.err.Error())
}

// maxNote bounds Moved.Note, in bytes.
const maxNote = 512

// resetJobLocked starts an actor over. Nothing of it is in flight, and no
// commit is outstanding.
func (a *actor) resetJobLocked() job {
	lost := a.lost
	var again []lostFact
	return job{
		always: true,
		read: func() error {
			again = nil
			for i, l := range lost {
				stands, err := a.stillStands(l.fact)
				if err != nil {
					return err
				}
				if !stands {
					continue
				}
				if m, ok := l.fact.(*delivery.Moved); ok && m.Row.Key != 0 && m.Next != delivery.NextRetry {
					if m.Unblock, err = a.unblocksKey(m, lost[i+1:], lost); err != nil {
						return err
					}
				}
				again = append(again, l)
			}
			return nil
		},
		merge: func() { a.resetLocked(again) },
	}
}

// stillStands reports whether a lost fact was indeed lost: the row that it
// moves is still at its place.
func (a *actor) stillStands(f delivery.Fact) (bool, error) {
	m, ok := f.(*delivery.Moved)
	if !ok {
		return true, nil // HealthChanged: writing it again changes nothing
	}
	var rows []delivery.Row
	var err error
	switch r := m.Row; r.Place {
	case delivery.PlaceReady:
		rows, err = a.s.queue.Ready(a.num, r.Lane, r.Seq-1, 1)
	case delivery.PlaceRetry:
		rows, err = a.s.queue.Retrying(a.num, r.Due, r.Seq-1, 1)
	case delivery.PlaceParked:
		rows, err = a.s.queue.Parked(a.num, r.Key, r.Seq-1, 1)
	}
	if err != nil {
		return false, fmt.Errorf("row of a lost outcome: %w", err)
	}
	return len(rows) == 1 && rows[0].Seq == m.Row.Seq, nil
}

// unblocksKey finds out anew whether the end of a row unblocks its key: it is
// the last that is known to have happened to the key, nothing is parked, and
// the key was not blocked by another head since.
func (a *actor) unblocksKey(m *delivery.Moved, later, lost []lostFact) (bool, error) {
	for _, l := range later {
		if o, ok := l.fact.(*delivery.Moved); ok && o.Row.Key == m.Row.Key {
			return false, nil
		}
	}
	first, blocked, err := a.s.queue.Blocked(a.num, m.Row.Key)
	if err != nil || !blocked {
		return false, err
	}
	known := map[delivery.Seq]struct{}{}
	for _, l := range lost {
		if o, ok := l.fact.(*delivery.Moved); ok && o.Row.Place == delivery.PlaceParked {
			known[o.Row.Seq] = struct{}{}
		}
	}
	parked, err := a.s.queue.Parked(a.num, m.Row.Key, 0, len(known)+1)
	if err != nil || len(without(parked, known)) > 0 {
		return false, err
	}
	if first == m.Row.First {
		return true, nil
	}
	heads := map[delivery.KeyHash]head{m.Row.Key: {first: first}}
	err = a.s.findHeads(a.num, heads)
	return heads[m.Row.Key].where == headGone, err
}

// resetLocked commits what was lost, each for itself, and makes the actor a
// shell again.
func (a *actor) resetLocked(again []lostFact) {
	a.lost = nil
	a.unloadLocked()
	a.lines, a.wanting, a.moreLines = nil, nil, false
	a.reset, a.open, a.disabling = false, false, a.disableAfterReset != delivery.ReasonNone
	a.memo, a.unclean, a.wanted, a.asleep = 0, true, true, false
	lease := a.s.queue.Lease()
	for i, l := range again {
		b := a.newBatch()
		b.tries = l.tries
		if i == len(again)-1 {
			b.disable, a.disableAfterReset = a.disableAfterReset, delivery.ReasonNone
		}
		l.giveUp()
		switch f := l.fact.(type) {
		case *delivery.Moved:
			f.Lease = lease
			b.move(newItem(f.Row, f.At), f)
		case *delivery.HealthChanged:
			f.Lease = lease
			b.facts = append(b.facts, f)
		}
		a.commitLocked(b)
	}
	if reason := a.disableAfterReset; reason != delivery.ReasonNone {
		a.disableAfterReset = delivery.ReasonNone
		a.disableLocked(reason) // what led to it was durable after all
	}
}

// priorAttempt is the attempt that a dead node may have made: nobody knows when,
// nor whether.
func priorAttempt(row delivery.Row, lease delivery.Lease, found time.Time) *delivery.Attempt {
	result := delivery.Result{
		Cause: delivery.CauseRecovered, Sent: delivery.SentAmbiguous,
		Detail: "the node stopped while it had this delivery in hand: it may have been sent",
	}
	return &delivery.Attempt{
		Number: row.Attempts + 1, LeasedAt: found, StartedAt: found, EndedAt: found,
		Lease:  delivery.Lease{Node: lease.Node, Epoch: row.LeasedBy},
		Result: result, Outcome: delivery.Classify(result, found),
	}
}
