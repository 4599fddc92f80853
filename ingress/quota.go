package ingress

import (
	"context"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// LocalQuota is a [Quota] of this node alone, with bounded memory. Only verified
// requests reach it, so strangers cannot fill it.
type LocalQuota struct {
	buckets *lru.Cache[QuotaKey, *rate.Limiter]
}

const (
	quotaBuckets = 16_384
	// maxQuotaWait bounds how much later an event is processed. A tenant that is
	// over quota for longer gets no further into debt.
	maxQuotaWait = time.Hour
)

// NewLocalQuota returns an empty quota.
func NewLocalQuota() *LocalQuota {
	buckets, err := lru.New[QuotaKey, *rate.Limiter](quotaBuckets)
	if err != nil {
		panic(err) // the size is a constant above zero
	}
	return &LocalQuota{buckets}
}

// Reserve implements [Quota]. It never fails.
func (q *LocalQuota) Reserve(_ context.Context, key QuotaKey, limit delivery.RateLimit) (Reservation, error) {
	now := time.Now()
	bucket := q.bucket(key, limit, now)
	r := bucket.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > maxQuotaWait {
		r.CancelAt(now)
		return Reservation{Wait: maxQuotaWait}, nil
	}
	return Reservation{Wait: wait, Cancel: r.Cancel}, nil
}

// bucket finds or makes the bucket, and adapts it to a limit that was changed.
func (q *LocalQuota) bucket(key QuotaKey, limit delivery.RateLimit, now time.Time) *rate.Limiter {
	bucket, ok := q.buckets.Get(key)
	if !ok {
		fresh := rate.NewLimiter(rate.Limit(limit.PerSecond), limit.Burst)
		previous, exists, _ := q.buckets.PeekOrAdd(key, fresh)
		if !exists {
			return fresh
		}
		bucket = previous
	}
	if bucket.Limit() != rate.Limit(limit.PerSecond) {
		bucket.SetLimitAt(now, rate.Limit(limit.PerSecond))
	}
	if bucket.Burst() != limit.Burst {
		bucket.SetBurstAt(now, limit.Burst)
	}
	return bucket
}
