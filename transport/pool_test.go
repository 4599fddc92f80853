package transport

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// fakeWire is a connection without a network.
type fakeWire struct {
	mu     sync.Mutex
	slots  int // what the stack itself would allow
	taken  int
	closed bool
}

func (w *fakeWire) reserve() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || w.taken >= w.slots {
		return false
	}
	w.taken++
	return true
}

func (w *fakeWire) unreserve() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.taken--
}

func (w *fakeWire) roundTrip(context.Context, *exchange) (*answer, *failure) {
	w.unreserve()
	return nil, &failure{err: errors.New("not a network")}
}

func (w *fakeWire) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

func (w *fakeWire) ended() error { return nil }

func (w *fakeWire) rtt() time.Duration { return 0 }

// poolBundle is a pool whose dials are told how to end.
type poolBundle struct {
	*pool
	t *testing.T

	mu        sync.Mutex
	evictions map[Eviction]int
	dials     int
	// next makes the outcome of a dial; it runs on the dial's goroutine.
	next func(ctx context.Context) (delivery.Protocol, *delivery.SendError)
}

func setupPool(t *testing.T, change func(*Config)) *poolBundle {
	b := &poolBundle{t: t, evictions: map[Eviction]int{}}
	cfg := Config{Guard: &fakeGuard{}, Observer: Observer{Evicted: func(_ delivery.Protocol, why Eviction) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.evictions[why]++
	}}}
	if change != nil {
		change(&cfg)
	}
	cfg = cfg.withDefaults()
	b.pool = newPool(&cfg, b.dial)
	b.next = func(context.Context) (delivery.Protocol, *delivery.SendError) { return delivery.ProtocolHTTP1, nil }
	return b
}

func (b *poolBundle) dial(
	ctx context.Context, key bucketKey, _ delivery.Endpoint, alt delivery.Alternative, _ dialOptions,
) (*link, *delivery.SendError) {
	b.mu.Lock()
	b.dials++
	next := b.next
	b.mu.Unlock()
	proto, err := next(ctx)
	if err != nil {
		return nil, err
	}
	limit := map[delivery.Protocol]int{
		delivery.ProtocolHTTP1: 1, delivery.ProtocolHTTP2: b.cfg.MaxStreamsHTTP2, delivery.ProtocolHTTP3: b.cfg.MaxStreamsHTTP3,
	}[proto]
	return &link{pool: b.pool, proto: proto, route: key.route, alt: alt, limit: limit, wire: &fakeWire{slots: limit}}, nil
}

func (b *poolBundle) dialled() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.dials
}

func (b *poolBundle) evicted(why Eviction) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.evictions[why]
}

func (b *poolBundle) timerArmed() bool {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	return b.tcp.armed
}

// kept counts buckets.
func (b *poolBundle) kept() int {
	b.pool.mu.Lock()
	defer b.pool.mu.Unlock()
	return len(b.buckets)
}

func (b *poolBundle) get(ctx context.Context, key bucketKey) (*Conn, error) {
	return b.acquire(ctx, key, delivery.Endpoint{Route: key.route}, delivery.Alternative{Host: key.host, Port: key.port}, &waiter{})
}

