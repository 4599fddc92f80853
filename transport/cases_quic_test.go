package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
)

func own(ep delivery.Endpoint) delivery.Alternative {
	return delivery.Alternative{Port: ep.Route.Origin.Port}
}

// resetWith answers on the stream only, after the request was read and the
// handler ran.
func resetWith(code http3.ErrCode) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		str, err := w.(http3.HTTPStreamer).HTTPStream()
		if err != nil {
			return
		}
		str.CancelRead(quic.StreamErrorCode(code))
		str.CancelWrite(quic.StreamErrorCode(code))
	}
}

func refusedRequestCanBeSentAgainWhole(t *testing.T) {
	b := setup(t)
	var hits counter
	bodies := make(chan string, 2)
	srv := serveQUIC(t, hits.handler(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		bodies <- string(body)
		if hits.n.Load() == 1 {
			resetWith(http3.ErrCodeRequestRejected)(w, r)
			return
		}
		ok200(w, r)
	}))
	ep := endpoint(srv.port)
	ctx := within(t, 5*time.Second)
	payload := strings.Repeat("payload ", 4000)
	var opened atomic.Int64
	req := post(ep, "")
	req.Length, req.Body = int64(len(payload)), nil
	req.Open = func() (io.ReadCloser, error) {
		opened.Add(1)
		return io.NopCloser(strings.NewReader(payload)), nil
	}
	_, err := b.quic(ctx, ep).RoundTrip(ctx, req)
	wantSent(t, err, delivery.SentRefused, delivery.CauseReset)
	hits.want(t, 1)
	resp, err := b.quic(ctx, ep).RoundTrip(ctx, req)
	if err != nil || resp.Status != 200 {
		t.Fatalf("%+v, %v", resp, err)
	}
	hits.want(t, 2)
	for range 2 {
		if <-bodies != payload {
			t.Fatal("a body was not whole")
		}
	}
	if opened.Load() != 2 {
		t.Fatalf("the body was opened %d times", opened.Load())
	}
}

func resetIsAmbiguousAndSentOnce(t *testing.T) {
	b := setup(t)
	var hits counter
	ep := endpoint(serveQUIC(t, hits.handler(resetWith(http3.ErrCodeInternalError))).port)
	ctx := within(t, 5*time.Second)
	_, err := b.quic(ctx, ep).RoundTrip(ctx, post(ep, "body"))
	wantSent(t, err, delivery.SentAmbiguous, delivery.CauseReset)
	hits.want(t, 1)
}

func thirtyResetsLeaveOneConnection(t *testing.T) {
	// Other tests run at the same time: the goroutines of this one are told apart
	// by a label, which they inherit.
	pprof.Do(t.Context(), pprof.Labels("case", "H3"), func(context.Context) { thirtyResets(t) })
}

// labelled counts the goroutines of this process with a label.
func labelled(t *testing.T, name, value string) int {
	t.Helper()
	var dump bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&dump, 1); err != nil {
		t.Fatal(err)
	}
	n, count := 0, 0
	for line := range strings.Lines(dump.String()) {
		if at := strings.Index(line, " @ "); at > 0 {
			count, _ = strconv.Atoi(line[:at])
		}
		if strings.HasPrefix(line, "# labels:") && strings.Contains(line, fmt.Sprintf("%q:%q", name, value)) {
			n += count
		}
	}
	return n
}

func thirtyResets(t *testing.T) {
	b := setup(t)
	var hits counter
	srv := serveQUIC(t, hits.handler(resetWith(http3.ErrCodeInternalError)))
	ep := endpoint(srv.port)
	ctx := within(t, 10*time.Second)
	var before int
	for i := range 30 {
		_, err := b.quic(ctx, ep).RoundTrip(ctx, post(ep, "body"))
		wantSent(t, err, delivery.SentAmbiguous, delivery.CauseReset)
		if i == 0 {
			before = labelled(t, "case", "H3")
		}
	}
	hits.want(t, 30)
	if live := b.tr.Stats().HTTP3.Live; live > 1 || srv.live.Load() > 1 {
		t.Fatalf("%d connections, %d at the server", live, srv.live.Load())
	}
	// The leak this is about was ten goroutines for each POST.
	if after := labelled(t, "case", "H3"); before == 0 || after > before+30 {
		t.Fatalf("%d goroutines, %d after the first POST", after, before)
	}
	if err := b.tr.Close(ctx); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server has no connection", func() bool { return srv.live.Load() == 0 })
}

