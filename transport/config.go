package transport

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
)

// Guard is what the transport needs of the address policy. *netguard.Guard has
// it. Every address that is dialled comes out of Route, and is judged once more
// by DialControl or CheckUDP right before its first packet.
type Guard interface {
	// Route resolves and judges host and port and says how to get there. Its
	// error is a *netguard.DeniedError or the resolver's, possibly wrapped.
	Route(ctx context.Context, host string, port uint16) (netguard.Route, error)
	// DialControl has the type of net.Dialer.ControlContext.
	DialControl(ctx context.Context, network, address string, c syscall.RawConn) error
	// CheckUDP judges the address that the next QUIC dial is for.
	CheckUDP(target netip.AddrPort) error
}

// Egress is one way out of this machine.
type Egress struct {
	// Guard is the egress's address policy; whether a proxy has to be asked is
	// part of its answers. Required. A QUIC dial through a proxy is refused.
	Guard Guard
	// Source4 and Source6 are the local addresses that TCP connections and UDP
	// sockets to peers of that family are bound to, a proxy's connections
	// included. Default: the system's choice.
	Source4, Source6 netip.Addr
}

// Config is everything that can be set. The zero value of every field but
// Guard is its default.
type Config struct {
	// Guard is the address policy of the default egress, whose name is "".
	// Required.
	Guard Guard
	// Source4 and Source6 are the local addresses of the default egress.
	// Default: the system's choice.
	Source4, Source6 netip.Addr
	// Egresses are the named ones, as delivery.Route.Egress names them.
	Egresses map[string]Egress
	// RootCAs verify peers that have no CA of their own. Default: the system's.
	RootCAs *x509.CertPool

	// DialTimeout bounds a TCP dial: lookup, connect, proxy, TLS. Default: 10 s.
	DialTimeout time.Duration
	// QUICHandshakeTimeout is the silence after which a QUIC handshake has
	// failed; a peer that drips packets gets up to twice that. Default: 3 s.
	QUICHandshakeTimeout time.Duration
	// DialStagger is the pause before the next address of a name is tried while
	// the one before is still silent (RFC 8305 section 5). Default: 250 ms.
	DialStagger time.Duration
	// HintDelay is how long a QUIC dial waits for DNS before it uses the address
	// hints of an HTTPS record (RFC 9460 section 7.3). Default: 50 ms.
	HintDelay time.Duration

	// MaxTCPConnsPerRoute caps connections over TCP, those being dialled
	// included. Default: 16.
	MaxTCPConnsPerRoute int
	// MaxQUICConnsPerRoute caps QUIC connections to one alternative. Default: 4.
	MaxQUICConnsPerRoute int
	// MaxStreamsHTTP2 caps requests at a time on one HTTP/2 connection; the
	// peer's own limit counts as well. Default: 100.
	MaxStreamsHTTP2 int
	// MaxStreamsHTTP3 is the same for HTTP/3, where the peer's limit is not
	// visible: a request above it waits for a stream. Default: 32.
	MaxStreamsHTTP3 int

	// MaxIdleTCP caps idle TCP connections; the one idle for longest goes
	// first. Default: 4,000 (25 to 29 KiB each).
	MaxIdleTCP int
	// MaxIdleHTTP3 is the same for QUIC. Default: 2,000 (57 KiB each).
	MaxIdleHTTP3 int
	// IdleTimeoutTCP closes a TCP connection that carried nothing for so long.
	// Default: 60 s. A peer's Keep-Alive header can only shorten it.
	IdleTimeoutTCP time.Duration
	// IdleTimeoutHTTP3 is the same for QUIC. It stays below common UDP NAT
	// timeouts, since a POST into a forgotten mapping is ambiguous.
	// Default: 20 s; the QUIC layer's own timeout is 5 s more.
	IdleTimeoutHTTP3 time.Duration

	// MaxResponseHeaderBytes caps the headers of an answer. Default: 64 KiB.
	MaxResponseHeaderBytes int
	// TLSSessions caps the session tickets kept, all routes together.
	// Default: 4,096.
	TLSSessions int
	// TLSIdentities caps the parsed CAs and client certificates kept.
	// Default: 1,024.
	TLSIdentities int

	// DialTCP opens TCP connections to judged literals. It is a seam for
	// in-memory networks; it goes around DialControl, not around Route.
	// Default: a net.Dialer with Guard.DialControl.
	DialTCP func(ctx context.Context, network, address string) (net.Conn, error)
	// ListenUDP opens the UDP sockets. It is a seam for in-memory networks.
	// Default: net.ListenUDP.
	ListenUDP func(network string, laddr *net.UDPAddr) (net.PacketConn, error)
	// Qlog returns where to write a qlog of the next QUIC connection of a route,
	// nil for nowhere. It is closed with the connection. Default: nobody logs.
	Qlog func(delivery.Route) io.WriteCloser

	// Observer is told what happens. Default: nobody.
	Observer Observer
	// Logger takes what an operator should know: a socket that was lost, UDP
	// buffers below what was asked for. Default: discarded.
	Logger *slog.Logger
}

