package fault

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/quic-go/quic-go"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// Config describes a [Server]. The zero value is a healthy receiver of plain
// HTTP/1.1 on a free port of 127.0.0.1.
type Config struct {
	// Addr is the address to listen on, TCP and, with HTTP3, UDP.
	// Default: 127.0.0.1 and a free port.
	Addr string
	// CA issues the certificates, the bad ones included. Default: an authority
	// of its own, which nobody trusts, if Certificate is set.
	CA *testnet.CA
	// Certificate is the good one. Default: one that CA issues for Names.
	Certificate *tls.Certificate
	// Names are those of the good certificate. Default: localhost, 127.0.0.1, ::1.
	Names []string
	// HTTP3 listens on UDP as well. It needs TLS: CA or Certificate.
	HTTP3 bool
	// NoHTTP2 offers HTTP/1.1 alone over TCP. A set of faults of which none
	// applies to HTTP/2 has the same effect.
	NoHTTP2 bool
	// AltSvc is the Alt-Svc header of healthy answers over TCP: "" = the HTTP/3
	// listener if there is one, "-" = none, anything else as given.
	AltSvc string
	// Status is that of healthy answers. Default: 200.
	Status int
	// Faults are armed from the start; SetFaults changes them.
	Faults []Fault
	// Verify checks a request's signature once its body is in; what it refuses
	// gets 401. Default: nothing is checked.
	Verify func(header http.Header, body []byte) error
	// OnRequest hears of every request that was dealt with. Default: nobody.
	OnRequest func(testnet.Seen)
}

// Server is a running receiver with faults. Close it.
//
// Lock order: Server.mu, then a connection's. Every goroutine is in wg.
type Server struct {
	config Config
	tally  *Tally
	armed  atomic.Pointer[[]*armed]
	certs  certificates
	ctx    context.Context //nolint:containedctx // the server's life, for all that waits
	cancel context.CancelFunc
	wg     sync.WaitGroup

	tlsBoth, tlsHTTP1 *tls.Config // what ALPN offers over TCP

	port     int
	addr     string
	tcp      net.Listener // nil when the port is closed
	hub      *hub         // nil without HTTP/3
	reserved []net.Conn   // what keeps closed ports free

	mu     sync.Mutex
	closed bool
	conns  map[*tcpConn]struct{}
	quic   map[*quic.Conn]struct{}
}

// Start listens and serves until Close.
func Start(config Config) (*Server, error) {
	s := &Server{config: config, tally: newTally(), conns: map[*tcpConn]struct{}{}, quic: map[*quic.Conn]struct{}{}}
	s.config.Status = cmp.Or(config.Status, http.StatusOK)
	s.config.Addr = cmp.Or(config.Addr, "127.0.0.1:0")
	if err := s.config.validate(); err != nil {
		return nil, fmt.Errorf("fault server: %w", err)
	}
	if s.secure() {
		var err error
		if s.certs, err = newCertificates(&s.config); err != nil {
			return nil, fmt.Errorf("fault server: %w", err)
		}
		s.tlsBoth = s.tlsConfig(overTCP, "h2", "http/1.1")
		s.tlsHTTP1 = s.tlsConfig(overTCP, "http/1.1")
	}
	armed := arm(config.Faults)
	s.armed.Store(&armed)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if err := s.listen(); err != nil {
		return nil, errors.Join(fmt.Errorf("fault server: %w", err), s.Close())
	}
	if s.hub != nil {
		if err := s.hub.run(); err != nil {
			return nil, errors.Join(fmt.Errorf("fault server: %w", err), s.Close())
		}
	}
	if s.tcp != nil {
		s.wg.Go(s.acceptTCP)
	}
	return s, nil
}

func (c Config) validate() error {
	var errs []error
	if c.HTTP3 && c.CA == nil && c.Certificate == nil {
		errs = append(errs, errors.New("http3: needs ca or certificate"))
	}
	if c.Status < 200 || c.Status > 999 {
		errs = append(errs, fmt.Errorf("status: %d: want 200 to 999", c.Status))
	}
	for _, f := range c.Faults {
		if f.kind == nil {
			errs = append(errs, errors.New("faults: a zero Fault; ParseFault makes one"))
			continue
		}
		if !c.reaches(f) {
			errs = append(errs, fmt.Errorf("faults: %s is for %s, which this server does not offer", f.kind.Name, protocolList(f.kind.Protocols)))
		}
	}
	return errors.Join(errs...)
}

// reaches reports whether a fault applies to a protocol that is offered.
func (c Config) reaches(f Fault) bool {
	secure := c.CA != nil || c.Certificate != nil
	return f.Applies(delivery.ProtocolHTTP1) || f.Applies(delivery.ProtocolHTTP2) && secure && !c.NoHTTP2 ||
		f.Applies(delivery.ProtocolHTTP3) && c.HTTP3
}

func (s *Server) secure() bool { return s.config.CA != nil || s.config.Certificate != nil }

// SetFaults arms other faults, with their counts at zero; none makes the server
// healthy. Connections that are up stay, and what hangs goes on hanging. A fault
// that holds for as long as the server runs cannot come or go.
func (s *Server) SetFaults(faults ...Fault) error {
	for _, f := range faults {
		if f.kind == nil || f.kind.Standing {
			return fmt.Errorf("fault %q: only possible from the start", f)
		}
	}
	armed := arm(faults)
	s.armed.Store(&armed)
	return nil
}

// Restart loses the state of every connection and goes on at the same port: TCP
// connections are reset, QUIC connections are forgotten without a word.
func (s *Server) Restart() {
	s.mu.Lock()
	for c := range s.conns {
		c.closeNow("rst", 0)
	}
	s.mu.Unlock()
	if s.hub != nil {
		s.hub.forget(false)
	}
}

// Tally returns what it did.
func (s *Server) Tally() *Tally { return s.tally }

// Port returns the number of its ports.
func (s *Server) Port() int { return s.port }

// Addr returns the address of its ports.
func (s *Server) Addr() string { return s.addr }

// URL returns a URL of it with the given host name ("" = its address) and path.
func (s *Server) URL(host, path string) string {
	scheme := "http"
	if s.secure() {
		scheme = "https"
	}
	authority := s.addr
	if host != "" {
		authority = net.JoinHostPort(host, strconv.Itoa(s.port))
	}
	return scheme + "://" + authority + path
}

// Close ends every connection and waits for all goroutines. It is idempotent.
func (s *Server) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if !first {
		return nil
	}
	s.cancel()
	var errs []error
	if s.tcp != nil {
		errs = append(errs, s.tcp.Close())
	}
	s.mu.Lock()
	for c := range s.conns {
		c.closeNow("fin", 0)
	}
	open := slices.Collect(maps.Keys(s.quic))
	s.mu.Unlock()
	for _, c := range open {
		_ = c.CloseWithError(h3NoError, "") // returns nil only, once it is sent
	}
	if s.hub != nil {
		errs = append(errs, s.hub.close())
	}
	for _, c := range s.reserved {
		errs = append(errs, c.Close())
	}
	s.wg.Wait()
	return errors.Join(errs...)
}

// healthyFields are the fields of a healthy answer.
func (s *Server) healthyFields(p delivery.Protocol) []field {
	fields := []field{{"content-type", "text/plain"}}
	switch {
	case s.config.AltSvc == "-" || p == delivery.ProtocolHTTP3:
	case s.config.AltSvc != "":
		fields = append(fields, field{"alt-svc", s.config.AltSvc})
	case s.config.HTTP3:
		fields = append(fields, field{"alt-svc", altSvc("h3", s.port)})
	}
	return fields
}
