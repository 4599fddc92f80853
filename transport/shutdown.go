package transport

import (
	"context"
	"slices"
)

// close ends everything. New slots are refused and dials are cancelled at once,
// idle connections are closed, and what is in flight may end until ctx does;
// then it is interrupted. close returns when no goroutine of the pool is left.
func (p *pool) close(ctx context.Context) error {
	p.mu.Lock()
	emptied := p.emptied
	if !p.closed {
		p.closed = true
		p.closing.Store(true)
		p.failWaitersLocked()
		p.evictAllLocked(func(l *link) bool { return l.inflight == 0 })
		p.tcp.stopLocked()
		p.http3.stopLocked()
		p.checkEmptyLocked()
	}
	p.mu.Unlock()
	p.stopDial()

	var err error
	if emptied != nil {
		select {
		case <-emptied:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	p.mu.Lock()
	p.evictAllLocked(func(*link) bool { return true })
	p.mu.Unlock()
	// From here on nothing waits for a peer: dials are cancelled, connections
	// closed. So this is not bounded by ctx, which may have ended.
	<-p.tasks.none()
	return err
}

// renew has every connection end once it is idle; what is in flight may end. A dial
// that is under way is made again.
func (p *pool) renew() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.generation++
	for _, b := range p.buckets {
		for _, l := range slices.Backward(b.links) {
			p.drainLocked(l, EvictDrained)
			if l.inflight == 0 {
				p.evictLocked(l, EvictDrained)
			}
		}
		p.settleLocked(b)
	}
}

func (p *pool) failWaitersLocked() {
	for _, b := range p.buckets {
		for _, w := range b.waiters {
			p.waitingLocked(-1)
			w.result <- acquired{err: errClosed()}
		}
		b.waiters = nil
	}
}

func (p *pool) evictAllLocked(which func(*link) bool) {
	for _, b := range p.buckets {
		for _, l := range slices.Backward(b.links) { // what is evicted moves only what was visited
			if which(l) {
				p.evictLocked(l, EvictShutdown)
			}
		}
		p.forgetLocked(b)
	}
}