func silentHostFailsEachCallerForItsOwnReason(t *testing.T) {
	b := setup(t, impatient)
	ep := endpoint(silentUDP(t))
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := b.tr.DialQUIC(within(t, 100*time.Millisecond), ep, own(ep))
		if se := wantSent(t, err, delivery.SentNever, delivery.CauseTimeout); se.Broken != delivery.BrokenNot {
			t.Errorf("the impatient one's verdict is %v", se.Broken)
		}
	})
	wg.Go(func() {
		_, err := b.tr.DialQUIC(within(t, 5*time.Second), ep, own(ep))
		if se := wantSent(t, err, delivery.SentNever, delivery.CauseConnect); se.Broken != delivery.BrokenTimeout {
			t.Errorf("the patient one's verdict is %v", se.Broken)
		}
	})
	wg.Wait()
}

func postAfterTheIdleTimeoutRedials(t *testing.T) {
	t.Run("ours", func(t *testing.T) {
		b := setup(t, func(c *Config) { c.IdleTimeoutHTTP3 = 100 * time.Millisecond })
		peer := serveRaw(t, func(c *rawConn3, s *quic.Stream) { c.ok(s) })
		postTwiceWithAPause(t, b, peer)
	})
	t.Run("the peer's", func(t *testing.T) {
		b := setup(t)
		peer := serveRaw(t, func(c *rawConn3, s *quic.Stream) {
			c.ok(s)
			time.AfterFunc(100*time.Millisecond, func() { _ = c.CloseWithError(closeCode, "idle") })
		})
		postTwiceWithAPause(t, b, peer)
	})
}

func postTwiceWithAPause(t *testing.T, b *bundle, peer *rawPeer) {
	t.Helper()
	ep := endpoint(peer.port)
	ctx := within(t, 10*time.Second)
	for i := range int64(2) {
		resp, err := b.quic(ctx, ep).RoundTrip(ctx, post(ep, "body"))
		if err != nil || resp.Status != 200 || peer.whole.Load() != i+1 {
			t.Fatalf("%+v, %v", resp, err)
		}
		eventually(t, "the idle connection is gone", func() bool { return b.tr.Stats().HTTP3.Live == 0 })
	}
	if n := peer.conns.Load(); n != 2 {
		t.Fatalf("%d connections", n)
	}
}

// deadPathIsEvictedAndClosed: the path dies after a good exchange. Nothing comes
// back, so the next POST is ambiguous, its connection is suspect while it waits,
// and it is not used again.
func deadPathIsEvictedAndClosed(t *testing.T) {
	b := setup(t)
	var hits counter
	srv := serveQUIC(t, hits.handler(ok200))
	path := newRelay(t, srv.port)
	ep := endpoint(path.port)
	ctx := within(t, 10*time.Second)
	if _, err := b.quic(ctx, ep).RoundTrip(ctx, post(ep, "body")); err != nil {
		t.Fatal(err)
	}
	path.cut.Store(true)
	conn := b.quic(ctx, ep)
	short, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := conn.RoundTrip(short, post(ep, "body"))
		failed <- err
	}()
	select {
	case alt := <-b.stalled:
		if alt.Port != ep.Route.Origin.Port {
			t.Fatalf("stalled: %+v", alt)
		}
	case err := <-failed:
		t.Fatalf("the request ended before the stall was seen: %v", err)
	}
	if _, warm := b.tr.Warm(ep, Want{HTTP3: true, Alternative: own(ep)}); warm {
		t.Fatal("a suspect connection is warm")
	}
	if se := wantSent(t, <-failed, delivery.SentAmbiguous, delivery.CauseTimeout); se.Broken != delivery.BrokenAfterDeath {
		t.Fatalf("broken is %v", se.Broken)
	}
	eventually(t, "the connection is closed", func() bool { return b.tr.Stats().HTTP3.Live == 0 })
	hits.want(t, 1)
}

// faultyUDP is a real socket whose writes can fail.
type faultyUDP struct {
	*net.UDPConn
	fault func(b []byte) error
}

func (c *faultyUDP) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if err := c.fault(b); err != nil {
		return 0, 0, &net.OpError{Op: "write", Net: "udp", Err: os.NewSyscallError("sendmsg", err)}
	}
	return c.UDPConn.WriteMsgUDP(b, oob, addr)
}

func withFault(fault func(b []byte) error) func(*Config) {
	return func(c *Config) {
		c.ListenUDP = func(network string, laddr *net.UDPAddr) (net.PacketConn, error) {
			conn, err := net.ListenUDP(network, laddr)
			if err != nil {
				return nil, err
			}
			return &faultyUDP{conn, fault}, nil
		}
	}
}

