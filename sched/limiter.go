package sched

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// LocalLimiter holds token buckets in this process. A bucket is forgotten when
// it is full again, so idle subscribers cost nothing.
type LocalLimiter struct {
	mu      sync.Mutex
	buckets map[bucketKey]*bucket
	oldest  *bucket // ring of buckets, looked at two by two to find full ones
}

type bucketKey struct {
	tenant delivery.TenantNum
	sub    delivery.SubscriberNum
}

type bucket struct {
	*rate.Limiter
	key        bucketKey
	next, prev *bucket
}

// NewLocalLimiter returns an empty limiter.
func NewLocalLimiter() *LocalLimiter {
	return &LocalLimiter{buckets: map[bucketKey]*bucket{}}
}

// Take implements [Limiter].
func (l *LocalLimiter) Take(_ context.Context, d Draw) Drawn {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget(now)
	var first *rate.Reservation
	if d.SubscriberLimit.PerSecond > 0 {
		b := l.bucket(bucketKey{sub: d.Subscriber}, d.SubscriberLimit, now)
		r, wait := reserve(b, now)
		if wait > 0 {
			return Drawn{Wait: wait}
		}
		first = r
	}
	if d.TenantLimit.PerSecond > 0 {
		b := l.bucket(bucketKey{tenant: d.Tenant}, d.TenantLimit, now)
		if _, wait := reserve(b, now); wait > 0 {
			if first != nil {
				first.CancelAt(now)
			}
			return Drawn{Wait: wait, Tenant: true}
		}
	}
	return Drawn{}
}

// reserve takes a token, or says how long it takes until there is one.
func reserve(b *bucket, now time.Time) (*rate.Reservation, time.Duration) {
	r := b.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
		// A whole nanosecond below the bucket's resolution would be asked for again.
		return nil, max(wait, time.Microsecond)
	}
	return r, 0
}

func (l *LocalLimiter) bucket(key bucketKey, limit delivery.RateLimit, now time.Time) *bucket {
	burst := burstOf(limit)
	b := l.buckets[key]
	if b == nil {
		b = &bucket{Limiter: rate.NewLimiter(rate.Limit(limit.PerSecond), burst), key: key}
		l.buckets[key] = b
		l.link(b)
		return b
	}
	if b.Limit() != rate.Limit(limit.PerSecond) {
		b.SetLimitAt(now, rate.Limit(limit.PerSecond))
	}
	if b.Burst() != burst {
		b.SetBurstAt(now, burst)
	}
	return b
}

// burstOf is a limit's bucket size: at least one token, one second's worth
// unless the limit says otherwise.
func burstOf(limit delivery.RateLimit) int {
	if limit.Burst > 0 {
		return limit.Burst
	}
	return int(max(1, math.Ceil(min(limit.PerSecond, 1e9))))
}

// forget looks at two buckets and drops those that are full: a new one would
// be no different. Two per call outpace the one that a call may add.
func (l *LocalLimiter) forget(now time.Time) {
	for range 2 {
		b := l.oldest
		if b == nil {
			return
		}
		l.oldest = b.next
		if b.TokensAt(now) >= float64(b.Burst()) {
			l.unlink(b)
		}
	}
}

func (l *LocalLimiter) link(b *bucket) {
	if l.oldest == nil {
		b.next, b.prev = b, b
		l.oldest = b
		return
	}
	at := l.oldest
	b.next, b.prev = at, at.prev
	at.prev.next, at.prev = b, b
}

func (l *LocalLimiter) unlink(b *bucket) {
	delete(l.buckets, b.key)
	if b.next == b {
		l.oldest = nil
		return
	}
	b.prev.next, b.next.prev = b.next, b.prev
	if l.oldest == b {
		l.oldest = b.next
	}
}
