package protoselect

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeNet is a Dialer over scripted origins: handshakes take virtual time,
// connections have slots, and every write of a request is counted.
type fakeNet struct {
	t *testing.T

	mu sync.Mutex
	// quic and tcp script a dial; nil = up at once.
	quic func(ctx context.Context, alt delivery.Alternative) error
	tcp  func(ctx context.Context, opts TCPOptions) error
	// serve scripts a request; nil = 200.
	serve func(ctx context.Context, c *fakeConn, req *delivery.Request) (*delivery.Response, error)

	streams int // slots per HTTP/3 connection; 0 = 32
	// most caps the connections to an alternative, those being dialled included;
	// who finds no slot then waits for one. 0 = none.
	most      int
	dialing   int
	waiting   int
	freed     chan struct{} // closed and replaced when a slot comes free
	proofs    int           // dials that asked for proof
	pool      []*fakeConn
	quicDials []delivery.Alternative
	tcpDials  int
	writes    []*fakeConn // one per RoundTrip
	altUsed   []string
	held      int // slots reserved and neither used nor released
}

type fakeConn struct {
	net   *fakeNet
	route delivery.Route
	proto delivery.Protocol
	alt   delivery.Alternative
	hs    delivery.Handshake
	used  int
	dead  bool
}

// slot is one reservation on a connection.
type slot struct {
	*fakeConn
	spent  bool
	reused bool
}

func (n *fakeNet) reserve(c *fakeConn, reused bool) Conn {
	c.used++
	n.held++
	return &slot{fakeConn: c, reused: reused}
}

func (s *slot) Reused() bool       { return s.reused }
func (s *slot) RTT() time.Duration { return s.hs.QUIC + s.hs.Connect }

func (s *slot) spend() {
	s.net.mu.Lock()
	defer s.net.mu.Unlock()
	if s.spent {
		s.net.t.Error("a slot was used twice")
	}
	s.spent = true
	s.net.held--
}

func (s *slot) Release() {
	s.spend()
	s.net.mu.Lock()
	s.used--
	s.net.wakeLocked()
	s.net.mu.Unlock()
}

func (s *slot) RoundTrip(ctx context.Context, req *delivery.Request) (*delivery.Response, error) {
	s.spend()
	n := s.net
	n.mu.Lock()
	n.writes = append(n.writes, s.fakeConn)
	n.altUsed = append(n.altUsed, req.AltUsed)
	serve := n.serve
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		s.used--
		n.wakeLocked()
		n.mu.Unlock()
	}()
	if serve == nil {
		return ok200(), nil
	}
	return serve(ctx, s.fakeConn, req)
}

func (c *fakeConn) Protocol() delivery.Protocol   { return c.proto }
func (c *fakeConn) Handshake() delivery.Handshake { return c.hs }

func (c *fakeConn) kill() {
	c.net.mu.Lock()
	c.dead = true
	c.net.mu.Unlock()
}

func (n *fakeNet) Warm(ep delivery.Endpoint, want Want) (Conn, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.pool {
		h3 := c.proto == delivery.ProtocolHTTP3
		if c.dead || c.route != ep.Route || h3 != want.HTTP3 {
			continue
		}
		if h3 && (c.alt.Host != want.Alternative.Host || c.alt.Port != want.Alternative.Port || c.used >= n.slots()) {
			continue
		}
		if !h3 && want.TCP.Protocol != delivery.ProtocolNone && c.proto != want.TCP.Protocol {
			continue
		}
		return n.reserve(c, true), true
	}
	return nil, false
}

func (n *fakeNet) slots() int {
	if n.streams > 0 {
		return n.streams
	}
	return 32
}

func (n *fakeNet) wakeLocked() {
	if n.freed != nil {
		close(n.freed)
		n.freed = nil
	}
}

// queue waits, as the transport's pool does, for a slot on a connection or for
// the right to dial one: a dial is for as many who wait as it has streams.
func (n *fakeNet) queue(ctx context.Context, ep delivery.Endpoint, alt delivery.Alternative) (Conn, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.most > 0 {
		n.waiting++
		live := n.dialing
		for _, c := range n.pool {
			if c.proto != delivery.ProtocolHTTP3 || c.dead || c.route != ep.Route {
				continue
			}
			live++
			if c.used < n.slots() {
				n.waiting--
				return n.reserve(c, true), true
			}
		}
		if live < n.most && n.waiting > n.dialing*n.slots() {
			n.dialing++
			return nil, false // still counted as waiting: the dial is for it
		}
		if n.freed == nil {
			n.freed = make(chan struct{})
		}
		freed := n.freed
		n.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
		}
		n.mu.Lock()
		n.waiting--
		if ctx.Err() != nil {
			return nil, true
		}
	}
	return nil, false
}

func (n *fakeNet) ProveQUIC(ctx context.Context, ep delivery.Endpoint, alt delivery.Alternative) (Conn, error) {
	n.mu.Lock()
	n.proofs++
	n.mu.Unlock()
	return n.DialQUIC(ctx, ep, alt)
}