func (b *poolBundle) mustGet(key bucketKey) *Conn {
	b.t.Helper()
	c, err := b.get(context.Background(), key)
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

func (b *poolBundle) end() {
	b.t.Helper()
	if err := b.close(context.Background()); err != nil {
		b.t.Fatal(err)
	}
	if b.snapshot() != (Stats{}) || b.kept() != 0 {
		b.t.Fatalf("left after close: %+v, %d buckets", b.snapshot(), b.kept())
	}
}

func tcpKey(host string) bucketKey {
	return bucketKey{route: delivery.Route{Origin: delivery.Origin{Scheme: "https", Host: host, Port: 443}}}
}

func altKey(host string) bucketKey {
	k := tcpKey(host)
	k.quic, k.port = true, 443
	return k
}

func after(d time.Duration, proto delivery.Protocol, err *delivery.SendError) func(context.Context) (delivery.Protocol, *delivery.SendError) {
	return func(ctx context.Context) (delivery.Protocol, *delivery.SendError) {
		select {
		case <-time.After(d):
			return proto, err
		case <-ctx.Done():
			return 0, errClosed()
		}
	}
}

func TestIdleConnectionsAreClosedOnTimeAndWithoutPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setupPool(t, nil)
		defer b.end()
		b.mustGet(tcpKey("a")).Release()
		time.Sleep(30 * time.Second)
		b.mustGet(tcpKey("b")).Release()
		time.Sleep(29 * time.Second)
		b.mustGet(tcpKey("a")).Release() // used again: lives on
		time.Sleep(30*time.Second + 999*time.Millisecond)
		synctest.Wait()
		if b.snapshot().HTTP1 != (Gauge{2, 2}) {
			t.Fatalf("before the timeout: %+v", b.snapshot().HTTP1)
		}
		time.Sleep(time.Millisecond)
		synctest.Wait()
		if b.snapshot().HTTP1 != (Gauge{1, 1}) || b.evicted(EvictIdle) != 1 {
			t.Fatalf("at the timeout of the first: %+v", b.snapshot().HTTP1)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if b.snapshot().HTTP1 != (Gauge{}) || b.timerArmed() || b.kept() != 0 {
			t.Fatalf("empty, and still: %+v, timer armed %v, %d buckets", b.snapshot().HTTP1, b.timerArmed(), b.kept())
		}
	})
}

func TestLeastRecentlyUsedIdleConnectionGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setupPool(t, func(c *Config) { c.MaxIdleHTTP3 = 2 })
		defer b.end()
		b.next = after(0, delivery.ProtocolHTTP3, nil)
		for _, host := range []string{"a", "b", "a", "c"} { // a was used after b
			b.mustGet(altKey(host)).Release()
			time.Sleep(time.Second)
		}
		if b.snapshot().HTTP3 != (Gauge{2, 2}) || b.evicted(EvictCapacity) != 1 {
			t.Fatalf("%+v, evicted %d", b.snapshot().HTTP3, b.evicted(EvictCapacity))
		}
		if _, warm := b.warm(altKey("b"), TCPOptions{}); warm {
			t.Fatal("the least recently used one was kept")
		}
		c, warm := b.warm(altKey("a"), TCPOptions{})
		if !warm {
			t.Fatal("the recently used one is gone")
		}
		c.Release()
	})
}

func TestCapMakesCallersWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setupPool(t, func(c *Config) { c.MaxTCPConnsPerRoute = 2 })
		defer b.end()
		key := tcpKey("a")
		first, second := b.mustGet(key), b.mustGet(key)
		var order []int
		var wg sync.WaitGroup
		for i := range 3 {
			wg.Go(func() {
				c := b.mustGet(key)
				order = append(order, i) // one at a time: each waits for the one before
				time.Sleep(time.Second)
				c.Release()
			})
			synctest.Wait()
		}
		if b.dialled() != 2 || b.snapshot().Waiting != 3 {
			t.Fatalf("%d dials, %d wait", b.dialled(), b.snapshot().Waiting)
		}
		if _, warm := b.warm(key, TCPOptions{}); warm {
			t.Fatal("a newcomer overtook those who wait")
		}
		first.Release()
		wg.Wait()
		second.Release()
		if b.dialled() != 2 || len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 {
			t.Fatalf("%d dials, served in order %v", b.dialled(), order)
		}
	})
}

func TestWaitForASlotEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setupPool(t, func(c *Config) { c.MaxTCPConnsPerRoute = 1 })
		defer b.end()
		held := b.mustGet(tcpKey("a"))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		started := time.Now()
		_, err := b.get(ctx, tcpKey("a"))
		wantSent(t, err, delivery.SentNever, delivery.CauseStreams)
		if took := time.Since(started); took != 3*time.Second {
			t.Fatalf("waited %v", took)
		}
		held.Release()
	})
}

