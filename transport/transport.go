package transport

import (
	"context"
	"fmt"
	"maps"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TCPOptions narrow a connection over TCP.
type TCPOptions struct {
	// Protocol is the only one acceptable: ProtocolHTTP1 or ProtocolHTTP2.
	// ProtocolNone = whichever ALPN gives. Plain http is HTTP/1.1 only.
	Protocol delivery.Protocol
	// Fresh asks for a connection that has carried no request yet: the caller
	// has just seen a warm one fail.
	Fresh bool
}

// Want says which warm connection is asked for.
type Want struct {
	// HTTP3 asks for a QUIC connection to Alternative, otherwise TCP.
	HTTP3 bool
	// Alternative must be equal in host and port; its hints do not matter.
	Alternative delivery.Alternative
	TCP         TCPOptions
}

// Transport keeps connections and sends requests on them. It is safe for
// concurrent use.
type Transport struct {
	cfg     Config
	tls     *tlsStore
	pool    *pool
	tcp     *tcpDialer
	quic    *quicDialer
	egress  map[string]Egress
	sockets *sockets
}

// New makes a transport. It opens no socket yet.
func New(cfg Config) (*Transport, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("transport config: %w", err)
	}
	store, err := newTLSStore(&cfg)
	if err != nil {
		return nil, fmt.Errorf("transport config: %w", err)
	}
	t := &Transport{cfg: cfg, tls: store, egress: map[string]Egress{
		"": {Guard: cfg.Guard, Source4: cfg.Source4, Source6: cfg.Source6},
	}}
	maps.Copy(t.egress, cfg.Egresses)
	t.pool = newPool(&t.cfg, t.dial)
	t.sockets = newSockets(&t.cfg)
	t.tcp = newTCPDialer(t)
	t.quic = newQUICDialer(t)
	return t, nil
}

// Warm reserves a slot on a connection that is up. It does not block and returns
// false when there is none with a free slot. A connection that is draining, or
// whose path is suspect, is not warm.
func (t *Transport) Warm(ep delivery.Endpoint, want Want) (*Conn, bool) {
	if want.HTTP3 {
		return t.pool.warm(quicKey(ep.Route, want.Alternative), TCPOptions{})
	}
	return t.pool.warm(bucketKey{route: ep.Route}, want.TCP)
}

// DialTCP returns a slot on a connection over TCP, with TLS unless the origin's
// scheme is http. It waits, up to ctx's end, for the handshake, or for a
// connection to become free when the route's cap is reached; so a connection
// that was up already can be the result. The error is a *delivery.SendError with
// SentNever.
func (t *Transport) DialTCP(ctx context.Context, ep delivery.Endpoint, opts TCPOptions) (*Conn, error) {
	return t.pool.acquire(ctx, bucketKey{route: ep.Route}, ep, delivery.Alternative{}, &waiter{opts: opts})
}

// DialQUIC returns a slot on a QUIC connection to an alternative, its handshake
// complete. The certificate is verified for the origin's name. Concurrent
// callers share one handshake, which goes on when all of them have given up. The
// error is a *delivery.SendError with SentNever, whose Broken says what it means
// for the alternative.
func (t *Transport) DialQUIC(ctx context.Context, ep delivery.Endpoint, alt delivery.Alternative) (*Conn, error) {
	return t.pool.acquire(ctx, quicKey(ep.Route, alt), ep, alt, &waiter{})
}

// ProveQUIC is DialQUIC for an alternative that is not trusted: a connection
// that it makes counts only once the peer's HTTP/3 SETTINGS and its answer to
// ours have come, one round trip after the handshake. So a path that lets
// handshakes pass and swallows what follows is found out before a request is
// lost on it.
func (t *Transport) ProveQUIC(ctx context.Context, ep delivery.Endpoint, alt delivery.Alternative) (*Conn, error) {
	return t.pool.acquire(ctx, quicKey(ep.Route, alt), ep, alt, &waiter{proof: true})
}

func quicKey(route delivery.Route, alt delivery.Alternative) bucketKey {
	return bucketKey{route: route, quic: true, host: alt.Host, port: alt.Port}
}

// dial is the pool's dialFunc.
func (t *Transport) dial(
	ctx context.Context, key bucketKey, ep delivery.Endpoint, alt delivery.Alternative, opts dialOptions,
) (*link, *delivery.SendError) {
	egress, ok := t.egress[key.route.Egress]
	if !ok {
		return nil, unknownEgress(key.route.Egress)
	}
	var l *link
	var err error
	var at phase
	if key.quic {
		a := &quicAttempt{ep: ep, alt: alt, egress: egress, proof: opts.proof}
		l, err = t.quic.dial(ctx, a)
		at = a.phase
	} else {
		a := &tcpAttempt{ep: ep, egress: egress, protocol: opts.protocol}
		l, err = t.tcp.dial(ctx, a)
		at = a.phase
	}
	switch {
	case err == nil:
		return l, nil
	case t.pool.closing.Load():
		return nil, errClosed()
	}
	return nil, classify(failure{phase: at, err: err})
}

func unknownEgress(name string) *delivery.SendError {
	return &delivery.SendError{
		Sent: delivery.SentNever, Cause: delivery.CauseLocal, Detail: fmt.Sprintf("egress %q is not configured", name),
	}
}

// Stats returns what a gauge can show.
func (t *Transport) Stats() Stats {
	s := t.pool.snapshot()
	s.Sockets = t.sockets.count()
	return s
}

// Renew has nothing sent over the connections that are open: for when the rules have
// changed by which they were dialled. What is in flight on them ends as it would.
func (t *Transport) Renew() { t.pool.renew() }

// Close ends everything: what is in flight may finish until ctx ends, then it is
// interrupted. Every QUIC connection is closed with H3_NO_ERROR. When Close
// returns, no goroutine, connection or socket of the transport is left. The
// error is ctx's, if requests had to be interrupted.
func (t *Transport) Close(ctx context.Context) error {
	err := t.pool.close(ctx)
	t.sockets.close()
	if err != nil {
		return fmt.Errorf("transport close: requests were interrupted: %w", err)
	}
	return nil
}
