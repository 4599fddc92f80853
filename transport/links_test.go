package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/net/http2"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
)

// TestPeerStreamLimitLowersOurCap: the peer allows two streams of HTTP/3, which
// shows only in a request that gets none.
func TestPeerStreamLimitLowersOurCap(t *testing.T) {
	b := setup(t, func(c *Config) { c.MaxQUICConnsPerRoute = 1 })
	var hits counter
	leave := make(chan struct{})
	srv := serveQUIC(t, hits.handler(func(w http.ResponseWriter, r *http.Request) {
		<-leave
		ok200(w, r)
	}), func(_ *tls.Config, c *quic.Config, _ *http3.Server) { c.MaxIncomingStreams = 2 })
	ep := endpoint(srv.port)
	ctx := within(t, 10*time.Second)
	done := make(chan error, 2)
	for range 2 {
		conn := b.quic(ctx, ep)
		go func() {
			_, err := conn.RoundTrip(ctx, post(ep, "body"))
			done <- err
		}()
	}
	eventually(t, "two requests arrived", func() bool { return hits.n.Load() == 2 })
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	_, err := b.quic(ctx, ep).RoundTrip(short, post(ep, "body"))
	wantSent(t, err, delivery.SentNever, delivery.CauseStreams)
	if _, warm := b.tr.Warm(ep, Want{HTTP3: true, Alternative: own(ep)}); warm {
		t.Fatal("a third slot is offered although the peer has two")
	}
	close(leave)
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	hits.want(t, 2)
	if resp, err := b.quic(ctx, ep).RoundTrip(ctx, post(ep, "body")); err != nil || resp.Status != 200 {
		t.Fatalf("%+v, %v", resp, err)
	}
}

// TestHTTP2StreamLimitOpensAnotherConnection instead of queueing in the stack.
func TestHTTP2StreamLimitOpensAnotherConnection(t *testing.T) {
	b := setup(t)
	var n atomic.Int64
	all := make(chan struct{})
	peer := serveRawHTTP2(t, func(p *http2Peer, stream uint32) {
		if n.Add(1) == 3 {
			close(all)
		}
		go func() {
			<-all
			p.answer(stream, true, ":status", "204")
		}()
	}, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 1})
	ep := endpoint(peer.port)
	ctx := within(t, 5*time.Second)
	done := make(chan error, 3)
	for range 3 {
		conn, err := b.tr.DialTCP(ctx, ep, TCPOptions{})
		if err != nil {
			t.Fatal(err)
		}
		// Before the peer's settings have come, the stack believes in a hundred.
		eventually(t, "the peer's settings are known", func() bool { return conn.link.wire.(*http2Wire).conn.Available() == 0 })
		go func() {
			_, err := conn.RoundTrip(ctx, post(ep, "body"))
			done <- err
		}()
	}
	for range 3 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if peer.conns.Load() != 3 || peer.whole.Load() != 3 {
		t.Fatalf("%d connections, %d requests", peer.conns.Load(), peer.whole.Load())
	}
}

// pemOf makes material out of a certificate of the test CA.
func pemOf(t *testing.T, cert tls.Certificate) *delivery.TLSMaterial {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return &delivery.TLSMaterial{
		CAPEM:         pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: testCA().cert.Raw}),
		ClientCertPEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}),
		ClientKeyPEM:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}
}

