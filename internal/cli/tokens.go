package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) tokens() *cobra.Command {
	c := group("tokens", "API tokens: who may use the node, and for what",
		a.tokenCreate(), a.tokenList(), a.tokenShow(), a.tokenRotate(), a.tokenRevoke())
	c.Long = `API tokens are made over the API by whoever has the scope admin, at first the
token of the configuration or of DATA/api-token. Their scopes:

  admin    everything, tokens included
  publish  publish events of one tenant, and nothing else
  read     look at everything but payloads and tokens, of one tenant or of all

The node keeps a hash alone: a token is shown once, when it is made or rotated.`
	return c
}

func tokenPath(id, rest string) string { return "/v1/tokens/" + url.PathEscape(id) + rest }

func (a *app) tokenCreate() *cobra.Command {
	var name, scope, tenant string
	var expires time.Duration
	c := &cobra.Command{
		Use: "create", Short: "Make a token and print it, this once", Args: noArgs,
		Example: `  dispatcher tokens create --name checkout --scope publish --tenant t1
  dispatcher tokens create --name dashboards --scope read --expires-in 2160h
  dispatcher tokens create --name ci --scope publish --tenant t1 --json | jq -r .token > ci.token`,
		RunE: func(c *cobra.Command, _ []string) error {
			in := object{"name": name, "scope": scope}
			if tenant != "" {
				in["tenant"] = tenant
			}
			if expires != 0 {
				in["expires_in"] = expires.String()
			}
			return a.newToken(c.Context(), "/v1/tokens", in)
		},
	}
	c.Flags().StringVar(&name, "name", "", "who uses it (required)")
	c.Flags().StringVar(&scope, "scope", "", "admin, publish or read (required)")
	c.Flags().StringVar(&tenant, "tenant", "", "the one tenant it is for; required with publish")
	c.Flags().DurationVar(&expires, "expires-in", 0, "how long it is valid (default: it does not expire)")
	need(c, "name", "scope")
	return c
}

// newToken prints a token that was made: the token alone to stdout, so that it
// can be caught in a variable, and what is to be known of it to stderr.
func (a *app) newToken(ctx context.Context, path string, in object) error {
	var out object
	if err := a.client.do(ctx, http.MethodPost, path, nil, in, &out); err != nil {
		return err
	}
	if a.json {
		return printJSON(a.Out, out)
	}
	if err := printFields(a.Err, out, "id", "name", "scope", "tenant", "expires_at", "overlap_until"); err != nil {
		return err
	}
	a.note("keep it now; it is not shown again:")
	_, err := fmt.Fprintln(a.Out, out.str("token"))
	return err
}

func (a *app) tokenList() *cobra.Command {
	var p pages
	c := &cobra.Command{
		Use: "list", Short: "List tokens, the oldest first; never the tokens themselves", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			now := time.Now()
			return a.list(c.Context(), "/v1/tokens", nil, p,
				field("ID", "id"), field("NAME", "name"), field("SCOPE", "scope"),
				column{"TENANT", func(o object) string { return cmp.Or(o.str("tenant"), "all") }},
				since("CREATED", "created_at", now), since("USED", "last_used_at", now), since("EXPIRES", "expires_at", now),
				since("OVERLAP", "overlap_until", now))
		},
	}
	p.bind(c)
	return c
}

func (a *app) tokenShow() *cobra.Command {
	return &cobra.Command{
		Use: "show [TOKEN-ID]", Short: "Show a token; without an id the one that is used", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id := "self"
			if len(args) == 1 {
				id = args[0]
			}
			var out object
			if err := a.client.do(c.Context(), http.MethodGet, tokenPath(id, ""), nil, nil, &out); err != nil {
				return err
			}
			return a.show(out, "id", "name", "scope", "tenant", "created_at", "rotated_at", "expires_at", "overlap_until", "last_used_at")
		},
	}
}

func (a *app) tokenRotate() *cobra.Command {
	var keep time.Duration
	c := &cobra.Command{
		Use: "rotate TOKEN-ID", Short: "Replace a token's text and print the new one, this once", Args: oneArg("TOKEN-ID"),
		Long: `rotate makes a new text for a token; name, scope and expiry stay. The present one
is accepted for as long as --keep says, so that its users can be given the new one
meanwhile.`,
		Example: `  dispatcher tokens rotate 1kpv8a0a9j3m1f2c
  dispatcher tokens rotate 1kpv8a0a9j3m1f2c --keep 0   # the old one leaked`,
		RunE: func(c *cobra.Command, args []string) error {
			return a.newToken(c.Context(), tokenPath(args[0], "/rotate"), object{"keep": keep.String()})
		},
	}
	c.Flags().DurationVar(&keep, "keep", 24*time.Hour, "how long the present one stays valid; 0 ends it now")
	return c
}

func (a *app) tokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke TOKEN-ID", Short: "End a token at once", Args: oneArg("TOKEN-ID"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.client.do(c.Context(), http.MethodDelete, tokenPath(args[0], ""), nil, nil, nil)
		},
	}
}
