package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// The paths of the receiver of the leak test.
const (
	pathHang  = "/hang"  // reads the body and never answers
	pathReset = "/reset" // reads the body and resets
)

// leakBench is a transport and a receiver that lets nobody down gently.
type leakBench struct {
	*bundle
	proto   delivery.Protocol
	ep      delivery.Endpoint
	started *counter
	live    *atomic.Int64 // connections, as the receiver counts them
}

func newLeakBench(t *testing.T, proto delivery.Protocol) *leakBench {
	b := &leakBench{bundle: setup(t), proto: proto, started: &counter{}}
	h := b.started.handler(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == pathReset {
			panic(http.ErrAbortHandler)
		}
		<-r.Context().Done()
	})
	switch proto {
	case delivery.ProtocolHTTP3:
		srv := serveQUIC(t, h)
		b.ep, b.live = endpoint(srv.port), &srv.live
	case delivery.ProtocolHTTP2:
		srv := serveTLS(t, h)
		b.ep, b.live = endpoint(srv.port), &srv.live
	default: // each failure costs a connection: without TLS, thousands are affordable
		srv := servePlain(t, h)
		b.ep, b.live = plainEndpoint(srv.port), &srv.live
	}
	return b
}

// slot returns a slot on a warm connection, or a new one.
func (b *leakBench) slot(ctx context.Context) (*Conn, error) {
	if b.proto == delivery.ProtocolHTTP3 {
		want := Want{HTTP3: true, Alternative: own(b.ep)}
		if c, ok := b.tr.Warm(b.ep, want); ok {
			return c, nil
		}
		return b.tr.DialQUIC(ctx, b.ep, want.Alternative)
	}
	opts := TCPOptions{Protocol: b.proto}
	if c, ok := b.tr.Warm(b.ep, Want{TCP: opts}); ok {
		return c, nil
	}
	return b.tr.DialTCP(ctx, b.ep, opts)
}

// fail sends a POST that fails in the way that its number says.
func (b *leakBench) fail(ctx context.Context, n int) error {
	c, err := b.slot(ctx)
	if err != nil {
		return err
	}
	req := post(b.ep, "body")
	var cancel context.CancelFunc
	switch n % 3 {
	case 0: // aborted, mostly after the receiver has begun
		req.Path = pathHang
		ctx, cancel = context.WithCancel(ctx)
		time.AfterFunc(10*time.Millisecond, cancel)
	case 1: // reset by the receiver
		req.Path = pathReset
		ctx, cancel = context.WithCancel(ctx)
	default: // timed out
		req.Path = pathHang
		ctx, cancel = context.WithTimeout(ctx, 10*time.Millisecond)
	}
	defer cancel()
	if resp, err := c.RoundTrip(ctx, req); err == nil {
		return fmt.Errorf("%s was answered: %+v", req.Path, resp)
	}
	return nil
}

// failMany sends so many, with as many workers as an HTTP/1.1 route has
// connections.
func (b *leakBench) failMany(total int) {
	b.t.Helper()
	ctx := within(b.t, time.Minute)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for n := next.Add(1); n <= int64(total); n = next.Add(1) {
				if err := b.fail(ctx, int(n)); err != nil {
					b.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// settled waits until nothing is in flight and the receiver has as many
// connections as we do.
func (b *leakBench) settled() (conns int) {
	b.t.Helper()
	eventually(b.t, "both ends count the same connections", func() bool {
		s := b.tr.Stats()
		conns = s.HTTP1.Live + s.HTTP2.Live + s.HTTP3.Live
		return s.InFlight == 0 && s.Dialing == 0 && s.Waiting == 0 && b.live.Load() == int64(conns)
	})
	return conns
}

// heapInUse is what is in use once the garbage is gone.
func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// TestFailedPostsLeaveNothingBehind: after a thousand each of aborted, reset and
// timed-out POSTs, goroutines, connections and heap are where they were. It does
// not run in parallel with others, which would be counted.
func TestFailedPostsLeaveNothingBehind(t *testing.T) {
	for _, proto := range protocols {
		t.Run(proto.String(), func(t *testing.T) {
			before := runtime.NumGoroutine()
			b := newLeakBench(t, proto)
			b.failMany(300) // pools of the stacks, session tickets, arenas
			atFirst := b.settled()
			heap := heapInUse()
			b.failMany(3 * failedPosts)
			// A moment in which every stream was taken opens one more QUIC connection,
			// which then is idle like the first: what may stay has a cap, not more.
			most := max(atFirst, 1)
			if proto == delivery.ProtocolHTTP3 {
				most = max(most, b.tr.cfg.MaxQUICConnsPerRoute)
			}
			if conns := b.settled(); conns > most {
				t.Errorf("%d connections, %d at first, at most %d may stay", conns, atFirst, most)
			}
			// A tenth, and one arena chunk's worth of spans: the heap is small here.
			limit := heap + heap/10 + 1<<20
			eventually(t, "the heap is back", func() bool { return heapInUse() <= limit })
			if n := b.started.n.Load(); n < failedPosts {
				t.Errorf("only %d POSTs arrived", n)
			}
			if err := b.tr.Close(within(t, 5*time.Second)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the receiver has no connection left", func() bool { return b.live.Load() == 0 })
			// What serves the receiver's listener stays until the test ends.
			eventually(t, "the goroutines are back", func() bool { return runtime.NumGoroutine() <= before+10 })
		})
	}
}

// TestIdleOriginsStayWithinTheCaps: a thousand origins that were each used once
// leave as many connections as the cap says, here and at the receiver, and one
// socket carries all of them.
func TestIdleOriginsStayWithinTheCaps(t *testing.T) {
	const most = 64
	b := setup(t, func(c *Config) { c.MaxIdleHTTP3, c.IdleTimeoutHTTP3 = most, 10*time.Minute })
	srv := serveQUIC(t, http.HandlerFunc(ok200), func(c *tls.Config, _ *quic.Config, _ *http3.Server) {
		c.Certificates = []tls.Certificate{testCA().issue("*.origins.test")}
	})
	ctx := within(t, time.Minute)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for n := next.Add(1); n <= failedPosts; n = next.Add(1) {
				ep := endpoint(srv.port)
				ep.Route.Origin.Host = fmt.Sprintf("h%d.origins.test", n)
				conn, err := b.tr.DialQUIC(ctx, ep, own(ep))
				if err != nil {
					t.Error(err)
					return
				}
				conn.Release()
				if s := b.tr.Stats(); s.HTTP3.Idle > most || s.Sockets > 1 {
					t.Errorf("%+v", s)
				}
			}
		})
	}
	wg.Wait()
	if s := b.tr.Stats(); s.HTTP3.Idle != most || s.HTTP3.Live != most {
		t.Errorf("%+v", s)
	}
	if n := srv.conns.Load(); n != failedPosts {
		t.Errorf("the receiver saw %d connections", n)
	}
	eventually(t, "the receiver has as many connections", func() bool { return srv.live.Load() == most })
}