// TestIdentitiesShareNothing: same origin, three identities, over TCP and QUIC:
// each gets its own connection, its own certificate and its own tickets.
func TestIdentitiesShareNothing(t *testing.T) {
	client := func(r *http.Request) string {
		if len(r.TLS.PeerCertificates) == 0 {
			return "nobody"
		}
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, client(r)+" resumed="+strconv.FormatBool(r.TLS.DidResume))
	})
	askFor := func(c *tls.Config) {
		c.ClientAuth = tls.VerifyClientCertIfGiven
		c.ClientCAs = testCA().pool
	}
	tcp := serveTLS(t, handler, func(s *http.Server) { askFor(s.TLSConfig) })
	quicPeer := serveQUIC(t, handler, func(c *tls.Config, _ *quic.Config, _ *http3.Server) { askFor(c) })

	b := setup(t)
	ctx := within(t, 10*time.Second)
	check := func(kind string, ep delivery.Endpoint, get func(context.Context, delivery.Endpoint) *Conn, want string) {
		t.Helper()
		conn := get(ctx, ep)
		resp, err := conn.RoundTrip(ctx, post(ep, "body"))
		if err != nil {
			t.Fatal(err)
		}
		if string(resp.Body) != want {
			t.Errorf("%s: the peer saw %q, want %q", kind, resp.Body, want)
		}
		// Give the ticket time to arrive with the next exchange, then let go.
		if again, err := get(ctx, ep).RoundTrip(ctx, post(ep, "body")); err != nil || string(again.Body) != want {
			t.Errorf("%s: again %+v, %v", kind, again, err)
		}
		b.tr.pool.drain(conn.link, EvictDrained)
	}
	identities := map[string]delivery.Endpoint{"nobody": {}}
	for i, name := range []string{"a.client", "b.client"} {
		identities[name] = delivery.Endpoint{
			Route: delivery.Route{Identity: delivery.Identity{byte(i + 1)}}, TLS: pemOf(t, testCA().issue(name)),
		}
	}
	for _, resumed := range []string{"false", "true"} {
		for name, ep := range identities {
			for kind, port := range map[string]int{"tcp": tcp.port, "quic": quicPeer.port} {
				get := b.tcp
				if kind == "quic" {
					get = b.quic
				}
				ep.Route.Origin = endpoint(port).Route.Origin
				check(kind+" "+name, ep, get, name+" resumed="+resumed)
			}
		}
	}
}

func TestUnusableMaterialIsOurOwnFault(t *testing.T) {
	b := setup(t)
	for name, material := range map[string]*delivery.TLSMaterial{
		"none": nil, "no CA in it": {CAPEM: []byte("hello")}, "half a pair": {ClientCertPEM: []byte("hello")},
	} {
		ep := endpoint(serveTLS(t, http.HandlerFunc(ok200)).port)
		ep.Route.Identity, ep.TLS = delivery.Identity{9}, material
		_, err := b.tr.DialTCP(within(t, 5*time.Second), ep, TCPOptions{})
		if se := wantSent(t, err, delivery.SentNever, delivery.CauseLocal); strings.Contains(se.Detail, "hello") {
			t.Fatalf("%s: the detail shows the material: %q", name, se.Detail)
		}
		_, err = b.tr.DialQUIC(within(t, 5*time.Second), ep, own(ep))
		if se := wantSent(t, err, delivery.SentNever, delivery.CauseLocal); se.Broken != delivery.BrokenNot {
			t.Fatalf("%s: broken %v", name, se.Broken)
		}
	}
}

// connectProxy is an egress proxy that speaks CONNECT.
type connectProxy struct {
	*rawTCP
	targets chan string
	auth    chan string
}

func serveProxy(t *testing.T, status string) *connectProxy {
	p := &connectProxy{targets: make(chan string, 8), auth: make(chan string, 8)}
	p.rawTCP = serveRawTCP(t, func(_ *rawTCP, conn net.Conn, _ int64) {
		r := bufio.NewReader(conn)
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		p.targets <- req.Method + " " + req.RequestURI
		p.auth <- req.Header.Get("Proxy-Authorization")
		_, _ = io.WriteString(conn, "HTTP/1.1 "+status+"\r\n\r\n")
		if !strings.HasPrefix(status, "200") {
			return
		}
		target, err := net.Dial("tcp", req.RequestURI)
		if err != nil {
			return
		}
		defer target.Close()
		back := make(chan struct{})
		go func() {
			defer close(back)
			_, _ = io.Copy(conn, target)
			conn.Close()
		}()
		_, _ = io.Copy(target, r)
		target.Close()
		<-back
	})
	return p
}