// The caller who gives up takes nothing from the others.
func TestDialBelongsToNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setupPool(t, nil)
		defer b.end()
		b.next = after(2*time.Second, delivery.ProtocolHTTP3, nil)
		key := altKey("a")
		var wg sync.WaitGroup
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			_, err := b.get(ctx, key)
			wantSent(t, err, delivery.SentNever, delivery.CauseTimeout)
		})
		started := time.Now()
		for range 8 {
			wg.Go(func() { b.mustGet(key).Release() })
		}
		wg.Wait()
		if took := time.Since(started); took != 2*time.Second || b.dialled() != 1 {
			t.Fatalf("%d dials, %v", b.dialled(), took)
		}
	})
}

func TestFailedDialIsSharedByThoseWhoWaitedForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setupPool(t, nil)
		defer b.end()
		silent := &delivery.SendError{Sent: delivery.SentNever, Cause: delivery.CauseConnect, Broken: delivery.BrokenTimeout}
		b.next = after(3*time.Second, 0, silent)
		key := altKey("a")
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_, err := b.get(t.Context(), key)
				if se := wantSent(t, err, delivery.SentNever, delivery.CauseConnect); se.Broken != delivery.BrokenTimeout || se == silent {
					t.Errorf("%+v", se)
				}
			})
		}
		time.Sleep(2 * time.Second)
		wg.Go(func() { // came too late for the first dial's verdict: gets a dial of its own
			started := time.Now()
			_, err := b.get(t.Context(), key)
			wantSent(t, err, delivery.SentNever, delivery.CauseConnect)
			if took := time.Since(started); took != 4*time.Second {
				t.Errorf("the late one waited %v", took)
			}
		})
		wg.Wait()
		if b.dialled() != 2 {
			t.Fatalf("%d dials", b.dialled())
		}
	})
}

// TestColdBurstDoesNotStorm: as long as it is not known what a route speaks, one
// handshake finds out; then HTTP/1.1 gets its connections, HTTP/2 needs no more.
func TestColdBurstDoesNotStorm(t *testing.T) {
	for proto, dials := range map[delivery.Protocol]int{delivery.ProtocolHTTP1: 8, delivery.ProtocolHTTP2: 1} {
		t.Run(proto.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := setupPool(t, nil)
				defer b.end()
				b.next = after(time.Second, proto, nil)
				var wg sync.WaitGroup
				started := time.Now()
				for range 8 {
					wg.Go(func() {
						c := b.mustGet(tcpKey("a"))
						time.Sleep(10 * time.Second)
						c.Release()
					})
				}
				synctest.Wait()
				if b.dialled() != 1 {
					t.Errorf("%d dials before anything is known", b.dialled())
				}
				wg.Wait()
				if took := time.Since(started); took > 12*time.Second || b.dialled() != dials {
					t.Errorf("%d dials, %v", b.dialled(), took)
				}
			})
		})
	}
}

func TestConnectionThatDiesAtOnceFailsTheDial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setupPool(t, nil)
		defer b.end()
		b.pool.dialer = func(ctx context.Context, key bucketKey, ep delivery.Endpoint, alt delivery.Alternative, p dialOptions) (*link, *delivery.SendError) {
			l, err := b.dial(ctx, key, ep, alt, p)
			l.wire.close()
			return l, err
		}
		_, err := b.get(t.Context(), tcpKey("a"))
		wantSent(t, err, delivery.SentNever, delivery.CauseConnect)
		if b.dialled() != 1 {
			t.Fatalf("%d dials: it was dialled in a circle", b.dialled())
		}
	})
}

func TestIdleConnectionOfTheWrongKindGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setupPool(t, func(c *Config) { c.MaxTCPConnsPerRoute = 1 })
		defer b.end()
		key := tcpKey("a")
		b.mustGet(key).Release()
		c, err := b.acquire(t.Context(), key, delivery.Endpoint{Route: key.route}, delivery.Alternative{}, &waiter{opts: TCPOptions{Fresh: true}})
		if err != nil {
			t.Fatal(err)
		}
		if c.Reused() || b.dialled() != 2 || b.evicted(EvictCapacity) != 1 {
			t.Fatalf("reused %v, %d dials, evicted %d", c.Reused(), b.dialled(), b.evicted(EvictCapacity))
		}
		c.Release()
	})
}

// TestPeerLimitBelowOurs: the stack has fewer slots than we allow.
func TestPeerLimitBelowOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setupPool(t, func(c *Config) { c.MaxTCPConnsPerRoute = 1 })
		defer b.end()
		b.next = after(0, delivery.ProtocolHTTP2, nil)
		key := tcpKey("a")
		first := b.mustGet(key)
		wire := first.link.wire.(*fakeWire)
		wire.mu.Lock()
		wire.slots = 1
		wire.mu.Unlock()
		got := make(chan *Conn)
		go func() { got <- b.mustGet(key) }()
		synctest.Wait()
		if b.snapshot().Waiting != 1 {
			t.Fatalf("%d wait", b.snapshot().Waiting)
		}
		wire.mu.Lock()
		wire.slots = 2
		wire.mu.Unlock()
		b.wake(first.link) // as the stack's hook does when the peer raises its limit
		(<-got).Release()
		first.Release()
	})
}

func TestKeepAliveHintRetiresAConnectionEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setupPool(t, nil)
		defer b.end()
		c := b.mustGet(tcpKey("a"))
		b.keepAliveHint(c.link, 4*time.Second)
		c.Release()
		time.Sleep(4*time.Second - 1)
		c, warm := b.warm(tcpKey("a"), TCPOptions{})
		if !warm {
			t.Fatal("retired too early")
		}
		c.Release()
		time.Sleep(4 * time.Second)
		if _, warm := b.warm(tcpKey("a"), TCPOptions{}); warm {
			t.Fatal("kept although the peer closes it now")
		}
		if b.kept() != 0 {
			t.Fatal("an empty bucket is kept")
		}
	})
}

func TestCloseLetsRequestsFinishWithinItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setupPool(t, nil)
		quick, slow := b.mustGet(tcpKey("a")), b.mustGet(tcpKey("b"))
		b.mustGet(tcpKey("c")).Release()
		b.next = after(time.Hour, delivery.ProtocolHTTP1, nil)
		waits := make(chan error, 1)
		go func() {
			_, err := b.get(t.Context(), tcpKey("d"))
			waits <- err
		}()
		synctest.Wait()
		time.AfterFunc(time.Second, quick.Release)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		started := time.Now()
		if err := b.close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("close: %v", err)
		}
		if took := time.Since(started); took != 5*time.Second {
			t.Fatalf("close took %v", took)
		}
		wantSent(t, <-waits, delivery.SentNever, delivery.CauseShutdown)
		if !slow.link.wire.(*fakeWire).closed {
			t.Fatal("what had to be interrupted was not closed")
		}
		slow.Release()
		_, err := b.get(t.Context(), tcpKey("a"))
		wantSent(t, err, delivery.SentNever, delivery.CauseShutdown)
		b.end()
	})
}

func TestSlotIsUsedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setupPool(t, nil)
		defer b.end()
		c := b.mustGet(tcpKey("a"))
		c.Release()
		c.Release()
		_, err := c.RoundTrip(t.Context(), &delivery.Request{})
		wantSent(t, err, delivery.SentNever, delivery.CauseLocal)
		if b.snapshot().InFlight != 0 {
			t.Fatalf("%+v", b.snapshot())
		}
	})
}
