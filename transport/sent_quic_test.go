package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// silentUDP is a port where packets disappear; closedUDP one where nobody is.
func silentUDP(t *testing.T) int {
	t.Helper()
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = udp.Close() })
	return portOf(udp.LocalAddr())
}

func closedUDP(t *testing.T) int {
	t.Helper()
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	return portOf(udp.LocalAddr())
}

// TestQUICDialFailureNamesWhatIsBroken holds the rows of the table that end
// before a request: all of them never sent, told apart for the selector.
func TestQUICDialFailureNamesWhatIsBroken(t *testing.T) {
	never := func(*rawConn3, *quic.Stream) { t.Error("a request arrived") }
	cases := []struct {
		name   string
		port   func(t *testing.T) int
		cause  delivery.Cause
		broken delivery.Broken
	}{
		{"closed UDP port", closedUDP, delivery.CauseConnect, delivery.BrokenTimeout},
		{"UDP black hole", silentUDP, delivery.CauseConnect, delivery.BrokenTimeout},
		{"ALPN mismatch", func(t *testing.T) int {
			return serveRaw(t, never, func(_ *quic.Transport, c *tls.Config, _ *quic.Config) { c.NextProtos = []string{"other"} }).port
		}, delivery.CauseTLS, delivery.BrokenExplicit},
		{"certificate for another name", func(t *testing.T) int {
			return serveRaw(t, never, func(_ *quic.Transport, c *tls.Config, _ *quic.Config) {
				c.Certificates = []tls.Certificate{testCA().issue("other.test")}
			}).port
		}, delivery.CauseTLS, delivery.BrokenCertificate},
		{"CONNECTION_REFUSED", func(t *testing.T) int {
			return serveRaw(t, never, func(tr *quic.Transport, _ *tls.Config, _ *quic.Config) {
				tr.ConnContext = func(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
					return ctx, errors.New("no")
				}
			}).port
		}, delivery.CauseConnect, delivery.BrokenExplicit},
		{"no common version", func(t *testing.T) int {
			return serveRaw(t, never, func(_ *quic.Transport, _ *tls.Config, c *quic.Config) {
				c.Versions = []quic.Version{quic.Version2}
			}).port
		}, delivery.CauseConnect, delivery.BrokenExplicit},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var options []func(*Config)
			if c.broken == delivery.BrokenTimeout {
				options = append(options, impatient)
			}
			b := setup(t, options...)
			ep := endpoint(c.port(t))
			_, err := b.tr.DialQUIC(within(t, 5*time.Second), ep, delivery.Alternative{Port: ep.Route.Origin.Port})
			if se := wantSent(t, err, delivery.SentNever, c.cause); se.Broken != c.broken {
				t.Fatalf("broken is %v (%s), want %v", se.Broken, se.Detail, c.broken)
			}
			if s := b.tr.Stats(); s.HTTP3.Live != 0 {
				t.Fatalf("a connection is left: %+v", s)
			}
		})
	}
}

// TestHTTP3FailureSaysWhatThePeerProved holds the rows that end after a request
// was written. Each script counts the requests that it read to the end.
func TestHTTP3FailureSaysWhatThePeerProved(t *testing.T) {
	reset := func(code http3.ErrCode, readFirst bool) func(*rawConn3, *quic.Stream) {
		return func(c *rawConn3, s *quic.Stream) {
			if readFirst {
				c.readAll(s)
			}
			s.CancelRead(quic.StreamErrorCode(code))
			s.CancelWrite(quic.StreamErrorCode(code))
		}
	}
	closing := func(code http3.ErrCode) func(*rawConn3, *quic.Stream) {
		return func(c *rawConn3, s *quic.Stream) {
			c.readAll(s)
			_ = c.CloseWithError(quic.ApplicationErrorCode(code), "so it is")
		}
	}
	cases := []struct {
		name     string
		script   func(*rawConn3, *quic.Stream)
		sent     delivery.Sent
		cause    delivery.Cause
		broken   delivery.Broken
		keeps    bool // the connection takes the next request
		complete int64
	}{
		{"reset 0x10b before the request was read", reset(http3.ErrCodeRequestRejected, false), delivery.SentRefused, delivery.CauseReset, delivery.BrokenNot, true, 0},
		{"reset 0x10b after the request was read", reset(http3.ErrCodeRequestRejected, true), delivery.SentRefused, delivery.CauseReset, delivery.BrokenNot, true, 1},
		{"reset 0x110", reset(http3.ErrCodeVersionFallback, true), delivery.SentRefused, delivery.CauseReset, delivery.BrokenExplicit, false, 1},
		{"reset 0x102 before", reset(http3.ErrCodeInternalError, false), delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenNot, true, 0},
		{"reset 0x102 after", reset(http3.ErrCodeInternalError, true), delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenNot, true, 1},
		{"reset 0x10c", reset(http3.ErrCodeRequestCanceled, true), delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenNot, true, 1},
		{"close 0x100 with the request open", closing(http3.ErrCodeNoError), delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenNot, false, 1},
		{"close 0x10b", closing(http3.ErrCodeRequestRejected), delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenNot, false, 1},
		{"close 0x102", closing(http3.ErrCodeInternalError), delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenAfterDeath, false, 1},
		{"close 0x110", closing(http3.ErrCodeVersionFallback), delivery.SentAmbiguous, delivery.CauseReset, delivery.BrokenExplicit, false, 1},
		{"a frame that may not be there", func(c *rawConn3, s *quic.Stream) {
			c.readAll(s)
			_, _ = s.Write([]byte{0x04, 0x00}) // SETTINGS on a request stream
		}, delivery.SentAmbiguous, delivery.CauseProtocol, delivery.BrokenNot, false, 1},
		{"end of stream without an answer", func(c *rawConn3, s *quic.Stream) {
			c.readAll(s)
			_ = s.Close()
		}, delivery.SentAmbiguous, delivery.CauseProtocol, delivery.BrokenNot, true, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			peer := serveRaw(t, c.script)
			ep := endpoint(peer.port)
			ctx := within(t, 5*time.Second)
			_, err := b.quic(ctx, ep).RoundTrip(ctx, post(ep, "body"))
			if se := wantSent(t, err, c.sent, c.cause); se.Broken != c.broken {
				t.Fatalf("broken is %v (%s), want %v", se.Broken, se.Detail, c.broken)
			}
			if n := peer.whole.Load(); n != c.complete {
				t.Fatalf("the peer read %d whole requests, want %d: something was sent twice or not at all", n, c.complete)
			}
			conn, warm := b.tr.Warm(ep, Want{HTTP3: true, Alternative: delivery.Alternative{Port: ep.Route.Origin.Port}})
			if warm {
				conn.Release()
			}
			if warm != c.keeps {
				t.Fatalf("the connection is warm: %v, want %v", warm, c.keeps)
			}
			if wantRefused := c.sent == delivery.SentRefused; (b.refusals.Load() == 1) != wantRefused {
				t.Fatalf("refusals observed: %d", b.refusals.Load())
			}
		})
	}
}

