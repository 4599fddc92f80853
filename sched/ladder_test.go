package sched

import (
	"math"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestLadderWaits(t *testing.T) {
	schedule := delivery.Retry{Schedule: []time.Duration{10 * time.Second, time.Minute}}
	expo := delivery.Retry{Base: time.Second, Factor: 3, Max: time.Minute}
	tests := []struct {
		name  string
		retry delivery.Retry
		tries int
		u     float64
		want  time.Duration
	}{
		{"schedule, no jitter", schedule, 1, 0.5, 10 * time.Second},
		{"schedule, least", schedule, 1, 0, 9 * time.Second},
		{"schedule, second", schedule, 2, 0.5, time.Minute},
		{"schedule, past its end", schedule, 9, 0.5, time.Minute},
		{"schedule, before its start", schedule, 0, 0.5, 10 * time.Second},
		{"default schedule", delivery.Retry{}, 2, 0.5, 5 * time.Minute},
		{"empty schedule", delivery.Retry{Schedule: []time.Duration{}}, 1, 0.5, 0},
		{"exponential, first", expo, 1, 1, time.Second},
		{"exponential, third", expo, 3, 1, 9 * time.Second},
		{"exponential, full jitter", expo, 3, 0, 0},
		{"exponential, capped", expo, 30, 1, time.Minute},
		{"exponential, no overflow", expo, 1 << 30, 1, time.Minute},
		{"exponential, factor 0 is 2", delivery.Retry{Base: time.Second}, 4, 1, 8 * time.Second},
		{"exponential, NaN factor is 2", delivery.Retry{Base: time.Second, Factor: math.NaN()}, 2, 1, 2 * time.Second},
		{"exponential, no cap is a day", delivery.Retry{Base: time.Second, Factor: 1e300}, 3, 1, 24 * time.Hour},
	}
	for _, tt := range tests {
		if got := ladderWait(tt.retry, tt.tries, tt.u); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestDispositions(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 123_456_789, time.UTC)
	sub := &delivery.Subscriber{
		GiveUpAfter: 2,
		Retry:       delivery.Retry{Schedule: []time.Duration{10 * time.Second, 10 * time.Second, 10 * time.Second}, MaxAge: time.Hour},
	}
	retry := delivery.Outcome{Class: delivery.ClassRetry, Reason: delivery.ReasonStatusRetry}
	at := func(d time.Duration) time.Time { return ceilMilli(now.Add(d)) }
	tests := []struct {
		name  string
		tried tried
		want  disposition
	}{
		{"delivered", tried{tries: 1, out: delivery.Outcome{Class: delivery.ClassDelivered, Reason: delivery.ReasonDelivered}},
			disposition{next: delivery.NextDelivered, reason: delivery.ReasonDelivered}},
		{"rejected is dead at once", tried{tries: 1, out: delivery.Outcome{Class: delivery.ClassRejected, Reason: delivery.ReasonRejected}},
			disposition{next: delivery.NextDead, reason: delivery.ReasonRejected}},
		{"gone", tried{tries: 1, out: delivery.Outcome{Class: delivery.ClassGone, Reason: delivery.ReasonGone}},
			disposition{next: delivery.NextDead, reason: delivery.ReasonGone}},
		{"blocked", tried{tries: 1, out: delivery.Outcome{Class: delivery.ClassBlocked, Reason: delivery.ReasonBlocked}},
			disposition{next: delivery.NextDead, reason: delivery.ReasonBlocked}},
		{"interrupted is due now, even the last", tried{tries: 4, out: delivery.Outcome{Class: delivery.ClassInterrupted, Reason: delivery.ReasonInterrupted}},
			disposition{next: delivery.NextRetry, reason: delivery.ReasonInterrupted, due: at(0)}},
		{"retry", tried{tries: 1, out: retry},
			disposition{next: delivery.NextRetry, reason: delivery.ReasonStatusRetry, due: at(10 * time.Second)}},
		{"unknown is retried", tried{tries: 1, out: delivery.Outcome{Class: delivery.ClassUnknown, Reason: delivery.ReasonTimeout}},
			disposition{next: delivery.NextRetry, reason: delivery.ReasonTimeout, due: at(10 * time.Second)}},
		{"the last rung", tried{tries: 4, out: retry}, disposition{next: delivery.NextDead, reason: delivery.ReasonExhausted}},
		{"give up: a keyed row", tried{tries: 2, keyed: true, out: retry}, disposition{next: delivery.NextDead, reason: delivery.ReasonExhausted}},
		{"give up: not a free row", tried{tries: 2, out: retry},
			disposition{next: delivery.NextRetry, reason: delivery.ReasonStatusRetry, due: at(10 * time.Second)}},
		{"too old when it would be due", tried{tries: 1, out: retry, age: time.Hour - 9*time.Second},
			disposition{next: delivery.NextDead, reason: delivery.ReasonExpired}},
		{"just young enough", tried{tries: 1, out: retry, age: time.Hour - 10*time.Second},
			disposition{next: delivery.NextRetry, reason: delivery.ReasonStatusRetry, due: at(10 * time.Second)}},
		{"throttled waits longer", tried{tries: 1, out: delivery.Outcome{Class: delivery.ClassThrottled, Reason: delivery.ReasonThrottled, RetryAfter: 100 * time.Second}},
			disposition{next: delivery.NextRetry, reason: delivery.ReasonThrottled, due: at(105 * time.Second)}},
		{"throttled never waits less than the ladder", tried{tries: 1, out: delivery.Outcome{Class: delivery.ClassThrottled, Reason: delivery.ReasonThrottled, RetryAfter: time.Second}},
			disposition{next: delivery.NextRetry, reason: delivery.ReasonThrottled, due: at(10 * time.Second)}},
	}
	for _, tt := range tests {
		tt.tried.now = now
		if got := afterAttempt(sub, tt.tried, 0.5); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// A retry is never due before the attempt that caused it, never in a hurry that
// the peer forbade, and never later than the cap.
func FuzzDueIsNeverInThePast(f *testing.F) {
	f.Add(int64(time.Second), 2.0, 1, 0.3, int64(0), false)
	f.Add(int64(math.MaxInt64), math.Inf(1), math.MaxInt32, 0.999, int64(math.MaxInt64), true)
	f.Add(int64(-5), math.NaN(), -1, 0.0, int64(-1), false)
	now := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	f.Fuzz(func(t *testing.T, base int64, factor float64, number int, u float64, after int64, keyed bool) {
		if !(u >= 0 && u < 1) {
			return
		}
		sub := &delivery.Subscriber{Retry: delivery.Retry{
			Base: time.Duration(base), Factor: factor, Attempts: math.MaxInt, MaxAge: 100 * 365 * 24 * time.Hour,
		}}
		wish := min(max(time.Duration(after), 0), delivery.MaxRetryAfter)
		d := afterAttempt(sub, tried{tries: number, keyed: keyed, now: now, out: delivery.Outcome{
			Class: delivery.ClassRetry, Reason: delivery.ReasonThrottled, RetryAfter: wish,
		}}, u)
		if d.next != delivery.NextRetry {
			return
		}
		wait := d.due.Sub(now)
		if wait < wish || wait < 0 {
			t.Errorf("due in %s, the peer asked for %s", wait, wish)
		}
		if most := 27*time.Hour + time.Millisecond; wait > most {
			t.Errorf("due in %s, more than any ladder's cap", wait)
		}
	})
}

func TestSignaturesGroupByWhatWasMet(t *testing.T) {
	tests := []struct {
		reason delivery.Reason
		last   *delivery.Attempt
		want   string
	}{
		{delivery.ReasonExpired, nil, "expired"},
		{delivery.ReasonExhausted, &delivery.Attempt{Result: delivery.Result{Status: 503}}, "exhausted: status 503"},
		{delivery.ReasonExhausted, &delivery.Attempt{Result: timeout()}, "exhausted: timeout ambiguous"},
	}
	for _, tt := range tests {
		if got := signature(tt.reason, tt.last); got != tt.want {
			t.Errorf("signature %q, want %q", got, tt.want)
		}
	}
}