func tooLargeInitialIsNotATimeout(t *testing.T) {
	for limit, works := range map[int]bool{1200: true, 1000: false} {
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			b := setup(t, func(c *Config) { c.QUICHandshakeTimeout = 5 * time.Second }, withFault(func(p []byte) error {
				if len(p) > limit {
					return syscall.EMSGSIZE
				}
				return nil
			}))
			var hits counter
			ep := endpoint(serveQUIC(t, hits.handler(ok200)).port)
			ctx := within(t, 10*time.Second)
			started := time.Now()
			conn, err := b.tr.DialQUIC(ctx, ep, own(ep))
			if took := time.Since(started); took > 3*time.Second {
				t.Fatalf("took %v", took)
			}
			if !works {
				if se := wantSent(t, err, delivery.SentNever, delivery.CauseConnect); se.Broken != delivery.BrokenNot {
					t.Fatalf("broken is %v: %s", se.Broken, se.Detail)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if resp, err := conn.RoundTrip(ctx, post(ep, "body")); err != nil || resp.Status != 200 {
				t.Fatalf("%+v, %v", resp, err)
			}
		})
	}
}

// segmentationOffloadFailureStaysLocal: only trains of packets fail. The POST
// that meets the failure first goes through all the same.
func segmentationOffloadFailureStaysLocal(t *testing.T) {
	for name, errno := range map[string]syscall.Errno{"EIO": syscall.EIO, "EINVAL": syscall.EINVAL} {
		t.Run(name, func(t *testing.T) {
			var trains atomic.Int64
			b := setup(t, withFault(func(p []byte) error {
				if len(p) > 1500 {
					trains.Add(1)
					return errno
				}
				return nil
			}))
			srv := serveQUIC(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n, _ := io.Copy(io.Discard, r.Body)
				_, _ = io.WriteString(w, strconv.FormatInt(n, 10))
			}))
			ep := endpoint(srv.port)
			ctx := within(t, 10*time.Second)
			resp, err := b.quic(ctx, ep).RoundTrip(ctx, post(ep, strings.Repeat("x", 200_000)))
			if err != nil || string(resp.Body) != "200000" {
				t.Fatalf("%+v, %v", resp, err)
			}
			if trains.Load() == 0 {
				t.Fatal("no train of packets was sent: this shows nothing")
			}
			if n := srv.conns.Load(); n != 1 {
				t.Fatalf("%d connections", n)
			}
		})
	}
}

func unreachableFamilyGivesWayAtOnce(t *testing.T) {
	var writes atomic.Int64
	b := setup(t, func(c *Config) {
		c.DialStagger = 30 * time.Second // nothing but the failure starts the next one
		c.ListenUDP = func(network string, laddr *net.UDPAddr) (net.PacketConn, error) {
			conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
			if err != nil || network == "udp4" {
				return conn, err
			}
			return &faultyUDP{conn, func([]byte) error {
				writes.Add(1)
				return syscall.ENETUNREACH
			}}, nil
		}
	})
	srv := serveQUIC(t, http.HandlerFunc(ok200))
	ep := endpoint(srv.port)
	b.guard.hosts[originName] = []netip.Addr{netip.MustParseAddr("2001:db8::1"), loopback}
	ctx := within(t, 20*time.Second)
	started := time.Now()
	conn := b.quic(ctx, ep)
	if took := time.Since(started); took > 15*time.Second {
		t.Fatalf("took %v", took)
	}
	if resp, err := conn.RoundTrip(ctx, post(ep, "body")); err != nil || resp.Status != 200 {
		t.Fatalf("%+v, %v", resp, err)
	}
	if n := writes.Load(); n > 3 {
		t.Fatalf("%d writes to the unreachable address: a busy loop", n)
	}
	t.Run("says nothing about the alternative", func(t *testing.T) {
		b.guard.mu.Lock()
		b.guard.hosts["v6only.test"] = []netip.Addr{netip.MustParseAddr("2001:db8::1")}
		b.guard.mu.Unlock()
		_, err := b.tr.DialQUIC(ctx, ep, delivery.Alternative{Host: "v6only.test", Port: ep.Route.Origin.Port})
		if se := wantSent(t, err, delivery.SentNever, delivery.CauseConnect); se.Broken != delivery.BrokenNot {
			t.Fatalf("broken is %v: %s", se.Broken, se.Detail)
		}
	})
}

