package cli

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/doctor"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// doctorFlags are the flags of the doctor.
type doctorFlags struct {
	allowPrivate              []string
	allowHTTP, post, json     bool
	ca, clientCert, clientKey string
	secretFile, scheme        string
	timeout                   time.Duration
}

func (a *app) doctor() *cobra.Command {
	var f doctorFlags
	c := &cobra.Command{
		Use: "doctor URL", Short: "Find out whether deliveries to a URL would work, and why not", Args: oneArg("URL"),
		Long: `doctor looks at a subscriber's URL from this machine, as a node would, without
needing one: what the address policy says about every address, how long TCP, TLS
and QUIC handshakes take, what the certificates say and how long they last, what
DNS advertises, and whether HTTP/3 comes through. Each problem is followed by a
line that says how to mend it.

It makes no request unless --post is given: then it sends one signed test event,
with the secret from DISPATCHER_SECRET or --secret-file, and shows what a delivery
with that answer would be. The URL's path and query are not shown.

It dials directly; what is behind an egress proxy cannot be looked at.`,
		Example: `  dispatcher doctor https://hooks.example.com/in
  DISPATCHER_SECRET=whsec_… dispatcher doctor https://hooks.example.com/in --post
  dispatcher doctor https://127.0.0.1:9000/ --allow-private 127.0.0.0/8 --ca ca.pem --json`,
		RunE: func(c *cobra.Command, args []string) error {
			config, err := a.doctorConfig(args[0], f)
			if err != nil {
				return err
			}
			report, err := doctor.Examine(c.Context(), config)
			if bad, ok := errors.AsType[*doctor.ConfigError](err); ok {
				return usageError(bad)
			}
			if err != nil {
				return err
			}
			if f.json {
				err = printJSON(a.Out, report)
			} else {
				err = report.Print(a.Out)
			}
			if err == nil && !report.Works {
				err = errors.New("a delivery would not work")
			}
			return err
		},
	}
	fl := c.Flags()
	fl.StringSliceVar(&f.allowPrivate, "allow-private", nil, "private ranges that may be dialled, as for serve")
	fl.BoolVar(&f.allowHTTP, "allow-http", false, "allow an http URL, as for serve")
	fl.StringVar(&f.ca, "ca", "", "file with the CA to trust instead of the system's (a subscriber's tls.ca_pem)")
	fl.StringVar(&f.clientCert, "client-cert", "", "file with a client certificate, PEM")
	fl.StringVar(&f.clientKey, "client-key", "", "file with the key of --client-cert, PEM")
	fl.BoolVar(&f.post, "post", false, "send one signed test event")
	fl.StringVar(&f.secretFile, "secret-file", "", "with --post: file with the secret; else DISPATCHER_SECRET is used")
	fl.StringVar(&f.scheme, "scheme", string(signing.Standard), "with --post: the signing scheme")
	fl.DurationVar(&f.timeout, "timeout", 30*time.Second, "for all of it, 1s to 10m")
	fl.BoolVar(&f.json, "json", false, "print JSON for scripts")
	return c
}

func (a *app) doctorConfig(url string, f doctorFlags) (doctor.Config, error) {
	config := doctor.Config{URL: url, Timeout: f.timeout, Version: a.version}
	prefixes, err := netguard.ParsePrefixes(f.allowPrivate)
	if err != nil {
		return config, usageError(fmt.Errorf("--allow-private: %w", err))
	}
	config.Guard = netguard.Config{AllowPrivate: prefixes, AllowHTTP: f.allowHTTP}
	if f.timeout < time.Second || f.timeout > 10*time.Minute {
		return config, usageError(fmt.Errorf("--timeout %v: want 1s to 10m", f.timeout))
	}
	if config.TLS, err = f.material(); err != nil {
		return config, err
	}
	if f.post {
		config.Post, err = f.signed()
	}
	return config, err
}

// material reads the TLS material; what cannot be used is said at once.
func (f doctorFlags) material() (*delivery.TLSMaterial, error) {
	if (f.clientCert == "") != (f.clientKey == "") {
		return nil, usageError(errors.New("--client-cert and --client-key go together"))
	}
	var m delivery.TLSMaterial
	for flag, part := range map[string]struct {
		name string
		into *[]byte
	}{"--ca": {f.ca, &m.CAPEM}, "--client-cert": {f.clientCert, &m.ClientCertPEM}, "--client-key": {f.clientKey, &m.ClientKeyPEM}} {
		if part.name == "" {
			continue
		}
		raw, err := readFile(flag, part.name, nil)
		if err != nil {
			return nil, err
		}
		*part.into = raw
	}
	if f.ca != "" && !x509.NewCertPool().AppendCertsFromPEM(m.CAPEM) {
		return nil, usageError(fmt.Errorf("--ca %s: no certificate in PEM in it", f.ca))
	}
	if f.clientCert != "" {
		if _, err := tls.X509KeyPair(m.ClientCertPEM, m.ClientKeyPEM); err != nil {
			return nil, usageError(fmt.Errorf("--client-cert, --client-key: %w", err))
		}
	}
	if f.ca == "" && f.clientCert == "" {
		return nil, nil
	}
	return &m, nil
}

func (f doctorFlags) signed() (*doctor.Post, error) {
	scheme, err := signing.ParseScheme(f.scheme)
	if err != nil || !scheme.Outbound() {
		return nil, usageError(fmt.Errorf("--scheme %q: want one of %v", f.scheme, signing.OutboundSchemes()))
	}
	secrets, err := (&signature{secretFile: f.secretFile}).secrets()
	if err != nil {
		return nil, err
	}
	return &doctor.Post{Scheme: scheme, Secret: secrets[0]}, nil
}
