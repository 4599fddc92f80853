package testnet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// Config describes a [Receiver].
type Config struct {
	// Addr is the TCP address to listen on; "" = 127.0.0.1 and a free port.
	Addr string
	// Certificate serves TLS (h2, h1 and, with HTTP3, h3). Nil = plain HTTP/1.1.
	Certificate *tls.Certificate
	// Getter is a certificate source used instead of Certificate (reloads).
	Getter func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs demands a client certificate when set (mTLS).
	ClientCAs *CA
	// HTTP3 listens on the UDP port with the TCP port's number.
	HTTP3 bool
	// AltSvc is the Alt-Svc header of answers over TCP: "" = the HTTP/3 listener
	// when there is one, "-" = none, anything else as given.
	AltSvc string
	// AltSvcPort advertises HTTP/3 on the TCP port's number although nobody
	// listens on UDP there.
	AltSvcPort bool
	// NoHTTP2 offers HTTP/1.1 only.
	NoHTTP2 bool
	// Behaviour is how it answers at first.
	Behaviour Behaviour
	// Verify checks a request's signature; nil accepts everything.
	Verify func(header http.Header, body []byte) error
	// MaxBody bounds what is read of a body; 0 = 64 MiB.
	MaxBody int64
	// OnRequest hears of every answered request.
	OnRequest func(Seen)
	// Logger hears of server errors; nil = none.
	Logger *slog.Logger
}

// Seen is one answered request.
type Seen struct {
	ID        string // webhook-id
	Attempt   string // webhook-attempt
	Topic     string
	Protocol  string // h1, h2, h3
	Status    int    // 0 = dropped
	Bytes     int64
	At        time.Time
	Signature error  // nil = verified, or nothing to verify with
	Remote    string // address and port that it came from
	Client    string // first DNS name of the client's certificate, "" = none
}

// Receiver is a running receiver. Close it.
type Receiver struct {
	config  Config
	live    live
	tally   *Tally
	tcp     net.Listener
	udp     net.PacketConn
	server  *http.Server
	h3      *http3.Server
	wg      sync.WaitGroup
	closing sync.Once
}

// Start listens and serves until Close.
func Start(config Config) (*Receiver, error) {
	r := &Receiver{config: config, tally: newTally()}
	r.live.set(config.Behaviour)
	if r.config.MaxBody == 0 {
		r.config.MaxBody = 64 << 20
	}
	if r.config.Addr == "" {
		r.config.Addr = "127.0.0.1:0"
	}
	if err := r.listen(); err != nil {
		return nil, err
	}
	r.serve()
	return r, nil
}

// listen binds TCP and, for HTTP/3, UDP with the same port number. A free TCP
// port can be taken on UDP; then another is tried.
func (r *Receiver) listen() error {
	const tries = 16
	var err error
	for range tries {
		if r.tcp, err = net.Listen("tcp", r.config.Addr); err != nil {
			return fmt.Errorf("receiver: listen on tcp %s: %w", r.config.Addr, err)
		}
		if !r.config.HTTP3 {
			return nil
		}
		if r.udp, err = net.ListenPacket("udp", r.tcp.Addr().String()); err == nil {
			return nil
		}
		_ = r.tcp.Close()
	}
	return fmt.Errorf("receiver: listen on udp %s: %w", r.config.Addr, err)
}

func (r *Receiver) tlsConfig(protos ...string) *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protos, GetCertificate: r.config.Getter}
	if r.config.Certificate != nil {
		config.Certificates = []tls.Certificate{*r.config.Certificate}
	}
	if r.config.ClientCAs != nil {
		config.ClientAuth = tls.RequireAndVerifyClientCert
		config.ClientCAs = r.config.ClientCAs.Pool()
	}
	return config
}

func (r *Receiver) secure() bool { return r.config.Certificate != nil || r.config.Getter != nil }

