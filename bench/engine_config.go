package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/load"
)

// EngineConfig says what `bench engine` measures. Zero fields take the default;
// a size of the quick preset is a few percent of that.
type EngineConfig struct {
	// Run is what all benchmarks are told.
	Run Run
	// Workloads are the names of those to run, in any order. Default: all.
	Workloads []string
	// Rounds that each workload is measured in. Default 3.
	Rounds int
	// Subscribers of all workloads but scale. Default 100.
	Subscribers int
	// Origins that the subscribers' URLs are spread over: ports of one receiver.
	// Default 1, as for the floor; a node keeps at most 16 connections to one.
	Origins int
	// Concurrency of each subscriber; 0 = the node's default.
	Concurrency int
	// Body is the size of a payload in bytes. Default 1024.
	Body int
	// Connections that publish. Default 64.
	Connections int
	// BatchSize is how many events an NDJSON batch has. Default 100.
	BatchSize int

	// Backlog is how many deliveries drain finds queued. Default 100,000.
	Backlog int
	// FanOut is how many deliveries fan-out makes. Default 20,000.
	FanOut int
	// Single is how many events are published one by one. Default 20,000.
	Single int
	// Batch is how many events are published in batches. Default 50,000.
	Batch int
	// Accept is how many events nobody wants. Default 50,000.
	Accept int
	// Rate in events a second, and for how long, that latency is measured at.
	// Defaults 100 and 20 s.
	Rate float64
	// LatencyFor is how long.
	LatencyFor time.Duration
	// Hang is how many events the healthy subscribers get beside the one that
	// hangs. Default 20,000.
	Hang int
	// HangFor is how long latency is measured beside it. Default 10 s.
	HangFor time.Duration
	// Kill is how many deliveries are queued when the node is killed. Default
	// 5,000.
	Kill int
	// Scale are numbers of subscribers. Default 1, 100, 10,000.
	Scale []int
	// ScaleEvents is how many events each of them gets in all. Default 20,000.
	ScaleEvents int

	// Procs are the values of GOMAXPROCS that cores gives to the node. Default 1, 2.
	Procs []int
	// InFlight is how many deliveries hang in flight in in-flight. Default 4,096.
	InFlight int

	// FloorPosts is how many posts one floor measures. Default 20,000.
	FloorPosts int
	// FloorConcurrency are the numbers of connections a floor is tried with.
	// Default 4, 8, 16, 32, 64, 128.
	FloorConcurrency []int
	// FloorConns are the numbers of connections that a floor over HTTP/2 or HTTP/3
	// shares, each tried with each concurrency. Default 1, 4.
	FloorConns []int
	// FloorKeep is how many of them, the best ones of the calibration, are
	// measured again beside each workload. Default 3.
	FloorKeep int

	// NodeConfig is a configuration file for the node; "" = none.
	NodeConfig string
	// CPUProfile and MemProfile are files for profiles of the node, taken in the
	// first round of ProfileOf. "" = none.
	CPUProfile, MemProfile string
	// ProfileOf is the workload that is profiled. Default drain.
	ProfileOf string
	// ProfileFor is how long the CPU profile lasts. Default 10 s.
	ProfileFor time.Duration
}