func TestEgressProxyGetsTheJudgedLiteral(t *testing.T) {
	b := setup(t)
	proxy := serveProxy(t, "200 OK")
	b.guard.proxy = &netguard.Route{Proxy: &url.URL{
		Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(proxy.port), User: url.UserPassword("user", "secret"),
	}}
	var hits counter
	srv := serveTLS(t, hits.handler(ok200))
	ep := endpoint(srv.port)
	ctx := within(t, 5*time.Second)
	conn := b.tcp(ctx, ep)
	if resp, err := conn.RoundTrip(ctx, post(ep, "body")); err != nil || resp.Status != 200 {
		t.Fatalf("%+v, %v", resp, err)
	}
	if got, want := <-proxy.targets, "CONNECT 127.0.0.1:"+strconv.Itoa(srv.port); got != want {
		t.Fatalf("the proxy was asked for %q, want %q", got, want)
	}
	if got, want := <-proxy.auth, "Basic "+base64.StdEncoding.EncodeToString([]byte("user:secret")); got != want {
		t.Fatalf("credentials %q", got)
	}
	hits.want(t, 1)
	_, err := b.tr.DialQUIC(ctx, ep, own(ep))
	if se := wantSent(t, err, delivery.SentNever, delivery.CauseProxy); se.Broken != delivery.BrokenNot {
		t.Fatalf("HTTP/3 through the proxy: broken %v", se.Broken)
	}
}

func TestProxyThatRefusesIsNamed(t *testing.T) {
	b := setup(t)
	proxy := serveProxy(t, "407 Proxy Authentication Required")
	b.guard.proxy = &netguard.Route{Proxy: &url.URL{
		Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(proxy.port), User: url.UserPassword("user", "secret"),
	}}
	_, err := b.tr.DialTCP(within(t, 5*time.Second), endpoint(443), TCPOptions{})
	se := wantSent(t, err, delivery.SentNever, delivery.CauseProxy)
	if !strings.Contains(se.Detail, "407") || strings.Contains(se.Detail, "secret") {
		t.Fatalf("detail %q", se.Detail)
	}
}

func TestProxyThatHangsIsBoundedByTheDialTimeout(t *testing.T) {
	b := setup(t, func(c *Config) { c.DialTimeout = 200 * time.Millisecond })
	silent := serveRawTCP(t, func(_ *rawTCP, conn net.Conn, _ int64) { _, _ = io.Copy(io.Discard, conn) })
	b.guard.proxy = &netguard.Route{Proxy: &url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(silent.port)}}
	_, err := b.tr.DialTCP(within(t, 5*time.Second), endpoint(443), TCPOptions{})
	wantSent(t, err, delivery.SentNever, delivery.CauseProxy)
}

func TestEgressBindsItsSourceAddress(t *testing.T) {
	source := netip.MustParseAddr("127.0.0.9")
	b := setup(t, func(c *Config) {
		c.Egresses = map[string]Egress{"nine": {Guard: c.Guard, Source4: source}}
	})
	remote := make(chan string, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remote <- r.RemoteAddr
		ok200(w, r)
	})
	ctx := within(t, 5*time.Second)
	for kind, port := range map[string]int{"tcp": serveTLS(t, handler).port, "quic": serveQUIC(t, handler).port} {
		for egress, want := range map[string]string{"": "127.0.0.1:", "nine": "127.0.0.9:"} {
			ep := endpoint(port)
			ep.Route.Egress = egress
			get := b.tcp
			if kind == "quic" {
				get = b.quic
			}
			if _, err := get(ctx, ep).RoundTrip(ctx, post(ep, "body")); err != nil {
				t.Fatal(err)
			}
			if got := <-remote; !strings.HasPrefix(got, want) {
				t.Errorf("%s over egress %q came from %s", kind, egress, got)
			}
		}
	}
	if n := b.tr.Stats().Sockets; n != 2 {
		t.Fatalf("%d sockets, want one for each source", n)
	}
	ep := endpoint(443)
	ep.Route.Egress = "unknown"
	_, err := b.tr.DialTCP(ctx, ep, TCPOptions{})
	wantSent(t, err, delivery.SentNever, delivery.CauseLocal)
}

