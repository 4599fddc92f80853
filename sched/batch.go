package sched

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// batch is one commit of an actor's facts, and what its durability means.
type batch struct {
	a          *actor
	facts      []delivery.Fact
	settled    []*item // rows whose fate is in facts: they leave memory
	leased     []*item // rows that may be sent once the lease in facts is durable
	release    func()  // with leased: under the actor's lock, clears what was busy
	generation int     // of the window that leased belongs to
	outcomes   int
	disable    delivery.Reason // once it is durable, the subscriber is to be disabled
	era        int64           // of the scheduler when it was handed over
	tries      int             // commits of the same facts that failed before
	state      atomic.Int32    // see commitLocked
	err        error           // with batchEarly

	// What the observer hears of its row: decided without an attempt, else tried.
	decided *Decided
	tried   AttemptFinished

	// Storage of the usual batch: one row, one attempt.
	fact0   [2]delivery.Fact
	item0   [1]*item
	moved   delivery.Moved
	attempt delivery.Attempt
}

func (a *actor) newBatch() *batch {
	b := &batch{a: a}
	b.begin()
	return b
}

// begin is called under the actor's lock, before the first fact.
func (b *batch) begin() {
	b.generation = b.a.generation
	b.facts, b.settled = b.fact0[:0], b.item0[:0]
}

// move adds what becomes of a row. The row is settling from now on.
func (b *batch) move(it *item, m *delivery.Moved) {
	it.leave()
	it.moved, it.due = m.Next, m.Due
	m.Awaited = b.a.strictLocked()
	b.a.settling.pushBack(it)
	b.facts = append(b.facts, m)
	b.settled = append(b.settled, it)
	b.outcomes++
}

// States of a batch. Whoever leaves batchCommitting first decides who finishes.
const (
	batchCommitting = iota // Commit has not returned
	batchCommitted         // it has: done finishes
	batchEarly             // done came first
)

// errLostBefore is why an outcome is not even handed over.
var errLostBefore = errors.New("an earlier outcome is not committed yet")

// commitLocked hands the batch over, if there is anything in it. A queue that
// is closed may refuse it inside Commit, where the actor's lock is held; such a
// batch is finished by a goroutine of its own.
func (a *actor) commitLocked(b *batch) {
	if len(b.facts) == 0 {
		return
	}
	if a.reset {
		// An earlier outcome is lost. This one must not become durable before it:
		// rows of a key would change places.
		b.failedLocked(errLostBefore)
		return
	}
	a.outstanding++
	b.era = a.s.era.Load()
	a.s.commits.Add(1)
	a.s.uncommitted.Add(int64(b.outcomes))
	a.s.queue.Commit(b.facts, b.done)
	if !b.state.CompareAndSwap(batchCommitting, batchCommitted) {
		go b.finish(b.err)
	}
}

// done runs on the committer's goroutine.
func (b *batch) done(err error) {
	if b.state.Load() == batchCommitting {
		b.err = err
		if b.state.CompareAndSwap(batchCommitting, batchEarly) {
			return
		}
	}
	b.finish(err)
}

func (b *batch) finish(err error) {
	a, s := b.a, b.a.s
	if errors.Is(err, delivery.ErrNotReady) || errors.Is(err, delivery.ErrClosed) {
		s.stall(err, b.era)
	}
	a.mu.Lock()
	a.outstanding--
	if err == nil {
		b.durableLocked()
	} else {
		b.failedLocked(err)
	}
	if err == nil && b.disable != delivery.ReasonNone {
		a.disableLocked(b.disable)
	}
	a.advanceLocked()
	a.unlock()
	s.uncommitted.Add(-int64(b.outcomes))
	s.pump()
	s.commitDone()
}

func (b *batch) durableLocked() {
	a := b.a
	for _, it := range b.settled {
		it.leave()
		switch it.moved {
		case delivery.NextRetry:
			a.noticeRetryLocked(it.due)
		case delivery.NextParked:
			a.parkedLocked(it.row.Key)
		}
		it.free()
	}
	if b.release == nil || b.generation != a.generation {
		return // the window was thrown away meanwhile; its rows are on disk
	}
	b.release()
	a.takeAllLocked(b.leased...)
}

// failedLocked keeps the outcomes: they are committed again if their rows are
// still where they were, when the queue is ready or, if it is (a fact could not
// be applied, or came too late for its lease), a little later.
func (b *batch) failedLocked(err error) {
	a := b.a
	if !a.reset && !a.s.stalled.Load() {
		a.rereadLaterLocked(err)
	}
	a.reset = true
	if b.disable != delivery.ReasonNone {
		a.disableAfterReset = b.disable
	}
	for _, it := range b.settled {
		it.leave()
		it.free()
	}
	for _, f := range b.facts {
		switch f := f.(type) {
		case *delivery.Moved:
			if f.Next != delivery.NextParked {
				a.lost = append(a.lost, lostFact{f, b.tries + 1, err})
			}
		case *delivery.HealthChanged:
			a.lost = append(a.lost, lostFact{f, b.tries + 1, err})
		}
	}
}

// noticeRetryLocked: a row with a due time is visible in reads from now on.
func (a *actor) noticeRetryLocked(due time.Time) {
	a.retry.noticeLocked(due)
	a.s.clock.notice(a.num, due)
}

// free ends an item.
func (it *item) free() {
	it.held.release()
	*it = item{}
	items.Put(it)
}