func postIsNeverEarlyData(t *testing.T) {
	b := setup(t)
	var hits counter
	srv := serveQUIC(t, hits.handler(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooEarly) }))
	ep := endpoint(srv.port)
	ctx := within(t, 10*time.Second)
	alt := own(ep)
	for i := range 3 {
		conn, err := b.tr.DialQUIC(ctx, ep, alt)
		if err != nil {
			t.Fatal(err)
		}
		used0RTT := conn.link.wire.(*http3Wire).conn.ConnectionState().Used0RTT
		if conn.link.resumed != (i > 0) || used0RTT {
			t.Fatalf("connection %d: resumed %v, 0-RTT %v", i, conn.link.resumed, used0RTT)
		}
		resp, err := conn.RoundTrip(ctx, post(ep, "body"))
		if err != nil || resp.Status != http.StatusTooEarly {
			t.Fatalf("%+v, %v", resp, err)
		}
		hits.want(t, int64(i+1)) // a 425 is an answer like others: nothing is resent here
		eventually(t, "a ticket is there", func() bool { return b.tr.tls.sessions.Len() > 0 })
		b.tr.pool.drain(conn.link, EvictDrained)
	}
	if n := srv.early.Load(); n != 0 {
		t.Fatalf("%d connections used 0-RTT", n)
	}
}

func secondAddressAfterTheStagger(t *testing.T) {
	silent, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)})
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	port := portOf(silent.LocalAddr())
	b := setup(t, func(c *Config) { c.QUICHandshakeTimeout = 3 * time.Second })
	srv := serveQUICOn(t, port, http.HandlerFunc(ok200))
	ep := endpoint(srv.port)
	b.guard.hosts[originName] = []netip.Addr{netip.MustParseAddr("127.0.0.2"), loopback}
	ctx := within(t, 10*time.Second)
	started := time.Now()
	conn := b.quic(ctx, ep)
	if took := time.Since(started); took < 200*time.Millisecond || took > 2*time.Second {
		t.Fatalf("took %v", took)
	}
	if remote := conn.Handshake().Remote; !strings.HasPrefix(remote, "127.0.0.1:") {
		t.Fatalf("remote is %s", remote)
	}
	conn.Release()
}

func thousandHostsShareTwoSockets(t *testing.T) {
	var opened atomic.Int64
	b := setup(t, func(c *Config) {
		c.QUICHandshakeTimeout = 200 * time.Millisecond
		c.ListenUDP = func(network string, laddr *net.UDPAddr) (net.PacketConn, error) {
			opened.Add(1)
			return net.ListenUDP(network, laddr)
		}
	})
	ep := endpoint(silentUDP(t))
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			host := endpoint(int(ep.Route.Origin.Port))
			host.Route.Origin.Host = "h" + strconv.Itoa(i) + ".test"
			_, err := b.tr.DialQUIC(within(t, 20*time.Second), host, own(ep))
			wantSent(t, err, delivery.SentNever, delivery.CauseConnect)
		})
	}
	wg.Wait()
	if opened.Load() > 2 || b.tr.Stats().Sockets > 2 {
		t.Fatalf("%d sockets were opened", opened.Load())
	}
}

func closeEndsEveryQUICConnection(t *testing.T) {
	b := setup(t)
	closed := make(chan error, 8)
	peer := serveRaw(t, func(c *rawConn3, s *quic.Stream) {
		go func() {
			<-c.Context().Done()
			closed <- context.Cause(c.Context())
		}()
		c.ok(s)
	})
	ctx := within(t, 10*time.Second)
	ep := endpoint(peer.port)
	for i := range 3 { // one connection each, since what they lead to differs
		ep.Route.Origin.Host = originName
		alt := own(ep)
		alt.Host = []string{"", "a.test", "b.test"}[i]
		conn, err := b.tr.DialQUIC(ctx, ep, alt)
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := conn.RoundTrip(ctx, post(ep, "body")); err != nil || resp.Status != 200 {
			t.Fatalf("%+v, %v", resp, err)
		}
	}
	if n := peer.conns.Load(); n != 3 {
		t.Fatalf("%d connections", n)
	}
	if err := b.tr.Close(ctx); err != nil {
		t.Fatal(err)
	}
	for range peer.conns.Load() {
		app, ok := errors.AsType[*quic.ApplicationError](<-closed)
		if !ok || !app.Remote || app.ErrorCode != closeCode {
			t.Fatalf("the peer was told %v", app)
		}
	}
	eventually(t, "no connection is left at the peer", func() bool { return peer.live.Load() == 0 })
}

