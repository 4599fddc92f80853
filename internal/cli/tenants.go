package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// note writes a remark to stderr, so that stdout stays data.
func (a *app) note(format string, args ...any) { fmt.Fprintf(a.Err, format+"\n", args...) }

func tenantPath(tenant string, rest string) string {
	return "/v1/tenants/" + url.PathEscape(tenant) + rest
}

func (a *app) tenants() *cobra.Command {
	var p pages
	list := &cobra.Command{
		Use: "list", Short: "List tenants", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.list(c.Context(), "/v1/tenants", nil, p,
				field("TENANT", "id"), field("NAME", "name"), field("WEIGHT", "weight"), since("CREATED", "created_at", time.Now()))
		},
	}
	p.bind(list)
	remove := &cobra.Command{
		Use: "delete TENANT", Short: "Delete a tenant, its subscribers, events and dead letters", Args: oneArg("TENANT"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.client.do(c.Context(), http.MethodDelete, tenantPath(args[0], ""), nil, nil, nil)
		},
	}
	return group("tenants", "Tenants: the customers of your platform", a.putTenant(), list, remove)
}

// tenantSettings is what a PUT of a tenant replaces, all of it.
var tenantSettings = []string{"name", "weight", "rate_limit", "max_in_flight", "reserved_in_flight"}

func (a *app) putTenant() *cobra.Command {
	var (
		name                              string
		weight, inFlight, reserved, burst int
		rate                              float64
	)
	put := &cobra.Command{
		Use: "put TENANT", Short: "Create a tenant, or change what is given of it", Args: oneArg("TENANT"),
		Long: "Create a tenant, or change what is given of it. What is not given stays as it is; 0 takes a bound away.",
		RunE: func(c *cobra.Command, args []string) error {
			in, err := a.settingsOf(c.Context(), args[0])
			if err != nil {
				return err
			}
			given := c.Flags().Changed
			for flag, value := range map[string]any{"name": name, "weight": weight, "max-in-flight": inFlight, "reserved-in-flight": reserved} {
				if given(flag) {
					in[strings.ReplaceAll(flag, "-", "_")] = value
				}
			}
			switch {
			case given("rate"):
				in["rate_limit"] = object{"per_second": rate, "burst": burst}
			case given("rate-burst"):
				return usageError(errors.New("--rate-burst: it goes with --rate; give both"))
			}
			var out object
			if err := a.client.do(c.Context(), http.MethodPut, tenantPath(args[0], ""), nil, in, &out); err != nil {
				return err
			}
			return a.show(out, "id", "name", "weight", "rate_limit", "max_in_flight", "reserved_in_flight", "created_at")
		},
	}
	f := put.Flags()
	f.StringVar(&name, "name", "", "name for people")
	f.IntVar(&weight, "weight", 0, "share of the fair queue (default 1)")
	f.Float64Var(&rate, "rate", 0, "deliveries per second over all its subscribers")
	f.IntVar(&burst, "rate-burst", 0, "with --rate: at once (default one second's worth)")
	f.IntVar(&inFlight, "max-in-flight", 0, "attempts in flight that it cannot exceed")
	f.IntVar(&reserved, "reserved-in-flight", 0, "attempts in flight that others cannot take")
	return put
}

// settingsOf returns a tenant's settings, none when it does not exist: what a
// PUT has to repeat, since it replaces them all.
func (a *app) settingsOf(ctx context.Context, tenant string) (object, error) {
	var now object
	err := a.client.do(ctx, http.MethodGet, tenantPath(tenant, ""), nil, nil, &now)
	if err != nil && status(err) != ExitNotFound {
		return nil, err
	}
	in := object{}
	for _, name := range tenantSettings {
		if v, ok := now[name]; ok {
			in[name] = v
		}
	}
	return in, nil
}

// ensureTenant makes a tenant that does not exist; the API itself refuses
// unknown tenants, since there a misspelt name must not make one.
func (a *app) ensureTenant(ctx context.Context, tenant string) error {
	err := a.client.do(ctx, http.MethodGet, tenantPath(tenant, ""), nil, nil, nil)
	if status(err) != ExitNotFound {
		return err
	}
	a.note("tenant %q is new", tenant)
	return a.client.do(ctx, http.MethodPut, tenantPath(tenant, ""), nil, object{}, nil)
}
