package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/time/rate"
)

// quicServer serves HTTP/3 on the UDP port with the TCP listener's number.
type quicServer struct {
	s         *server
	udp       *net.UDPConn
	transport *quic.Transport
	listener  *quic.EarlyListener
	h3        *http3.Server
	conns     tracker
}

// Handshakes a second, and at once, from addresses that did not prove to be
// theirs. Above it a Retry costs the client a round trip, and us no state.
const (
	freeHandshakes      = 200
	freeHandshakesBurst = 400
)

func listenQUIC(ctx context.Context, s *server, cert *certificate) (*quicServer, error) {
	addr := s.tcp.Addr().String()
	packet, err := new(net.ListenConfig).ListenPacket(ctx, "udp", addr)
	if err != nil {
		return nil, err
	}
	udp, ok := packet.(*net.UDPConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listen on udp %s: no UDP", addr), packet.Close())
	}
	cfg := &s.in.cfg
	q := &quicServer{s: s, udp: udp}
	free := rate.NewLimiter(freeHandshakes, freeHandshakesBurst)
	q.transport = &quic.Transport{
		Conn:                udp,
		VerifySourceAddress: func(net.Addr) bool { return !free.Allow() },
		ConnContext:         q.admit,
	}
	q.listener, err = q.transport.ListenEarly(http3.ConfigureTLSConfig(cert.config()), &quic.Config{
		HandshakeIdleTimeout:           cfg.HeaderTimeout,
		MaxIdleTimeout:                 cfg.IdleTimeout,
		InitialStreamReceiveWindow:     streamWindow,
		MaxStreamReceiveWindow:         streamWindow,
		InitialConnectionReceiveWindow: connWindow,
		MaxConnectionReceiveWindow:     connWindow,
		MaxIncomingStreams:             maxStreams,
		Allow0RTT:                      false, // early data can be replayed by anyone who recorded it
	})
	if err != nil {
		return nil, errors.Join(err, q.transport.Close(), udp.Close())
	}
	q.h3 = &http3.Server{
		Handler:        http.HandlerFunc(q.serveHTTP),
		MaxHeaderBytes: cfg.MaxHeaderBytes,
		ConnContext:    q.opened,
		Logger:         debugOnly(cfg.Logger),
	}
	return q, nil
}

// debugOnly keeps the errors of single connections out of the operator's log.
func debugOnly(log *slog.Logger) *slog.Logger {
	if log.Enabled(context.Background(), slog.LevelDebug) {
		return log
	}
	return slog.New(slog.DiscardHandler)
}

func (q *quicServer) serve() error { return q.h3.ServeListener(q.listener) }

var errQUICLimit = errors.New("too many connections")

// admit counts connections from their first packet, and refuses those above the
// limit before they cost a handshake.
func (q *quicServer) admit(ctx context.Context, _ *quic.ClientInfo) (context.Context, error) {
	if !q.conns.tryEnter(q.s.in.cfg.MaxQUICConns) {
		q.s.in.cfg.Observer.connRefused(ConnQUICLimit)
		return nil, errQUICLimit
	}
	context.AfterFunc(ctx, q.conns.leave)
	return ctx, nil
}

// opened is called when a handshake is complete, and with it the client's address
// proven.
func (q *quicServer) opened(ctx context.Context, conn *quic.Conn) context.Context {
	client := addrPort(conn.RemoteAddr()).Addr()
	if !q.s.clients.enter(client) {
		q.s.in.cfg.Observer.connRefused(ConnClientLimit)
		_ = conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeExcessiveLoad), "")
		return ctx
	}
	idle := newQUICIdle(conn, q.s.in.cfg.IdleTimeout)
	context.AfterFunc(conn.Context(), func() {
		q.s.clients.leave(client)
		idle.stop()
	})
	return context.WithValue(ctx, quicIdleKey{}, idle)
}

func (q *quicServer) serveHTTP(w http.ResponseWriter, r *http.Request) {
	if idle, ok := r.Context().Value(quicIdleKey{}).(*quicIdle); ok {
		idle.enter()
		defer idle.leave()
	}
	q.s.in.ServeHTTP(w, r)
}

// lingerTimeout is how long answers may take to leave, and clients to close their
// connections, after the last request has ended; and then how long it may take to
// tell the remaining ones that we close.
const lingerTimeout = 500 * time.Millisecond

// stop sends GOAWAY, lets requests end, closes the connections that are left and
// then the socket. http3 would wait for its clients to leave and its handlers to
// return, both without a bound. So it is cut short: clients keep connections, and
// handlers have deadlines of their own.
func (q *quicServer) stop(ctx context.Context) error {
	grace, hard := context.WithCancel(context.WithoutCancel(ctx))
	defer hard()
	go func() { _ = q.h3.Shutdown(grace) }()
	err := q.s.in.inFlight.wait(ctx)
	q.linger(ctx)
	hard() // CONNECTION_CLOSE to those that are still there
	q.linger(context.WithoutCancel(ctx))
	return errors.Join(err, q.listener.Close(), q.transport.Close(), ignoreClosed(q.udp.Close()))
}

// linger waits for connections to end, for a moment.
func (q *quicServer) linger(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lingerTimeout)
	defer cancel()
	_ = q.conns.wait(ctx)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

type quicIdleKey struct{}

// quicIdle closes a connection on which no request ran for some time. QUIC's own
// timeout counts any packet, and that of http3 any open stream, so a client that
// opens a stream, sends no headers and pings would stay for ever.
type quicIdle struct {
	conn    *quic.Conn
	timeout time.Duration
	mu      sync.Mutex
	running int
	timer   *time.Timer
}

func newQUICIdle(conn *quic.Conn, timeout time.Duration) *quicIdle {
	q := &quicIdle{conn: conn, timeout: timeout}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer = time.AfterFunc(timeout, q.expired)
	return q
}

func (q *quicIdle) expired() {
	q.mu.Lock()
	running := q.running
	q.mu.Unlock()
	if running == 0 {
		_ = q.conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "")
	}
}

func (q *quicIdle) enter() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.running++
	q.timer.Stop()
}

func (q *quicIdle) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running--; q.running == 0 {
		q.timer.Reset(q.timeout)
	}
}

func (q *quicIdle) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.timer.Stop()
}