func (r *Receiver) serve() {
	logger := r.config.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	r.server = &http.Server{
		Handler:           http.HandlerFunc(r.handle),
		ReadHeaderTimeout: 30 * time.Second,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				r.tally.connected(false)
			}
		},
	}
	listener := r.tcp
	if r.secure() {
		protos := []string{"h2", "http/1.1"}
		if r.config.NoHTTP2 {
			protos = protos[1:]
		}
		r.server.TLSConfig = r.tlsConfig(protos...)
		listener = tls.NewListener(r.tcp, r.server.TLSConfig)
	}
	r.wg.Go(func() { _ = r.server.Serve(listener) })
	if r.udp == nil {
		return
	}
	r.h3 = &http3.Server{
		Handler:   http.HandlerFunc(r.handle),
		TLSConfig: http3.ConfigureTLSConfig(r.tlsConfig()),
		Logger:    logger,
		ConnContext: func(ctx context.Context, _ *quic.Conn) context.Context {
			r.tally.connected(true)
			return ctx
		},
	}
	r.wg.Go(func() { _ = r.h3.Serve(r.udp) })
}

func (r *Receiver) handle(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, r.config.MaxBody))
	if err != nil {
		http.Error(w, "cannot read the body", http.StatusBadRequest)
		return
	}
	seen := Seen{
		ID: req.Header.Get("Webhook-Id"), Attempt: req.Header.Get("Webhook-Attempt"),
		Topic: req.Header.Get("Webhook-Topic"), Protocol: "h" + strconv.Itoa(req.ProtoMajor), Bytes: int64(len(body)),
	}
	seen.Remote, seen.Client = req.RemoteAddr, clientName(req)
	if r.config.Verify != nil {
		seen.Signature = r.config.Verify(req.Header, body)
	}
	n := r.tally.arrived(request{
		id: seen.ID, attempt: seen.Attempt, proto: req.ProtoMajor, bytes: seen.Bytes, goodSig: seen.Signature == nil,
	})
	r.advertise(w, req)
	defer func() {
		seen.At = time.Now()
		r.tally.answered(seen.ID, seen.Status)
		if r.config.OnRequest != nil {
			r.config.OnRequest(seen)
		}
	}()
	if seen.Signature != nil {
		seen.Status = http.StatusUnauthorized
		http.Error(w, "signature does not verify", seen.Status)
		return
	}
	behaviour := r.live.get()
	seen.Status = behaviour.answer(w, req, n)
}

// clientName is the name in the certificate that a client has shown.
func clientName(req *http.Request) string {
	if req.TLS == nil || len(req.TLS.PeerCertificates) == 0 || len(req.TLS.PeerCertificates[0].DNSNames) == 0 {
		return ""
	}
	return req.TLS.PeerCertificates[0].DNSNames[0]
}

func (r *Receiver) advertise(w http.ResponseWriter, req *http.Request) {
	switch {
	case r.config.AltSvc == "-" || req.ProtoMajor == 3:
	case r.config.AltSvc != "":
		w.Header().Set("Alt-Svc", r.config.AltSvc)
	case r.udp != nil || r.config.AltSvcPort:
		w.Header().Set("Alt-Svc", fmt.Sprintf(`h3=":%d"; ma=86400`, r.Port()))
	}
}

// Behave changes how it answers from now on.
func (r *Receiver) Behave(b Behaviour) { r.live.set(b) }

// Tally returns what it saw.
func (r *Receiver) Tally() *Tally { return r.tally }

// Port returns the TCP port, and the UDP port with HTTP3.
func (r *Receiver) Port() int {
	addr, ok := r.tcp.Addr().(*net.TCPAddr)
	if !ok {
		return 0
	}
	return addr.Port
}

// Addr returns the address it listens on.
func (r *Receiver) Addr() string { return r.tcp.Addr().String() }

// URL returns a URL of it with the given host name ("" = its address) and path.
func (r *Receiver) URL(host, path string) string {
	scheme := "http"
	if r.secure() {
		scheme = "https"
	}
	authority := r.Addr()
	if host != "" {
		authority = net.JoinHostPort(host, strconv.Itoa(r.Port()))
	}
	return scheme + "://" + authority + path
}

// CloseUDP stops HTTP/3 alone, with its socket: what follows is a dead path.
func (r *Receiver) CloseUDP() error {
	if r.h3 == nil {
		return nil
	}
	return errors.Join(r.h3.Close(), r.udp.Close())
}

// Close ends every connection and waits for the servers' goroutines.
func (r *Receiver) Close() error {
	var err error
	r.closing.Do(func() {
		err = r.server.Close()
		if r.h3 != nil {
			err = errors.Join(err, r.h3.Close())
			if closeErr := r.udp.Close(); !errors.Is(closeErr, net.ErrClosed) {
				err = errors.Join(err, closeErr)
			}
		}
		r.wg.Wait()
	})
	return err
}
