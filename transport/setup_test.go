package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
)

const originName = "origin.test"

// authority is a throw-away certificate authority. Its certificates are valid in
// the year 2000 as well, where synctest's clock starts.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

var testCA = sync.OnceValue(func() *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{cert: cert, key: key, pool: pool}
})

func (a *authority) issue(names ...string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key}
}

// fakeGuard resolves by table, to loopback by default, and allows what no test
// has denied. It counts its calls.
type fakeGuard struct {
	mu      sync.Mutex
	hosts   map[string][]netip.Addr
	slow    map[string]chan struct{} // a lookup waits for it
	denied  map[netip.Addr]bool
	proxy   *netguard.Route // with Proxy set
	lookups int
	checks  int
}

var loopback = netip.MustParseAddr("127.0.0.1")

func (g *fakeGuard) Route(ctx context.Context, host string, port uint16) (netguard.Route, error) {
	g.mu.Lock()
	g.lookups++
	addrs, known := g.hosts[host]
	wait := g.slow[host]
	proxy := g.proxy
	g.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return netguard.Route{}, ctx.Err()
		}
	}
	if !known {
		addrs = []netip.Addr{loopback}
	}
	if len(addrs) == 0 {
		return netguard.Route{}, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	r := netguard.Route{}
	for _, a := range addrs {
		if g.isDenied(a) {
			return netguard.Route{}, &netguard.DeniedError{Host: host, Addr: a, Rule: "test", Setting: "allow_private"}
		}
		r.Addrs = append(r.Addrs, netip.AddrPortFrom(a, port))
	}
	if proxy != nil {
		out := netguard.Route{Proxy: proxy.Proxy}
		for _, a := range r.Addrs {
			out.Connect = append(out.Connect, a.String())
		}
		return out, nil
	}
	return r, nil
}

func (g *fakeGuard) isDenied(a netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.denied[a]
}

func (g *fakeGuard) DialControl(_ context.Context, _, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return g.CheckUDP(to)
}

func (g *fakeGuard) CheckUDP(to netip.AddrPort) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.checks++
	if g.denied[to.Addr()] {
		return &netguard.DeniedError{Host: to.String(), Addr: to.Addr(), Rule: "test", Setting: "allow_private"}
	}
	return nil
}

// bundle is what most tests need: a transport, its guard, and what was observed.
type bundle struct {
	t     *testing.T
	tr    *Transport
	guard *fakeGuard

	mu       sync.Mutex
	evicted  map[Eviction]int
	shakes   []HandshakeEvent
	stalled  chan delivery.Alternative
	refusals atomic.Int32
}

func setup(t *testing.T, change ...func(*Config)) *bundle {
	t.Helper()
	b := &bundle{t: t, guard: &fakeGuard{
		hosts: map[string][]netip.Addr{}, slow: map[string]chan struct{}{}, denied: map[netip.Addr]bool{},
	}, evicted: map[Eviction]int{}, stalled: make(chan delivery.Alternative, 16)}
	cfg := Config{
		Guard: b.guard, RootCAs: testCA().pool,
		QUICHandshakeTimeout: 10 * time.Second, // the machine may be busy
		Observer: Observer{
			Evicted: func(_ delivery.Protocol, why Eviction) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.evicted[why]++
			},
			Handshake: func(e HandshakeEvent) {
				b.mu.Lock()
				defer b.mu.Unlock()
				b.shakes = append(b.shakes, e)
			},
			Stalled: func(_ delivery.Route, alt delivery.Alternative) { b.stalled <- alt },
			Refused: func(delivery.Route, delivery.Protocol) { b.refusals.Add(1) },
		},
	}
	for _, c := range change {
		c(&cfg)
	}
	tr, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.tr = tr
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := tr.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if s := tr.Stats(); s != (Stats{}) {
			t.Errorf("after Close something is left: %+v", s)
		}
	})
	return b
}

// impatient is for tests of silence.
func impatient(c *Config) { c.QUICHandshakeTimeout = 500 * time.Millisecond }

// endpoint is an origin on a loopback port.
func endpoint(port int) delivery.Endpoint {
	return delivery.Endpoint{Route: delivery.Route{Origin: delivery.Origin{
		Scheme: "https", Host: originName, Port: uint16(port),
	}}}
}

func plainEndpoint(port int) delivery.Endpoint {
	ep := endpoint(port)
	ep.Route.Origin.Scheme = "http"
	return ep
}

// post is a prepared request.
func post(ep delivery.Endpoint, body string) *delivery.Request {
	return &delivery.Request{
		Path: "/hook?x=1", Host: ep.Route.Origin.Authority(),
		Headers: []delivery.Header{
			{Name: "Content-Type", Value: "application/json"}, {Name: "User-Agent", Value: "dispatcher/test"},
			{Name: "Webhook-Id", Value: "evt_1"},
		},
		Body: []byte(body), Length: int64(len(body)),
	}
}

// setHeader changes a prepared request, or adds to it.
func setHeader(req *delivery.Request, name, value string) {
	for i := range req.Headers {
		if req.Headers[i].Name == name {
			req.Headers[i].Value = value
			return
		}
	}
	req.Headers = append(req.Headers, delivery.Header{Name: name, Value: value})
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// tcp gets a connection over TCP, warm if there is one.
func (b *bundle) tcp(ctx context.Context, ep delivery.Endpoint) *Conn {
	b.t.Helper()
	if c, ok := b.tr.Warm(ep, Want{}); ok {
		return c
	}
	c, err := b.tr.DialTCP(ctx, ep, TCPOptions{})
	if err != nil {
		b.t.Fatalf("dial TCP: %v", err)
	}
	return c
}

// quic gets a connection to the origin's own alternative, warm if there is one.
func (b *bundle) quic(ctx context.Context, ep delivery.Endpoint) *Conn {
	b.t.Helper()
	alt := delivery.Alternative{Port: ep.Route.Origin.Port}
	if c, ok := b.tr.Warm(ep, Want{HTTP3: true, Alternative: alt}); ok {
		return c
	}
	c, err := b.tr.DialQUIC(ctx, ep, alt)
	if err != nil {
		b.t.Fatalf("dial QUIC: %v", err)
	}
	return c
}

// sendError takes the transport's error apart.
func sendError(t *testing.T, err error) *delivery.SendError {
	t.Helper()
	se, ok := errors.AsType[*delivery.SendError](err)
	if !ok {
		t.Fatalf("error is %T (%v), want a *delivery.SendError", err, err)
	}
	return se
}

func wantSent(t *testing.T, err error, sent delivery.Sent, cause delivery.Cause) *delivery.SendError {
	t.Helper()
	se := sendError(t, err)
	if se.Sent != sent || se.Cause != cause {
		t.Fatalf("got %v, %v (%v: %q), want %v, %v", se.Sent, se.Cause, se.Broken, se.Detail, sent, cause)
	}
	return se
}

// eventually waits for something that happens on another goroutine soon.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(5 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("still not so after 5 s: %s", what)
		}
	}
}

// counter counts how often a handler ran.
type counter struct{ n atomic.Int64 }

func (c *counter) handler(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.n.Add(1)
		next(w, r)
	})
}

func (c *counter) want(t *testing.T, n int64) {
	t.Helper()
	if got := c.n.Load(); got != n {
		t.Fatalf("the handler ran %d times, want %d", got, n)
	}
}

func ok200(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "ok") }

func portOf(a net.Addr) int {
	_, port, err := net.SplitHostPort(a.String())
	if err != nil {
		panic(err)
	}
	var n int
	_, _ = fmt.Sscan(port, &n)
	return n
}