func alternativePortKeepsTheOriginsName(t *testing.T) {
	b := setup(t)
	names := make(chan string, 1)
	requests := make(chan *http.Request, 1)
	srv := serveQUIC(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r
		ok200(w, r)
	}), func(c *tls.Config, _ *quic.Config, _ *http3.Server) {
		cert := c.Certificates[0]
		c.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			names <- hello.ServerName
			return &cert, nil
		}
		c.Certificates = nil
	})
	ep := endpoint(443)
	alt := delivery.Alternative{Port: uint16(srv.port)}
	ctx := within(t, 5*time.Second)
	conn, err := b.tr.DialQUIC(ctx, ep, alt)
	if err != nil {
		t.Fatal(err)
	}
	req := post(ep, "body")
	req.Host = originName
	if resp, err := conn.RoundTrip(ctx, req); err != nil || resp.Status != 200 {
		t.Fatalf("%+v, %v", resp, err)
	}
	r := <-requests
	if sni := <-names; sni != originName || r.Host != originName {
		t.Fatalf("SNI %q, authority %q", sni, r.Host)
	}
	if got, want := r.Header.Get("Alt-Used"), originName+":"+strconv.Itoa(srv.port); got != want {
		t.Fatalf("Alt-Used is %q, want %q", got, want)
	}
	if req.HeaderValue("Alt-Used") != "" {
		t.Fatal("the caller's headers were written to")
	}
}

func alternativeMustSpeakForTheOrigin(t *testing.T) {
	b := setup(t)
	srv := serveQUIC(t, http.HandlerFunc(ok200), func(c *tls.Config, _ *quic.Config, _ *http3.Server) {
		c.Certificates = []tls.Certificate{testCA().issue("o.test")}
	})
	_, err := b.tr.DialQUIC(within(t, 5*time.Second), endpoint(443), delivery.Alternative{Host: "o.test", Port: uint16(srv.port)})
	if se := wantSent(t, err, delivery.SentNever, delivery.CauseTLS); se.Broken != delivery.BrokenCertificate {
		t.Fatalf("broken is %v", se.Broken)
	}
}

func hintsAreUsedUntilAnswersArrive(t *testing.T) {
	srv := serveQUIC(t, http.HandlerFunc(ok200))
	ep := endpoint(srv.port)
	hinted := own(ep)
	t.Run("a good hint wins while DNS is slow", func(t *testing.T) {
		b := setup(t)
		slow := make(chan struct{})
		b.guard.slow[originName] = slow
		hinted := hinted
		hinted.Hints = []netip.Addr{loopback}
		conn, err := b.tr.DialQUIC(within(t, 5*time.Second), ep, hinted)
		if err != nil {
			t.Fatal(err)
		}
		conn.Release()
		close(slow)
	})
	t.Run("the answer replaces a hint that leads nowhere", func(t *testing.T) {
		b := setup(t)
		slow := make(chan struct{})
		b.guard.slow[originName] = slow
		hinted := hinted
		hinted.Hints = []netip.Addr{netip.MustParseAddr("127.0.0.3")}
		time.AfterFunc(200*time.Millisecond, func() { close(slow) })
		conn, err := b.tr.DialQUIC(within(t, 5*time.Second), ep, hinted)
		if err != nil {
			t.Fatal(err)
		}
		conn.Release()
	})
	t.Run("a denied hint is not dialled", func(t *testing.T) {
		b := setup(t)
		b.guard.denied[netip.MustParseAddr("10.0.0.1")] = true
		hinted := hinted
		hinted.Hints = []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		conn, err := b.tr.DialQUIC(within(t, 5*time.Second), ep, hinted)
		if err != nil {
			t.Fatal(err)
		}
		conn.Release()
	})
}

func deniedTargetIsNotAskedOfTheProxy(t *testing.T) {
	var asked atomic.Int64
	proxy := serveRawTCP(t, func(*rawTCP, net.Conn, int64) { asked.Add(1) })
	guard, err := netguard.New(netguard.Config{Proxy: "http://127.0.0.1:" + strconv.Itoa(proxy.port)})
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, func(c *Config) { c.Guard = guard })
	ep := endpoint(443)
	ep.Route.Origin.Host = "10.1.2.3"
	_, err = b.tr.DialTCP(within(t, 5*time.Second), ep, TCPOptions{})
	wantSent(t, err, delivery.SentNever, delivery.CausePolicyLiteral)
	if asked.Load() != 0 {
		t.Fatal("the proxy was asked")
	}
}
