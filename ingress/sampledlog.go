package ingress

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// sampledLog writes a warning at most once a second and counts the rest: what a
// stranger can cause with every request must not fill the log.
type sampledLog struct {
	log     *slog.Logger
	last    atomic.Int64 // unix nanoseconds
	skipped atomic.Int64
}

const sampleEvery = time.Second

func (s *sampledLog) warn(msg string, args ...any) {
	now, last := time.Now().UnixNano(), s.last.Load()
	if now-last < int64(sampleEvery) || !s.last.CompareAndSwap(last, now) {
		s.skipped.Add(1)
		return
	}
	if n := s.skipped.Swap(0); n > 0 {
		args = append(args, "not_logged", n)
	}
	s.log.Warn(msg, args...) //nolint:sloglint // constant at every call
}