// TestGuardIsAskedForEveryAddress wires the real policy.
func TestGuardIsAskedForEveryAddress(t *testing.T) {
	var hits counter
	port := serveTLS(t, hits.handler(ok200)).port
	quicPort := serveQUIC(t, hits.handler(ok200)).port
	answers := resolverFunc(func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{loopback}, nil
	})
	guardFor := func(allow ...netip.Prefix) *netguard.Guard {
		g, err := netguard.New(netguard.Config{Resolver: answers, AllowPrivate: allow})
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	named, literal := endpoint(port), endpoint(port)
	named.Route.Origin.Host, literal.Route.Origin.Host = "hook.origin.example", "127.0.0.1"
	cert := testCA().issue("hook.origin.example")
	_ = cert
	ctx := within(t, 5*time.Second)

	strict := setup(t, func(c *Config) { c.Guard = guardFor() })
	_, err := strict.tr.DialTCP(ctx, named, TCPOptions{})
	wantSent(t, err, delivery.SentNever, delivery.CausePolicy)
	_, err = strict.tr.DialTCP(ctx, literal, TCPOptions{})
	wantSent(t, err, delivery.SentNever, delivery.CausePolicyLiteral)
	_, err = strict.tr.DialQUIC(ctx, named, delivery.Alternative{Port: uint16(quicPort)})
	if se := wantSent(t, err, delivery.SentNever, delivery.CausePolicy); se.Broken != delivery.BrokenNot {
		t.Fatalf("broken %v", se.Broken)
	}
	hinted := delivery.Alternative{Host: "10.0.0.1", Port: uint16(quicPort), Hints: []netip.Addr{loopback}}
	_, err = strict.tr.DialQUIC(ctx, named, hinted)
	wantSent(t, err, delivery.SentNever, delivery.CausePolicyLiteral)
	if n := strict.tr.Stats().Sockets; n != 0 {
		t.Fatalf("%d sockets were opened", n)
	}
	hits.want(t, 0)

	open := setup(t, func(c *Config) { c.Guard = guardFor(netip.MustParsePrefix("127.0.0.0/8")) })
	ep := endpoint(port)
	if resp, err := open.tcp(ctx, ep).RoundTrip(ctx, post(ep, "body")); err != nil || resp.Status != 200 {
		t.Fatalf("%+v, %v", resp, err)
	}
	ep = endpoint(quicPort)
	if resp, err := open.quic(ctx, ep).RoundTrip(ctx, post(ep, "body")); err != nil || resp.Status != 200 {
		t.Fatalf("%+v, %v", resp, err)
	}
	hits.want(t, 2)
}

type resolverFunc func(ctx context.Context, network, host string) ([]netip.Addr, error)

func (f resolverFunc) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	return f(ctx, network, host)
}

func TestNameThatDoesNotResolveIsDNS(t *testing.T) {
	b := setup(t)
	b.guard.hosts[originName] = []netip.Addr{}
	ep := endpoint(443)
	_, err := b.tr.DialTCP(within(t, time.Second), ep, TCPOptions{})
	wantSent(t, err, delivery.SentNever, delivery.CauseDNS)
	_, err = b.tr.DialQUIC(within(t, time.Second), ep, own(ep))
	wantSent(t, err, delivery.SentNever, delivery.CauseDNS)
}

