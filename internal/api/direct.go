package api

import (
	"net/http"
	"strings"
)

// publishedFor returns the tenant of a publish whose path is written plainly, which
// needs no mux to be found.
func publishedFor(r *http.Request) (tenant string, ok bool) {
	if r.Method != http.MethodPost || r.URL.RawPath != "" {
		return "", false
	}
	tenant, ok = strings.CutPrefix(r.URL.Path, beforeTenant)
	if !ok {
		return "", false
	}
	if tenant, ok = strings.CutSuffix(tenant, behindTenant); !ok || tenant == "" {
		return "", false
	}
	for i := range len(tenant) {
		if c := tenant[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return "", false
		}
	}
	return tenant, true
}

// publishDirectly is POST …/events without the muxes, and without a copy of the
// request for whoever makes it.
func (s *Server) publishDirectly(w http.ResponseWriter, r *http.Request, tenant string) {
	who, ok := s.admit(w, r)
	if !ok {
		return
	}
	if p := routes[publishRoute].refuse(who, r, tenant); p != nil {
		writeProblem(w, r, p)
		return
	}
	s.publishFor(w, r, tenant)
}
