package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

// TenantPath names a tenant in a path.
type TenantPath struct {
	Tenant string `path:"tenant" doc:"tenant id" maxLength:"128" pattern:"^[A-Za-z0-9_-]+$" patternDescription:"letters, digits, _ and - alone"`
}

// Tenant is a tenant on the wire.
type Tenant struct {
	ID        string     `json:"id" doc:"chosen by you"`
	Name      string     `json:"name" doc:"for people"`
	Weight    int        `json:"weight" doc:"share of the fair queue"`
	RateLimit *RateLimit `json:"rate_limit,omitempty" doc:"over all its deliveries"`
	MaxShare  int        `json:"max_in_flight,omitempty" doc:"attempts in flight it may have; 0 = no own bound"`
	Reserved  int        `json:"reserved_in_flight,omitempty" doc:"attempts in flight that others cannot take"`
	CreatedAt *string    `json:"created_at" format:"date-time" doc:"when it was made"`
	UpdatedAt *string    `json:"updated_at" format:"date-time" doc:"the last change"`
}

type tenantBody struct {
	Name      string     `json:"name,omitempty" maxLength:"256" doc:"for people"`
	Weight    int        `json:"weight,omitempty" minimum:"0" maximum:"1000" doc:"share of the fair queue; default 1"`
	RateLimit *RateLimit `json:"rate_limit,omitempty" doc:"over all its deliveries; default none"`
	MaxShare  int        `json:"max_in_flight,omitempty" minimum:"0" doc:"attempts in flight it may have; default no own bound"`
	Reserved  int        `json:"reserved_in_flight,omitempty" minimum:"0" doc:"attempts in flight that others cannot take; default 0"`
}

func tenantOut(t *delivery.Tenant) Tenant {
	out := Tenant{
		ID: t.ID, Name: t.Name, Weight: max(t.Weight, 1), MaxShare: t.MaxShare, Reserved: t.Reserved,
		CreatedAt: rfc3339(t.CreatedAt), UpdatedAt: rfc3339(t.UpdatedAt),
	}
	if t.RateLimit.PerSecond > 0 {
		out.RateLimit = &RateLimit{PerSecond: t.RateLimit.PerSecond, Burst: t.RateLimit.Burst}
	}
	return out
}

func (s *Server) registerTenants() {
	put := operation(http.MethodPut, "/v1/tenants/{tenant}", "put-tenant", "Create a tenant or replace its settings", http.StatusOK, http.StatusCreated)
	huma.Register(s.api, put, func(ctx context.Context, in *struct {
		TenantPath
		Body *tenantBody
	},
	) (*bodyOf[Tenant], error) {
		body := orZero(in.Body)
		input := engine.TenantInput{Name: body.Name, Weight: body.Weight, MaxShare: body.MaxShare, Reserved: body.Reserved}
		if r := body.RateLimit; r != nil {
			input.RateLimit = &delivery.RateLimit{PerSecond: r.PerSecond, Burst: r.Burst}
		}
		t, created, err := s.node.PutTenant(ctx, in.Tenant, input)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		out := ok(tenantOut(t))
		if created {
			out.Status = http.StatusCreated
		}
		return out, nil
	})

	get := operation(http.MethodGet, "/v1/tenants/{tenant}", "get-tenant", "Show a tenant", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, get, func(ctx context.Context, in *TenantPath) (*bodyOf[Tenant], error) {
		t, err := s.node.GetTenant(ctx, in.Tenant)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return ok(tenantOut(t)), nil
	})

	list := operation(http.MethodGet, "/v1/tenants", "list-tenants", "List tenants; a token for one tenant sees that one", http.StatusOK)
	huma.Register(s.api, list, func(ctx context.Context, in *PageQuery) (*pageOf[Tenant], error) {
		if own := callerOf(ctx).Tenant; own != "" {
			t, err := s.node.GetTenant(ctx, own)
			if err != nil {
				return nil, problemFor(err, s.logger)
			}
			return newPage([]Tenant{tenantOut(t)}, ""), nil
		}
		rows, next, err := s.node.ListTenants(ctx, in.page())
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return newPage(mapped(rows, tenantOut), next), nil
	})

	remove := operation(http.MethodDelete, "/v1/tenants/{tenant}", "delete-tenant",
		"Delete a tenant with its subscribers, events and dead letters", http.StatusNoContent, http.StatusNotFound)
	huma.Register(s.api, remove, func(ctx context.Context, in *TenantPath) (*struct{}, error) {
		if err := s.node.DeleteTenant(ctx, in.Tenant); err != nil {
			return nil, problemFor(err, s.logger)
		}
		return nil, nil //nolint:nilnil // 204 has no body
	})
}

func mapped[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}
