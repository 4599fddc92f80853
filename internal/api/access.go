package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// access is what a route asks of a token.
type access struct {
	// scope is the least that is enough; admin is always enough, and [anyScope]
	// is satisfied with any token.
	scope engine.TokenScope
	// reach says which tenants the route is about.
	reach reach
}

// reach says what a token that is bound to a tenant can do at a route.
type reach int

const (
	// node: the route is about the whole node, and closed to a bound token.
	node reach = iota
	// inPath: the tenant stands in the path.
	inPath
	// inQuery: the tenant stands in the query, and a bound token must name its own.
	inQuery
	// inAnswer: the handler finds the tenant out; see [Server.mine].
	inAnswer
)

// anyScope is what routes ask that are open to every token.
const anyScope engine.TokenScope = ""

// routes says for every route behind a token what it asks. A route that is not in
// it cannot be mounted: see [guarded].
var routes = map[string]access{
	"GET /v1/openapi.json":        {anyScope, inAnswer},
	"GET /v1/tokens/self":         {anyScope, inAnswer},
	"GET /metrics":                {engine.TokenRead, node},
	"GET /debug/pprof/{name}":     {engine.TokenAdmin, node},
	"GET /v1/tokens":              {engine.TokenAdmin, node},
	"POST /v1/tokens":             {engine.TokenAdmin, node},
	"GET /v1/tokens/{id}":         {engine.TokenAdmin, node},
	"DELETE /v1/tokens/{id}":      {engine.TokenAdmin, node},
	"POST /v1/tokens/{id}/rotate": {engine.TokenAdmin, node},

	"GET /v1/tenants":             {engine.TokenRead, inAnswer},
	"GET /v1/tenants/{tenant}":    {engine.TokenRead, inPath},
	"PUT /v1/tenants/{tenant}":    {engine.TokenAdmin, node},
	"DELETE /v1/tenants/{tenant}": {engine.TokenAdmin, node},

	"GET " + subscribersPath:                          {engine.TokenRead, inPath},
	"POST " + subscribersPath:                         {engine.TokenAdmin, inPath},
	"GET " + subscribersPath + "/{id}":                {engine.TokenRead, inPath},
	"PATCH " + subscribersPath + "/{id}":              {engine.TokenAdmin, inPath},
	"DELETE " + subscribersPath + "/{id}":             {engine.TokenAdmin, inPath},
	"POST " + subscribersPath + "/{id}/pause":         {engine.TokenAdmin, inPath},
	"POST " + subscribersPath + "/{id}/resume":        {engine.TokenAdmin, inPath},
	"POST " + subscribersPath + "/{id}/rotate-secret": {engine.TokenAdmin, inPath},
	"POST " + subscribersPath + "/{id}/test":          {engine.TokenAdmin, inPath},
	"POST " + subscribersPath + "/{id}/replay":        {engine.TokenAdmin, inPath},

	"GET /v1/tenants/{tenant}/sources": {engine.TokenRead, inPath},
	"GET " + sourcePath:                {engine.TokenRead, inPath},
	"PUT " + sourcePath:                {engine.TokenAdmin, inPath},
	"DELETE " + sourcePath:             {engine.TokenAdmin, inPath},

	publishRoute:                             {engine.TokenPublish, inPath},
	"POST " + eventsPath + "/batch":          {engine.TokenPublish, inPath},
	"GET " + eventsPath:                      {engine.TokenRead, inPath},
	"GET " + eventsPath + "/{id}":            {engine.TokenRead, inPath},
	"DELETE " + eventsPath + "/{id}":         {engine.TokenAdmin, inPath},
	"GET " + eventsPath + "/{id}/deliveries": {engine.TokenRead, inPath},

	"GET /v1/deliveries":              {engine.TokenRead, inQuery},
	"GET /v1/deliveries/{id}":         {engine.TokenRead, inAnswer},
	"GET /v1/deliveries/{id}/payload": {engine.TokenAdmin, inAnswer},
	"POST /v1/deliveries/{id}/replay": {engine.TokenAdmin, inAnswer},
	"GET /v1/dlq/groups":              {engine.TokenRead, inQuery},
	"POST /v1/dlq/replay":             {engine.TokenAdmin, node},
	"POST /v1/dlq/purge":              {engine.TokenAdmin, node},

	"GET " + replaysPath:                   {engine.TokenRead, inQuery},
	"GET " + replaysPath + "/{id}":         {engine.TokenRead, inAnswer},
	"POST " + replaysPath:                  {engine.TokenAdmin, node},
	"POST " + replaysPath + "/{id}/cancel": {engine.TokenAdmin, node},

	"GET /v1/protocols":             {engine.TokenRead, node},
	"GET " + originPath:             {engine.TokenRead, node},
	"PUT " + originPath:             {engine.TokenAdmin, node},
	"DELETE " + originPath:          {engine.TokenAdmin, node},
	"POST " + originPath + "/probe": {engine.TokenAdmin, node},

	"GET /v1/store":          {engine.TokenRead, node},
	"POST /v1/store/backup":  {engine.TokenAdmin, node},
	"POST /v1/store/compact": {engine.TokenAdmin, node},

	// What no other route takes answers 404 to whoever has a token.
	"/": {anyScope, inAnswer},
}

