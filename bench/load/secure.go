package load

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/quic-go/quic-go/http3"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// Secure is an origin of the receiver that speaks HTTP/2 over TLS and, on the UDP
// port of the same number, HTTP/3.
type Secure struct {
	Origin string `json:"origin"`
	CAPEM  string `json:"ca_pem"` // what its certificate is verified with
}

// secureOrigin serves a [Secure].
type secureOrigin struct {
	Secure
	tcp     net.Listener
	udp     net.PacketConn
	server  *http.Server
	http3   *http3.Server
	serving sync.WaitGroup
}

// Secure opens the origin when it is asked for the first time. It counts in the
// same phases as the others.
func (r *Receiver) Secure() (Secure, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.secure == nil {
		s, err := newSecureOrigin(http.HandlerFunc(r.handle))
		if err != nil {
			return Secure{}, fmt.Errorf("receiver: %w", err)
		}
		r.secure = s
	}
	return r.secure.Secure, nil
}

func newSecureOrigin(handler http.Handler) (*secureOrigin, error) {
	ca, err := testnet.NewCA()
	if err != nil {
		return nil, err
	}
	cert, err := ca.Issue(testnet.Leaf{Names: []string{"127.0.0.1"}})
	if err != nil {
		return nil, err
	}
	s := &secureOrigin{}
	if s.tcp, s.udp, err = listenBoth(); err != nil {
		return nil, err
	}
	s.Origin, s.CAPEM = "https://"+s.tcp.Addr().String(), string(ca.PEM())
	quiet := slog.New(slog.DiscardHandler)
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}}
	s.server = &http.Server{
		Handler: handler, TLSConfig: config, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(quiet.Handler(), slog.LevelDebug),
	}
	s.http3 = &http3.Server{Handler: handler, TLSConfig: http3.ConfigureTLSConfig(config.Clone()), Logger: quiet}
	s.serving.Go(func() { _ = s.server.ServeTLS(s.tcp, "", "") })
	s.serving.Go(func() { _ = s.http3.Serve(s.udp) })
	return s, nil
}

// listenBoth finds a port that is free for TCP and UDP.
func listenBoth() (net.Listener, net.PacketConn, error) {
	const tries = 16
	var errs []error
	for range tries {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, nil, err
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			return tcp, udp, nil
		}
		errs = append(errs, err, tcp.Close())
	}
	return nil, nil, errors.Join(errs...)
}

func (s *secureOrigin) close() error {
	err := errors.Join(s.server.Close(), s.http3.Close(), s.udp.Close())
	s.serving.Wait()
	return err
}

// trust returns the roots that verify a Secure.
func trust(pem string) (*x509.CertPool, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(pem)) {
		return nil, errors.New("ca: no certificate in it")
	}
	return roots, nil
}