// Fixed limits: what would change them is a change of the design.
const (
	maxBodyExcerpt = 16 << 10 // kept of an answer's body
	maxBodyDrain   = 64 << 10 // read in all to save an HTTP/1.1 connection
	drainWait      = 100 * time.Millisecond
	max1xx         = 5 // informational answers per request
)

func defaultTo[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// withDefaults returns a copy with every unset field filled in.
func (c Config) withDefaults() Config {
	defaultTo(&c.DialTimeout, 10*time.Second)
	defaultTo(&c.QUICHandshakeTimeout, 3*time.Second)
	defaultTo(&c.DialStagger, 250*time.Millisecond)
	defaultTo(&c.HintDelay, 50*time.Millisecond)
	defaultTo(&c.MaxTCPConnsPerRoute, 16)
	defaultTo(&c.MaxQUICConnsPerRoute, 4)
	defaultTo(&c.MaxStreamsHTTP2, 100)
	defaultTo(&c.MaxStreamsHTTP3, 32)
	defaultTo(&c.MaxIdleTCP, 4000)
	defaultTo(&c.MaxIdleHTTP3, 2000)
	defaultTo(&c.IdleTimeoutTCP, time.Minute)
	defaultTo(&c.IdleTimeoutHTTP3, 20*time.Second)
	defaultTo(&c.MaxResponseHeaderBytes, 64<<10)
	defaultTo(&c.TLSSessions, 4096)
	defaultTo(&c.TLSIdentities, 1024)
	if c.ListenUDP == nil {
		c.ListenUDP = func(network string, laddr *net.UDPAddr) (net.PacketConn, error) {
			return net.ListenUDP(network, laddr)
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// validate reports everything that is wrong, each with its field.
func (c Config) validate() error {
	var errs []error
	if c.Guard == nil {
		errs = append(errs, errors.New("guard: required"))
	}
	errs = append(errs, checkSources("", c.Source4, c.Source6))
	for name, e := range c.Egresses {
		errs = append(errs, e.validate(name))
	}
	for name, d := range map[string]time.Duration{
		"dial_timeout": c.DialTimeout, "quic_handshake_timeout": c.QUICHandshakeTimeout,
		"dial_stagger": c.DialStagger, "hint_delay": c.HintDelay,
		"idle_timeout_tcp": c.IdleTimeoutTCP, "idle_timeout_http3": c.IdleTimeoutHTTP3,
	} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("%s: %v: must not be negative", name, d))
		}
	}
	for name, n := range map[string]int{
		"max_tcp_conns_per_route": c.MaxTCPConnsPerRoute, "max_quic_conns_per_route": c.MaxQUICConnsPerRoute,
		"max_streams_http2": c.MaxStreamsHTTP2, "max_streams_http3": c.MaxStreamsHTTP3,
		"max_idle_tcp": c.MaxIdleTCP, "max_idle_http3": c.MaxIdleHTTP3,
		"max_response_header_bytes": c.MaxResponseHeaderBytes,
		"tls_sessions":              c.TLSSessions, "tls_identities": c.TLSIdentities,
	} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("%s: %d: must not be negative", name, n))
		}
	}
	return errors.Join(errs...)
}

func (e Egress) validate(name string) error {
	var errs []error
	if name == "" {
		errs = append(errs, errors.New(`egresses: "" is the default egress and is set by guard`))
	}
	if e.Guard == nil {
		errs = append(errs, fmt.Errorf("egresses[%s].guard: required", name))
	}
	errs = append(errs, checkSources(fmt.Sprintf("egresses[%s].", name), e.Source4, e.Source6))
	return errors.Join(errs...)
}

// checkSources refuses what the system would refuse only at the first dial.
func checkSources(prefix string, source4, source6 netip.Addr) error {
	var errs []error
	if source4.IsValid() && !source4.Is4() {
		errs = append(errs, fmt.Errorf("%ssource4: %v: not an IPv4 address", prefix, source4))
	}
	if source6.IsValid() && (!source6.Is6() || source6.Is4In6()) {
		errs = append(errs, fmt.Errorf("%ssource6: %v: not an IPv6 address", prefix, source6))
	}
	return errors.Join(errs...)
}
