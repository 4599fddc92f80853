package storage

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// disk watches the free space. Below the watermark publishes are refused, while
// outcomes are written on: they are small, and deliveries make room.
type disk struct {
	full atomic.Pointer[delivery.StoreFullError] // nil = there is room
}

// check asks for the free space once.
func (d *disk) check(s *Store) {
	w := &s.cfg.Watermark
	if w.Bytes < 0 {
		return
	}
	free, total, err := s.usage()
	if errors.Is(err, vfs.ErrUnsupported) {
		return
	}
	if err != nil {
		s.log.Warn("free disk space is not known", "error", err)
		return // the last answer stays
	}
	mark := uint64(w.Bytes)
	if part := uint64(float64(total) * w.Percent / 100); part < mark {
		mark = part
	}
	was := d.full.Load()
	full := free < mark
	if full {
		d.full.Store(&delivery.StoreFullError{Free: free, Watermark: mark, RetryAfter: w.RetryAfter})
	} else {
		d.full.Store(nil)
	}
	if full != (was != nil) {
		s.log.Warn("free disk space crossed the watermark", "publishes_refused", full, "free_bytes", free, "watermark_bytes", mark)
	}
	s.cfg.Observer.Disk(free, total, full)
}

func (s *Store) usage() (free, total uint64, err error) {
	if s.cfg.Watermark.Usage != nil {
		return s.cfg.Watermark.Usage()
	}
	u, err := s.fs.GetDiskUsage(s.cfg.Dir)
	return u.AvailBytes, u.TotalBytes, err
}

// watch checks the disk until ctx ends.
func (d *disk) watch(ctx context.Context, s *Store) {
	tick := time.NewTicker(s.cfg.Watermark.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.check(s)
		}
	}
}
