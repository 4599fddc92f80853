package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/qlogwriter"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
)

// errProxied is HTTP/3 on an egress whose proxy speaks CONNECT over TCP only.
var errProxied = errors.New("HTTP/3 does not go through the egress's proxy")

// quicDialer makes QUIC connections. http3.Transport is used for its settings
// alone: its own pool resends requests and leaks connections.
type quicDialer struct {
	t      *Transport
	config quic.Config
	stack  *http3.Transport
}

func newQUICDialer(t *Transport) *quicDialer {
	return &quicDialer{
		t: t,
		config: quic.Config{
			Versions:             []quic.Version{quic.Version1},
			HandshakeIdleTimeout: t.cfg.QUICHandshakeTimeout,
			// Our own timeout comes first and closes properly.
			MaxIdleTimeout: t.cfg.IdleTimeoutHTTP3 + 5*time.Second,
			// A receiver may think for longer than the idle timeout, of which the
			// peer's can be shorter still; its answer must not be lost to
			// silence. Idle connections are closed above, so that one or two
			// packets is what this costs them.
			KeepAlivePeriod: t.cfg.IdleTimeoutHTTP3 / 2,
			// The peer opens no streams of its own but the three of HTTP/3.
			MaxIncomingStreams: -1,
			// Answers are small and cut at 16 KiB.
			InitialStreamReceiveWindow:     64 << 10,
			MaxStreamReceiveWindow:         256 << 10,
			InitialConnectionReceiveWindow: 128 << 10,
			MaxConnectionReceiveWindow:     512 << 10,
			TokenStore:                     quic.NewLRUTokenStore(1024, 2),
		},
		stack: &http3.Transport{
			DisableCompression:     true,
			MaxResponseHeaderBytes: t.cfg.MaxResponseHeaderBytes,
		},
	}
}

// quicAttempt is one QUIC connection in the making.
type quicAttempt struct {
	ep     delivery.Endpoint
	alt    delivery.Alternative
	egress Egress
	proof  bool
	phase  phase
	hs     delivery.Handshake
}

// quicUp is a connection whose handshake is complete.
type quicUp struct {
	conn  *quic.Conn
	watch *goAwayWatch
	took  time.Duration
}

func (d *quicDialer) dial(ctx context.Context, a *quicAttempt) (*link, error) {
	// The handshake timeout bounds each address; this bounds all of them, and
	// the lookup.
	ctx, cancel := context.WithTimeout(ctx, d.t.cfg.DialTimeout+2*d.t.cfg.QUICHandshakeTimeout)
	defer cancel()
	a.phase = phaseQUIC
	cfg, err := d.t.tls.config(a.ep, tls.VersionTLS13, protoHTTP3)
	if err != nil {
		return nil, err
	}
	first, more, err := d.candidates(ctx, a)
	if err != nil {
		return nil, err
	}
	a.phase = phaseQUIC
	up, err := race(ctx, d.t.cfg.DialStagger, first, more,
		func(ctx context.Context, to netip.AddrPort) (quicUp, error) { return d.dialAddr(ctx, a, to, cfg) },
		func(up quicUp) { _ = up.conn.CloseWithError(closeCode, "") }, d.t.pool.background)
	if err != nil {
		return nil, err
	}
	a.hs.QUIC = up.took
	a.hs.Remote = up.conn.RemoteAddr().String()
	l, w := d.finish(a, up)
	if a.proof {
		if err := w.proven(ctx, d.t.cfg.QUICHandshakeTimeout); err != nil {
			w.close()
			return nil, err
		}
	}
	return l, nil
}

