package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var sourceFields = []string{
	"id", "path", "scheme", "secrets", "destination", "subscriber", "max_body", "content_types", "tolerance", "dedupe_header",
	"dedupe_body", "public_url", "forward_headers", "allow_ips", "decompress", "rate_limit", "reject_over_quota", "updated_at",
}

func (a *app) sources() *cobra.Command {
	return group("sources", "Ingress sources: providers whose webhooks are received",
		a.sourcesPut(), a.sourcesList(), a.sourcesShow(), a.sourcesDelete())
}

func sourcePath(tenant, id string) string {
	return tenantPath(tenant, "/sources/"+url.PathEscape(id))
}

// sourceFlags are the settings of a source that have a flag of their own.
type sourceFlags struct {
	file, scheme, secretFile, origin, tokenFile, caFile, publicURL string
	forward, allow                                                 []string
	maxBody                                                        int64
}

func (s *sourceFlags) bind(f *pflag.FlagSet) {
	f.StringVar(&s.file, "file", "", "JSON with the settings, - for stdin; flags win")
	f.StringVar(&s.scheme, "scheme", "", "github, stripe, shopify, slack, standard … (see the API)")
	f.StringVar(&s.secretFile, "secret-file", "", "file with the provider's signing secret, - for stdin")
	f.StringVar(&s.origin, "origin", "", "hand events over in batches to this URL (default: to the tenant's subscribers)")
	f.StringVar(&s.tokenFile, "origin-token-file", "", "file with the bearer token for the origin, - for stdin")
	f.StringVar(&s.caFile, "origin-ca-file", "", "file with the certificates that the origin's has to come from, PEM (default the system's)")
	f.StringVar(&s.publicURL, "public-url", "", "URL that was given to the provider, where it is signed (twilio)")
	f.StringArrayVar(&s.forward, "forward", nil, "header that goes on with the event, repeatable")
	f.StringArrayVar(&s.allow, "allow-ip", nil, "address or range that may send, repeatable (default all)")
	f.Int64Var(&s.maxBody, "max-body", 0, "largest body in bytes (default 1 MiB)")
}

// settings returns the JSON of the source.
func (s *sourceFlags) settings(stdin io.Reader) (object, error) {
	out := object{}
	switch {
	case s.file != "":
		raw, err := readFile("--file", s.file, stdin)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(raw, &out); err != nil {
			return nil, usageError(fmt.Errorf("--file: not a JSON object: %w", err))
		}
	case s.scheme == "":
		return nil, usageError(errors.New("sources put needs --scheme, or --file"))
	}
	secret, err := secretFrom("--secret-file", s.secretFile, stdin)
	if err != nil {
		return nil, err
	}
	token, err := secretFrom("--origin-token-file", s.tokenFile, stdin)
	if err != nil {
		return nil, err
	}
	for name, v := range map[string]string{"scheme": s.scheme, "public_url": s.publicURL} {
		if v != "" {
			out[name] = v
		}
	}
	for name, v := range map[string][]string{"forward_headers": s.forward, "allow_ips": s.allow} {
		if len(v) > 0 {
			out[name] = v
		}
	}
	if secret != "" {
		out["secrets"] = []string{secret}
	}
	if s.maxBody > 0 {
		out["max_body"] = s.maxBody
	}
	var ca []byte
	if s.caFile != "" {
		if ca, err = readFile("--origin-ca-file", s.caFile, stdin); err != nil {
			return nil, err
		}
	}
	s.destination(out, token, string(ca))
	return out, nil
}

func (s *sourceFlags) destination(out object, token, ca string) {
	switch {
	case s.origin != "":
		d := object{"type": "origin", "url": s.origin}
		if token != "" {
			d["token"] = token
		}
		if ca != "" {
			d["tls"] = object{"ca_pem": ca}
		}
		out["destination"] = d
	case out["destination"] == nil:
		out["destination"] = object{"type": "fanout"}
	}
}

// secretFrom reads a secret from a file, without the line's end.
func secretFrom(flag, name string, stdin io.Reader) (string, error) {
	if name == "" {
		return "", nil
	}
	raw, err := readFile(flag, name, stdin)
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(raw), "\r\n")
	if secret == "" {
		return "", usageError(fmt.Errorf("%s: nothing in it", flag))
	}
	return secret, nil
}

func (a *app) sourcesPut() *cobra.Command {
	var tenant string
	var flags sourceFlags
	c := &cobra.Command{
		Use: "put SOURCE", Short: "Create a source or replace its settings", Args: oneArg("SOURCE"),
		Long: `put takes the settings from flags, from a file with JSON, or from both. Secrets are
read from files, so that they appear in no list of processes; a source that
exists keeps those that are not given. All other settings are replaced.`,
		Example: `  dispatcher sources put gh --tenant t1 --scheme github --secret-file ./gh.secret --forward X-GitHub-Event
  dispatcher sources put shop --tenant t1 --scheme stripe --secret-file - --origin https://shop.example.com/events
  dispatcher sources put erp --tenant t1 --file source.json`,
		RunE: func(c *cobra.Command, args []string) error {
			in, err := flags.settings(a.In)
			if err != nil {
				return err
			}
			if err := a.ensureTenant(c.Context(), tenant); err != nil {
				return err
			}
			var out object
			if err := a.client.do(c.Context(), http.MethodPut, sourcePath(tenant, args[0]), nil, in, &out); err != nil {
				return err
			}
			return a.show(out, sourceFields...)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "tenant (made if it does not exist)")
	flags.bind(c.Flags())
	need(c, "tenant")
	return c
}

func (a *app) sourcesList() *cobra.Command {
	var tenant string
	var p pages
	c := &cobra.Command{
		Use: "list", Short: "List a tenant's sources", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.list(c.Context(), tenantPath(tenant, "/sources"), nil, p,
				field("SOURCE", "id"), field("SCHEME", "scheme"), field("PATH", "path"), field("ORIGIN", "subscriber"))
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "tenant")
	p.bind(c)
	need(c, "tenant")
	return c
}

func (a *app) sourcesShow() *cobra.Command {
	var tenant string
	c := &cobra.Command{
		Use: "show SOURCE", Short: "Show a source; secrets are masked", Args: oneArg("SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			var out object
			if err := a.client.do(c.Context(), http.MethodGet, sourcePath(tenant, args[0]), nil, nil, &out); err != nil {
				return err
			}
			return a.show(out, sourceFields...)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "tenant")
	need(c, "tenant")
	return c
}

func (a *app) sourcesDelete() *cobra.Command {
	var tenant string
	c := &cobra.Command{
		Use: "delete SOURCE", Short: "Delete a source; what is pending for its origin is canceled", Args: oneArg("SOURCE"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.client.do(c.Context(), http.MethodDelete, sourcePath(tenant, args[0]), nil, nil, nil)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "tenant")
	need(c, "tenant")
	return c
}
