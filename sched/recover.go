package sched

import (
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// stall is called when a commit failed. The queue cannot write: whatever was
// sent now would be sent again. Attempts in flight end, their outcomes are
// kept, and nothing starts until Resume.
func (s *Scheduler) stall(err error) {
	if s.stalled.Swap(true) {
		return
	}
	s.log.Error("queue refused a commit; sending stops until it is ready", "error", err)
	s.obs.stalled(err)
}

// Resume tells that the queue can write again. Actors whose commits failed
// throw their memory away and start over from the queue; outcomes that were
// lost are committed again where their rows still stand.
func (s *Scheduler) Resume() {
	s.life.Lock()
	defer s.life.Unlock()
	if !s.stalled.Swap(false) {
		return
	}
	s.log.Info("queue is ready again")
	s.obs.resumed()
	s.advanceAll()
}

// resetJobLocked starts an actor over. Nothing of it is in flight, and no
// commit is outstanding.
func (a *actor) resetJobLocked() job {
	lost := a.lost
	var again []delivery.Fact
	return job{
		always: true,
		read: func() error {
			again = nil
			for _, f := range lost {
				stands, err := a.stillStands(f)
				if err != nil {
					return err
				}
				if stands {
					again = append(again, f)
				}
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

// resetLocked commits what was lost and makes the actor a shell again.
func (a *actor) resetLocked(again []delivery.Fact) {
	a.lost = nil
	a.unloadLocked()
	a.lines, a.wanting, a.moreLines = nil, nil, false
	b := a.newBatch()
	lease := a.s.queue.Lease()
	for _, f := range again {
		switch f := f.(type) {
		case *delivery.Moved:
			f.Lease = lease
			b.move(newItem(f.Row, f.At), f)
		case *delivery.HealthChanged:
			f.Lease = lease
			b.facts = append(b.facts, f)
		}
	}
	a.commitLocked(b)
	a.reset, a.open, a.disabling, a.probing = false, false, false, false
	a.memo, a.unclean, a.wanted, a.asleep = 0, true, true, false
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
