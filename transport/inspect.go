package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Inspected is what one handshake with one address showed. Much of it is there
// although the handshake failed.
type Inspected struct {
	// Handshake tells how long each step took, as far as it came.
	Handshake delivery.Handshake
	// TLS is the connection's state since the peer's certificate was seen, nil if
	// it never was. Its VerifiedChains are empty if Unverified is set.
	TLS *tls.ConnectionState
	// Unverified is why the certificate does not speak for the origin.
	Unverified error
	// CertificateAsked: the peer asked for a client certificate. Whether it
	// insists shows only when a request is made.
	CertificateAsked bool
	// QUICVersion is the version in use, "" over TCP.
	QUICVersion string
	// Err is why a delivery could not use the address; nil = it could.
	Err *delivery.SendError
}

// Inspect makes one handshake with one address of an endpoint, as a delivery
// would make it, and closes the connection: for diagnosis. It goes around the
// pool and resumes no session, so that what it shows is not of yesterday. The
// address is judged by the policy like any other. An egress's proxy is not asked:
// what is behind one cannot be looked at from here.
func (t *Transport) Inspect(ctx context.Context, ep delivery.Endpoint, to netip.AddrPort, overQUIC bool) Inspected {
	egress, ok := t.egress[ep.Route.Egress]
	if !ok {
		return Inspected{Err: unknownEgress(ep.Route.Egress)}
	}
	ctx, cancel := context.WithTimeout(ctx, t.cfg.DialTimeout)
	defer cancel()
	var look inspection
	var at phase
	var err error
	if overQUIC {
		at, err = t.inspectQUIC(ctx, &look, egress, ep, to)
	} else {
		at, err = t.inspectTCP(ctx, &look, egress, ep, to)
	}
	got := look.result()
	if err != nil {
		got.Err = classify(failure{phase: at, err: err})
	}
	return got
}

func (t *Transport) inspectTCP(ctx context.Context, look *inspection, egress Egress, ep delivery.Endpoint, to netip.AddrPort) (phase, error) {
	started := time.Now()
	conn, err := t.tcp.dialAddr(ctx, egress, to)
	if err != nil {
		return phaseConnect, err
	}
	defer conn.Close()
	look.note(func(i *Inspected) {
		i.Handshake.Connect, i.Handshake.Remote = time.Since(started), conn.RemoteAddr().String()
	})
	if ep.Route.Origin.Scheme == "http" {
		return phaseConnect, nil
	}
	cfg, err := look.config(t.tls, ep, tls.VersionTLS12, protoHTTP2, protoHTTP1)
	if err != nil {
		return phaseTLS, err
	}
	started = time.Now()
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		return phaseTLS, err
	}
	look.note(func(i *Inspected) { i.Handshake.TLS = time.Since(started) })
	switch got := secure.ConnectionState().NegotiatedProtocol; got {
	case protoHTTP2, protoHTTP1, "":
		return phaseTLS, nil
	default:
		return phaseTLS, fmt.Errorf("the peer chose %q by ALPN", got)
	}
}

func (t *Transport) inspectQUIC(ctx context.Context, look *inspection, egress Egress, ep delivery.Endpoint, to netip.AddrPort) (phase, error) {
	cfg, err := look.config(t.tls, ep, tls.VersionTLS13, protoHTTP3)
	if err != nil {
		return phaseQUIC, err
	}
	sock, err := t.sockets.get(egress, to.Addr())
	if err != nil {
		return phaseQUIC, err
	}
	quicConfig := t.quic.config
	started := time.Now()
	if err := egress.Guard.CheckUDP(to); err != nil {
		return phaseQUIC, err
	}
	conn, err := sock.transport.Dial(ctx, net.UDPAddrFromAddrPort(to), cfg, &quicConfig)
	if err != nil {
		return phaseQUIC, fmt.Errorf("%s: %w", to, err)
	}
	look.note(func(i *Inspected) {
		i.Handshake.QUIC, i.Handshake.Remote = time.Since(started), conn.RemoteAddr().String()
		i.QUICVersion = conn.ConnectionState().Version.String()
	})
	_ = conn.CloseWithError(closeCode, "") // returns nil only
	return phaseQUIC, nil
}

// inspection collects what the callbacks of TLS see. Over QUIC they run on the
// connection's goroutine, which may still do so when the caller has given up.
type inspection struct {
	mu  sync.Mutex
	got Inspected
}

func (l *inspection) note(f func(*Inspected)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.got)
}

func (l *inspection) result() Inspected {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.got
}

// config is the configuration of a delivery's connection, save that it keeps
// what it sees.
func (l *inspection) config(store *tlsStore, ep delivery.Endpoint, minVersion uint16, protocols ...string) (*tls.Config, error) {
	cfg, err := store.config(ep, minVersion, protocols...)
	if err != nil {
		return nil, err
	}
	cfg.ClientSessionCache = nil
	own := cfg.Certificates
	cfg.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		l.note(func(i *Inspected) { i.CertificateAsked = true })
		for i := range own {
			if info.SupportsCertificate(&own[i]) == nil {
				return &own[i], nil
			}
		}
		return new(tls.Certificate), nil // none, which the peer may accept
	}
	roots, name := cfg.RootCAs, cfg.ServerName
	// The library would drop the chain that it refuses. VerifyConnection does the
	// same verification and refuses as well, but keeps the chain.
	cfg.InsecureSkipVerify = true //nolint:gosec // verified two lines below
	cfg.VerifyConnection = func(state tls.ConnectionState) error {
		chains, err := verifyChain(state.PeerCertificates, roots, name)
		state.VerifiedChains = chains
		l.note(func(i *Inspected) { i.TLS, i.Unverified = &state, err })
		if err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
		}
		return nil
	}
	return cfg, nil
}

// verifyChain is what crypto/tls does with a server's certificates.
func verifyChain(certs []*x509.Certificate, roots *x509.CertPool, name string) ([][]*x509.Certificate, error) {
	if len(certs) == 0 {
		return nil, errors.New("the peer showed no certificate")
	}
	intermediates := x509.NewCertPool()
	for _, c := range certs[1:] {
		intermediates.AddCert(c)
	}
	return certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates, DNSName: name})
}
