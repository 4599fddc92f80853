package sched

import (
	"cmp"
	"math"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Defaults of an exponential ladder; see [delivery.Retry].
const (
	defaultFactor   = 2
	defaultMaxWait  = 24 * time.Hour
	defaultAttempts = 10
)

// disposition is what becomes of a row, and why.
type disposition struct {
	next   delivery.Next
	reason delivery.Reason
	due    time.Time // with NextRetry; to the millisecond, never before now
}

// final reports whether the row leaves the queue.
func (d disposition) final() bool {
	return d.next == delivery.NextDelivered || d.next == delivery.NextDead || d.next == delivery.NextCanceled
}

// tried is an attempt that ended, as far as the ladder is concerned.
type tried struct {
	tries int              // attempts since the row entered the queue, this one included
	keyed bool             // the row has an ordering key: it may block others
	out   delivery.Outcome // what the attempt meant
	age   time.Duration    // since the row entered the queue
	now   time.Time        // wall
}

// afterAttempt decides what becomes of a row whose attempt ended. u is drawn
// from [0, 1).
func afterAttempt(sub *delivery.Subscriber, t tried, u float64) disposition {
	switch t.out.Class {
	case delivery.ClassDelivered:
		return disposition{next: delivery.NextDelivered, reason: t.out.Reason}
	case delivery.ClassRejected, delivery.ClassGone, delivery.ClassBlocked:
		return disposition{next: delivery.NextDead, reason: t.out.Reason}
	case delivery.ClassInterrupted:
		return disposition{next: delivery.NextRetry, reason: t.out.Reason, due: ceilMilli(t.now)}
	}
	if t.tries >= attemptsAllowed(sub, t.keyed) {
		return disposition{next: delivery.NextDead, reason: delivery.ReasonExhausted}
	}
	wait := throttledWait(ladderWait(sub.Retry, t.tries, u), t.out.RetryAfter, u)
	if t.age+wait > maxAge(sub) {
		// It could only be tried again when it is too old: say so now, while
		// somebody may still look.
		return disposition{next: delivery.NextDead, reason: delivery.ReasonExpired}
	}
	return disposition{next: delivery.NextRetry, reason: t.out.Reason, due: ceilMilli(t.now.Add(wait))}
}

// expired reports whether a row is too old to be tried.
func expired(sub *delivery.Subscriber, age time.Duration) bool { return age > maxAge(sub) }

func maxAge(sub *delivery.Subscriber) time.Duration {
	return cmp.Or(max(0, sub.Retry.MaxAge), delivery.DefaultMaxAge)
}

// attemptsAllowed is the number of attempts after which a delivery is dead.
func attemptsAllowed(sub *delivery.Subscriber, keyed bool) int {
	most := len(scheduleOf(sub.Retry)) + 1
	if sub.Retry.Base > 0 {
		most = cmp.Or(max(0, sub.Retry.Attempts), defaultAttempts)
	}
	if keyed && sub.GiveUpAfter > 0 {
		most = min(most, sub.GiveUpAfter)
	}
	return most
}

func scheduleOf(r delivery.Retry) []time.Duration {
	if r.Schedule == nil {
		return delivery.DefaultSchedule
	}
	return r.Schedule
}

// ladderWait is the wait after attempt number tries (1, 2 …): the schedule's
// with ±10 % jitter, or full jitter under an exponential ceiling.
func ladderWait(r delivery.Retry, tries int, u float64) time.Duration {
	if r.Base > 0 {
		return time.Duration(u * float64(ceiling(r, tries)))
	}
	schedule := scheduleOf(r)
	if len(schedule) == 0 {
		return 0
	}
	step := schedule[min(max(tries, 1), len(schedule))-1]
	return jitter10(step, u)
}

// jitter10 spreads d over ±10 %.
func jitter10(d time.Duration, u float64) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*u))
}

// ceiling is the most that an exponential ladder waits after attempt tries.
func ceiling(r delivery.Retry, tries int) time.Duration {
	most := cmp.Or(max(0, r.Max), defaultMaxWait)
	factor := r.Factor
	if !(factor >= 1) { // also NaN
		factor = defaultFactor
	}
	grown := float64(r.Base) * math.Pow(factor, float64(max(tries, 1)-1))
	if !(grown < float64(most)) { // also +Inf
		return most
	}
	return time.Duration(grown)
}

// throttledWait keeps a peer's wish: at least after, and up to a tenth more so
// that what was refused together does not come back together.
func throttledWait(wait, after time.Duration, u float64) time.Duration {
	if after <= 0 {
		return wait
	}
	after = min(after+time.Duration(0.1*u*float64(after)), delivery.MaxRetryAfter)
	return max(wait, after)
}

// ceilMilli rounds up to the precision that is stored, so that nothing is due
// earlier than decided.
func ceilMilli(t time.Time) time.Time {
	t = t.Round(0) // wall only: it is going to be stored
	if down := t.Truncate(time.Millisecond); !down.Equal(t) {
		return down.Add(time.Millisecond)
	}
	return t
}

// signature groups dead letters that died of the same thing: the reason, and
// what the last attempt met.
func signature(reason delivery.Reason, last *delivery.Attempt) string {
	if last == nil {
		return reason.String()
	}
	r := last.Result
	if r.Status != 0 {
		return reason.String() + ": status " + strconv.Itoa(r.Status)
	}
	return reason.String() + ": " + r.Cause.String() + " " + r.Sent.String()
}
