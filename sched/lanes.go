package sched

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// instant is monotonic time since the scheduler was made.
type instant time.Duration

// forever is later than everything.
const forever = instant(1<<63 - 1)

// add saturates: a due time may lie centuries ahead.
func (i instant) add(d time.Duration) instant {
	if d > 0 && instant(d) > forever-i {
		return forever
	}
	return i + instant(d)
}

func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }
func (i instant) before(j instant) bool       { return i < j }

// laneView is one lane that competes for the next pick.
type laneView struct {
	waiting  bool
	priority delivery.Priority // effective
	since    instant           // since when its first row waits
}

// pickWhy names why a lane was picked.
type pickWhy uint8

const (
	pickNothing  pickWhy = iota // nothing waits
	pickPriority                // the highest priority that waits
	pickAged                    // a lower one that waited long enough
)

// pickLane picks the next lane: the highest priority, except that one pick in
// agedEvery goes to the longest waiting of the lower lanes if it has waited for
// ageAfter. A low lane is therefore never starved, and a high one never loses
// more than that share, however long the low backlog is. streak counts picks
// since the last aged one.
//
// Rejected: ordering by waiting time plus a bonus. A low backlog older than the
// bonus would then hold up every new high delivery.
func pickLane(lanes [delivery.Lanes]laneView, streak, agedEvery int, ageAfter time.Duration, now instant) (int, pickWhy) {
	best, aged := -1, -1
	for i, l := range lanes {
		if !l.waiting {
			continue
		}
		if best < 0 || l.priority < lanes[best].priority ||
			l.priority == lanes[best].priority && l.since.before(lanes[best].since) {
			best = i
		}
	}
	if best < 0 {
		return 0, pickNothing
	}
	if streak+1 < agedEvery {
		return best, pickPriority
	}
	for i, l := range lanes {
		if !l.waiting || l.priority <= lanes[best].priority || now.sub(l.since) < ageAfter {
			continue
		}
		if aged < 0 || l.since.before(lanes[aged].since) {
			aged = i
		}
	}
	if aged < 0 {
		return best, pickPriority
	}
	return aged, pickAged
}
