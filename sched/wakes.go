package sched

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// wakeKind is what a wake is for.
type wakeKind uint8

const (
	wakeRetry  wakeKind = iota // a row of a subscriber is due
	wakeActor                  // a deadline of an actor's own: breaker, limiter, reread, expiry
	wakeTenant                 // a tenant's bucket has a token
	wakeSlow                   // look for attempts that became slow
)

// wakeKey identifies a wake: at most one of each is pending.
type wakeKey struct {
	num  uint64
	kind wakeKind
}

// wake is a near deadline. It waits on monotonic time; due is the wall time
// that a row was stored with, so that rows are due when their wake fires, even
// if the wall clock was set back meanwhile.
type wake struct {
	wakeKey
	at    instant
	due   time.Time
	index int
}

// retryClock wakes actors. Near deadlines are in a heap, one per subscriber and
// kind; far due times are on disk only.
//
// Invariant: every row that waits for a due time at or before horizon was read
// or noticed, or stands after cursor and loadAt says when reading goes on. Of
// what was read or noticed: its subscriber has a wake at or before its due time, or its actor
// was woken and has not yet read past it. Rows that become visible with a due
// time at or before horizon are noticed by notice; horizon is moved before the
// queue is read, so that a row is read or noticed, or both.
//
// Invariant: every row with a due time after horizon is not due before loadAt.
//
// One goroutine (run) owns the timer. It ends with its context.
type retryClock struct {
	queue     Queue
	time      *timepiece
	lookahead time.Duration
	maxSleep  time.Duration
	most      int // wakes in memory above which reading ahead pauses
	reread    time.Duration
	fire      func(wake)
	failed    func(error)
	poke      chan struct{}

	cursor delivery.WakeCursor // only run

	mu      sync.Mutex
	wakes   wakeHeap
	pending map[wakeKey]*wake
	horizon time.Time
	loadAt  time.Time // zero = nothing beyond horizon
	sleep   instant   // until when run sleeps; it is poked for what comes earlier
	loading bool      // run is reading: loadAt is being found out
}

func newRetryClock(q Queue, t *timepiece, cfg Config) *retryClock {
	return &retryClock{
		queue: q, time: t, lookahead: cfg.Lookahead, maxSleep: cfg.MaxSleep, reread: cfg.RereadAfter, most: cfg.MaxActors,
		poke: make(chan struct{}, 1), pending: map[wakeKey]*wake{}, sleep: forever,
	}
}

// set asks for a wake at a monotonic time. An earlier pending one stays.
func (c *retryClock) set(key wakeKey, at instant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(key, at, time.Time{})
}

// again fires a wake once more, later.
func (c *retryClock) again(w wake, after time.Duration) {
	mono := c.time.mono()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(w.wakeKey, mono.add(after), w.due)
}

func (c *retryClock) setLocked(key wakeKey, at instant, due time.Time) {
	w := c.pending[key]
	switch {
	case w == nil:
		w = &wake{wakeKey: key, at: at, due: due}
		c.pending[key] = w
		heap.Push(&c.wakes, w)
	case at < w.at:
		w.at, w.due = at, due
		heap.Fix(&c.wakes, w.index)
	default:
		return
	}
	if at < c.sleep {
		c.pokeLocked()
	}
}

func (c *retryClock) pokeLocked() {
	c.sleep = 0 // once is enough
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// notice is told of every row with a due time, when it is visible in reads.
func (c *retryClock) notice(sub delivery.SubscriberNum, due time.Time) {
	wall, mono := c.time.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !due.After(c.horizon) {
		c.setLocked(wakeKey{uint64(sub), wakeRetry}, mono.add(due.Sub(wall)), due)
		return
	}
	if !c.loadAt.IsZero() && !due.Before(c.loadAt) {
		return
	}
	c.loadAt = due
	if !c.loading && mono.add(due.Sub(wall)) < c.sleep {
		c.pokeLocked()
	}
}

// run fires wakes until ctx ends.
func (c *retryClock) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	backoff := c.reread
	for {
		c.fireDue(ctx)
		if err := c.load(ctx); err != nil {
			c.failed(err)
			c.mu.Lock()
			wall, _ := c.time.read()
			c.loadAt = wall.Add(backoff)
			c.mu.Unlock()
			backoff = min(2*backoff, rereadMax)
		} else {
			backoff = c.reread
		}
		if !c.wait(ctx, timer) {
			return
		}
	}
}

