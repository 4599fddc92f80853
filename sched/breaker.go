package sched

import (
	"math/bits"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// signal is what an attempt's outcome says about a subscriber.
type signal uint8

const (
	signalNone      signal = iota // throttled, interrupted, our own trouble: says nothing
	signalSuccess                 // delivered
	signalFailure                 // counts
	signalUndecided               // a probe that said nothing
)

func signalOf(out delivery.Outcome) signal {
	switch {
	case out.Class == delivery.ClassDelivered:
		return signalSuccess
	case out.Failure:
		return signalFailure
	default:
		return signalNone
	}
}

// BreakerWhy names why a circuit changed.
type BreakerWhy string

// Why a circuit changed.
const (
	WhyConsecutive BreakerWhy = "consecutive_failures"
	WhyRate        BreakerWhy = "failure_rate"
	WhyProbeFailed BreakerWhy = "probe_failed"
	WhyUndecided   BreakerWhy = "probe_undecided"
	WhyWaited      BreakerWhy = "waited"
	WhySucceeded   BreakerWhy = "success"
	WhyNewURL      BreakerWhy = "url_changed"
)

// pulse is a subscriber's health with the outcomes its failure rate is taken
// over. It is a value: each step gives a new one.
type pulse struct {
	delivery.Health
	recent  uint64 // outcomes, newest in bit 0; 1 = failure
	samples int    // valid bits of recent
}

// step is what a signal did to a pulse.
type step struct {
	pulse   pulse
	why     BreakerWhy // "" = the circuit did not change
	persist bool       // differs in what must survive a restart
}

// beat applies an attempt's signal at wall time now. probe: it was the attempt
// of a half-open circuit. u is drawn from [0, 1).
func (p pulse) beat(s signal, probe bool, policy BreakerPolicy, now time.Time, u float64) step {
	switch {
	case s == signalSuccess:
		return p.succeeded(now)
	case s == signalFailure:
		return p.failed(probe, policy, now, u)
	case probe && s == signalUndecided:
		next := p
		next.open(policy, now, u)
		return step{pulse: next, why: WhyUndecided, persist: true}
	default:
		return step{pulse: p}
	}
}

func (p pulse) succeeded(now time.Time) step {
	next := p
	next.LastSuccess = now.Round(0)
	next.push(0)
	out := step{}
	if p.Breaker != delivery.BreakerClosed {
		next.Breaker, next.OpenUntil, next.recent, next.samples = delivery.BreakerClosed, time.Time{}, 0, 0
		out.why = WhySucceeded
	}
	next.Opens, next.Consecutive, next.FailingSince = 0, 0, time.Time{}
	// LastSuccess alone is not worth a write per delivery.
	out.persist = p.Opens != 0 || p.Consecutive != 0 || !p.FailingSince.IsZero() || out.why != ""
	out.pulse = next
	return out
}

func (p pulse) failed(probe bool, policy BreakerPolicy, now time.Time, u float64) step {
	next := p
	next.Consecutive++
	if next.FailingSince.IsZero() {
		next.FailingSince = now.Round(0)
	}
	next.push(1)
	out := step{persist: true}
	switch {
	case probe:
		next.Opens++
		out.why = WhyProbeFailed
	case p.Breaker != delivery.BreakerClosed:
		// An attempt from before it opened: the wait is already decided.
	case next.Consecutive >= policy.Consecutive:
		next.Opens++
		out.why = WhyConsecutive
	case next.samples >= policy.Window && 2*next.failures(policy.Window) > policy.Window:
		next.Opens++
		out.why = WhyRate
	}
	if out.why != "" {
		next.open(policy, now, u)
	}
	out.pulse = next
	return out
}

// open starts a wait of OpenFor, doubled for each opening in a row, ±10 %.
func (p *pulse) open(policy BreakerPolicy, now time.Time, u float64) {
	p.Breaker = delivery.BreakerOpen
	p.Opens = max(p.Opens, 1)
	p.OpenUntil = ceilMilli(now.Add(jitter10(openFor(policy, p.Opens), u)))
	p.recent, p.samples = 0, 0
}

func openFor(policy BreakerPolicy, opens int) time.Duration {
	wait := policy.OpenFor
	for range opens - 1 {
		if wait >= policy.OpenMax/2 {
			return policy.OpenMax
		}
		wait *= 2
	}
	return min(wait, policy.OpenMax)
}

// halfOpen lets one probe through.
func (p pulse) halfOpen() pulse {
	p.Breaker = delivery.BreakerHalfOpen
	return p
}

func (p *pulse) push(bit uint64) {
	p.recent = p.recent<<1 | bit
	p.samples = min(p.samples+1, 64)
}

func (p pulse) failures(window int) int {
	mask := ^uint64(0)
	if window < 64 {
		mask = 1<<window - 1
	}
	return bits.OnesCount64(p.recent & mask)
}

// disableReason says whether a subscriber that just failed is to be disabled.
// failing is for how long it has not had a success.
func disableReason(sub *delivery.Subscriber, h delivery.Health, failing time.Duration) delivery.Reason {
	if n := sub.DisableAfterFailures; n > 0 && h.Consecutive >= n {
		return delivery.ReasonTooManyFailed
	}
	if d := sub.DisableAfter; d > 0 && !h.FailingSince.IsZero() && failing >= d {
		return delivery.ReasonFailingTooLong
	}
	return delivery.ReasonNone
}
