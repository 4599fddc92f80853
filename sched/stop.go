package sched

import (
	"context"
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Stop ends everything, in this order: nothing new starts; attempts in flight
// have Config.DrainFor, but no more than three quarters of what ctx leaves, to
// end by themselves and are then interrupted, which costs them no attempt; leases of rows that were not sent are taken back; all
// outcomes become durable. It returns when that is done, or an error when ctx
// ends first: what is in flight then is found as "may have been sent" by the
// next start. Calling it again waits for the first call.
func (s *Scheduler) Stop(ctx context.Context) error {
	s.life.Lock()
	if done := s.stopped; done != nil {
		s.life.Unlock()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	s.stopped = make(chan struct{})
	s.running.Store(false)
	s.life.Unlock()
	defer close(s.stopped)

	s.cancel()
	s.tasks.Wait()
	if err := s.loader.close(ctx); err != nil {
		s.interrupt(errStopping)
		return fmt.Errorf("sched stop: reads of the queue did not end: %w", err)
	}
	if err := s.drain(ctx); err != nil {
		return err
	}
	for _, a := range s.actors.all() {
		a.handBack()
	}
	for s.commits.Load() > 0 {
		select {
		case <-s.settled:
		case <-ctx.Done():
			return fmt.Errorf("sched stop: %d commits are not durable: %w", s.commits.Load(), ctx.Err())
		}
	}
	return nil
}

// drain waits for the attempts in flight, and interrupts them when they take
// too long.
func (s *Scheduler) drain(ctx context.Context) error {
	drained := s.dispatch.stop()
	timer := time.NewTimer(patience(ctx, s.cfg.DrainFor))
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	case <-ctx.Done():
	}
	s.interrupt(errStopping)
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sched stop: %d attempts did not end: %w", s.dispatch.total(), ctx.Err())
	}
}

// patience returns how long attempts may go on. An interruption has to be
// recorded, so a part of the time is kept for that: an outcome that is not known
// to the next start would have to count as one that may have been sent.
func patience(ctx context.Context, most time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(deadline)*3/4)
	}
	return max(0, most)
}

// handBack gives the queue what an actor still has: outcomes whose commit had
// failed, if the queue is ready again, else leases of rows that were not sent.
func (a *actor) handBack() {
	a.mu.Lock()
	defer a.unlock()
	if !a.reset {
		a.giveUpLeasesLocked()
		return
	}
	j := a.resetJobLocked()
	a.unlock()
	err := j.read()
	a.mu.Lock()
	if err == nil && a.outstanding == 0 {
		j.merge()
	}
}

// giveUpLeasesLocked makes it known that no row in memory was sent. Leases of
// pages are taken back; rows that came with their publish carry their lease, so
// they are moved: the first of a key becomes its head, the others follow it.
func (a *actor) giveUpLeasesLocked() {
	b := a.newBatch()
	for i := range a.ready {
		for it := a.ready[i].head; it != nil; {
			next := it.next
			if it.row.Key == 0 && it.fast {
				a.handBackLocked(it, b, false)
			}
			it = next
		}
	}
	for _, ln := range a.lines {
		if !ln.blocked && ln.hasFast() {
			a.handBackLineLocked(ln, b)
		}
	}
	a.commitLocked(b)
	a.unloadLocked()
	a.retreatLocked()
}

func (ln *line) hasFast() bool {
	if ln.owner != nil && ln.owner.fast {
		return true
	}
	for it := ln.waiters.head; it != nil; it = it.next {
		if it.fast {
			return true
		}
	}
	return false
}

// handBackLineLocked moves all rows of a key, so that those that were on disk
// and those that came with their publish keep their order.
func (a *actor) handBackLineLocked(ln *line, b *batch) {
	first := ln.owner
	if first == nil || first.list == &a.flight {
		return // Stop did not wait for it: its row is leased for a reason
	}
	ln.owner, ln.blocked, ln.where, ln.head, ln.event = nil, true, headRetry, first.row.First, first.row.Event
	a.handBackLocked(first, b, true)
	for ln.waiters.head != nil {
		a.parkLocked(ln, ln.waiters.head, b)
	}
}

func (a *actor) handBackLocked(it *item, b *batch, block bool) {
	now := a.s.wall()
	a.leaveWindowLocked(it)
	m := &delivery.Moved{
		Lease: a.s.queue.Lease(), Row: it.row, At: now, Next: delivery.NextRetry,
		Reason: delivery.ReasonInterrupted, Due: ceilMilli(now), Block: block,
	}
	if it.prior {
		m.Prior = priorAttempt(it.row, m.Lease, now)
	}
	b.move(it, m)
}
