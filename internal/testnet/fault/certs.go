package fault

import (
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// certificates are the good one, and the bad ones once they are asked for.
type certificates struct {
	good               tls.Certificate
	expired, wrongName func() (tls.Certificate, error)
}

func newCertificates(c *Config) (certificates, error) {
	names := c.Names
	if len(names) == 0 {
		names = []string{"localhost", "127.0.0.1", "::1"}
	}
	ca := c.CA
	var err error
	if ca == nil {
		if ca, err = testnet.NewCA(); err != nil {
			return certificates{}, fmt.Errorf("certificates: %w", err)
		}
	}
	var out certificates
	if c.Certificate != nil {
		out.good = *c.Certificate
	} else if out.good, err = ca.Issue(testnet.Leaf{Names: names}); err != nil {
		return certificates{}, fmt.Errorf("certificates: %w", err)
	}
	out.expired = sync.OnceValues(func() (tls.Certificate, error) {
		// A synctest bubble begins in the year 2000.
		return ca.Issue(testnet.Leaf{Names: names, NotAfter: time.Date(1999, 6, 1, 0, 0, 0, 0, time.UTC)})
	})
	out.wrongName = sync.OnceValues(func() (tls.Certificate, error) {
		return ca.Issue(testnet.Leaf{Names: []string{"wrong-name.invalid"}})
	})
	return out, nil
}

// tlsConfig returns the configuration of one socket. Each handshake asks for its
// fault; one that has a fault does not resume a session, which would hide the
// certificate.
func (s *Server) tlsConfig(n network, protocols ...string) *tls.Config {
	base := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{s.certs.good}, NextProtos: protocols,
	}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		f, ok := s.decideEarly(atHello, n, "wrong-alpn", "expired-certificate", "wrong-name-certificate", "client-certificate")
		if !ok {
			return nil, nil
		}
		return s.badTLS(base, f)
	}
	return base
}

// badTLS is the configuration of a handshake that is to fail.
func (s *Server) badTLS(base *tls.Config, f Fault) (*tls.Config, error) {
	bad := base.Clone()
	bad.GetConfigForClient = nil
	bad.SessionTicketsDisabled = true
	replace := func(issue func() (tls.Certificate, error)) error {
		cert, err := issue()
		bad.Certificates = []tls.Certificate{cert}
		return err
	}
	var err error
	switch f.kind.Name {
	case "wrong-alpn":
		bad.NextProtos = []string{"not-http"}
	case "expired-certificate":
		err = replace(s.certs.expired)
	case "wrong-name-certificate":
		err = replace(s.certs.wrongName)
	case "client-certificate":
		bad.ClientAuth = tls.RequireAnyClientCert
	}
	return bad, err
}
