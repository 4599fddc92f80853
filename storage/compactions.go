package storage

import (
	"errors"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// errClosing ends a compaction whose database is being closed. What it would have
// written, the next opening compacts.
var errClosing = errors.New("compaction ends, the store is being closed")

// compactions says when Pebble may compact: as often as Pebble itself allows, but
// not before its database is open, and not once it is to be closed. Both waits are
// Pebble's: the last thing that it does in an opening, and the first in a closing,
// is to wait for compactions that run. After a burst one takes ten seconds (ADR 0014).
//
// It implements [pebble.CompactionScheduler] for one opening of a database, and the
// grants that it gives. Its lock is after all of Pebble's.
type compactions struct {
	db   pebble.DBForCompaction // set by Register, before all other calls
	poke chan struct{}          // there may be room for another one

	mu      sync.Mutex
	allowed bool
	running int
	stop    chan struct{} // closed to end the loop; nil = it does not run
	ended   sync.WaitGroup
}

func newCompactions() *compactions { return &compactions{poke: make(chan struct{}, 1)} }

// begin lets compactions run from now on.
func (c *compactions) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	stop := make(chan struct{})
	c.allowed, c.stop = true, stop
	c.ended.Go(func() { c.run(stop) })
}

// end lets none begin any more. It does not wait for those that run.
func (c *compactions) end() {
	c.mu.Lock()
	c.allowed = false
	if c.stop != nil {
		close(c.stop)
		c.stop = nil
	}
	c.mu.Unlock()
	c.ended.Wait() // Pebble may be asked by the loop until here
}

// lookAgain is when a waiting compaction is looked for although nobody said that
// there is one.
const lookAgain = time.Second

func (c *compactions) run(stop <-chan struct{}) {
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		c.grant()
		select {
		case <-c.poke:
		case <-again.C:
		case <-stop:
			return
		}
	}
}

// grant starts what Pebble has waiting.
func (c *compactions) grant() {
	for c.take() {
		if waiting, _ := c.db.GetWaitingCompaction(); !waiting || !c.db.Schedule(c) {
			c.give()
			return
		}
	}
}

// take takes the right to run one compaction, if there is room for it.
func (c *compactions) take() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.allowed || c.running >= c.db.GetAllowedWithoutPermission() {
		return false
	}
	c.running++
	return true
}

func (c *compactions) give() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
}

func (c *compactions) wake() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// Register implements [pebble.CompactionScheduler].
func (c *compactions) Register(_ int, db pebble.DBForCompaction) { c.db = db }

// Unregister implements [pebble.CompactionScheduler].
func (c *compactions) Unregister() { c.end() }

// TrySchedule implements [pebble.CompactionScheduler]. Pebble remembers what is
// refused, and is asked for it by the loop.
func (c *compactions) TrySchedule() (bool, pebble.CompactionGrantHandle) {
	if !c.take() {
		return false, nil
	}
	return true, c
}

// UpdateGetAllowedWithoutPermission implements [pebble.CompactionScheduler].
func (c *compactions) UpdateGetAllowedWithoutPermission() { c.wake() }

// Started implements [pebble.CompactionGrantHandle].
func (c *compactions) Started() {}

// MeasureCPU implements [pebble.CompactionGrantHandle].
func (c *compactions) MeasureCPU(pebble.CompactionGoroutineKind) {}

// CumulativeStats implements [pebble.CompactionGrantHandle].
func (c *compactions) CumulativeStats(pebble.CompactionGrantHandleStats) {}

// Done implements [pebble.CompactionGrantHandle].
func (c *compactions) Done() {
	c.give()
	c.wake()
}