// wait sleeps until the next deadline. Without any there is no timer at all.
func (c *retryClock) wait(ctx context.Context, timer *time.Timer) bool {
	wall, mono := c.time.read()
	c.mu.Lock()
	until := forever
	if len(c.wakes) > 0 {
		until = c.wakes[0].at
	}
	if !c.loadAt.IsZero() {
		until = min(until, mono.add(min(c.loadAt.Sub(wall), c.maxSleep)))
	}
	c.sleep = until
	c.mu.Unlock()
	if until == forever {
		select {
		case <-c.poke:
		case <-ctx.Done():
		}
		return ctx.Err() == nil
	}
	timer.Reset(until.sub(mono))
	select {
	case <-timer.C:
	case <-c.poke:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// fireDue fires what is due now, without holding the lock.
func (c *retryClock) fireDue(ctx context.Context) {
	for ctx.Err() == nil {
		mono := c.time.mono()
		c.mu.Lock()
		if len(c.wakes) == 0 || mono.before(c.wakes[0].at) {
			c.mu.Unlock()
			return
		}
		w := heap.Pop(&c.wakes).(*wake) //nolint:errcheck // the heap's only type
		delete(c.pending, w.wakeKey)
		c.mu.Unlock()
		c.fire(*w)
	}
}

// wakesPerRead bounds one read of the wake index.
const wakesPerRead = 512

// load reads the wake index up to a new horizon when that is time, and finds
// out when it is time again. Each row of the index is read once per process.
func (c *retryClock) load(ctx context.Context) error {
	wall, _ := c.time.read()
	c.mu.Lock()
	first := c.horizon.IsZero()
	if !first && (c.loadAt.IsZero() || wall.Before(c.loadAt)) {
		c.mu.Unlock()
		return nil
	}
	if until := wall.Add(c.lookahead); until.After(c.horizon) {
		c.horizon = until
	}
	until := c.horizon
	c.loadAt, c.loading = time.Time{}, true
	c.mu.Unlock()
	err := c.read(ctx, until)
	c.mu.Lock()
	c.loading = false
	c.mu.Unlock()
	return err
}

func (c *retryClock) read(ctx context.Context, until time.Time) error {
	for ctx.Err() == nil {
		wakes, next, err := c.queue.Wakes(c.cursor, until, wakesPerRead)
		if err != nil {
			return err
		}
		wall, mono := c.time.read()
		c.mu.Lock()
		for _, w := range wakes {
			c.setLocked(wakeKey{uint64(w.Subscriber), wakeRetry}, mono.add(w.Due.Sub(wall)), w.Due)
		}
		c.mu.Unlock()
		if len(wakes) == 0 {
			break
		}
		c.cursor = next
		c.fireDue(ctx)
		if c.pause(wall) {
			return nil
		}
	}
	due, ok, err := c.queue.NextWake(until)
	if err != nil || !ok {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loadAt.IsZero() || due.Before(c.loadAt) {
		c.loadAt = due
	}
	return nil
}

// readingPause is how long reading ahead rests when enough wakes are in memory.
const readingPause = 100 * time.Millisecond

// pause reports whether reading is to go on later, and sees to that.
func (c *retryClock) pause(wall time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wakes) < c.most {
		return false
	}
	c.loadAt = wall.Add(readingPause)
	return true
}

// count returns the number of pending wakes.
func (c *retryClock) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.wakes)
}

// wakeHeap orders wakes by time.
type wakeHeap []*wake

func (h wakeHeap) Len() int           { return len(h) }
func (h wakeHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h wakeHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *wakeHeap) Push(x any) {
	w := x.(*wake) //nolint:errcheck // the heap's only type
	w.index = len(*h)
	*h = append(*h, w)
}

// Pop implements heap.Interface.
func (h *wakeHeap) Pop() any {
	old := *h
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return w
}
