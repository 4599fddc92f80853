package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/load"
)

// IsolationConfig says what `bench isolation` measures. Zero fields take the
// default.
type IsolationConfig struct {
	// Run is what all benchmarks are told.
	Run Run
	// Parts are what to measure. Default: all.
	Parts []string
	// Pairs of a side with what disturbs and one without, in turns. Default 5.
	Pairs int
	// Healthy subscribers, each with an origin of its own. Default 100.
	Healthy int
	// Rate of events a second for all healthy ones together. Default 200.
	Rate float64
	// For is how long a side of noisy and lanes is measured. Default 15 s.
	For time.Duration
	// Body is the size of a payload in bytes. Default 1024.
	Body int
	// Connections that publish. Default 64.
	Connections int

	// Hanging subscribers, each with an origin of its own. Default 1,000.
	Hanging int
	// HangFor is their timeout: how long each attempt hangs. Default 30 s.
	HangFor time.Duration
	// HangBacklog is how many deliveries each of them has queued. Default 10.
	HangBacklog int
	// HangWindow is how long a side of hanging is measured. Default HangFor and a
	// sixth of it more, so that every attempt that hangs times out in it.
	HangWindow time.Duration

	// Tenants that the healthy subscribers are spread over in noisy. Default 10.
	Tenants int
	// Noise is how many times the rate of each of them the noisy tenant publishes.
	// Default 50.
	Noise float64
	// NoiseBatch is how many events one of its publishes has. Default 10.
	NoiseBatch int

	// Slots is how many attempts may be in flight in lanes. Default 16.
	Slots int
	// Delay is how long receivers take to answer in lanes. Default 20 ms.
	Delay time.Duration

	// NodeConfig is a configuration file for the node; "" = none.
	NodeConfig string
}

// IsolationParts names what `bench isolation` measures.
func IsolationParts() []string { return []string{"hanging", "noisy", "lanes"} }

// IsolationQuick returns the sizes of the quick preset: about a minute.
func IsolationQuick() IsolationConfig {
	return IsolationConfig{
		Pairs: 2, Healthy: 50, Hanging: 200, HangFor: 3 * time.Second, For: 3 * time.Second,
	}
}

// WithDefaults returns a copy with every zero field filled in.
func (c IsolationConfig) WithDefaults() IsolationConfig {
	if len(c.Parts) == 0 {
		c.Parts = IsolationParts()
	}
	orDefault(&c.Pairs, 5)
	orDefault(&c.Healthy, 100)
	orDefault(&c.Rate, 200)
	orDefault(&c.For, 15*time.Second)
	orDefault(&c.Body, 1024)
	orDefault(&c.Connections, 64)
	orDefault(&c.Hanging, 1000)
	orDefault(&c.HangFor, 30*time.Second)
	orDefault(&c.HangBacklog, 10)
	orDefault(&c.HangWindow, c.HangFor+c.HangFor/6)
	orDefault(&c.Tenants, 10)
	orDefault(&c.Noise, 50)
	orDefault(&c.NoiseBatch, 10)
	orDefault(&c.Slots, 16)
	orDefault(&c.Delay, 20*time.Millisecond)
	return c
}

// Validate reports every field that cannot be used.
func (c IsolationConfig) Validate() error {
	var errs []error
	check := func(ok bool, name, rule string, v any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %v: %s", name, v, rule))
		}
	}
	for _, part := range c.Parts {
		check(slices.Contains(IsolationParts(), part), "part", "there are "+strings.Join(IsolationParts(), ", "), part)
	}
	check(c.Pairs >= 1 && c.Pairs <= 100, "pairs", "1 to 100", c.Pairs)
	check(c.Healthy >= 1 && c.Healthy <= 10_000, "healthy", "1 to 10,000", c.Healthy)
	check(c.Rate >= 1 && c.Rate <= 100_000, "rate", "1 to 100,000 a second", c.Rate)
	check(c.For > 0 && c.For <= time.Hour, "for", "above 0, at most 1 h", c.For)
	check(c.Body >= load.MinBody && c.Body <= 1<<20, "body", fmt.Sprintf("%d to 1 MiB", load.MinBody), c.Body)
	check(c.Connections >= 1 && c.Connections <= 10_000, "connections", "1 to 10,000", c.Connections)
	check(c.Hanging >= 1 && c.Hanging <= 10_000, "hanging", "1 to 10,000", c.Hanging)
	check(c.HangFor >= time.Second && c.HangFor <= 2*time.Minute, "hang-for", "1 s to 2 min", c.HangFor)
	check(c.HangBacklog >= 1 && c.HangBacklog <= 1000, "hang-backlog", "1 to 1000", c.HangBacklog)
	check(c.HangWindow > 0 && c.HangWindow <= time.Hour, "hang-window", "above 0, at most 1 h", c.HangWindow)
	check(c.Tenants >= 1 && c.Tenants <= c.Healthy, "tenants", "1 to the number of healthy subscribers", c.Tenants)
	check(c.Noise > 0 && c.Noise <= 10_000, "noise", "above 0, at most 10,000", c.Noise)
	check(c.NoiseBatch >= 1 && c.NoiseBatch <= 1000, "noise-batch", "1 to 1000", c.NoiseBatch)
	check(c.Slots >= 1 && c.Slots <= 8192, "slots", "1 to 8192", c.Slots)
	check(c.Delay >= time.Millisecond && c.Delay <= time.Second, "delay", "1 ms to 1 s", c.Delay)
	return errors.Join(errs...)
}
