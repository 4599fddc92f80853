package ingress

import (
	"context"
	"fmt"
	"sync"
)

// tracker counts what is under way, so that Stop can wait for it: requests,
// whatever became of their connections, and connections. Unlike a WaitGroup it
// may be entered while somebody waits, and the wait ends with a context.
type tracker struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0; nil = nobody waits
}

func (t *tracker) enter() { _ = t.tryEnter(0) }

// tryEnter enters unless there are most already; 0 = no bound.
func (t *tracker) tryEnter(most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if most > 0 && t.n >= most {
		return false
	}
	t.n++
	return true
}

func (t *tracker) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// wait returns when nothing is under way, or with an error when ctx ends.
func (t *tracker) wait(ctx context.Context) error {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("still under way: %w", context.Cause(ctx))
	}
}
