package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/load"
)

// StorageConfig says what `bench storage` measures. Zero fields take the
// default.
type StorageConfig struct {
	// Run is what all benchmarks are told.
	Run Run
	// Parts are what to measure. Default: all.
	Parts []string
	// Rounds of publish, each beside its floor. Default 3.
	Rounds int
	// Publishers side by side. Default 1, 4, 16, 64, 256.
	Publishers []int
	// Events published by each of those settings. Default 10,000; at most 500 per
	// publisher.
	Events int
	// Body is the size of a payload in bytes. Default 1024.
	Body int

	// Rows is the backlog's number of queued deliveries. Default 200,000.
	Rows int
	// Subscribers that the backlog is over. Default 2,000.
	Subscribers int
	// FanOut is how many of the backlog's deliveries share an event. Default 1.
	FanOut int
	// RowBody is the size of the backlog's payloads in bytes. Default 256.
	RowBody int
	// Consume is how many rows are delivered before the heads of the queues are
	// read. Default 100,000, at most Rows.
	Consume int
	// Reads of heads. Default 2,000.
	Reads int
	// Writers that publish while heads are read. Default 4.
	Writers int
	// NodeFor is for how long a node delivers what is left of the backlog. Default
	// 5 s.
	NodeFor time.Duration
	// NodeHeap is a file for a heap profile of that node, taken half way. "" =
	// none.
	NodeHeap string
}

// StorageParts names what `bench storage` measures.
func StorageParts() []string { return []string{"publish", "backlog"} }

// StorageQuick returns the sizes of the quick preset: under a minute.
func StorageQuick() StorageConfig {
	return StorageConfig{Rounds: 1, Publishers: []int{1, 16, 64}, Events: 2000, Rows: 50_000, Subscribers: 500, Consume: 20_000, Reads: 500, NodeFor: 2 * time.Second}
}

// WithDefaults returns a copy with every zero field filled in.
func (c StorageConfig) WithDefaults() StorageConfig {
	if len(c.Parts) == 0 {
		c.Parts = StorageParts()
	}
	orDefault(&c.Rounds, 3)
	if len(c.Publishers) == 0 {
		c.Publishers = []int{1, 4, 16, 64, 256}
	}
	orDefault(&c.Events, 10_000)
	orDefault(&c.Body, 1024)
	orDefault(&c.Rows, 200_000)
	orDefault(&c.Subscribers, 2000)
	orDefault(&c.FanOut, 1)
	orDefault(&c.RowBody, 256)
	orDefault(&c.Consume, min(100_000, c.Rows))
	orDefault(&c.Reads, 2000)
	orDefault(&c.Writers, 4)
	orDefault(&c.NodeFor, 5*time.Second)
	return c
}

// Validate reports every field that cannot be used.
func (c StorageConfig) Validate() error {
	var errs []error
	within := func(name string, v, least, most int) {
		if v < least || v > most {
			errs = append(errs, fmt.Errorf("%s: %d is not within %d and %d", name, v, least, most))
		}
	}
	for _, part := range c.Parts {
		if !slices.Contains(StorageParts(), part) {
			errs = append(errs, fmt.Errorf("part %q: there are %s", part, strings.Join(StorageParts(), ", ")))
		}
	}
	const many = 100_000_000
	within("rounds", c.Rounds, 1, 1000)
	for _, n := range c.Publishers {
		within("publishers", n, 1, 10_000)
	}
	within("events", c.Events, 1, many)
	within("body", c.Body, load.MinBody, 1<<20)
	within("rows", c.Rows, 1, many)
	within("subscribers", c.Subscribers, 1, min(c.Rows, 10_000_000))
	within("fan-out", c.FanOut, 1, min(c.Subscribers, 10_000))
	within("row-body", c.RowBody, load.MinBody, 1<<20)
	within("consume", c.Consume, 0, c.Rows)
	within("reads", c.Reads, 1, many)
	within("writers", c.Writers, 0, 1000)
	within("node-for in milliseconds", int(c.NodeFor.Milliseconds()), 1, int(time.Hour.Milliseconds()))
	return errors.Join(errs...)
}