// H6: three requests at a time, and a GOAWAY between them.
func goAwayRefusesExactlyTheRequestsAboveItsID(t *testing.T) {
	arrived := make(chan *quic.Stream, 3)
	release := make(chan struct{})
	conns := make(chan *rawConn3, 1)
	peer := serveRaw(t, func(c *rawConn3, s *quic.Stream) {
		select {
		case conns <- c:
		default:
		}
		arrived <- s
		if s.StreamID() == 0 {
			<-release
			c.ok(s)
		}
	})
	b := setup(t)
	ep := endpoint(peer.port)
	ctx := within(t, 10*time.Second)
	type result struct {
		id   int
		resp *delivery.Response
		err  error
		took time.Duration
	}
	results := make(chan result, 3)
	for i := range 3 { // one after the other, so that ids 0, 4, 8 belong to 0, 1, 2
		conn := b.quic(ctx, ep)
		go func() {
			started := time.Now()
			resp, err := conn.RoundTrip(ctx, post(ep, "body"))
			results <- result{i, resp, err, time.Since(started)}
		}()
		<-arrived
	}
	sent := time.Now()
	(<-conns).goAway(4)
	for range 2 {
		r := <-results
		if r.id == 0 {
			t.Fatal("the request below the id was ended")
		}
		if se := wantSent(t, r.err, delivery.SentRefused, delivery.CauseGoAway); se.Broken != delivery.BrokenDrain {
			t.Fatalf("broken is %v", se.Broken)
		}
	}
	if took := time.Since(sent); took > 2*time.Second {
		t.Fatalf("the proof took %v", took)
	}
	if _, warm := b.tr.Warm(ep, Want{HTTP3: true, Alternative: delivery.Alternative{Port: ep.Route.Origin.Port}}); warm {
		t.Fatal("a draining connection is warm")
	}
	close(release)
	if r := <-results; r.err != nil || r.resp.Status != 200 {
		t.Fatalf("the request below the id: %v, %v", r.resp, r.err)
	}
	eventually(t, "the drained connection is gone", func() bool { return b.tr.Stats().HTTP3.Live == 0 })
	if peer.whole.Load() != 1 {
		t.Fatalf("%d whole requests", peer.whole.Load())
	}
}

// TestStreamIDsBelongToTheRightRequests has many requests encode their headers
// at once. A mix-up would make a later GOAWAY refuse a processed request.
func TestStreamIDsBelongToTheRightRequests(t *testing.T) {
	const n = 32
	b := setup(t)
	var mu sync.Mutex
	ids := map[string]int64{} // as the server saw them
	all, release := make(chan struct{}), make(chan struct{})
	srv := serveQUIC(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		str, err := w.(http3.HTTPStreamer).HTTPStream()
		if err != nil {
			t.Error(err)
			return
		}
		mu.Lock()
		ids[r.Header.Get("Webhook-Id")] = int64(str.StreamID())
		if len(ids) == n {
			close(all)
		}
		mu.Unlock()
		<-release
		str.CancelRead(quic.StreamErrorCode(http3.ErrCodeRequestRejected))
		str.CancelWrite(quic.StreamErrorCode(http3.ErrCodeRequestRejected))
	}))
	ep := endpoint(srv.port)
	ctx := within(t, 10*time.Second)
	b.quic(ctx, ep).Release()
	var link *link
	var wg sync.WaitGroup
	for i := range n {
		conn := b.quic(ctx, ep)
		link = conn.link
		req := post(ep, "body")
		setHeader(req, "Webhook-Id", fmt.Sprintf("evt_%d", i))
		wg.Go(func() { _, _ = conn.RoundTrip(ctx, req) })
	}
	<-all
	watch := link.wire.(*http3Wire).watch
	watch.mu.Lock()
	if len(watch.open) != n {
		t.Errorf("%d requests have a stream id, want %d", len(watch.open), n)
	}
	for _, ex := range watch.open {
		if want := ids[ex.req.HeaderValue("Webhook-Id")]; ex.streamID != want {
			t.Errorf("request %s has stream id %d, want %d", ex.req.HeaderValue("Webhook-Id"), ex.streamID, want)
		}
	}
	watch.mu.Unlock()
	close(release)
	wg.Wait()
	if srv.conns.Load() != 1 || b.refusals.Load() != n {
		t.Fatalf("%d connections, %d refusals", srv.conns.Load(), b.refusals.Load())
	}
}
