package storage

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Hooks are what the scheduler hears of publishes. All are called on the
// committer's goroutine, in the order of positions, and must not block.
type Hooks struct {
	// Admit is called before an event goes into a batch, duplicates excepted. It
	// may set Target.Leased where a delivery will be handed out at once.
	Admit func(*delivery.Published)
	// Committed is called when the event is durable, right after Publish was told.
	Committed func(*delivery.Published, delivery.Position)
	// Aborted is called instead if it could not be made durable.
	Aborted func(*delivery.Published)
}

// job is one thing the committer is asked for: a publish, facts, or a step.
type job struct {
	publish *publishing
	facts   []delivery.Fact
	step    *step
	done    func(error) // of facts and step
}

// step is a change that depends on what is stored: run looks at the database
// and adds to the batch. Nothing else is between the look and the change.
type step struct {
	run func(db *pebble.DB, b *building) error
	// alone keeps the step in a batch of its own: it sees everything that came
	// before, and what comes after sees its effect.
	alone bool
}

// committer turns jobs into batches. One goroutine builds and applies batches
// and answers jobs; another one waits for syncs. While a batch is being synced,
// what arrives goes into the next one, so publishers side by side share fsyncs
// (group commit) and the processor works while the disk does.
//
//	Publish ─┐          ┌────────── run ──────────┐
//	Commit  ─┼─► queue ─► build ─► apply ──────────┼─► answer
//	step    ─┘          │  ▲         │      synced │
//	                    └──┼─────────┼──────▲──────┘
//	                  next batch     └─► wait for fsync (syncer)
//
// Invariant: at most one batch is applied and not answered. Jobs are answered in
// the order they were given. Positions follow that order.
type committer struct {
	kv     *kv
	db     *pebble.DB
	cfg    *Config
	lease  delivery.Lease
	hooks  *atomic.Pointer[Hooks]
	spool  *spool
	record func(delivery.Position, delivery.Fact) // tests: every applied fact

	// busySince is when the batch that is on its way to the disk was handed to
	// Pebble, in nanoseconds since the epoch; 0 = none is.
	busySince atomic.Int64

	mu     sync.Mutex
	queue  []job
	closed bool // no more jobs are taken

	wake    chan struct{} // queue is no longer empty; capacity 1
	stop    chan struct{} // closed: finish what is queued and end
	toSync  chan *pebble.Batch
	synced  chan error
	stopped sync.WaitGroup

	// Below: owned by run.
	meta    meta
	fold    fold
	dedupe  dedupe
	sweeps  sweeper
	taken   []job // from the queue, those before next are in a batch
	next    int
	batch   *building   // under construction
	flight  *building   // applied, not synced
	spare   []*building // memory of finished batches: two alternate
	timer   *time.Timer
	elapsed bool // CommitDelay has passed for the batch under construction
}

func newCommitter(k *kv, db *pebble.DB, cfg *Config, m meta, lease delivery.Lease) *committer {
	c := &committer{
		kv: k, db: db, cfg: cfg, meta: m, lease: lease,
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
		toSync: make(chan *pebble.Batch, 1), synced: make(chan error, 1),
		fold:   fold{partitions: m.partitions, all: true},
		dedupe: newDedupe(cfg),
		timer:  time.NewTimer(time.Hour),
	}
	c.sweeps.partitions = m.partitions
	c.timer.Stop()
	return c
}

func (c *committer) start() {
	c.stopped.Go(c.run)
	c.stopped.Go(func() {
		oldest := bucketOf(time.Now().Add(-c.cfg.DedupeWindow - day))
		if err := c.dedupe.filter.load(c.kv, oldest, c.stop); err != nil {
			c.kv.log.Warn("ids are looked up in the database: the filter could not be loaded", "error", err)
		}
	})
	c.stopped.Go(func() {
		for b := range c.toSync {
			c.synced <- b.SyncWait()
		}
	})
}

