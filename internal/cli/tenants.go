package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
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
	var name string
	var weight int
	put := &cobra.Command{
		Use: "put TENANT", Short: "Create a tenant or change it", Args: oneArg("TENANT"),
		RunE: func(c *cobra.Command, args []string) error {
			in := object{}
			if name != "" {
				in["name"] = name
			}
			if weight != 0 {
				in["weight"] = weight
			}
			var out object
			if err := a.client.do(c.Context(), http.MethodPut, tenantPath(args[0], ""), nil, in, &out); err != nil {
				return err
			}
			return a.show(out, "id", "name", "weight", "created_at")
		},
	}
	put.Flags().StringVar(&name, "name", "", "name for people")
	put.Flags().IntVar(&weight, "weight", 0, "share of the fair queue (default 1)")
	remove := &cobra.Command{
		Use: "delete TENANT", Short: "Delete a tenant, its subscribers, events and dead letters", Args: oneArg("TENANT"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.client.do(c.Context(), http.MethodDelete, tenantPath(args[0], ""), nil, nil, nil)
		},
	}
	return group("tenants", "Tenants: the customers of your platform", put, list, remove)
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
