package cli

import (
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

var subscriberFields = []string{
	"id", "url", "topics", "enabled", "status", "status_reason", "ordering", "concurrency", "reserved_in_flight", "protocol", "priority",
	"timeout", "breaker", "in_flight", "waiting", "failing_since", "secret", "public_key", "created_at", "updated_at",
}

func (a *app) subscribers() *cobra.Command {
	return group("subscribers", "Subscribers: the endpoints of a tenant",
		a.subscribersCreate(), a.subscribersList(), a.subscribersShow(),
		a.subscribersAct("pause", "Hold what is pending and what comes"),
		a.subscribersAct("resume", "Deliver again, held deliveries first"),
		a.subscribersAct("rotate-secret", "Make a new secret; the old one stays valid for 24 h"),
		a.subscribersAct("test", "Send one test event to this subscriber"),
		a.subscribersDelete())
}

func (a *app) subscribersCreate() *cobra.Command {
	var (
		tenant, id, target, secret, ordering, protocol, priority, ca string
		topics                                                       []string
		concurrency, reserved                                        int
		timeout                                                      time.Duration
	)
	c := &cobra.Command{
		Use: "create", Short: "Register an endpoint; prints its signing secret once", Args: noArgs,
		Example: `  dispatcher subscribers create --tenant t1 --url https://hooks.example.com/in --topic 'order.*'
  dispatcher subscribers create --tenant t1 --url https://127.0.0.1:8443/ --ca ./ca.pem   # node: --allow-private 127.0.0.0/8`,
		RunE: func(c *cobra.Command, _ []string) error {
			in := object{"url": target}
			for name, v := range map[string]string{"id": id, "secret": secret, "ordering": ordering, "protocol": protocol, "priority": priority} {
				if v != "" {
					in[name] = v
				}
			}
			if len(topics) > 0 {
				in["topics"] = topics
			}
			if concurrency != 0 {
				in["concurrency"] = concurrency
			}
			if reserved != 0 {
				in["reserved_in_flight"] = reserved
			}
			if timeout != 0 {
				in["timeout"] = timeout.String()
			}
			if ca != "" {
				pem, err := readFile("--ca", ca, a.In)
				if err != nil {
					return err
				}
				in["tls"] = object{"ca_pem": string(pem)}
			}
			if err := a.ensureTenant(c.Context(), tenant); err != nil {
				return err
			}
			var out object
			if err := a.client.do(c.Context(), http.MethodPost, tenantPath(tenant, "/subscribers"), nil, in, &out); err != nil {
				return err
			}
			if !a.json {
				a.note("keep the secret: it is not shown again")
			}
			return a.show(out, subscriberFields...)
		},
	}
	f := c.Flags()
	f.StringVar(&tenant, "tenant", "", "tenant (made if it does not exist)")
	f.StringVar(&target, "url", "", "https URL to deliver to")
	f.StringVar(&id, "id", "", "id (made if not given)")
	f.StringArrayVar(&topics, "topic", nil, `topic pattern, repeatable (default "*")`)
	f.StringVar(&secret, "secret", "", "signing secret, whsec_… (made if not given)")
	f.StringVar(&ordering, "ordering", "", "key (default), strict or none")
	f.StringVar(&protocol, "protocol", "", "auto (default), h3, tcp, h2 or h1")
	f.StringVar(&priority, "priority", "", "normal (default), high or low")
	f.IntVar(&concurrency, "concurrency", 0, "attempts in flight (default 8)")
	f.IntVar(&reserved, "reserved-in-flight", 0, "attempts in flight, of --concurrency, that nobody else can take")
	f.DurationVar(&timeout, "attempt-timeout", 0, "one attempt, from dial to body (default 15s)")
	f.StringVar(&ca, "ca", "", "PEM file with the endpoint's own CA")
	need(c, "tenant", "url")
	return c
}

func (a *app) subscribersList() *cobra.Command {
	var tenant string
	var p pages
	c := &cobra.Command{
		Use: "list", Short: "List a tenant's subscribers", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.list(c.Context(), tenantPath(tenant, "/subscribers"), nil, p,
				field("SUBSCRIBER", "id"), field("URL", "url"), field("TOPICS", "topics"), field("STATUS", "status"),
				field("ORDERING", "ordering"), field("PROTOCOL", "protocol"))
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "tenant")
	p.bind(c)
	need(c, "tenant")
	return c
}

func subscriberPath(tenant, id, rest string) string {
	return tenantPath(tenant, "/subscribers/"+url.PathEscape(id)+rest)
}

func (a *app) subscribersShow() *cobra.Command {
	var tenant string
	c := &cobra.Command{
		Use: "show SUBSCRIBER", Short: "Show one subscriber with its health", Args: oneArg("SUBSCRIBER"),
		RunE: func(c *cobra.Command, args []string) error {
			var out object
			if err := a.client.do(c.Context(), http.MethodGet, subscriberPath(tenant, args[0], ""), nil, nil, &out); err != nil {
				return err
			}
			return a.show(out, subscriberFields...)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "tenant")
	need(c, "tenant")
	return c
}

func (a *app) subscribersAct(verb, short string) *cobra.Command {
	var tenant string
	c := &cobra.Command{
		Use: verb + " SUBSCRIBER", Short: short, Args: oneArg("SUBSCRIBER"),
		RunE: func(c *cobra.Command, args []string) error {
			var out object
			if err := a.client.do(c.Context(), http.MethodPost, subscriberPath(tenant, args[0], "/"+verb), nil, nil, &out); err != nil {
				return err
			}
			return a.show(out, append([]string{"deliveries"}, subscriberFields...)...)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "tenant")
	need(c, "tenant")
	return c
}

func (a *app) subscribersDelete() *cobra.Command {
	var tenant string
	c := &cobra.Command{
		Use: "delete SUBSCRIBER", Short: "Delete a subscriber; what is pending for it is canceled", Args: oneArg("SUBSCRIBER"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.client.do(c.Context(), http.MethodDelete, subscriberPath(tenant, args[0], ""), nil, nil, nil)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "tenant")
	need(c, "tenant")
	return c
}