// close stops taking jobs, finishes those that were taken, and ends.
func (c *committer) close() {
	c.mu.Lock()
	already := c.closed
	c.closed = true
	c.mu.Unlock()
	if !already {
		close(c.stop)
	}
	c.stopped.Wait()
}

// push queues a job; false means that the committer is closed.
func (c *committer) push(j job) bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return false
	}
	first := len(c.queue) == 0
	c.queue = append(c.queue, j)
	c.mu.Unlock()
	if first {
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// pull moves the queue into taken once that is used up.
func (c *committer) pull() {
	if c.next < len(c.taken) {
		return
	}
	clear(c.taken)
	c.taken, c.next = c.taken[:0], 0
	c.mu.Lock()
	c.queue, c.taken = c.taken, c.queue
	c.mu.Unlock()
}

func (c *committer) run() {
	defer close(c.toSync)
	stop := c.stop
	for {
		c.fill()
		c.launch(stop == nil)
		if stop == nil && c.idle() {
			return
		}
		select {
		case <-c.wake:
		case <-c.timer.C:
			c.elapsed = true
		case err := <-c.synced:
			done := c.flight
			c.flight = nil
			c.busySince.Store(0)
			err = c.verdict(err)
			if err == nil {
				// The next sync runs while this batch is answered.
				c.launch(stop == nil)
			}
			c.finish(done, err)
		case <-stop:
			stop = nil
		}
	}
}

// idle reports whether nothing is left to do.
func (c *committer) idle() bool {
	if c.flight != nil || c.batch != nil || c.next < len(c.taken) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) == 0
}

// verdict is whether everything up to the last sync is durable. The fuse makes
// Pebble believe that writes succeed, so its word alone is not enough.
func (c *committer) verdict(err error) error {
	if err != nil {
		c.kv.fail(err)
	}
	if f := c.kv.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// launch applies the batch under construction and has it synced, if no other
// one is on its way and its time has come.
func (c *committer) launch(now bool) {
	b := c.batch
	if b == nil || c.flight != nil {
		return
	}
	if !b.urgent && !now && !c.elapsed && b.info.Facts < c.cfg.CommitFacts {
		return
	}
	c.batch = nil
	c.timer.Stop()
	clear(c.dedupe.pending)
	if err := c.fold.flush(b.b); err != nil {
		c.kv.fail(fmt.Errorf("write open counters: %w", err))
	}
	if b.b.Empty() {
		// Nothing but duplicates: what they repeat was applied before and, since no
		// batch is on its way, is durable.
		c.finish(b, c.verdict(nil))
		return
	}
	if f := c.kv.failure.Load(); f != nil {
		c.finish(b, f.err)
		return
	}
	b.info.Bytes = b.b.Len()
	b.applied = time.Now()
	c.busySince.Store(b.applied.UnixNano())
	if err := c.db.ApplyNoSyncWait(b.b, pebble.Sync); err != nil {
		c.busySince.Store(0)
		c.kv.fail(fmt.Errorf("apply batch: %w", err))
		c.finish(b, c.verdict(nil))
		return
	}
	c.flight = b
	c.toSync <- b.b
}

// finish answers the jobs of a batch.
func (c *committer) finish(b *building, err error) {
	if err == nil && b.info.Bytes > 0 {
		b.info.Sync = time.Since(b.applied)
		c.cfg.Observer.Batch(b.info)
	}
	hooks := c.hooks.Load()
	for i := range b.jobs {
		j := &b.jobs[i]
		if j.publish != nil {
			j.publish.answer(hooks, err)
		} else {
			j.done(err)
		}
	}
	c.recycle(b)
}

// recycle keeps a finished batch's memory for another one. What may still be in
// Pebble's hands is left to the garbage collector.
func (c *committer) recycle(b *building) {
	clear(b.jobs)
	clear(b.touched)
	kept := b.b
	if c.kv.failure.Load() != nil {
		kept = nil
	} else {
		kept.Reset()
	}
	*b = building{c: c, b: kept, jobs: b.jobs[:0], touched: b.touched}
	c.spare = append(c.spare, b)
}
