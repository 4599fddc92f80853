package engine

import (
	"context"
	"sync"
	"time"
)

// recoverer opens the store again after it failed, until that works: a full
// disk or a stalled volume costs no restart of the process.
//
// Invariant: one goroutine, from start to stop, asleep while the store is
// healthy.
type recoverer struct {
	engine *Engine
	failed chan struct{}
	cancel context.CancelFunc
	done   sync.WaitGroup
}

const (
	reopenFirst = 250 * time.Millisecond
	reopenMost  = 10 * time.Second
)

func newRecoverer(e *Engine) *recoverer {
	return &recoverer{engine: e, failed: make(chan struct{}, 1)}
}

// notice is the store's Failed observer; it must not block.
func (r *recoverer) notice(error) {
	select {
	case r.failed <- struct{}{}:
	default:
	}
}

func (r *recoverer) start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.done.Go(func() { r.run(ctx) })
}

func (r *recoverer) stop(context.Context) error {
	r.cancel()
	r.done.Wait()
	return nil
}

func (r *recoverer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.failed:
		}
		for wait := reopenFirst; !r.reopen(); wait = min(2*wait, reopenMost) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	}
}

func (r *recoverer) reopen() bool {
	e := r.engine
	if err := e.store.Reopen(); err != nil {
		e.logger.Error("store_reopen_failed", "error", err.Error())
		return false
	}
	e.logger.Warn("store_reopened", "epoch", uint64(e.store.Lease().Epoch))
	e.directory.purge()
	e.sched.Resume()
	return true
}
