package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/load"
)

// SchedConfig says what `bench sched` measures. Zero fields take the default.
type SchedConfig struct {
	// Run is what all benchmarks are told.
	Run Run
	// Parts are what to measure. Default: all.
	Parts []string
	// Subscribers of the traffic. Default 100,000.
	Subscribers int
	// Tenants that they belong to. Default 100.
	Tenants int
	// Zipf is the exponent of the traffic's skew, above 1. Default 1.1.
	Zipf float64
	// Rate in events a second. Default 10,000.
	Rate float64
	// For is how long events are published. Default 10 s.
	For time.Duration
	// Settle is how long the healthy ones' rest may take after that. Default 15 s.
	Settle time.Duration
	// Failing, Slow and Hanging are shares of the subscribers: they answer 503,
	// after one to three seconds, or never. Default 0.02, 0.01, 0.005; negative =
	// none.
	Failing, Slow, Hanging float64
	// Body is the size of a payload in bytes. Default 128.
	Body int

	// Rivals is the number of tenants in the contention. Default 10.
	Rivals int
	// Slots that they contend for. Default 64.
	Slots int
	// Window that the shares are counted in. Default 3 s.
	Window time.Duration
}

// SchedParts names what `bench sched` measures.
func SchedParts() []string { return []string{"zipf", "contention"} }

// SchedQuick returns the sizes of the quick preset: under twenty seconds.
func SchedQuick() SchedConfig {
	return SchedConfig{Subscribers: 20_000, Rate: 5000, For: 3 * time.Second, Settle: 5 * time.Second, Window: time.Second}
}

// WithDefaults returns a copy with every zero field filled in.
func (c SchedConfig) WithDefaults() SchedConfig {
	if len(c.Parts) == 0 {
		c.Parts = SchedParts()
	}
	orDefault(&c.Subscribers, 100_000)
	orDefault(&c.Tenants, min(100, c.Subscribers))
	orDefault(&c.Zipf, 1.1)
	orDefault(&c.Rate, 10_000)
	orDefault(&c.For, 10*time.Second)
	orDefault(&c.Settle, 15*time.Second)
	orDefault(&c.Failing, 0.02)
	orDefault(&c.Slow, 0.01)
	orDefault(&c.Hanging, 0.005)
	orDefault(&c.Body, 128)
	orDefault(&c.Rivals, 10)
	orDefault(&c.Slots, 64)
	orDefault(&c.Window, 3*time.Second)
	return c
}

// Validate reports every field that cannot be used.
func (c SchedConfig) Validate() error {
	var errs []error
	check := func(ok bool, name, rule string, v any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %v: %s", name, v, rule))
		}
	}
	for _, part := range c.Parts {
		check(slices.Contains(SchedParts(), part), "part", "there are "+strings.Join(SchedParts(), ", "), part)
	}
	check(c.Subscribers >= 1 && c.Subscribers <= 10_000_000, "subscribers", "1 to 10,000,000", c.Subscribers)
	check(c.Tenants >= 1 && c.Tenants <= c.Subscribers, "tenants", "1 to the number of subscribers", c.Tenants)
	check(c.Zipf > 1 && c.Zipf <= 5, "zipf", "above 1, at most 5", c.Zipf)
	check(c.Rate >= 1 && c.Rate <= 1e6, "rate", "1 to 1,000,000 a second", c.Rate)
	check(c.For > 0 && c.For <= time.Hour, "for", "above 0, at most 1 h", c.For)
	check(c.Settle >= 0, "settle", "not negative", c.Settle)
	check(max(0, c.Failing)+max(0, c.Slow)+max(0, c.Hanging) <= 1, "failing, slow, hanging", "at most 1 together", c.Failing+c.Slow+c.Hanging)
	check(c.Body >= load.MinBody && c.Body <= 1<<20, "body", fmt.Sprintf("%d to 1 MiB", load.MinBody), c.Body)
	check(c.Rivals >= 2 && c.Rivals <= 1000, "rivals", "2 to 1000", c.Rivals)
	check(c.Slots >= 1 && c.Slots <= 8192, "slots", "1 to 8192", c.Slots)
	check(c.Window > 0 && c.Window <= time.Hour, "window", "above 0, at most 1 h", c.Window)
	return errors.Join(errs...)
}
