package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// materialError is TLS material of a subscriber that cannot be used.
type materialError struct{ err error }

// Error never shows the material.
func (e *materialError) Error() string { return "tls material: " + e.err.Error() }

// Unwrap returns the reason.
func (e *materialError) Unwrap() error { return e.err }

// material is parsed TLS material.
type material struct {
	roots *x509.CertPool
	certs []tls.Certificate
}

// tlsStore makes TLS configurations. Material is parsed once per identity, and
// session tickets are kept per route: a ticket proves who the client was, so it
// must not cross from one identity or egress to another.
type tlsStore struct {
	roots    *x509.CertPool // nil = the system's
	parsed   *lru.Cache[delivery.Identity, *material]
	sessions *lru.Cache[sessionKey, *tls.ClientSessionState]
	parsing  sync.Mutex // one at a time: parsing is slow, and rare
}

func newTLSStore(cfg *Config) (*tlsStore, error) {
	parsed, err := lru.New[delivery.Identity, *material](cfg.TLSIdentities)
	if err != nil {
		return nil, fmt.Errorf("tls_identities: %w", err)
	}
	sessions, err := lru.New[sessionKey, *tls.ClientSessionState](cfg.TLSSessions)
	if err != nil {
		return nil, fmt.Errorf("tls_sessions: %w", err)
	}
	return &tlsStore{roots: cfg.RootCAs, parsed: parsed, sessions: sessions}, nil
}

// config returns a configuration for one connection. The certificate is verified
// for the origin's name, whatever host is dialled.
func (s *tlsStore) config(ep delivery.Endpoint, minVersion uint16, protocols ...string) (*tls.Config, error) {
	m, err := s.material(ep)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		ServerName:         ep.Route.Origin.Host,
		MinVersion:         minVersion,
		RootCAs:            m.roots,
		Certificates:       m.certs,
		NextProtos:         protocols,
		ClientSessionCache: &routeSessions{store: s, route: ep.Route, quic: protocols[0] == protoHTTP3},
	}, nil
}

func (s *tlsStore) material(ep delivery.Endpoint) (*material, error) {
	var none delivery.Identity
	if ep.Route.Identity == none {
		return &material{roots: s.roots}, nil
	}
	if m, ok := s.parsed.Get(ep.Route.Identity); ok {
		return m, nil
	}
	if ep.TLS == nil {
		return nil, &materialError{errors.New("the endpoint names an identity without material")}
	}
	s.parsing.Lock()
	defer s.parsing.Unlock()
	if m, ok := s.parsed.Get(ep.Route.Identity); ok {
		return m, nil
	}
	m, err := parseMaterial(ep.TLS, s.roots)
	if err != nil {
		return nil, &materialError{err}
	}
	s.parsed.Add(ep.Route.Identity, m)
	return m, nil
}

func parseMaterial(t *delivery.TLSMaterial, roots *x509.CertPool) (*material, error) {
	m := &material{roots: roots}
	if len(t.CAPEM) > 0 {
		m.roots = x509.NewCertPool()
		if !m.roots.AppendCertsFromPEM(t.CAPEM) {
			return nil, errors.New("the CA holds no certificate")
		}
	}
	if len(t.ClientCertPEM) > 0 || len(t.ClientKeyPEM) > 0 {
		cert, err := tls.X509KeyPair(t.ClientCertPEM, t.ClientKeyPEM)
		if err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		m.certs = []tls.Certificate{cert}
	}
	return m, nil
}

// sessionKey keeps apart what must not share tickets. Tickets of QUIC and of TCP
// carry different parameters.
type sessionKey struct {
	route delivery.Route
	quic  bool
	name  string
}

// routeSessions is one route's view of the tickets.
type routeSessions struct {
	store *tlsStore
	route delivery.Route
	quic  bool
}

var _ tls.ClientSessionCache = (*routeSessions)(nil)

// Get implements tls.ClientSessionCache.
func (r *routeSessions) Get(name string) (*tls.ClientSessionState, bool) {
	return r.store.sessions.Get(sessionKey{r.route, r.quic, name})
}

// Put implements tls.ClientSessionCache; nil removes.
func (r *routeSessions) Put(name string, state *tls.ClientSessionState) {
	key := sessionKey{r.route, r.quic, name}
	if state == nil {
		r.store.sessions.Remove(key)
		return
	}
	r.store.sessions.Add(key, state)
}