// candidates returns the addresses to dial. With hints and a slow resolver the
// hints come first, and the real answers through more (RFC 9460 section 7.3).
func (d *quicDialer) candidates(ctx context.Context, a *quicAttempt) (first []netip.AddrPort, more <-chan []netip.AddrPort, err error) {
	type found struct {
		route netguard.Route
		err   error
	}
	host := a.alt.Host
	if host == "" {
		host = a.ep.Route.Origin.Host
	}
	a.phase = phaseResolve
	started := time.Now()
	result := make(chan found, 1)
	lookup := func() {
		route, err := a.egress.Guard.Route(ctx, host, a.alt.Port)
		if err == nil && route.Proxy != nil {
			err = errProxied
		}
		result <- found{route, err}
	}
	hints := d.hints(a)
	if len(hints) == 0 {
		lookup()
		got := <-result
		a.hs.DNS = time.Since(started)
		return got.route.Addrs, nil, proxied(a, got.err)
	}
	d.t.pool.background(lookup)
	wait := time.NewTimer(d.t.cfg.HintDelay)
	defer wait.Stop()
	select {
	case got := <-result:
		a.hs.DNS = time.Since(started)
		return got.route.Addrs, nil, proxied(a, got.err)
	case <-wait.C:
	}
	a.hs.DNS = time.Since(started)
	late := make(chan []netip.AddrPort, 1)
	d.t.pool.background(func() {
		got := <-result
		late <- got.route.Addrs // none on an error: then the hints are all there is
	})
	return hints, late, nil
}

// proxied keeps the phase right: a proxy in the way is not a failure of DNS.
func proxied(a *quicAttempt, err error) error {
	if errors.Is(err, errProxied) {
		a.phase = phaseProxy
	}
	return err
}

// hints are the addresses of an HTTPS record that policy allows.
func (d *quicDialer) hints(a *quicAttempt) []netip.AddrPort {
	var out []netip.AddrPort
	for _, addr := range a.alt.Hints {
		to := netip.AddrPortFrom(addr.Unmap(), a.alt.Port)
		if a.egress.Guard.CheckUDP(to) == nil {
			out = append(out, to)
		}
	}
	return out
}

// dialAddr makes one handshake with a literal that was judged. The socket is
// shared and unconnected, so the last look at the address stands here and not in
// a system call.
func (d *quicDialer) dialAddr(ctx context.Context, a *quicAttempt, to netip.AddrPort, tlsConfig *tls.Config) (quicUp, error) {
	sock, err := d.t.sockets.get(a.egress, to.Addr())
	if err != nil {
		return quicUp{}, err
	}
	watch := newGoAwayWatch()
	cfg := d.config
	file := d.qlog(a.ep.Route)
	cfg.Tracer = func(_ context.Context, client bool, id quic.ConnectionID) qlogwriter.Trace {
		watch.attach(file, client, id)
		return watch
	}
	started := time.Now()
	if err := a.egress.Guard.CheckUDP(to); err != nil {
		return quicUp{}, err
	}
	// Dial, never DialEarly: early data can be replayed by anybody on the path.
	conn, err := sock.transport.Dial(ctx, net.UDPAddrFromAddrPort(to), tlsConfig, &cfg)
	if err != nil {
		if errors.Is(err, quic.ErrTransportClosed) {
			d.t.sockets.lost(sock)
		}
		return quicUp{}, fmt.Errorf("%s: %w", to, err)
	}
	return quicUp{conn: conn, watch: watch, took: time.Since(started)}, nil
}

// finish puts HTTP/3 on a connection.
func (d *quicDialer) finish(a *quicAttempt, up quicUp) (*link, *http3Wire) {
	l := &link{
		pool: d.t.pool, proto: delivery.ProtocolHTTP3, hs: a.hs, route: a.ep.Route, alt: a.alt,
		limit: d.t.cfg.MaxStreamsHTTP3, resumed: up.conn.ConnectionState().TLS.DidResume,
	}
	up.watch.arm(func() { d.t.pool.drain(l, EvictDrained) })
	w := &http3Wire{link: l, conn: up.conn, client: d.stack.NewClientConn(up.conn), watch: up.watch}
	w.stall.init(w)
	l.wire = w
	context.AfterFunc(up.conn.Context(), func() { d.t.pool.gone(l) })
	return l, w
}