// guarded is the mux behind a token. It mounts a route only together with what it
// asks, so that one cannot be forgotten; it implements humago's Mux.
type guarded struct {
	mux     *http.ServeMux
	mounted []string
	missing []string
}

// HandleFunc mounts a route behind the check of its access.
func (g *guarded) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	need, ok := routes[pattern]
	if !ok {
		g.missing = append(g.missing, pattern)
		return
	}
	g.mounted = append(g.mounted, pattern)
	g.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if p := need.refuse(callerOf(r.Context()), r, r.PathValue("tenant")); p != nil {
			writeProblem(w, r, p)
			return
		}
		handler(w, r)
	})
}

// ServeHTTP implements http.Handler.
func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.mux.ServeHTTP(w, r) }

// err names the routes that were not mounted.
func (g *guarded) err() error {
	if len(g.missing) == 0 {
		return nil
	}
	return fmt.Errorf("api: no access declared for %s", strings.Join(g.missing, ", "))
}

// caller is who makes a request.
type caller struct {
	// ID is the token's, "config" for the token of the configuration.
	ID     string
	Scope  engine.TokenScope
	Tenant string // "" = every tenant
	token  *engine.Token
}

type callerKey struct{}

func withCaller(ctx context.Context, c caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// callerOf returns who makes a request; without one it may do nothing.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// refuse returns the problem of a caller that may not use the route, nil if it
// may. tenant is the one in the path, "" if there is none.
func (a access) refuse(c caller, r *http.Request, tenant string) *Problem {
	if c.Scope == engine.TokenAdmin {
		return nil
	}
	if a.scope != anyScope && c.Scope != a.scope {
		return forbidden(fmt.Sprintf("this needs a token with the scope %s; yours has %s", a.text(), c.Scope))
	}
	if c.Tenant == "" {
		return nil
	}
	switch a.reach {
	case inPath:
		if tenant != c.Tenant {
			return forbidden(fmt.Sprintf("this needs a token with the scope %s for tenant %q; yours is for tenant %q", a.text(), clip(tenant), c.Tenant))
		}
	case inQuery:
		if tenant := r.URL.Query().Get("tenant"); tenant != c.Tenant {
			return forbidden(fmt.Sprintf("this token is for tenant %q alone: send tenant=%s, or use a token with the scope %s for the whole node", c.Tenant, c.Tenant, a.text()))
		}
	case node:
		return forbidden(fmt.Sprintf("this needs a token with the scope %s for the whole node; yours is for tenant %q", a.text(), c.Tenant))
	case inAnswer:
	}
	return nil
}

// text names the scopes that are enough.
func (a access) text() string {
	if a.scope == engine.TokenAdmin {
		return string(engine.TokenAdmin)
	}
	return string(a.scope) + " or " + string(engine.TokenAdmin)
}

func forbidden(detail string) *Problem { return newProblem(http.StatusForbidden, detail) }

// mine reports whether a caller may know of what belongs to a tenant. What it may
// not know of does not exist for it.
func mine(ctx context.Context, tenant string) bool {
	c := callerOf(ctx)
	return c.Tenant == "" || c.Tenant == tenant
}
