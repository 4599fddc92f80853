package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// ALPN protocol ids.
const (
	protoHTTP1 = "http/1.1"
	protoHTTP2 = "h2"
	protoHTTP3 = "h3"
)

// tcpDialer makes connections over TCP. One http.Transport serves those of
// HTTP/2: it holds no connection, only settings, and is handed each connection through
// the context of its NewClientConn.
type tcpDialer struct {
	t     *Transport
	stack *http.Transport
}

// handedOver is the context key of the connection that the stack is to use.
type handedOver struct{}

func newTCPDialer(t *Transport) *tcpDialer {
	take := func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, ok := ctx.Value(handedOver{}).(net.Conn)
		if !ok {
			return nil, errors.New("no connection was handed over")
		}
		return conn, nil
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &tcpDialer{t: t, stack: &http.Transport{
		DialContext:            take,
		DialTLSContext:         take,
		DisableCompression:     true,
		MaxResponseHeaderBytes: int64(t.cfg.MaxResponseHeaderBytes),
		Protocols:              protocols,
		HTTP2: &http.HTTP2Config{
			// Answers are cut at 16 KiB; a peer cannot make us buffer more
			// than this by sending on.
			MaxReceiveBufferPerStream:     64 << 10,
			MaxReceiveBufferPerConnection: 1 << 20,
			// A peer that stops reading holds the connection's write lock.
			WriteByteTimeout: 10 * time.Second,
		},
	}}
}

// tcpAttempt is one connection in the making.
type tcpAttempt struct {
	ep       delivery.Endpoint
	egress   Egress
	protocol delivery.Protocol // asked for; ProtocolNone = any
	phase    phase
	hs       delivery.Handshake
	resumed  bool
}

// dial runs all phases. The returned error is a failure's, not yet judged.
func (d *tcpDialer) dial(ctx context.Context, a *tcpAttempt) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, d.t.cfg.DialTimeout)
	defer cancel()
	raw, err := d.connect(ctx, a)
	if err != nil {
		return nil, err
	}
	l, err := d.finish(ctx, a, raw)
	if err != nil {
		_ = raw.Close()
		return nil, err
	}
	return l, nil
}

// connect resolves, judges and connects, through the proxy if there is one.
func (d *tcpDialer) connect(ctx context.Context, a *tcpAttempt) (*rawConn, error) {
	origin := a.ep.Route.Origin
	a.phase = phaseResolve
	started := time.Now()
	route, err := a.egress.Guard.Route(ctx, origin.Host, origin.Port)
	a.hs.DNS = time.Since(started)
	if err != nil {
		return nil, err
	}
	a.phase = phaseConnect
	started = time.Now()
	defer func() { a.hs.Connect = time.Since(started) }()
	if route.Proxy != nil {
		a.phase = phaseProxy
		conn, err := d.connectByProxy(ctx, a.egress, route)
		if err != nil {
			return nil, err
		}
		a.hs.Remote = conn.RemoteAddr().String()
		return &rawConn{Conn: conn}, nil
	}
	conn, err := race(ctx, d.t.cfg.DialStagger, route.Addrs, nil,
		func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			return d.dialAddr(ctx, a.egress, to)
		},
		func(c net.Conn) { _ = c.Close() }, d.t.pool.background)
	if err != nil {
		return nil, err
	}
	a.hs.Remote = conn.RemoteAddr().String()
	return &rawConn{Conn: conn}, nil
}

// dialAddr connects to a literal that was judged. The guard judges it once more
// between socket and connect.
func (d *tcpDialer) dialAddr(ctx context.Context, egress Egress, to netip.AddrPort) (net.Conn, error) {
	if d.t.cfg.DialTCP != nil {
		return d.t.cfg.DialTCP(ctx, "tcp", to.String())
	}
	dialer := plainDialer(egress, to.Addr())
	dialer.ControlContext = egress.Guard.DialControl
	return dialer.DialContext(ctx, "tcp", to.String())
}

func plainDialer(egress Egress, to netip.Addr) *net.Dialer {
	dialer := &net.Dialer{
		FallbackDelay: -1, // a literal has one address
		// A path that died is noticed before the next request, not by it.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	if source := egress.source(to); source.IsValid() {
		dialer.LocalAddr = &net.TCPAddr{IP: source.AsSlice()}
	}
	return dialer
}

func (e Egress) source(to netip.Addr) netip.Addr {
	if to.Is4() {
		return e.Source4
	}
	return e.Source6
}

// finish does TLS and hands the connection to its protocol stack.
func (d *tcpDialer) finish(ctx context.Context, a *tcpAttempt, raw *rawConn) (*link, error) {
	l := &link{pool: d.t.pool, route: a.ep.Route}
	if a.ep.Route.Origin.Scheme == "http" {
		a.phase = phaseConnect
		d.startHTTP1(a, l, raw, raw)
		return l, nil
	}
	a.phase = phaseTLS
	started := time.Now()
	conn, err := d.handshake(ctx, a, raw)
	if err != nil {
		return nil, err
	}
	a.hs.TLS = time.Since(started)
	state := conn.ConnectionState()
	a.resumed = state.DidResume
	switch got := state.NegotiatedProtocol; {
	case got == protoHTTP2 && a.protocol != delivery.ProtocolHTTP1:
		return l, d.startHTTP2(ctx, a, l, raw, conn)
	case (got == protoHTTP1 || got == "") && a.protocol != delivery.ProtocolHTTP2:
		d.startHTTP1(a, l, raw, conn)
		return l, nil
	default:
		return nil, fmt.Errorf("the peer chose %q by ALPN, %v was asked for", got, a.protocol)
	}
}

func (d *tcpDialer) handshake(ctx context.Context, a *tcpAttempt, raw *rawConn) (*tls.Conn, error) {
	protocols := []string{protoHTTP2, protoHTTP1}
	switch a.protocol {
	case delivery.ProtocolHTTP1:
		protocols = protocols[1:]
	case delivery.ProtocolHTTP2:
		protocols = protocols[:1]
	}
	cfg, err := d.t.tls.config(a.ep, tls.VersionTLS12, protocols...)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	return conn, nil
}

func (d *tcpDialer) startHTTP1(a *tcpAttempt, l *link, raw *rawConn, conn net.Conn) {
	wire := newHTTP1Wire(l, conn, raw, a.hs.Connect, d.t.cfg.MaxResponseHeaderBytes)
	l.proto, l.hs, l.resumed, l.limit, l.wire = delivery.ProtocolHTTP1, a.hs, a.resumed, 1, wire
	raw.whenClosed(func() { d.t.pool.gone(l) })
	wire.start()
}

func (d *tcpDialer) startHTTP2(ctx context.Context, a *tcpAttempt, l *link, raw *rawConn, conn *tls.Conn) error {
	client, err := d.newClientConn(ctx, a, conn)
	if err != nil {
		return err
	}
	l.proto, l.hs, l.resumed, l.limit = delivery.ProtocolHTTP2, a.hs, a.resumed, d.t.cfg.MaxStreamsHTTP2
	wire := &http2Wire{link: l, conn: client, raw: raw, tls: conn, connect: a.hs.Connect}
	l.wire = wire
	client.SetStateHook(wire.stateChanged)
	raw.whenClosed(func() { d.t.pool.gone(l) })
	return nil
}

func (d *tcpDialer) newClientConn(ctx context.Context, a *tcpAttempt, conn net.Conn) (*http.ClientConn, error) {
	origin := a.ep.Route.Origin
	return d.stack.NewClientConn(context.WithValue(ctx, handedOver{}, conn), origin.Scheme, origin.Authority())
}
