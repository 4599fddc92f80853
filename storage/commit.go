package storage

import (
	"errors"
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
	// Committed is called when the event is durable.
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

// building is the batch under construction, or the one being synced.
type building struct {
	c       *committer
	b       *pebble.Batch
	jobs    []job // answered when the batch is durable
	info    BatchInfo
	payload int  // bytes of payload in it
	urgent  bool // somebody waits for it
	closed  bool // nothing more may be added
	applied time.Time
	touched map[DeliveryRef]struct{} // by steps of this batch
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
	batch   *building // under construction
	flight  *building // applied, not synced
	spare   *building // a finished batch's memory
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

// fill adds what is queued to the batch under construction.
func (c *committer) fill() {
	for {
		c.pull()
		if c.next == len(c.taken) {
			return
		}
		for c.next < len(c.taken) {
			j := c.taken[c.next]
			if f := c.kv.failure.Load(); f != nil {
				c.next++
				c.refuse(j, f.err)
				continue
			}
			if !c.room(&j) {
				return
			}
			c.next++
			c.add(j)
		}
	}
}

// room makes sure that there is a batch that takes the job. If there is one that
// does not, it goes first.
func (c *committer) room(j *job) bool {
	alone := j.step != nil && j.step.alone
	if b := c.batch; b != nil {
		full := b.info.Publishes+b.info.Facts >= c.cfg.CommitFacts || b.payload >= c.cfg.CommitBytes
		if b.closed || full || alone {
			b.closed, b.urgent = true, true
			return false
		}
		return true
	}
	c.open()
	c.batch.closed = alone
	return true
}

// open starts a batch.
func (c *committer) open() {
	b := c.spare
	c.spare = nil
	if b == nil {
		b = &building{c: c, touched: map[DeliveryRef]struct{}{}}
	}
	b.b = c.db.NewBatch()
	c.batch, c.elapsed = b, false
	if err := c.sweeps.run(c.db, b.b); err != nil {
		c.kv.fail(fmt.Errorf("sweep consumed rows: %w", err))
	}
}

func (c *committer) add(j job) {
	b := c.batch
	switch {
	case j.publish != nil:
		if !j.publish.take() {
			c.drop(b)
			return
		}
		b.urgent = true
		c.addPublish(b, j.publish)
	case j.step != nil:
		if err := j.step.run(c.db, b); err != nil {
			j.done(err)
			c.drop(b)
			return
		}
		b.urgent = true
	default:
		if err := c.addFacts(b, j.facts); err != nil {
			j.done(err)
			c.drop(b)
			return
		}
	}
	b.jobs = append(b.jobs, j)
	if !b.urgent && len(b.jobs) == 1 {
		c.timer.Reset(c.cfg.CommitDelay)
	}
}

// drop gives up a batch that nothing was added to.
func (c *committer) drop(b *building) {
	if len(b.jobs) == 0 && b.b.Empty() {
		_ = b.b.Close()
		c.recycle(b)
		c.batch = nil
	}
}

// addFacts adds the facts of one Commit, all or none.
func (c *committer) addFacts(b *building, facts []delivery.Fact) error {
	for _, fact := range facts {
		if err := c.check(fact); err != nil {
			return err
		}
	}
	for _, fact := range facts {
		if m, ok := fact.(*delivery.Moved); ok && m.Next == delivery.NextDead && m.Copy == nil {
			if err := c.copyForDead(m); err != nil {
				return err
			}
		}
	}
	for _, fact := range facts {
		b.apply(fact)
		if _, ok := fact.(*delivery.Leased); ok {
			b.urgent = true // its rows wait to be sent
		}
	}
	return nil
}

// apply gives a checked fact its position and folds it into the batch.
func (b *building) apply(fact delivery.Fact) delivery.Position {
	c := b.c
	pos, err := c.meta.take(b.b)
	if err == nil {
		err = c.fold.add(b.b, pos, fact)
	}
	if err != nil {
		// What was checked before cannot fail; half a fact must not be written.
		c.kv.fail(fmt.Errorf("apply %T at %d: %w", fact, pos, err))
		return pos
	}
	if c.record != nil {
		c.record(pos, fact)
	}
	if _, ok := fact.(*delivery.Published); ok {
		b.info.Publishes++
	} else {
		b.info.Facts++
		c.sweeps.consumed(fact)
	}
	return pos
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
	if err := c.db.ApplyNoSyncWait(b.b, pebble.Sync); err != nil {
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
	_ = b.b.Close() // frees memory, nothing else
	c.recycle(b)
}

func (c *committer) recycle(b *building) {
	clear(b.jobs)
	clear(b.touched)
	*b = building{c: c, jobs: b.jobs[:0], touched: b.touched}
	c.spare = b
}

// refuse answers a job that no batch will hold.
func (c *committer) refuse(j job, err error) {
	if j.publish == nil {
		j.done(err)
		return
	}
	if j.publish.take() {
		for i := range j.publish.receipts {
			if j.publish.receipts[i].Err == nil {
				j.publish.receipts[i].Err = err
			}
		}
		j.publish.done <- struct{}{}
	}
}

// errBadFact is wrapped by the error for a fact that cannot be applied.
var errBadFact = errors.New("fact cannot be applied")

// check refuses facts that the fold could not apply in full, and those of
// somebody whose lease is over.
func (c *committer) check(fact delivery.Fact) error {
	var lease delivery.Lease
	ok := true
	switch f := fact.(type) {
	case *delivery.Leased:
		lease, ok = f.Lease, f.Place <= delivery.PlaceParked && f.Subscriber != 0
	case *delivery.Moved:
		lease = f.Lease
		ok = checkRow(&f.Row) && f.Next >= delivery.NextDelivered && f.Next <= delivery.NextParked &&
			(f.Next != delivery.NextParked && !f.Block && !f.Unblock || f.Row.Key != 0)
	case *delivery.Dropped:
		lease, ok = f.Lease, f.Subscriber != 0
		for i := range f.Rows {
			ok = ok && checkRow(&f.Rows[i])
		}
	case *delivery.Replayed:
		lease, ok = f.Lease, f.Subscriber != 0 && f.Lane < delivery.Lanes && !f.Event.IsZero()
	case *delivery.Purged:
		lease, ok = f.Lease, f.Subscriber != 0
	case *delivery.Expunged:
		lease = f.Lease
	case *delivery.HealthChanged:
		lease, ok = f.Lease, f.Subscriber != 0
	default:
		return fmt.Errorf("commit %T: %w", fact, errBadFact)
	}
	if lease.Epoch != c.lease.Epoch {
		return fmt.Errorf("commit %T of epoch %d in epoch %d: %w", fact, lease.Epoch, c.lease.Epoch, ErrFenced)
	}
	if !ok {
		return fmt.Errorf("commit %T: %w", fact, errBadFact)
	}
	return nil
}

func checkRow(r *delivery.Row) bool {
	return r.Subscriber != 0 && r.Seq != 0 && r.Place <= delivery.PlaceParked && r.Lane < delivery.Lanes
}