// EngineQuick returns the sizes of the quick preset: under a minute.
func EngineQuick() EngineConfig {
	return EngineConfig{
		Rounds: 1, Backlog: 5000, FanOut: 2000, Single: 2000, Batch: 5000, Accept: 3000,
		LatencyFor: 3 * time.Second, Hang: 2000, HangFor: 2 * time.Second, Kill: 2000,
		Scale: []int{1, 100, 1000}, ScaleEvents: 2000,
		FloorPosts: 3000, FloorConcurrency: []int{8, 32}, FloorConns: []int{1}, FloorKeep: 1, InFlight: 512, ProfileFor: 3 * time.Second,
	}
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// WithDefaults returns a copy with every zero field filled in.
func (c EngineConfig) WithDefaults() EngineConfig {
	if len(c.Workloads) == 0 {
		c.Workloads = EngineWorkloads()
	}
	orDefault(&c.Rounds, 3)
	orDefault(&c.Subscribers, 100)
	orDefault(&c.Origins, 1)
	orDefault(&c.Body, 1024)
	orDefault(&c.Connections, 64)
	orDefault(&c.BatchSize, 100)
	orDefault(&c.Backlog, 100_000)
	orDefault(&c.FanOut, 20_000)
	orDefault(&c.Single, 20_000)
	orDefault(&c.Batch, 50_000)
	orDefault(&c.Accept, 50_000)
	orDefault(&c.Rate, 100)
	orDefault(&c.LatencyFor, 20*time.Second)
	orDefault(&c.Hang, 20_000)
	orDefault(&c.HangFor, 10*time.Second)
	orDefault(&c.Kill, 5000)
	if len(c.Scale) == 0 {
		c.Scale = []int{1, 100, 10_000}
	}
	orDefault(&c.ScaleEvents, 20_000)
	orDefault(&c.FloorPosts, 20_000)
	if len(c.FloorConcurrency) == 0 {
		c.FloorConcurrency = []int{4, 8, 16, 32, 64, 128}
	}
	if len(c.FloorConns) == 0 {
		c.FloorConns = []int{1, 4}
	}
	if len(c.Procs) == 0 {
		c.Procs = []int{1, 2}
	}
	orDefault(&c.InFlight, 4096)
	orDefault(&c.FloorKeep, 3)
	orDefault(&c.ProfileOf, "drain")
	orDefault(&c.ProfileFor, 10*time.Second)
	return c
}

// Validate reports every field that cannot be used.
func (c EngineConfig) Validate() error {
	var errs []error
	within := func(name string, v, least, most int) {
		if v < least || v > most {
			errs = append(errs, fmt.Errorf("%s: %d is not within %d and %d", name, v, least, most))
		}
	}
	known := EngineWorkloads()
	for _, w := range append(slices.Clone(c.Workloads), c.ProfileOf) {
		if !slices.Contains(known, w) {
			errs = append(errs, fmt.Errorf("workload %q: there are %s", w, strings.Join(known, ", ")))
		}
	}
	const many = 100_000_000
	within("rounds", c.Rounds, 1, 1000)
	within("subscribers", c.Subscribers, 1, 100_000)
	within("origins", c.Origins, 1, 1000)
	within("concurrency", c.Concurrency, 0, 1000)
	within("body", c.Body, load.MinBody, 1<<20)
	within("connections", c.Connections, 1, 10_000)
	within("batch-size", c.BatchSize, 2, 10_000)
	within("backlog", c.Backlog, 1, many)
	within("fan-out", c.FanOut, c.Subscribers, many)
	within("single", c.Single, 1, many)
	within("batch", c.Batch, 1, many)
	within("accept", c.Accept, 1, many)
	within("hang", c.Hang, 1, many)
	within("kill", c.Kill, 100, many)
	within("scale-events", c.ScaleEvents, 1, many)
	within("floor-posts", c.FloorPosts, 1, many)
	for _, n := range c.Scale {
		within("scale", n, 1, 1_000_000)
	}
	for _, n := range c.FloorConcurrency {
		within("floor-concurrency", n, 1, 10_000)
	}
	for _, n := range c.FloorConns {
		within("floor-conns", n, 1, 1000)
	}
	for _, n := range c.Procs {
		within("procs", n, 1, 1024)
	}
	within("in-flight", c.InFlight, 1, 10_000)
	if c.Rate <= 0 || c.Rate > 100_000 {
		errs = append(errs, fmt.Errorf("rate: %v is not within 0 and 100,000 a second", c.Rate))
	}
	if c.LatencyFor < 0 || c.HangFor < 0 || c.ProfileFor < time.Second || c.ProfileFor > 2*time.Minute {
		errs = append(errs, errors.New("durations: latency-for and hang-for must not be negative, profile-for must be 1 s to 2 min"))
	}
	return errors.Join(errs...)
}
