//go:build real

package sched

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// realRedis returns limiters of two nodes on a real server, with keys of their
// own.
func realRedis(t *testing.T) (a, b *RedisLimiter, client *redis.Client) {
	addr := os.Getenv("DISPATCHER_REAL_REDIS")
	if addr == "" {
		t.Fatal("DISPATCHER_REAL_REDIS is not set; run scripts/test-real")
	}
	prefix := "test:" + strconv.FormatInt(time.Now().UnixNano(), 36) + ":"
	node := func() *RedisLimiter {
		return patient(t, addr, func(c *RedisConfig) { c.Prefix = prefix })
	}
	client = redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = client.Close() })
	return node(), node(), client
}

func TestRealRedisNodesShareOneBucket(t *testing.T) {
	a, b, _ := realRedis(t)
	d := Draw{Subscriber: 1, SubscriberLimit: delivery.RateLimit{PerSecond: 0.001, Burst: 10}, Tenant: 1}
	granted := 0
	for range 20 {
		for _, l := range []*RedisLimiter{a, b} {
			if got := l.Take(t.Context(), d); got.Wait == 0 {
				granted++
			} else if got.Wait < 900*time.Second || got.Wait > 1000*time.Second {
				t.Fatalf("a token comes in %s, want about 1000 s", got.Wait)
			}
		}
	}
	if granted != 10 || !a.Shared() || !b.Shared() {
		t.Errorf("two nodes got %d tokens of a bucket of 10", granted)
	}
}

func TestRealRedisTakesOfAllBucketsOrNone(t *testing.T) {
	a, _, client := realRedis(t)
	d := Draw{
		Subscriber: 1, SubscriberLimit: delivery.RateLimit{PerSecond: 0.001, Burst: 5},
		Tenant: 1, TenantLimit: delivery.RateLimit{PerSecond: 0.01, Burst: 2},
	}
	for i := range 2 {
		if got := a.Take(t.Context(), d); got.Wait != 0 {
			t.Fatalf("token %d: %+v", i, got)
		}
	}
	for range 5 {
		if got := a.Take(t.Context(), d); got.Wait == 0 || !got.Tenant {
			t.Fatalf("the tenant is out of tokens: %+v", got)
		}
	}
	left, err := client.HGet(t.Context(), a.cfg.Prefix+"{1}:1", "t").Float64()
	if err != nil || left < 3 || left > 3.01 {
		t.Errorf("the subscriber has %v tokens left (%v), want its 3", left, err)
	}
}

func TestRealRedisRefillsByItsClockAndForgetsFullBuckets(t *testing.T) {
	a, _, client := realRedis(t)
	d := Draw{Subscriber: 1, SubscriberLimit: delivery.RateLimit{PerSecond: 1000, Burst: 1}, Tenant: 1}
	begin, granted := time.Now(), 0
	for time.Since(begin) < 300*time.Millisecond {
		if a.Take(t.Context(), d).Wait == 0 {
			granted++
		}
	}
	if most := int(time.Since(begin)/time.Millisecond) + 2; granted < 10 || granted > most {
		t.Errorf("%d tokens, at most %d can have come", granted, most)
	}
	ttl, err := client.PTTL(t.Context(), a.cfg.Prefix+"{1}:1").Result()
	if err != nil || ttl <= 0 || ttl > 2*time.Second {
		t.Errorf("the bucket lives for %s more (%v), want about a second", ttl, err)
	}
}
