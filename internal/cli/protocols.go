package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func (a *app) protocols() *cobra.Command {
	return group("protocols", "Protocol memory: which origins speak HTTP/3, and how that went",
		a.protocolsList(), a.protocolsShow(), a.protocolsPin(), a.protocolsForget(), a.protocolsProbe())
}

func originURL(origin, rest string) string { return "/v1/protocols/" + url.PathEscape(origin) + rest }

func (a *app) protocolsList() *cobra.Command {
	var p pages
	c := &cobra.Command{
		Use: "list", Short: "List origins with their state", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			nested := func(outer, inner string) func(object) string {
				return func(o object) string {
					m, _ := o[outer].(map[string]any)
					return object(m).str(inner)
				}
			}
			return a.list(c.Context(), "/v1/protocols", nil, p,
				field("ORIGIN", "origin"), field("SCHEME", "scheme"), field("STATE", "state"), column{"PIN", nested("pin", "protocol")},
				column{"H1", nested("answers", "h1")}, column{"H2", nested("answers", "h2")}, column{"H3", nested("answers", "h3")},
				field("TCP RTT MS", "tcp_rtt_ms"), field("REFUSALS", "refusals"))
		},
	}
	p.bind(c)
	return c
}

func (a *app) protocolsShow() *cobra.Command {
	return &cobra.Command{
		Use: "show HOST:PORT", Short: "Show one origin with its alternatives", Args: oneArg("HOST:PORT"),
		RunE: func(c *cobra.Command, args []string) error {
			var out struct {
				Pin  object   `json:"pin,omitempty"`
				Data []object `json:"data"`
			}
			if err := a.client.do(c.Context(), http.MethodGet, originURL(args[0], ""), nil, nil, &out); err != nil {
				return err
			}
			if a.json {
				return printJSON(a.Out, out)
			}
			now := time.Now()
			for _, route := range out.Data {
				if err := printFields(a.Out, route, "origin", "scheme", "tls_identity", "egress", "state", "https_record", "tcp_rtt_ms", "distrusted"); err != nil {
					return err
				}
				list, _ := route["alternatives"].([]any)
				rows := make([]object, 0, len(list))
				for _, x := range list {
					if m, ok := x.(map[string]any); ok {
						rows = append(rows, m)
					}
				}
				err := printTable(a.Out, rows, field("ALTERNATIVE", "authority"), field("STATE", "state"), field("SOURCE", "source"),
					since("EXPIRES", "expires_at", now), field("BROKEN", "broken_reason"), since("UNTIL", "broken_until", now),
					field("WON", "races_won"), field("LOST", "races_lost"), field("RTT MS", "rtt_ms"), field("ANSWERS", "answers"), field("FAILURES", "failures"))
				if err != nil {
					return err
				}
			}
			if out.Pin != nil {
				fmt.Fprintf(a.Out, "pinned to %s %s\n", out.Pin.str("protocol"), out.Pin.str("until"))
			}
			return nil
		},
	}
}

func (a *app) protocolsPin() *cobra.Command {
	var protocol string
	var ttl time.Duration
	c := &cobra.Command{
		Use: "pin HOST:PORT", Short: "Pin an origin to h3 (no fallback), tcp or auto", Args: oneArg("HOST:PORT"),
		Example: `  dispatcher protocols pin hooks.example.com:443 --protocol tcp --ttl 24h`,
		RunE: func(c *cobra.Command, args []string) error {
			in := object{"protocol": protocol}
			if ttl != 0 {
				in["ttl"] = ttl.String()
			}
			var out object
			if err := a.client.do(c.Context(), http.MethodPut, originURL(args[0], ""), nil, in, &out); err != nil {
				return err
			}
			return a.show(out, "protocol", "until")
		},
	}
	c.Flags().StringVar(&protocol, "protocol", "", "h3, tcp or auto")
	c.Flags().DurationVar(&ttl, "ttl", 0, "how long (default until it is forgotten)")
	need(c, "protocol")
	return c
}

func (a *app) protocolsForget() *cobra.Command {
	return &cobra.Command{
		Use: "forget HOST:PORT", Short: "Forget what is known about an origin, its pin included", Args: oneArg("HOST:PORT"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.client.do(c.Context(), http.MethodDelete, originURL(args[0], ""), nil, nil, nil)
		},
	}
}

func (a *app) protocolsProbe() *cobra.Command {
	return &cobra.Command{
		Use: "probe HOST:PORT", Short: "Make handshakes over TCP and HTTP/3 and show what came up", Args: oneArg("HOST:PORT"),
		RunE: func(c *cobra.Command, args []string) error {
			var out struct {
				HTTPSRecord string   `json:"https_record"`
				TCP         object   `json:"tcp"`
				H3          []object `json:"h3"`
			}
			if err := a.client.do(c.Context(), http.MethodPost, originURL(args[0], "/probe"), nil, nil, &out); err != nil {
				return err
			}
			if a.json {
				return printJSON(a.Out, out)
			}
			rows := append([]object{out.TCP}, out.H3...)
			err := printTable(a.Out, rows, field("AUTHORITY", "authority"), field("CAME UP", "protocol"), field("VERDICT", "verdict"),
				field("TOOK MS", "took_ms"), field("REMOTE", "remote"), field("DETAIL", "detail"))
			if out.HTTPSRecord != "" {
				t := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
				fmt.Fprintf(t, "HTTPS record:\t%s\n", out.HTTPSRecord)
				err = errors.Join(err, t.Flush())
			}
			return err
		},
	}
}
