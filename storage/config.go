package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Config is what a [Store] needs to know. Only Dir is required.
type Config struct {
	// Dir is the store's directory. It is made if it does not exist, with all that
	// lies in it readable by the owner only.
	Dir string
	// FS is the file system that Dir is on; nil = the operating system's. See
	// [InMemory].
	FS vfs.FS
	// Node names this node in leases and on timelines; "" = "node".
	Node delivery.NodeID
	// Partitions is fixed when a store is created; 0 = what the store has, or
	// [delivery.DefaultPartitions] in a new one.
	Partitions int
	// NodeKeyFile holds the key that secrets are sealed with; "" = [NodeKeyFile]
	// inside Dir. It is made with a new store, with mode 0600.
	NodeKeyFile string
	// Logger gets what an operator must know; nil = nothing is logged.
	Logger *slog.Logger
	// Observer hears what the store does; its zero value hears nothing.
	Observer Observer

	// MemTable is the size in bytes of one of Pebble's memory tables; 0 = 8 MiB.
	// At most four of them exist.
	MemTable int64
	// Cache is the size in bytes of the block cache; 0 = 16 MiB.
	Cache int64
	// CommitDelay is how long outcomes wait for company before they are written; 0
	// = 8 ms, at most 10 ms. A publish does not wait and takes them along.
	CommitDelay time.Duration
	// CommitFacts is how many facts one batch holds at most; 0 = 4096.
	CommitFacts int
	// CommitBytes is the size in bytes at which a batch takes no more; 0 = 1 MiB,
	// less with small memory tables. Batches of half a memory table get a table of
	// their own, which is sorted, flushed and compacted by itself.
	CommitBytes int

	// StallAfter is how long the disk may take over one batch before the store does
	// not accept publishes any more (see [Store.Accepting]); 0 = 10 s.
	StallAfter time.Duration

	// DedupeWindow is for how long an id is remembered; 0 = 4 days, at most 60
	// days.
	DedupeWindow time.Duration
	// DedupeMemory is how many bytes the filter takes that spares new ids a look at
	// the database; 0 = 12 MiB. It works well up to about a million ids a MiB, over
	// the window and two spare buckets of four days.
	DedupeMemory int
	// SpoolOver is the payload size in bytes above which a payload gets a file of
	// its own; 0 = 1 MiB.
	SpoolOver int64
	// Retention says how long what is finished is kept.
	Retention Retention
	// Watermark says when publishes are refused because the disk fills up.
	Watermark Watermark

	// record gets every fact that is folded, for tests.
	record func(delivery.Position, delivery.Fact)
	// lookAfter is the sweeper's; tests make it small.
	lookAfter int
}

// Retention says how long what is finished is kept. What is pending is kept as
// long as it is pending.
type Retention struct {
	// Events is for how long events and timelines are kept; 0 = 7 days.
	Events time.Duration
	// Dead is for how long dead letters are kept, counted from their death; 0 = 30
	// days.
	Dead time.Duration
	// Every is how often the background task looks; 0 = 10 minutes, negative =
	// never by itself (see [Store.Retain]).
	Every time.Duration
}

// Watermark says when publishes are refused because the disk fills up.
// Deliveries go on and make room.
type Watermark struct {
	// Bytes is the free space below which publishes are refused, unless Percent of
	// the disk is less; 0 = 1 GiB, negative = never.
	Bytes int64
	// Percent of the disk; 0 = 5.
	Percent float64
	// Every is how often the disk is asked; 0 = 1 s.
	Every time.Duration
	// RetryAfter is what refused publishers are told; 0 = 30 s.
	RetryAfter time.Duration
	// Usage tells the free and total bytes; nil = the file system of Dir.
	Usage func() (free, total uint64, err error)
}

const day = 24 * time.Hour

func orDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// withDefaults returns a copy with every zero field filled in.
func (c Config) withDefaults() Config {
	orDefault(&c.Node, "node")
	orDefault(&c.MemTable, 8<<20)
	orDefault(&c.Cache, 16<<20)
	orDefault(&c.CommitDelay, 8*time.Millisecond)
	orDefault(&c.CommitFacts, 4096)
	orDefault(&c.CommitBytes, int(min(1<<20, c.MemTable/8)))
	orDefault(&c.StallAfter, 10*time.Second)
	orDefault(&c.DedupeWindow, 4*day)
	orDefault(&c.DedupeMemory, 12<<20)
	orDefault(&c.SpoolOver, 1<<20)
	orDefault(&c.Retention.Events, 7*day)
	orDefault(&c.Retention.Dead, 30*day)
	orDefault(&c.Retention.Every, 10*time.Minute)
	orDefault(&c.Watermark.Bytes, 1<<30)
	orDefault(&c.Watermark.Percent, 5)
	orDefault(&c.Watermark.Every, time.Second)
	orDefault(&c.Watermark.RetryAfter, 30*time.Second)
	orDefault(&c.lookAfter, lookAfter)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Observer = c.Observer.withDefaults()
	return c
}

// validate reports every field that cannot be used.
func (c Config) validate() error {
	var errs []error
	check := func(ok bool, field, rule string, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("storage: %s is %v: %s", field, value, rule))
		}
	}
	check(c.Dir != "", "Dir", "must name a directory", `""`)
	check(c.Partitions >= 0 && c.Partitions < int(delivery.PartitionShared), "Partitions", "must be 1 to 65534", c.Partitions)
	check(c.MemTable >= 256<<10 && c.MemTable <= 1<<30, "MemTable", "must be 256 KiB to 1 GiB", c.MemTable)
	check(c.Cache >= 0, "Cache", "must not be negative", c.Cache)
	check(c.CommitDelay > 0 && c.CommitDelay <= 10*time.Millisecond, "CommitDelay", "must be above 0, at most 10 ms", c.CommitDelay)
	check(c.CommitFacts > 0 && c.CommitFacts < positionStep/2, "CommitFacts", "must be 1 to 32767", c.CommitFacts)
	check(c.CommitBytes > 0 && c.CommitBytes <= 1<<30, "CommitBytes", "must be at most 1 GiB", c.CommitBytes)
	check(c.StallAfter > 0, "StallAfter", "must be above 0", c.StallAfter)
	check(c.DedupeWindow > 0 && c.DedupeWindow <= 60*day, "DedupeWindow", "must be above 0, at most 60 days", c.DedupeWindow)
	check(c.DedupeMemory > 0 && c.DedupeMemory <= 1<<30, "DedupeMemory", "must be above 0, at most 1 GiB", c.DedupeMemory)
	check(c.SpoolOver > 0 && c.SpoolOver <= 64<<20, "SpoolOver", "must be above 0, at most 64 MiB", c.SpoolOver)
	check(c.Retention.Events > 0, "Retention.Events", "must be above 0", c.Retention.Events)
	check(c.Retention.Dead > 0, "Retention.Dead", "must be above 0", c.Retention.Dead)
	check(c.Watermark.Percent > 0 && c.Watermark.Percent < 100, "Watermark.Percent", "must be between 0 and 100", c.Watermark.Percent)
	check(c.Watermark.Every > 0, "Watermark.Every", "must be above 0", c.Watermark.Every)
	check(c.Watermark.RetryAfter > 0, "Watermark.RetryAfter", "must be above 0", c.Watermark.RetryAfter)
	return errors.Join(errs...)
}
