package sched

import (
	"context"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// loader runs the actors' reads on a few goroutines that exist only while there
// is something to read.
type loader struct {
	most int
	load func(*actor)
	room chan struct{} // poked when waitRoom may have what it waits for

	mu         sync.Mutex
	head, tail *actor
	queued     int
	running    int
	closed     bool
	idle       chan struct{} // closed when closed and nothing runs
}

func newLoader(most int, load func(*actor)) *loader {
	return &loader{most: most, load: load, room: make(chan struct{}, 1), idle: make(chan struct{})}
}

// push queues an actor's read. The caller holds the actor's lock and has set
// its loading.
func (l *loader) push(a *actor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	a.nextLoad = nil
	if l.tail != nil {
		l.tail.nextLoad = a
	} else {
		l.head = a
	}
	l.tail = a
	l.queued++
	if l.running < l.most {
		l.running++
		go l.run()
	}
}

func (l *loader) run() {
	for a := l.pop(); a != nil; a = l.pop() {
		l.load(a)
		l.signal()
	}
}

// pop takes the next actor; nil ends the calling goroutine.
func (l *loader) pop() *actor {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.head
	if a == nil || l.closed {
		l.running--
		if l.closed && l.running == 0 {
			close(l.idle)
		}
		return nil
	}
	l.head = a.nextLoad
	if l.head == nil {
		l.tail = nil
	}
	a.nextLoad = nil
	l.queued--
	return a
}

// close ends the loaders and waits for the reads that run.
func (l *loader) close(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		if l.running == 0 {
			close(l.idle)
		}
	}
	l.mu.Unlock()
	select {
	case <-l.idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// signal lets waitRoom look again.
func (l *loader) signal() {
	select {
	case l.room <- struct{}{}:
	default:
	}
}

// waitRoom waits until the queue of reads is short and ok says so too. It is
// false when ctx ended.
func (l *loader) waitRoom(ctx context.Context, ok func() bool) bool {
	for {
		l.mu.Lock()
		short := l.queued < 4*l.most
		l.mu.Unlock()
		if short && ok() {
			return ctx.Err() == nil
		}
		select {
		case <-l.room:
		case <-ctx.Done():
			return false
		}
	}
}

// job is one read of an actor: read runs without the lock, merge with it, and
// only if the window was not thrown away meanwhile.
type job struct {
	read   func() error
	merge  func()
	failed func() // with the lock, when read failed; nil = nothing
	always bool   // merge in any case: it is not about the window
}

// load runs an actor's jobs until there is none.
func (s *Scheduler) load(a *actor) {
	for {
		a.mu.Lock()
		now := s.time.mono()
		var j job
		if !s.halted() {
			j = a.jobLocked(now)
		}
		if j.read == nil {
			break
		}
		generation := a.generation
		a.unlock()
		err := j.read()
		a.mu.Lock()
		if err != nil {
			if j.failed != nil && generation == a.generation {
				j.failed()
			}
			a.rereadLaterLocked(err)
			break
		}
		if j.always || generation == a.generation {
			j.merge()
			if len(a.lost) == 0 && !a.reset {
				a.rereads = 0
			}
		}
		a.unlock()
	}
	a.loading = false
	a.advanceLocked()
	a.unlock()
	s.pump()
}

// rereadLaterLocked: a read failed, or a commit. It is tried again, with growing
// waits.
func (a *actor) rereadLaterLocked(err error) {
	wait := a.s.cfg.RereadAfter << min(a.rereads, 10)
	a.rereads++
	a.rereadAt = a.s.time.mono().add(min(wait, rereadMax))
	a.s.log.Error("queue failed", "subscriber", uint64(a.num), "error", err)
	num := a.num
	a.news = append(a.news, func() { a.s.obs.readFailed(num, err) })
}

// jobKind names an actor's next read.
type jobKind uint8

const (
	jobNone jobKind = iota
	jobReset
	jobOpen
	jobRecord
	jobSweep
	jobRetry
	jobLine
	jobLane // jobLane + i reads lane i
)

// hasJobLocked reports whether there is something to read.
func (a *actor) hasJobLocked(now instant) bool { return a.nextJobLocked(now) != jobNone }

// nextJobLocked picks the next read.
func (a *actor) nextJobLocked(now instant) jobKind {
	if a.forgotten || now.before(a.rereadAt) {
		return jobNone
	}
	switch {
	case a.reset:
		if a.flight.n == 0 && a.outstanding == 0 {
			return jobReset
		}
		return jobNone
	case !a.open:
		if a.wanted && !a.asleep && a.outstanding == 0 {
			return jobOpen
		}
		return jobNone
	case a.reread:
		return jobRecord
	case a.heldLocked():
		if a.flight.n == 0 && a.outstanding == 0 && !now.before(a.sweepAt) && a.sweepAt >= 0 {
			return jobSweep
		}
		return jobNone
	case !a.servingLocked() || a.Breaker == delivery.BreakerOpen:
		return jobNone
	}
	return a.nextPageLocked(now)
}

// nextPageLocked picks the next page. A half-open circuit wants one row: the
// oldest that is due.
func (a *actor) nextPageLocked(now instant) jobKind {
	want := a.worthLocked()
	inMemory := a.readyRowsLocked() + a.leasing.n
	if a.Breaker == delivery.BreakerHalfOpen && (inMemory > 0 || a.flight.n > 0) {
		return jobNone
	}
	if a.retry.check && !a.retry.busy && a.retry.rows <= want/2 {
		return jobRetry
	}
	if a.Breaker == delivery.BreakerHalfOpen && a.retry.busy {
		return jobNone
	}
	if len(a.wanting) > 0 {
		return jobLine
	}
	if a.strictBlockedLocked() {
		return jobNone
	}
	for i := range a.lanes {
		l := &a.lanes[i]
		if l.disk && !l.busy && l.reserved == 0 && l.lowLocked(want, now) {
			return jobLane + jobKind(i) //nolint:gosec // three lanes
		}
	}
	return jobNone
}

// pageWithin is how long a page's read and lease usually take at most.
const pageWithin = 50 * time.Millisecond

// lowLocked reports whether a lane's next page is due, where want rows are worth
// having. The fewer are left, the more one page brings; but those that are left have
// to last until it is there, at the pace of the last page.
func (l *lane) lowLocked(want int, now instant) bool {
	if l.rows > want/2 || l.rows <= want/4 {
		return l.rows <= want/4
	}
	used := l.page - l.rows
	return used <= 0 || now.sub(l.pageAt)/time.Duration(used)*time.Duration(l.rows) < pageWithin
}

// worthLocked is how many rows per lane are worth having in memory.
func (a *actor) worthLocked() int {
	if a.Breaker == delivery.BreakerHalfOpen {
		return min(1<<min(a.disposed, 10), a.s.cfg.WindowRows)
	}
	if a.s.rows.Load() >= int64(a.s.cfg.MaxRows) {
		return 1
	}
	return min(a.window, a.s.cfg.WindowRows)
}

func (a *actor) jobLocked(now instant) job {
	switch kind := a.nextJobLocked(now); kind {
	case jobNone:
		return job{}
	case jobReset:
		return a.resetJobLocked()
	case jobOpen:
		return a.openJobLocked()
	case jobRecord:
		return a.recordJobLocked()
	case jobSweep:
		return a.sweepJobLocked()
	case jobRetry:
		return a.retryJobLocked()
	case jobLine:
		return a.lineJobLocked()
	default:
		return a.laneJobLocked(delivery.Priority(kind - jobLane))
	}
}
