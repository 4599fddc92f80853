package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/dispatcher-engine/dispatcher/ingress/kernel"
)

// server is the listeners of an Ingress and what serves on them.
//
//	TCP ─► gate (connection limits) ─► TLS ─► net/http: h1, h2 ──┐
//	UDP ─► quic.Transport (limits, Retry) ─► http3 ──────────────┴─► Ingress
//
// Owner: Start makes it, Stop ends it; its goroutines end with the listeners,
// the monitor's with ctx.
type server struct {
	in      *Ingress
	tcp     *net.TCPListener
	http    *http.Server
	clients *clientCounts
	quic    *quicServer // nil without HTTP/3
	altSvc  string      // "" without HTTP/3

	wg     sync.WaitGroup
	cancel context.CancelFunc
	failed atomic.Pointer[error] // why a listener ended by itself
}

// startServer binds and serves.
func startServer(ctx context.Context, in *Ingress) (*server, error) {
	s := &server{in: in, clients: newClientCounts(in.cfg.MaxConnsPerClient, in.cfg.TrustedProxies)}
	var cert *certificate
	if in.cfg.CertFile != "" {
		var err error
		if cert, err = loadCertificate(&in.cfg); err != nil {
			return nil, err
		}
	}
	if err := s.bind(ctx, cert); err != nil {
		return nil, err
	}
	s.http = s.newHTTP(cert)
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.wg.Go(func() {
		gate := newGate(s.tcp, in.cfg.MaxConns, s.clients, &in.cfg.Observer)
		if cert != nil {
			s.ended("tcp", s.http.ServeTLS(gate, "", ""))
			return
		}
		s.ended("tcp", s.http.Serve(gate))
	})
	if s.quic != nil {
		s.wg.Go(func() { s.ended("quic", s.quic.serve()) })
	}
	if in.cfg.KernelEvery > 0 {
		m := newMonitor(&in.cfg, s.sockets())
		s.wg.Go(func() { m.run(running) })
	}
	in.log.Info("ingress_listening", "addr", s.tcp.Addr().String(), "tls", cert != nil, "http3", s.quic != nil)
	return s, nil
}

// bindTries is how often another port is tried, if any will do and the one that
// TCP got is taken on UDP.
const bindTries = 16

func (s *server) bind(ctx context.Context, cert *certificate) error {
	cfg := &s.in.cfg
	var err error
	for range bindTries {
		if s.tcp, err = listenTCP(ctx, cfg.Addr, cfg.Backlog); err != nil {
			return err
		}
		if cert == nil || cfg.DisableHTTP3 {
			return nil
		}
		if s.quic, err = listenQUIC(ctx, s, cert); err == nil {
			port := cfg.AltSvcPort
			if port == 0 {
				port = int(addrPort(s.tcp.Addr()).Port())
			}
			s.altSvc = fmt.Sprintf(`h3=":%d"; ma=%d`, port, int(cfg.AltSvcMaxAge.Seconds()))
			return nil
		}
		_ = s.tcp.Close()
		if _, port, splitErr := net.SplitHostPort(cfg.Addr); splitErr != nil || port != "0" {
			break
		}
	}
	return err
}

// listenTCP opens a listener with a backlog; 0 = the system's.
func listenTCP(ctx context.Context, addr string, backlog int) (*net.TCPListener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	t, ok := l.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listen on %s: no TCP", addr), l.Close())
	}
	if backlog > 0 {
		if err := kernel.Listen(t, backlog); err != nil {
			return nil, errors.Join(err, t.Close())
		}
	}
	return t, nil
}

// Flow control windows: what a peer may send that nobody has read yet. Bodies
// are read as they come, so a window only has to cover one round trip.
const (
	streamWindow = 256 << 10
	connWindow   = 1 << 20
	maxStreams   = 100
)

// newHTTP makes the server for TCP. The timeouts of net/http are ceilings; the
// handler sets tighter ones for each request.
func (s *server) newHTTP(cert *certificate) *http.Server {
	cfg := &s.in.cfg
	h := &http.Server{
		Handler:           http.HandlerFunc(s.serveTCP),
		ReadHeaderTimeout: cfg.HeaderTimeout,
		ReadTimeout:       cfg.HeaderTimeout + cfg.BodyTimeout,
		WriteTimeout:      cfg.HeaderTimeout + cfg.BodyTimeout + cfg.EnqueueTimeout + writeTimeout,
		IdleTimeout:       cfg.IdleTimeout,
		MaxHeaderBytes:    cfg.MaxHeaderBytes,

		DisableGeneralOptionsHandler: true,
		// Broken handshakes and the like are the weather of the internet.
		ErrorLog: slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamWindow, MaxReceiveBufferPerConnection: connWindow,
			SendPingTimeout: cfg.IdleTimeout, PingTimeout: cfg.HeaderTimeout, WriteByteTimeout: writeTimeout,
		},
	}
	if cert != nil {
		h.TLSConfig = cert.config("h2", "http/1.1")
	}
	return h
}

func (s *server) serveTCP(w http.ResponseWriter, r *http.Request) {
	if s.altSvc != "" {
		w.Header().Set("Alt-Svc", s.altSvc)
	}
	s.in.ServeHTTP(w, r)
}

// ended notes that a listener no longer serves, unless it was stopped.
func (s *server) ended(name string, err error) {
	if errors.Is(err, http.ErrServerClosed) {
		return
	}
	err = fmt.Errorf("%s listener: %w", name, err)
	s.failed.CompareAndSwap(nil, &err)
	s.in.log.Error("ingress_listener_failed", "listener", name, "error", err.Error())
}

// stop ends both servers side by side, hard when ctx ends.
func (s *server) stop(ctx context.Context) error {
	s.cancel()
	var quicErr error
	var wg sync.WaitGroup
	if s.quic != nil {
		wg.Go(func() { quicErr = s.quic.stop(ctx) })
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	wg.Wait()
	s.wg.Wait()
	return errors.Join(err, quicErr)
}

// sockets are the listeners as the monitor samples them.
func (s *server) sockets() []socket {
	out := []socket{{"tcp", addrPort(s.tcp.Addr()), s.tcp}}
	if s.quic != nil {
		out = append(out, socket{"udp", addrPort(s.quic.udp.LocalAddr()), s.quic.udp})
	}
	return out
}

func addrPort(a net.Addr) netip.AddrPort {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.AddrPort()
	case *net.UDPAddr:
		return a.AddrPort()
	default:
		return netip.AddrPort{}
	}
}

// Addr returns the address of the TCP listener, and with HTTP/3 of the UDP
// socket, too. It is the zero value before Start.
func (in *Ingress) Addr() netip.AddrPort {
	s := in.server.Load()
	if s == nil {
		return netip.AddrPort{}
	}
	return addrPort(s.tcp.Addr())
}

// URL returns the URL of a source at the node's own address. It is for logs and
// tests: the public name is the operator's to know.
func (in *Ingress) URL(tenant, source string) string {
	scheme, addr := "http", in.Addr()
	if in.cfg.CertFile != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(addr.Addr().String(), strconv.Itoa(int(addr.Port()))) + pathPrefix + tenant + "/" + source
}

var errNotStarted = errors.New("ingress is not running")

// Ready returns nil while the listeners serve.
func (in *Ingress) Ready() error {
	s := in.server.Load()
	if s == nil || in.ended.Load() {
		return errNotStarted
	}
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}
