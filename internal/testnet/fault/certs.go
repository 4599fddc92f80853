package fault

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// certificates are the good one and the bad ones.
type certificates struct {
	good, expired, wrongName tls.Certificate
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
			return certificates{}, err
		}
	}
	var out certificates
	issue := func(leaf testnet.Leaf) tls.Certificate {
		cert, issueErr := ca.Issue(leaf)
		err = errors.Join(err, issueErr)
		return cert
	}
	// The year 2000 is where a synctest bubble begins.
	out.expired = issue(testnet.Leaf{Names: names, NotAfter: time.Date(1999, 6, 1, 0, 0, 0, 0, time.UTC)})
	out.wrongName = issue(testnet.Leaf{Names: []string{"wrong-name.invalid"}})
	if c.Certificate != nil {
		out.good = *c.Certificate
	} else {
		out.good = issue(testnet.Leaf{Names: names})
	}
	if err != nil {
		return certificates{}, fmt.Errorf("certificates: %w", err)
	}
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
		bad := base.Clone()
		bad.GetConfigForClient = nil
		bad.SessionTicketsDisabled = true
		switch f.kind.Name {
		case "wrong-alpn":
			bad.NextProtos = []string{"not-http"}
		case "expired-certificate":
			bad.Certificates = []tls.Certificate{s.certs.expired}
		case "wrong-name-certificate":
			bad.Certificates = []tls.Certificate{s.certs.wrongName}
		case "client-certificate":
			bad.ClientAuth = tls.RequireAnyClientCert
		}
		return bad, nil
	}
	return base
}
