package storage

import (
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Accepting returns nil if publishes are accepted. Otherwise it says why not: a
// [delivery.StoreFullError] below the watermark, where deliveries go on, what
// Healthy says, or a [delivery.ErrNotReady] while the disk stalls. A stall ends by
// itself; what is on its way then is stored.
func (s *Store) Accepting() error {
	if err := s.Healthy(); err != nil {
		return err
	}
	if full := s.disk.full.Load(); full != nil {
		return full
	}
	return s.stalled()
}

// stalled says since when the disk has not finished a batch, if that is too long.
func (s *Store) stalled() error {
	c := s.commit.Load()
	if c == nil {
		return nil
	}
	since := c.busySince.Load()
	if since == 0 {
		return nil
	}
	if took := time.Since(time.Unix(0, since)); took > s.cfg.StallAfter {
		return fmt.Errorf("%w: the disk has not finished a batch for %s", delivery.ErrNotReady, took.Round(time.Second))
	}
	return nil
}
