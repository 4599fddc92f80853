//go:build real

package sched

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
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

// Both nodes ask as fast as they can, as two schedulers with a backlog would:
// together they get what one bucket gives in that time, within 5 %. The burst
// is a second's worth, so that a pause of the machine loses no token.
func TestRealRedisTwoNodesKeepToOneRateWithinFivePercent(t *testing.T) {
	a, b, _ := realRedis(t)
	const rate, during = 200.0, 3 * time.Second
	d := Draw{Subscriber: 1, SubscriberLimit: delivery.RateLimit{PerSecond: rate, Burst: rate}, Tenant: 1}
	var granted [2]atomic.Int64
	begin := time.Now()
	var wg sync.WaitGroup
	for i, l := range []*RedisLimiter{a, b} {
		for range 4 {
			wg.Go(func() {
				for time.Since(begin) < during {
					if got := l.Take(t.Context(), d); got.Wait == 0 {
						granted[i].Add(1)
					} else {
						pause(got.Wait)
					}
				}
			})
		}
	}
	wg.Wait()
	want := rate + rate*time.Since(begin).Seconds()
	got := float64(granted[0].Load() + granted[1].Load())
	if got < 0.95*want || got > 1.05*want || !a.Shared() || !b.Shared() {
		t.Errorf("two nodes got %.0f tokens in %s, want %.0f", got, time.Since(begin), want)
	}
	for i := range granted {
		if granted[i].Load() == 0 {
			t.Errorf("node %d got nothing", i+1)
		}
	}
}

// pause waits as a scheduler does that was told when it is worth asking again.
func pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// ownRedis is a server that a test may stop.
type ownRedis struct {
	t    *testing.T
	port string
	cmd  *exec.Cmd
}

func startRedis(t *testing.T) *ownRedis {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	r := &ownRedis{t: t, port: port}
	r.start()
	t.Cleanup(r.stop)
	return r
}

func (r *ownRedis) addr() string { return "127.0.0.1:" + r.port }

func (r *ownRedis) start() {
	r.cmd = exec.CommandContext(context.Background(), "redis-server", "--bind", "127.0.0.1", "--port", r.port,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", r.t.TempDir())
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: r.addr(), MaxRetries: -1})
	defer client.Close()
	for client.Ping(r.t.Context()).Err() != nil {
		if r.t.Context().Err() != nil {
			r.t.Fatal("it did not start")
		}
		pause(10 * time.Millisecond)
	}
}

// stop is kill -9.
func (r *ownRedis) stop() {
	if r.cmd != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		r.cmd = nil
	}
}

// shared asks until the limiter says that the buckets are shared again.
func shared(t *testing.T, l *RedisLimiter, d Draw) {
	t.Helper()
	for !l.Shared() {
		l.Take(t.Context(), d)
		if t.Context().Err() != nil {
			t.Fatal("it never came back")
		}
		pause(time.Millisecond)
	}
}

// A server that stands still, and one that is killed: a decision does not wait
// for it, local buckets bound meanwhile, and when it is back it decides again,
// although it has forgotten the script and every bucket.
func TestRealRedisMayStandStillDieAndComeBack(t *testing.T) {
	r := startRedis(t)
	l := patient(t, r.addr(), nil)
	d := Draw{Subscriber: 1, SubscriberLimit: delivery.RateLimit{PerSecond: 0.001, Burst: 2}, Tenant: 1}
	if got := l.Take(t.Context(), d); got.Wait != 0 || !l.Shared() {
		t.Fatalf("with Redis: %+v", got)
	}
	l.cfg.Timeout = 5 * time.Millisecond // the default; nobody asks at the moment
	control := redis.NewClient(&redis.Options{Addr: r.addr()})
	t.Cleanup(func() { _ = control.Close() })
	if err := control.Do(t.Context(), "CLIENT", "PAUSE", "600000", "ALL").Err(); err != nil {
		t.Fatal(err)
	}
	// It answers nobody for ten minutes: that these return proves that they did
	// not wait for it.
	for i, wantWait := range []bool{false, false, true} {
		if got := l.Take(t.Context(), d); got.Wait > 0 != wantWait {
			t.Errorf("decision %d without Redis: %+v; the local bucket has two tokens", i+1, got)
		}
	}
	if l.Shared() {
		t.Error("a server that stands still counts as shared")
	}
	r.stop()
	l.Take(t.Context(), d)
	r.start()
	l.cfg.Timeout = 10 * time.Second
	shared(t, l, d)
	fresh := Draw{Subscriber: 2, SubscriberLimit: d.SubscriberLimit, Tenant: 1}
	for i, wantWait := range []bool{false, false, true} {
		if got := l.Take(t.Context(), fresh); got.Wait > 0 != wantWait || !l.Shared() {
			t.Errorf("decision %d after the restart: %+v", i+1, got)
		}
	}
}
