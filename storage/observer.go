package storage

import "time"

// Observer hears what the store does. Every func may be nil, is called from the
// store's goroutines and must not block.
type Observer struct {
	// Batch: a batch was made durable.
	Batch func(BatchInfo)
	// Failed: the store cannot write any more and must be opened again.
	Failed func(cause error)
	// Stall: Pebble stopped accepting writes because it cannot keep up (true), or
	// accepts them again (false).
	Stall func(begin bool, reason string)
	// SlowDisk: one operation on a file has taken this long and is not finished.
	SlowDisk func(operation string, took time.Duration)
	// Background: a flush or compaction failed; Pebble tries again.
	Background func(err error)
	// Corruption: a file of the store cannot be read.
	Corruption func(err error)
	// Misuse: Pebble met a combination of operations whose result is undefined. It
	// never happens; tests fail on it.
	Misuse func(what string)
	// Disk: the disk was asked for its free space.
	Disk func(free, total uint64, full bool)
	// Retained: a run of the retention task ended.
	Retained func(RetainInfo)
}

// BatchInfo describes a committed batch.
type BatchInfo struct {
	Publishes int // events, duplicates not counted
	Facts     int // all other facts
	Bytes     int // as written to the log
	// Sync is the time from the batch's application to its durability: the one
	// fsync that all of its publishers and outcomes share.
	Sync time.Duration
}

// RetainInfo describes a run of the retention task.
type RetainInfo struct {
	Horizon   time.Time // events before it are gone, unless their hour has something pending
	OpenHours int       // hours before the horizon that were kept because of that
	Dead      int       // dead letters removed
	Spooled   int       // spool files removed
	Took      time.Duration
	Err       error
}

func orNop[T any](fn *func(T)) {
	if *fn == nil {
		*fn = func(T) {}
	}
}

func (o Observer) withDefaults() Observer {
	orNop(&o.Batch)
	orNop(&o.Failed)
	orNop(&o.Background)
	orNop(&o.Corruption)
	orNop(&o.Misuse)
	orNop(&o.Retained)
	if o.Stall == nil {
		o.Stall = func(bool, string) {}
	}
	if o.SlowDisk == nil {
		o.SlowDisk = func(string, time.Duration) {}
	}
	if o.Disk == nil {
		o.Disk = func(uint64, uint64, bool) {}
	}
	return o
}
