package ingress

import "sync/atomic"

// budget is a node-wide bound on something that strangers can make us hold. It
// never waits: who does not get his share is turned away with a 503, which every
// provider retries, instead of adding to a queue.
type budget struct {
	max  int64
	used atomic.Int64
}

// take reserves n and reports whether there was room.
func (b *budget) take(n int64) bool {
	for {
		used := b.used.Load()
		if used+n > b.max {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// give returns n.
func (b *budget) give(n int64) { b.used.Add(-n) }
