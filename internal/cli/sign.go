package cli

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcher-engine/dispatcher/signing"
)

// signature are the flags that sign and verify share.
type signature struct {
	scheme, secretFile, file, at                           string
	signatureHeader, timestampHeader, prefix, content, url string
	json                                                   bool
}

func (s *signature) bind(f *pflag.FlagSet) {
	names := make([]string, 0, len(signing.Schemes()))
	for _, scheme := range signing.Schemes() {
		names = append(names, string(scheme))
	}
	f.StringVar(&s.scheme, "scheme", string(signing.Standard), "one of "+strings.Join(names, ", "))
	f.StringVar(&s.secretFile, "secret-file", "", "file with the secret; else DISPATCHER_SECRET is used")
	f.StringVar(&s.file, "file", "-", "file with the body, - for stdin")
	f.StringVar(&s.at, "at", "", "the time to sign or verify at (RFC 3339; default now)")
	f.StringVar(&s.signatureHeader, "signature-header", "", "header name, where the scheme lets one choose")
	f.StringVar(&s.timestampHeader, "timestamp-header", "", "header name, where the scheme lets one choose")
	f.StringVar(&s.prefix, "signature-prefix", "", "text before the signature (hmac-hex, hmac-base64)")
	f.StringVar(&s.content, "signed-content", "", "template of {id} {timestamp} {body} {url} (hmac-hex, hmac-base64)")
	f.StringVar(&s.url, "public-url", "", "the URL as the sender knows it (twilio)")
	f.BoolVar(&s.json, "json", false, "print JSON for scripts")
}

func (s *signature) layout() signing.Layout {
	return signing.Layout{
		SignatureHeader: s.signatureHeader, TimestampHeader: s.timestampHeader, SignaturePrefix: s.prefix,
		SignedContent: s.content, PublicURL: s.url,
	}
}

// secrets reads one secret a line; a flag would show them to every other user.
func (s *signature) secrets() ([]signing.Secret, error) {
	text := os.Getenv("DISPATCHER_SECRET")
	if s.secretFile != "" {
		raw, err := os.ReadFile(s.secretFile)
		if err != nil {
			return nil, usageError(fmt.Errorf("--secret-file: %w", err))
		}
		text = string(raw)
	}
	lines := strings.Fields(text)
	if len(lines) == 0 {
		return nil, usageError(errors.New("no secret: set DISPATCHER_SECRET or --secret-file (one secret a line)"))
	}
	return signing.Secrets(lines...), nil
}

func (s *signature) time() (time.Time, error) {
	if s.at == "" {
		return time.Now(), nil
	}
	at, err := time.Parse(time.RFC3339, s.at)
	if err != nil {
		return at, usageError(fmt.Errorf("--at %q: want a time such as 2026-01-02T15:04:05Z", s.at))
	}
	return at, nil
}

func (a *app) sign() *cobra.Command {
	var s signature
	var id, contentType string
	c := &cobra.Command{
		Use: "sign", Short: "Sign a body as a sender of any supported scheme would", Args: noArgs,
		Example: `  DISPATCHER_SECRET=whsec_… dispatcher sign --id evt_1 --file body.json
  dispatcher sign --scheme github --secret-file secret.txt --file body.json`,
		RunE: func(*cobra.Command, []string) error {
			scheme, err := signing.ParseScheme(s.scheme)
			if err != nil {
				return usageError(fmt.Errorf("--scheme: %w", err))
			}
			secrets, err := s.secrets()
			if err != nil {
				return err
			}
			at, err := s.time()
			if err != nil {
				return err
			}
			body, err := readFile("--file", s.file, a.In)
			if err != nil {
				return err
			}
			config := signing.SchemeConfig{Scheme: scheme, Keys: signing.NewRing(secrets[0]), Layout: s.layout()}
			signed, err := signing.Sign(config, signing.Message{ID: id, Time: at, ContentType: contentType, Body: body})
			if err != nil {
				return usageError(err)
			}
			return a.printSigned(signed, s.json)
		},
	}
	s.bind(c.Flags())
	c.Flags().StringVar(&id, "id", "msg_1", "message id, for schemes that sign one")
	c.Flags().StringVar(&contentType, "content-type", "application/json", "of the body (twilio)")
	return c
}

