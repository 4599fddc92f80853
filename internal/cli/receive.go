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

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// receiveFlags are the flags of the test receiver.
type receiveFlags struct {
	listen, behave, secret, scheme, cert, key, altSvc, caOut string
	tls, h3, quiet, json                                     bool
	count                                                    int
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
answer), fail-first=3, fail-status=500, fail-every=10, body=TEXT, location=URL.`,
		Example: `  dispatcher receive --listen 127.0.0.1:9000
  dispatcher receive --tls --h3 --ca-out ca.pem --secret whsec_…
  dispatcher receive --behave fail-first=2,retry-after=1`,
		RunE: func(c *cobra.Command, _ []string) error { return a.runReceive(c.Context(), f) },
	}
	fl := c.Flags()
	fl.StringVar(&f.listen, "listen", "127.0.0.1:9000", "address to listen on")
	fl.StringVar(&f.behave, "behave", "", "how to answer, see above")
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
	receiver, err := testnet.Start(config)
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
	counts := receiver.Tally().Counts()
	if f.json {
		return printJSON(a.Out, counts)
	}
	fmt.Fprintf(a.Out, "%d requests: %d ids accepted, %d duplicates, %d signature failures; h1 %d, h2 %d, h3 %d; %d TCP and %d QUIC connections\n",
		counts.Requests, counts.Accepted, counts.Duplicates, counts.SignatureFailures, counts.H1, counts.H2, counts.H3,
		counts.TCPConnections, counts.QUICConnections)
	return nil
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
	config.Certificate = &cert
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
