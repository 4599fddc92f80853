package load

import (
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// Phase says what the receiver is to expect.
type Phase struct {
	// Tag begins the ids of the phase's events.
	Tag string `json:"tag"`
	// Events are numbered from 0.
	Events int `json:"events"`
	// Subscribers that events go to.
	Subscribers int `json:"subscribers"`
	// FanOut sends each event to every subscriber; otherwise event n goes to
	// subscriber n modulo Subscribers.
	FanOut bool `json:"fan_out"`
	// Secret verifies a sample of the signatures; "" = none are expected.
	Secret string `json:"secret,omitempty"`
	// Hang names a subscriber whose requests are never answered; -1 = none.
	Hang int `json:"hang"`
	// HangFrom makes all subscribers from this number on hang as well; 0 = none.
	HangFrom int `json:"hang_from,omitempty"`
	// Delay is how long every other request waits for its answer, after it was
	// counted: half as long to half as long again, drawn anew each time, so that
	// attempts that began together do not end together.
	Delay time.Duration `json:"delay_ns,omitempty"`
}

// hangs says whether a subscriber's requests are never answered.
func (p Phase) hangs(subscriber int) bool {
	return subscriber == p.Hang || p.HangFrom > 0 && subscriber >= p.HangFrom
}

// Expected is the number of deliveries.
func (p Phase) Expected() int {
	if p.FanOut {
		return p.Events * p.Subscribers
	}
	return p.Events
}

// Seen is what became of a phase.
type Seen struct {
	Expected      int           `json:"expected"`
	Arrived       int           `json:"arrived"`    // distinct deliveries
	Duplicates    int           `json:"duplicates"` // beyond the first of a delivery
	Stray         int           `json:"stray"`      // of other phases, or nobody's
	Hanging       int           `json:"hanging"`    // requests that hang, or hung
	Verified      int           `json:"verified"`   // signatures that were checked and good
	BadSignatures int           `json:"bad_signatures"`
	First         time.Duration `json:"first"` // machine clock; 0 = nothing came
	Last          time.Duration `json:"last"`  // last first-time delivery
	AfterMark     time.Duration `json:"after_mark,omitempty"`
	Latency       stats.Latency `json:"latency"`
	CDF           []stats.Point `json:"cdf"`      // ms, share
	Timeline      []stats.Point `json:"timeline"` // s since the phase began, deliveries/s; from the first on
	Step          time.Duration `json:"step"`
}

const (
	timelineStep  = 100 * time.Millisecond
	timelineSteps = 6000 // ten minutes; what comes later is counted in the last
	cdfPoints     = 200
	verifyFirst   = 16  // signatures that are all checked
	verifyEvery   = 997 // and of the rest one in so many
)

// phase is a Phase while it runs. Requests come in on many goroutines: every
// field that they change is atomic.
type phase struct {
	Phase
	begun    time.Duration
	verifier *signing.Verifier
	release  chan struct{} // closed when hanging requests may end

	counts    []atomic.Uint32 // per slot: how often it was delivered
	latencies []atomic.Uint32 // per slot: µs from publish to here
	steps     []atomic.Int64  // arrivals per step of the timeline

	arrived, duplicates, stray, hanging atomic.Int64
	checked, badSignatures, requests    atomic.Int64
	first, last, markAt, afterMark      atomic.Int64
}

func newPhase(p Phase) (*phase, error) {
	live := &phase{
		Phase: p, begun: host.Now(), release: make(chan struct{}),
		counts: make([]atomic.Uint32, p.Expected()), latencies: make([]atomic.Uint32, p.Expected()),
		steps: make([]atomic.Int64, timelineSteps),
	}
	if p.Secret == "" {
		return live, nil
	}
	var err error
	live.verifier, err = signing.NewVerifier(signing.VerifierConfig{Scheme: signing.Standard, Secrets: signing.Secrets(p.Secret)})
	return live, err
}

// slot returns where a delivery is counted.
func (p *phase) slot(id string, subscriber int) (int, bool) {
	tag, n, ok := parseID(id)
	if !ok || tag != p.Tag || n >= p.Events || subscriber >= p.Subscribers {
		return 0, false
	}
	if p.FanOut {
		return n*p.Subscribers + subscriber, true
	}
	return n, n%p.Subscribers == subscriber
}

// arrive counts a request and says whether its signature is to be answered for.
func (p *phase) arrive(header http.Header, subscriber int, body []byte) (good bool) {
	now := host.Now()
	if !p.signed(header, body) {
		return false
	}
	slot, ok := p.slot(header.Get("Webhook-Id"), subscriber)
	if !ok {
		p.stray.Add(1)
		return true
	}
	if p.counts[slot].Add(1) > 1 {
		p.duplicates.Add(1)
		return true
	}
	if sent, ok := Sent(body); ok {
		micros := min(max(0, now-sent)/time.Microsecond, math.MaxUint32)
		p.latencies[slot].Store(uint32(micros)) //nolint:gosec // clamped
	}
	p.steps[min(int((now-p.begun)/timelineStep), timelineSteps-1)].Add(1)
	p.first.CompareAndSwap(0, int64(now))
	if p.markAt.Load() != 0 {
		p.afterMark.CompareAndSwap(0, int64(now))
	}
	for old := p.last.Load(); old < int64(now) && !p.last.CompareAndSwap(old, int64(now)); old = p.last.Load() {
	}
	p.arrived.Add(1) // last: whoever waits for the number finds the rest in place
	return true
}

// signed verifies a sample: enough to prove that signatures are made, too few
// to become the receiver's main cost.
func (p *phase) signed(header http.Header, body []byte) bool {
	if p.verifier == nil {
		return true
	}
	if n := p.requests.Add(1); n > verifyFirst && n%verifyEvery != 0 {
		return true
	}
	if err := p.verifier.Verify(header, body, time.Now()); err != nil {
		p.badSignatures.Add(1)
		return false
	}
	p.checked.Add(1)
	return true
}

func (p *phase) seen() Seen {
	s := Seen{
		Expected: p.Expected(), Arrived: int(p.arrived.Load()), Duplicates: int(p.duplicates.Load()), Stray: int(p.stray.Load()),
		Hanging: int(p.hanging.Load()), Verified: int(p.checked.Load()), BadSignatures: int(p.badSignatures.Load()),
		First: time.Duration(p.first.Load()), Last: time.Duration(p.last.Load()), AfterMark: time.Duration(p.afterMark.Load()),
		Step: timelineStep,
	}
	var took []time.Duration
	for i := range p.counts {
		if p.counts[i].Load() > 0 {
			took = append(took, time.Duration(p.latencies[i].Load())*time.Microsecond)
		}
	}
	s.Latency, s.CDF = describe(took)
	s.Timeline = p.timeline(s.Last)
	return s
}

// describe gives the figures and the curve of durations.
func describe(durations []time.Duration) (stats.Latency, []stats.Point) {
	ms := make([]float64, len(durations))
	for i, d := range durations {
		ms[i] = stats.Millis(d)
	}
	return stats.LatencyOf(durations), stats.CDF(stats.Sorted(ms), cdfPoints)
}

func (p *phase) timeline(last time.Duration) []stats.Point {
	var out []stats.Point
	for i := range p.steps {
		at := time.Duration(i) * timelineStep
		if p.begun+at > last {
			break
		}
		if len(out) == 0 && p.steps[i].Load() == 0 {
			continue // the queue is being filled
		}
		out = append(out, stats.Point{X: at.Seconds(), Y: float64(p.steps[i].Load()) / timelineStep.Seconds()})
	}
	return out
}