func (n *fakeNet) DialQUIC(ctx context.Context, ep delivery.Endpoint, alt delivery.Alternative) (Conn, error) {
	if c, done := n.queue(ctx, ep, alt); done {
		if c == nil {
			return nil, neverErr(delivery.CauseStreams)
		}
		return c, nil
	}
	if n.most > 0 {
		defer func() {
			n.mu.Lock()
			n.dialing--
			n.waiting--
			n.wakeLocked()
			n.mu.Unlock()
		}()
	}
	n.mu.Lock()
	n.quicDials = append(n.quicDials, alt)
	script := n.quic
	n.mu.Unlock()
	started := time.Now()
	if script != nil {
		if err := script(ctx, alt); err != nil {
			return nil, err
		}
	}
	return n.add(&fakeConn{
		net: n, route: ep.Route, proto: delivery.ProtocolHTTP3, alt: alt,
		hs: delivery.Handshake{QUIC: time.Since(started), Remote: "192.0.2.1:443"},
	}), nil
}

func (n *fakeNet) DialTCP(ctx context.Context, ep delivery.Endpoint, opts TCPOptions) (Conn, error) {
	n.mu.Lock()
	n.tcpDials++
	script := n.tcp
	n.mu.Unlock()
	started := time.Now()
	if script != nil {
		if err := script(ctx, opts); err != nil {
			return nil, err
		}
	}
	proto := delivery.ProtocolHTTP2
	if opts.Protocol != delivery.ProtocolNone {
		proto = opts.Protocol
	}
	return n.add(&fakeConn{
		net: n, route: ep.Route, proto: proto,
		hs: delivery.Handshake{Connect: time.Since(started), Remote: "192.0.2.1:443"},
	}), nil
}

func (n *fakeNet) add(c *fakeConn) Conn {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pool = append(n.pool, c)
	return n.reserve(c, false)
}

// cool forgets every warm connection.
func (n *fakeNet) cool() {
	n.mu.Lock()
	n.pool = nil
	n.mu.Unlock()
}

func (n *fakeNet) counts() (quic, tcp, writes, held int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.quicDials), n.tcpDials, len(n.writes), n.held
}

// record keeps what an observer was told.
type record[T any] struct {
	mu  sync.Mutex
	all []T
}

func (r *record[T]) add(v T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, v)
}

func (r *record[T]) get() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// Scripts.

func ok200() *delivery.Response { return &delivery.Response{Status: 200, Header: http.Header{}} }

func withAltSvc(lines ...string) *delivery.Response {
	r := ok200()
	r.Header["Alt-Svc"] = lines
	return r
}

func after(d time.Duration) func(context.Context, delivery.Alternative) error {
	return func(ctx context.Context, _ delivery.Alternative) error { return wait(ctx, d) }
}

func tcpAfter(d time.Duration) func(context.Context, TCPOptions) error {
	return func(ctx context.Context, _ TCPOptions) error { return wait(ctx, d) }
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return &delivery.SendError{Sent: delivery.SentNever, Cause: delivery.CauseShutdown, Detail: "canceled", Err: ctx.Err()}
	}
}

// blackHole is a path that swallows UDP: three seconds of silence.
func blackHole(ctx context.Context, _ delivery.Alternative) error {
	if err := wait(ctx, 3*time.Second); err != nil {
		return err
	}
	return dialFailure(delivery.BrokenTimeout)
}

func dialFailure(class delivery.Broken) error {
	return &delivery.SendError{
		Sent: delivery.SentNever, Cause: delivery.CauseConnect, Broken: class, Detail: "quic: " + class.String(),
		Err: errors.New("quic"),
	}
}

// setup returns a selector without DNS over a scripted net.
func setup(t *testing.T, cfg Config) (*Selector, *fakeNet) {
	t.Helper()
	n := &fakeNet{t: t}
	if cfg.DNS.Servers == nil {
		cfg.DNS.Disabled = true
	}
	if cfg.Random == nil {
		cfg.Random = func() float64 { return 0.5 } // no jitter
	}
	s, err := New(cfg, n)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if _, _, _, held := n.counts(); held != 0 {
			t.Errorf("%d slots were neither used nor released", held)
		}
	})
	return s, n
}

func endpoint(host string) delivery.Endpoint {
	return delivery.Endpoint{Route: delivery.Route{Origin: delivery.Origin{Scheme: "https", Host: host, Port: 443}}}
}

func request() *delivery.Request {
	return &delivery.Request{Path: "/hook", Host: "h.example", Body: []byte("{}"), Length: 2}
}

// advertise makes the origin's alternative known as if a header had said so.
func advertise(s *Selector, r delivery.Route, header string) {
	s.mu.Lock()
	s.m.altSvcSeen(time.Now(), s.m.memory(r), true, http.Header{"Alt-Svc": {header}})
	s.unlock()
}

// stateOf returns the state of the route's best alternative.
func stateOf(s *Selector, r delivery.Route) State {
	s.mu.Lock()
	defer s.mu.Unlock()
	best := StateUnknown
	for _, a := range s.m.memory(r).alts {
		if st := a.state(time.Now()); best == StateUnknown || stateRank(st) < stateRank(best) {
			best = st
		}
	}
	return best
}

func mustDo(t *testing.T, s *Selector, ep delivery.Endpoint) (*delivery.Response, Trace) {
	t.Helper()
	resp, tr, err := s.Do(t.Context(), ep, delivery.ProtocolAuto, request())
	if err != nil {
		t.Fatalf("Do: %v", err)
	}
	return resp, tr
}
