package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TransportsConfig says what `bench transports` measures. Zero fields take the
// default.
type TransportsConfig struct {
	// Run is what all benchmarks are told.
	Run Run
	// Link is "tun" (emulated) or "loopback" (not emulated). Default tun.
	Link string
	// Networks that the link is set to, one after the other. Default: those of
	// the full preset.
	Networks []Network
	// Scenarios to run. Default: all, on each network those of Cases.
	Scenarios []string
	// Cases are what a preset runs where; without any, every scenario runs on
	// every network. Default: the full preset's when no networks are given.
	Cases []Case
	// Protocols to compare: h1, h2, h3, auto. Default: all.
	Protocols []string
	// Congestion controls of TCP sockets; the first one is used everywhere, the
	// others in large as well. Default: cubic, and bbr where the kernel has it.
	Congestion []string
	// Samples of sporadic, burst and steady. Default 2,000: below that no p99 and
	// no regret is claimed.
	Samples int
	// LargeSamples of large. Default 2,000.
	LargeSamples int
	// CongestionSamples is how many of those the further congestion controls take
	// part in. Default 400.
	CongestionSamples int
	// Body and LargeBody are sizes of payloads in bytes. Defaults 1 KiB and
	// 200 KiB.
	Body, LargeBody int
	// Parallel is how many cold requests are on their way at once. 0 = by the
	// network's round trip, so that about a hundred begin in a second.
	Parallel int
	// BurstSize is how many requests go to one origin at once. Default 100.
	BurstSize int
	// SteadyRate in requests a second. Default 200.
	SteadyRate float64
	// Estate of the mixed scenario. Default 1,500 endpoints: 40 % with working
	// HTTP/3, 15 % with UDP blocked, 7 % that die after the handshake, 7 % whose
	// advert is wrong.
	Estate Estate
	// BlockedEndpoints of the blocked scenario. Default 300.
	BlockedEndpoints int
	// Visits of each endpoint in mixed and blocked. Default 4.
	Visits int
	// Pause between two visits of an endpoint, in which every handshake has its
	// verdict. Default 4 s: the transport gives a handshake 3 s.
	Pause time.Duration
	// Tries of one request before it counts as failed. Default 3.
	Tries int
	// Timeout of one try. Default 5 s.
	Timeout time.Duration
	// Draws of the bootstrap. Default 1000.
	Draws int
}

const (
	linkTUN      = "tun"
	linkLoopback = "loopback"
)

// fewSamples is below what a p99 or a regret is claimed.
const fewSamples = 2000

// TransportsScenarios names what `bench transports` runs.
func TransportsScenarios() []string {
	return []string{"sporadic", "burst", "steady", "large", "mixed", "blocked"}
}

var policies = map[string]delivery.ProtocolPolicy{
	"h1": delivery.ProtocolH1, "h2": delivery.ProtocolH2, "h3": delivery.ProtocolH3, "auto": delivery.ProtocolAuto,
}

// WithDefaults returns a copy with every zero field filled in.
func (c TransportsConfig) WithDefaults() TransportsConfig {
	orDefault(&c.Link, linkTUN)
	c.chooseCases()
	if len(c.Protocols) == 0 {
		c.Protocols = []string{"h1", "h2", "h3", "auto"}
	}
	orDefault(&c.Samples, fewSamples)
	orDefault(&c.LargeSamples, fewSamples)
	orDefault(&c.CongestionSamples, 400)
	orDefault(&c.Body, 1<<10)
	orDefault(&c.LargeBody, 200<<10)
	orDefault(&c.BurstSize, 100)
	orDefault(&c.SteadyRate, 200)
	orDefault(&c.Estate, Estate{Endpoints: 1500, H3: 0.4, Blocked: 0.15, Dying: 0.07, Wrong: 0.07})
	orDefault(&c.BlockedEndpoints, 300)
	orDefault(&c.Visits, 4)
	orDefault(&c.Pause, 4*time.Second)
	orDefault(&c.Tries, 3)
	orDefault(&c.Timeout, 5*time.Second)
	orDefault(&c.Draws, 1000)
	return c
}

// Validate reports every field that cannot be used.
func (c TransportsConfig) Validate() error {
	var errs []error
	check := func(ok bool, name, rule string, v any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %v: %s", name, v, rule))
		}
	}
	check(c.Link == linkTUN || c.Link == linkLoopback, "link", "tun or loopback", c.Link)
	for _, n := range c.Networks {
		errs = append(errs, n.Validate())
	}
	for _, s := range c.Scenarios {
		check(slices.Contains(TransportsScenarios(), s), "scenario", "there are "+strings.Join(TransportsScenarios(), ", "), s)
	}
	for _, p := range c.Protocols {
		_, ok := policies[p]
		check(ok, "protocol", "there are h1, h2, h3, auto", p)
	}
	const many = 10_000_000
	check(c.Samples >= 1 && c.Samples <= many, "samples", "1 to 10,000,000", c.Samples)
	check(c.LargeSamples >= 1 && c.LargeSamples <= many, "large-samples", "1 to 10,000,000", c.LargeSamples)
	check(c.CongestionSamples >= 1 && c.CongestionSamples <= many, "congestion-samples", "1 to 10,000,000", c.CongestionSamples)
	check(c.Body >= 1 && c.Body <= 16<<20 && c.LargeBody >= 1 && c.LargeBody <= 16<<20, "body, large-body", "1 to 16 MiB", c.Body)
	check(c.Parallel >= 0 && c.Parallel <= 1000, "parallel", "0 (by the network) to 1000", c.Parallel)
	check(c.BurstSize >= 1 && c.BurstSize <= 10_000, "burst-size", "1 to 10,000", c.BurstSize)
	check(c.SteadyRate > 0 && c.SteadyRate <= 100_000, "steady-rate", "above 0, at most 100,000 a second", c.SteadyRate)
	e := c.Estate
	check(e.Endpoints >= 1 && e.Endpoints <= 1_000_000, "estate", "1 to 1,000,000 endpoints", e.Endpoints)
	check(min(e.H3, e.Blocked, e.Dying, e.Wrong) >= 0 && e.H3+e.Blocked+e.Dying+e.Wrong <= 1, "estate", "shares from 0 to 1, together at most 1", e)
	check(c.BlockedEndpoints >= 1 && c.BlockedEndpoints <= 1_000_000, "blocked-endpoints", "1 to 1,000,000", c.BlockedEndpoints)
	check(c.Visits >= 1 && c.Visits <= 1000, "visits", "1 to 1000", c.Visits)
	check(c.Pause >= 0 && c.Pause <= 10*time.Minute, "pause", "0 to 10 min", c.Pause)
	check(c.Tries >= 1 && c.Tries <= 100, "tries", "1 to 100", c.Tries)
	check(c.Timeout > 0 && c.Timeout <= time.Minute, "timeout", "above 0, at most 1 min", c.Timeout)
	check(c.Draws >= 1 && c.Draws <= 100_000, "draws", "1 to 100,000", c.Draws)
	return errors.Join(errs...)
}