// TestPlainHTTPIsHTTP1 for origins that say so.
func TestPlainHTTPIsHTTP1(t *testing.T) {
	b := setup(t)
	var hits counter
	ep := plainEndpoint(servePlain(t, hits.handler(ok200)).port)
	ctx := within(t, 5*time.Second)
	conn := b.tcp(ctx, ep)
	if conn.Protocol() != delivery.ProtocolHTTP1 || conn.Handshake().TLS != 0 {
		t.Fatalf("%v, %+v", conn.Protocol(), conn.Handshake())
	}
	if resp, err := conn.RoundTrip(ctx, post(ep, "body")); err != nil || resp.Status != 200 {
		t.Fatalf("%+v, %v", resp, err)
	}
	hits.want(t, 1)
}

// TestPhasesAreThoseThatHappened on the first slot, and none on the next.
func TestPhasesAreThoseThatHappened(t *testing.T) {
	overEach(t, func(t *testing.T, proto delivery.Protocol) {
		b := setup(t)
		open := opener(t, b, proto, http.HandlerFunc(ok200))
		conn, _ := open()
		hs := conn.Handshake()
		isQUIC := proto == delivery.ProtocolHTTP3
		if hs.DNS <= 0 || (hs.QUIC > 0) != isQUIC || (hs.TLS > 0) == isQUIC || (hs.Connect > 0) == isQUIC {
			t.Fatalf("%+v", hs)
		}
		if conn.RTT() <= 0 {
			t.Fatal("no round-trip time")
		}
		conn.Release()
		conn, _ = open()
		if want := (delivery.Handshake{Remote: hs.Remote}); conn.Handshake() != want || !conn.Reused() {
			t.Fatalf("reused %v: %+v", conn.Reused(), conn.Handshake())
		}
		conn.Release()
	})
}

// TestLostSocketIsReplaced: quic-go gives a socket up when reading from it fails.
func TestLostSocketIsReplaced(t *testing.T) {
	b := setup(t)
	ep := endpoint(serveQUIC(t, http.HandlerFunc(ok200)).port)
	ctx := within(t, 5*time.Second)
	b.quic(ctx, ep).Release()
	b.tr.sockets.mu.Lock()
	for _, sock := range b.tr.sockets.open {
		_ = sock.conn.Close()
	}
	b.tr.sockets.mu.Unlock()
	eventually(t, "its connection is gone", func() bool { return b.tr.Stats().HTTP3.Live == 0 })
	_, err := b.tr.DialQUIC(ctx, ep, own(ep))
	if err != nil {
		if se := sendError(t, err); se.Sent != delivery.SentNever || se.Broken != delivery.BrokenNot {
			t.Fatalf("%+v", se)
		}
	}
	if resp, err := b.quic(ctx, ep).RoundTrip(ctx, post(ep, "body")); err != nil || resp.Status != 200 {
		t.Fatalf("%+v, %v", resp, err)
	}
}

// qlogFile is a qlog in memory.
type qlogFile struct {
	text   strings.Builder
	closed chan struct{}
}

func (f *qlogFile) Write(p []byte) (int, error) { return f.text.Write(p) }
func (f *qlogFile) Close() error                { close(f.closed); return nil }

func TestQlogIsWrittenWhereAsked(t *testing.T) {
	file := &qlogFile{closed: make(chan struct{})}
	b := setup(t, func(c *Config) { c.Qlog = func(delivery.Route) io.WriteCloser { return file } })
	ep := endpoint(serveQUIC(t, http.HandlerFunc(ok200)).port)
	ctx := within(t, 5*time.Second)
	conn := b.quic(ctx, ep)
	if _, err := conn.RoundTrip(ctx, post(ep, "body")); err != nil {
		t.Fatal(err)
	}
	b.tr.pool.drain(conn.link, EvictDrained)
	<-file.closed
	for _, event := range []string{"packet_sent", "frame_created"} {
		if !strings.Contains(file.text.String(), event) {
			t.Errorf("no %s in the qlog", event)
		}
	}
}