func (a *app) printSigned(signed signing.Signed, asJSON bool) error {
	if asJSON {
		return printJSON(a.Out, map[string]any{"headers": signed.Header, "url": signed.URL})
	}
	for _, name := range slices.Sorted(maps.Keys(signed.Header)) {
		for _, value := range signed.Header[name] {
			fmt.Fprintf(a.Out, "%s: %s\n", strings.ToLower(name), value)
		}
	}
	if signed.URL != "" {
		fmt.Fprintf(a.Out, "# send it to %s\n", signed.URL)
	}
	return nil
}

func (a *app) verify() *cobra.Command {
	var s signature
	var headers []string
	var query string
	var tolerance time.Duration
	c := &cobra.Command{
		Use: "verify", Short: "Verify a signed body and name the mistake if it fails", Args: noArgs,
		Long: `verify checks a body against its signature headers. If the signature does not
match, it makes the usual mistakes itself (prefix left in the secret, base64 not
decoded, body re-encoded, hex where base64 is due, wrong scheme's header, …) until
the signature comes out, and names the one that was made.

Ed25519 schemes take the public key as the secret.`,
		Example: `  DISPATCHER_SECRET=whsec_… dispatcher verify --file body.json \
    -H 'webhook-id: evt_1' -H 'webhook-timestamp: 1700000000' -H 'webhook-signature: v1,…'`,
		RunE: func(c *cobra.Command, _ []string) error {
			config, evidence, err := a.evidence(&s, headers)
			if err != nil {
				return err
			}
			evidence.RawQuery = query
			if c.Flags().Changed("tolerance") {
				config.Tolerance = &tolerance
			}
			if _, err := signing.NewVerifier(config); err != nil {
				return usageError(err)
			}
			return a.printDiagnosis(signing.Explain(config, evidence), s.json)
		},
	}
	s.bind(c.Flags())
	c.Flags().StringArrayVarP(&headers, "header", "H", nil, `a header of the request, "name: value", repeatable`)
	c.Flags().StringVar(&query, "query", "", "query of the request's URL (twilio)")
	c.Flags().DurationVar(&tolerance, "tolerance", signing.DefaultTolerance, "how far the timestamp may be from now")
	return c
}

func (a *app) evidence(s *signature, headers []string) (signing.VerifierConfig, signing.Evidence, error) {
	var config signing.VerifierConfig
	var evidence signing.Evidence
	scheme, err := signing.ParseScheme(s.scheme)
	if err != nil {
		return config, evidence, usageError(fmt.Errorf("--scheme: %w", err))
	}
	secrets, err := s.secrets()
	if err != nil {
		return config, evidence, err
	}
	at, err := s.time()
	if err != nil {
		return config, evidence, err
	}
	header := http.Header{}
	for _, line := range headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return config, evidence, usageError(fmt.Errorf(`--header %q: want "name: value"`, line))
		}
		header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	body, err := readFile("--file", s.file, a.In)
	if err != nil {
		return config, evidence, err
	}
	config = signing.VerifierConfig{Scheme: scheme, Secrets: secrets, Layout: s.layout()}
	return config, signing.Evidence{Header: header, Body: body, Now: at}, nil
}

func (a *app) printDiagnosis(d signing.Diagnosis, asJSON bool) error {
	type finding struct {
		Mistake string `json:"mistake"`
		Proven  bool   `json:"proven"`
		Message string `json:"message"`
	}
	findings := []finding{}
	for _, f := range d.Findings {
		findings = append(findings, finding{fmt.Sprint(f.Mistake), f.Proven, f.Message})
	}
	if asJSON {
		text := ""
		if d.Err != nil {
			text = d.Err.Error()
		}
		if err := printJSON(a.Out, map[string]any{"valid": d.Err == nil, "error": text, "findings": findings}); err != nil {
			return err
		}
		return d.Err
	}
	if d.Err == nil {
		fmt.Fprintln(a.Out, "the signature is valid")
		return nil
	}
	for _, f := range findings {
		certainty := "perhaps"
		if f.Proven {
			certainty = "proven"
		}
		fmt.Fprintf(a.Out, "%s: %s: %s\n", certainty, f.Mistake, f.Message)
	}
	return d.Err
}
