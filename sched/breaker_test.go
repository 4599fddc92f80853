package sched

import (
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

var testPolicy = Config{}.withDefaults().Breaker

// beats plays outcomes: f failure, s success, n nothing to learn, and after each
// it returns what changed last.
func beats(p pulse, outcomes string, now time.Time) (pulse, BreakerWhy) {
	var why BreakerWhy
	for _, o := range outcomes {
		s := map[rune]signal{'f': signalFailure, 's': signalSuccess, 'n': signalNone}[o]
		st := p.beat(s, false, testPolicy, now, 0.5)
		p, why = st.pulse, st.why
	}
	return p, why
}

func TestBreakerOpens(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name, outcomes string
		want           delivery.BreakerState
		why            BreakerWhy
	}{
		{"four failures", "ffff", delivery.BreakerClosed, ""},
		{"five failures", "fffff", delivery.BreakerOpen, WhyConsecutive},
		{"a success between", "ffffsffff", delivery.BreakerClosed, ""},
		{"throttled answers neither count nor reset", "fffnnnnnnff", delivery.BreakerOpen, WhyConsecutive},
		{"throttled alone", "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnn", delivery.BreakerClosed, ""},
		{"half of the last 20", "fsfsfsfsfsfsfsfsfsfs", delivery.BreakerClosed, ""},
		{"more than half of the last 20", "sffffsfffsffsfsfsfsf", delivery.BreakerOpen, WhyRate},
		{"more than half, but of fewer than 20", "sffffsfffsffsffsff", delivery.BreakerClosed, ""},
	}
	for _, tt := range tests {
		p, why := beats(pulse{}, tt.outcomes, now)
		if p.Breaker != tt.want || why != tt.why {
			t.Errorf("%s: %s by %q, want %s by %q", tt.name, p.Breaker, why, tt.want, tt.why)
		}
		if p.Breaker == delivery.BreakerOpen && !p.OpenUntil.Equal(now.Add(30*time.Second)) {
			t.Errorf("%s: open for %s, want 30 s", tt.name, p.OpenUntil.Sub(now))
		}
	}
}

func TestProbesDoubleTheWaitUpToTenMinutes(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p, _ := beats(pulse{}, "fffff", now)
	for _, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute} {
		st := p.halfOpen().beat(signalFailure, true, testPolicy, now, 0.5)
		p = st.pulse
		if st.why != WhyProbeFailed || !st.persist || p.OpenUntil.Sub(now) != want {
			t.Errorf("probe failed: %q, open for %s, want %s", st.why, p.OpenUntil.Sub(now), want)
		}
	}
	undecided := p.halfOpen().beat(signalUndecided, true, testPolicy, now, 0.5)
	if undecided.pulse.Opens != p.Opens || undecided.why != WhyUndecided || undecided.pulse.Breaker != delivery.BreakerOpen {
		t.Errorf("an undecided probe waits once more, no longer: %+v", undecided)
	}
	closed := p.halfOpen().beat(signalSuccess, true, testPolicy, now, 0.5)
	if closed.pulse.Breaker != delivery.BreakerClosed || closed.pulse.Opens != 0 || closed.pulse.Consecutive != 0 ||
		!closed.pulse.FailingSince.IsZero() || !closed.persist {
		t.Errorf("a success closes: %+v", closed)
	}
	if again, _ := beats(closed.pulse, "fffff", now); again.OpenUntil.Sub(now) != 30*time.Second {
		t.Errorf("after a success it begins with 30 s again, not %s", again.OpenUntil.Sub(now))
	}
}

func TestOnlyWhatMattersAfterARestartIsPersisted(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	healthy := pulse{}
	if st := healthy.beat(signalSuccess, false, testPolicy, now, 0.5); st.persist {
		t.Error("a success of a healthy subscriber costs a write")
	}
	failed := healthy.beat(signalFailure, false, testPolicy, now, 0.5)
	if !failed.persist {
		t.Error("a failure is not remembered")
	}
	if st := failed.pulse.beat(signalSuccess, false, testPolicy, now, 0.5); !st.persist {
		t.Error("the success that ends failures is not remembered")
	}
	if st := failed.pulse.beat(signalNone, false, testPolicy, now, 0.5); st.persist {
		t.Error("nothing to learn costs a write")
	}
}

func TestAFailureFromBeforeTheOpeningDoesNotProlongIt(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p, _ := beats(pulse{}, "fffff", now)
	st := p.beat(signalFailure, false, testPolicy, now.Add(10*time.Second), 0.5)
	if st.why != "" || !st.pulse.OpenUntil.Equal(p.OpenUntil) || st.pulse.Consecutive != 6 {
		t.Errorf("late failure: %+v", st)
	}
}

func TestDisableReasons(t *testing.T) {
	tests := []struct {
		name    string
		sub     delivery.Subscriber
		health  delivery.Health
		failing time.Duration
		want    delivery.Reason
	}{
		{"off", delivery.Subscriber{}, delivery.Health{Consecutive: 1e6, FailingSince: time.Unix(1, 0)}, 1e6 * time.Hour, delivery.ReasonNone},
		{"19 of 20", delivery.Subscriber{DisableAfterFailures: 20}, delivery.Health{Consecutive: 19}, 0, delivery.ReasonNone},
		{"20 of 20", delivery.Subscriber{DisableAfterFailures: 20}, delivery.Health{Consecutive: 20}, 0, delivery.ReasonTooManyFailed},
		{"119 h", delivery.Subscriber{DisableAfter: 120 * time.Hour}, delivery.Health{FailingSince: time.Unix(1, 0)}, 119 * time.Hour, delivery.ReasonNone},
		{"120 h", delivery.Subscriber{DisableAfter: 120 * time.Hour}, delivery.Health{FailingSince: time.Unix(1, 0)}, 120 * time.Hour, delivery.ReasonFailingTooLong},
	}
	for _, tt := range tests {
		if got := disableReason(&tt.sub, tt.health, tt.failing); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestSignals(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		result delivery.Result
		want   signal
	}{
		{status(200), signalSuccess},
		{status(500), signalFailure},
		{status(400), signalFailure},
		{status(410), signalFailure},
		{status(429), signalNone},
		{retryAfter(503, "5"), signalNone},
		{timeout(), signalFailure},
		{delivery.Result{Cause: delivery.CausePorts, Sent: delivery.SentNever}, signalNone},
		{delivery.Result{Cause: delivery.CauseShutdown}, signalNone},
	}
	for _, tt := range tests {
		if got := signalOf(delivery.Classify(tt.result, now)); got != tt.want {
			t.Errorf("%+v: signal %d, want %d", tt.result, got, tt.want)
		}
	}
}
