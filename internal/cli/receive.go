package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/internal/testnet/fault"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// receiveFlags are the flags of the test receiver.
type receiveFlags struct {
	listen, behave, secret, scheme, cert, key, altSvc, caOut string
	faults                                                   []string
	tls, h3, quiet, json                                     bool
	count                                                    int

	ca *testnet.CA // that --tls made
}

// receiving is a receiver that runs: one that behaves, or one that fails.
type receiving interface {
	URL(host, path string) string
	Close() error
}

func (a *app) receive() *cobra.Command {
	var f receiveFlags
	c := &cobra.Command{
		Use: "receive", Short: "Run a test receiver: TCP and HTTP/3, scripted answers, verified signatures", Args: noArgs,
		Long: `receive listens for webhooks, verifies their signatures if it is given a secret,
counts duplicates and protocols, and answers as it is told. It prints a line per
request and its counts at the end (Ctrl-C, or after --count requests).

--behave takes a comma-separated list: status=503, retry-after=1, delay=2s,
drip=1s (a body byte each), drip-bytes=10, drop (end the connection without an
answer), fail-first=3, fail-status=500, fail-every=10, body=TEXT, location=URL.

--fault makes it fail on purpose, below what an HTTP server can be told: resets,
closes, GOAWAY, silence, bad certificates, storms and floods. Each is
name:key=value,…, and the flag may be repeated; the first fault that is due acts.
Free text is percent-encoded. "after" and its like count connections where a
fault acts before there is a request. Where faults of HTTP/1.1 are given and none
of HTTP/2, TLS offers HTTP/1.1 alone. The faults:

` + fault.List(),
		Example: `  dispatcher receive --listen 127.0.0.1:9000
  dispatcher receive --tls --h3 --ca-out ca.pem --secret whsec_…
  dispatcher receive --behave fail-first=2,retry-after=1
  dispatcher receive --tls --h3 --fault h3-reset:code=0x10b,every=3 --fault hang:p=0.01`,
		RunE: func(c *cobra.Command, _ []string) error { return a.runReceive(c.Context(), f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.listen, "listen", "127.0.0.1:9000", "address to listen on")
	fl.StringVar(&f.behave, "behave", "", "how to answer, see above")
	fl.StringArrayVar(&f.faults, "fault", nil, "fail on purpose, see above (repeatable)")
	fl.StringVar(&f.secret, "secret", "", "verify signatures with this secret")
	fl.StringVar(&f.scheme, "scheme", "standard", "signature scheme of --secret")
	fl.BoolVar(&f.tls, "tls", false, "serve TLS with a certificate made for the occasion")
	fl.StringVar(&f.caOut, "ca-out", "", "with --tls: write the CA certificate to this file")
	fl.StringVar(&f.cert, "cert", "", "serve TLS with this certificate (PEM)")
	fl.StringVar(&f.key, "key", "", "key of --cert (PEM)")
	fl.BoolVar(&f.h3, "h3", false, "with TLS: serve HTTP/3 too and advertise it by Alt-Svc")
	fl.StringVar(&f.altSvc, "alt-svc", "", `Alt-Svc header to send ("-" for none)`)
	fl.IntVar(&f.count, "count", 0, "stop after this many requests (default: run until Ctrl-C)")
	fl.BoolVar(&f.quiet, "quiet", false, "no line per request")
	fl.BoolVar(&f.json, "json", false, "print the counts as JSON")
	return c
}

func (a *app) runReceive(ctx context.Context, f receiveFlags) (err error) {
	config, err := f.config()
	if err != nil {
		return err
	}
	ctx, enough := context.WithCancel(ctx)
	defer enough()
	seen := make(chan testnet.Seen, 1024)
	config.OnRequest = func(s testnet.Seen) {
		select {
		case seen <- s:
		case <-ctx.Done():
		}
	}
	receiver, counts, err := f.start(config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, receiver.Close()) }()
	a.note("receiving on %s (Ctrl-C prints the counts)", receiver.URL("", "/"))
	for n := 0; f.count == 0 || n < f.count; n++ {
		select {
		case s := <-seen:
			if !f.quiet && !f.json {
				fmt.Fprintln(a.Out, line(s))
			}
			continue
		case <-ctx.Done():
		}
		break
	}
	figures, summary := counts()
	if f.json {
		return printJSON(a.Out, figures)
	}
	fmt.Fprintln(a.Out, summary)
	return nil
}

// start runs the receiver that the flags ask for. counts returns its figures,
// for JSON and as a line.
func (f *receiveFlags) start(config testnet.Config) (r receiving, counts func() (any, string), err error) {
	if len(f.faults) > 0 {
		return f.startFaulty(config)
	}
	receiver, err := testnet.Start(config)
	if err != nil {
		return nil, nil, err
	}
	return receiver, func() (any, string) {
		c := receiver.Tally().Counts()
		return c, fmt.Sprintf("%d requests: %d ids accepted, %d duplicates, %d signature failures; h1 %d, h2 %d, h3 %d; %d TCP and %d QUIC connections",
			c.Requests, c.Accepted, c.Duplicates, c.SignatureFailures, c.H1, c.H2, c.H3, c.TCPConnections, c.QUICConnections)
	}, nil
}

func (f *receiveFlags) startFaulty(config testnet.Config) (receiving, func() (any, string), error) {
	if f.behave != "" {
		return nil, nil, usageError(errors.New("--behave and --fault do not go together: use --fault status:status=503"))
	}
	faults, err := fault.ParseFaults(f.faults...)
	if err != nil {
		return nil, nil, usageError(fmt.Errorf("--fault: %w", err))
	}
	for _, one := range faults {
		if !f.reaches(config, one) {
			return nil, nil, usageError(fmt.Errorf("--fault: %s needs --tls (or --cert and --key), for HTTP/3 also --h3", one.Kind().Name))
		}
	}
	server, err := fault.Start(fault.Config{
		Addr: config.Addr, CA: f.ca, Certificate: config.Certificate, HTTP3: config.HTTP3, AltSvc: config.AltSvc,
		Faults: faults, Verify: config.Verify, OnRequest: config.OnRequest,
	})
	if err != nil {
		return nil, nil, err
	}
	return server, func() (any, string) {
		c := server.Tally().Counts()
		return c, fmt.Sprintf("%d requests: handled %d times, %d of them again, %d refused after that; h1 %d, h2 %d, h3 %d; %d TCP and %d QUIC connections; faults %v",
			c.Requests, c.Runs, c.SecondRuns, c.Lies, c.H1, c.H2, c.H3, c.TCPConnections, c.QUICConnections, c.Faults)
	}, nil
}

// reaches reports whether a fault can happen on what the flags offer.
func (f *receiveFlags) reaches(config testnet.Config, one fault.Fault) bool {
	secure := config.Certificate != nil
	return one.Applies(delivery.ProtocolHTTP1) || one.Applies(delivery.ProtocolHTTP2) && secure ||
		one.Applies(delivery.ProtocolHTTP3) && config.HTTP3
}

func line(s testnet.Seen) string {
	verdict := "ok"
	if s.Signature != nil {
		verdict = "BAD SIGNATURE: " + s.Signature.Error()
	}
	return fmt.Sprintf("%s %s %d %s attempt=%s topic=%s %dB %s",
		s.At.Format("15:04:05.000"), s.Protocol, s.Status, s.ID, s.Attempt, s.Topic, s.Bytes, verdict)
}

func (f *receiveFlags) config() (testnet.Config, error) {
	config := testnet.Config{Addr: f.listen, HTTP3: f.h3, AltSvc: f.altSvc}
	var err error
	if config.Behaviour, err = testnet.ParseBehaviour(f.behave); err != nil {
		return config, usageError(fmt.Errorf("--behave: %w", err))
	}
	if f.secret != "" {
		if config.Verify, err = verifier(f.scheme, f.secret); err != nil {
			return config, usageError(err)
		}
	}
	switch {
	case f.cert != "" || f.key != "":
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return config, usageError(fmt.Errorf("--cert, --key: %w", err))
		}
		config.Certificate = &pair
	case f.tls:
		if err := f.makeCertificate(&config); err != nil {
			return config, err
		}
	case f.h3:
		return config, usageError(errors.New("--h3 needs --tls, or --cert and --key"))
	}
	return config, nil
}

func (f *receiveFlags) makeCertificate(config *testnet.Config) error {
	ca, err := testnet.NewCA()
	if err != nil {
		return err
	}
	cert, err := ca.Issue(testnet.Leaf{Names: []string{"localhost", "127.0.0.1", "::1"}})
	if err != nil {
		return err
	}
	config.Certificate, f.ca = &cert, ca
	if f.caOut == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Clean(f.caOut), ca.PEM(), 0o600); err != nil {
		return usageError(fmt.Errorf("--ca-out: %w", err))
	}
	return nil
}

// verifier returns a check of one scheme's signatures.
func verifier(scheme, secret string) (func(http.Header, []byte) error, error) {
	parsed, err := signing.ParseScheme(scheme)
	if err != nil {
		return nil, fmt.Errorf("--scheme: %w", err)
	}
	v, err := signing.NewVerifier(signing.VerifierConfig{Scheme: parsed, Secrets: signing.Secrets(secret)})
	if err != nil {
		return nil, fmt.Errorf("--secret: %w", err)
	}
	return func(h http.Header, body []byte) error { return v.Verify(h, body, time.Now()) }, nil
}
