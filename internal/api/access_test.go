package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// document is the part of OpenAPI that tests look at.
type document struct {
	OpenAPI string
	Paths   map[string]map[string]described
}

type described struct {
	OperationID string
	Scopes      []string `json:"x-scopes"`
	Security    *[]map[string][]string
	Parameters  []struct{ Name, In string }
	Responses   map[string]any
}

func readDocument(t *testing.T, s *Server) document {
	t.Helper()
	resp, body := call(t, s, http.MethodGet, "/v1/openapi.json", goodToken, "")
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	var doc document
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// TestEveryRouteDeclaresItsAccess holds the router, the table and the document
// against each other.
func TestEveryRouteDeclaresItsAccess(t *testing.T) {
	mux := &guarded{mux: http.NewServeMux()}
	s := setup(t, &fakeNode{})
	s.routes(mux)
	if err := mux.err(); err != nil {
		t.Fatal(err)
	}
	mounted, declared := slices.Sorted(slices.Values(mux.mounted)), slices.Sorted(maps.Keys(routes))
	if !slices.Equal(mounted, declared) {
		t.Errorf("mounted  %v\ndeclared %v", mounted, declared)
	}
	var operations []string
	for path, item := range readDocument(t, s).Paths {
		for method, op := range item {
			if op.Security != nil && len(*op.Security) == 0 {
				continue // needs no token
			}
			operations = append(operations, strings.ToUpper(method)+" "+path)
			if len(op.Scopes) == 0 || op.Responses["401"] == nil {
				t.Errorf("%s %s does not say who may call it", method, path)
			}
		}
	}
	slices.Sort(operations)
	declared = slices.DeleteFunc(declared, func(p string) bool { return p == "/" })
	if !slices.Equal(operations, declared) {
		t.Errorf("documented %v\ndeclared   %v", operations, declared)
	}
	other := &guarded{mux: http.NewServeMux()}
	other.HandleFunc("GET /v1/forgotten", func(http.ResponseWriter, *http.Request) {})
	if err := other.err(); err == nil || !strings.Contains(err.Error(), "/v1/forgotten") {
		t.Errorf("a route without access is mounted: %v", err)
	}
}

func TestATokenDoesWhatItsScopeSaysAndNoMore(t *testing.T) {
	s := setup(t, &fakeNode{})
	event := `{"id":"e1","topic":"a","payload":1}`
	cases := []struct {
		token, method, path, body string
		status                    int
		says                      string
	}{
		{"expired", "GET", "/v1/tokens/self", "", 401, "expired"},
		{"admin", "POST", "/v1/tenants/t1/events", event, 202, ""},
		{"publish-t1", "POST", "/v1/tenants/t1/events", event, 200, ""},
		{"publish-t1", "POST", "/v1/tenants/t1/events/batch", event, 200, ""},
		{"publish-t1", "POST", "/v1/tenants/t2/events", event, 403, `publish or admin for tenant "t2"`},
		{"publish-t1", "GET", "/v1/tenants/t1/subscribers", "", 403, "read or admin"},
		{"publish-t1", "GET", "/v1/deliveries?tenant=t1", "", 403, "read or admin"},
		{"publish-t1", "GET", "/v1/tokens/self", "", 200, ""},
		{"reads", "GET", "/v1/tenants/t1/subscribers", "", 200, ""},
		{"reads", "GET", "/v1/deliveries", "", 200, ""},
		{"reads", "GET", "/v1/deliveries/d", "", 200, ""},
		{"reads", "POST", "/v1/tenants/t1/events", event, 403, "publish or admin"},
		{"reads", "POST", "/v1/tenants/t1/subscribers", `{}`, 403, "scope admin"},
		{"reads", "GET", "/v1/tokens", "", 403, "scope admin"},
		{"reads", "GET", "/debug/pprof/heap", "", 403, "scope admin"},
		{"reads-t1", "GET", "/v1/tenants/t1/subscribers", "", 200, ""},
		{"reads-t1", "GET", "/v1/tenants/t2/subscribers", "", 403, `tenant "t2"`},
		{"reads-t1", "GET", "/v1/deliveries?tenant=t1", "", 200, ""},
		{"reads-t1", "GET", "/v1/deliveries", "", 403, "tenant=t1"},
		{"reads-t1", "GET", "/v1/deliveries?tenant=t2&tenant=t1", "", 403, "tenant=t1"},
		{"reads-t1", "GET", "/v1/deliveries/d", "", 404, ""},
		{"reads-t1", "GET", "/v1/protocols", "", 403, "whole node"},
		{"reads-t1", "GET", "/v1/store", "", 403, "whole node"},
		{"reads-t1", "GET", "/nowhere", "", 404, ""},
	}
	for _, c := range cases {
		resp, body := call(t, s, c.method, c.path, c.token, c.body)
		if resp.StatusCode != c.status || c.says != "" && !strings.Contains(body, strings.ReplaceAll(c.says, `"`, `\"`)) {
			t.Errorf("%s: %s %s: %d %s, want %d %s", c.token, c.method, c.path, resp.StatusCode, body, c.status, c.says)
		}
		if resp.StatusCode >= 400 {
			decodeProblem(t, resp, body)
		}
	}
}

// TestABoundTokenIsStoppedEverywhereElse asks every operation of the document for
// another tenant's or the node's things.
func TestABoundTokenIsStoppedEverywhereElse(t *testing.T) {
	s := setup(t, &fakeNode{})
	paths := strings.NewReplacer("{tenant}", "t2", "{id}", "x", "{source}", "x", "{origin}", "h:443", "{name}", "heap")
	open := []string{"/v1/openapi.json", "/v1/tokens/self", "/v1/tenants", "/v1/deliveries/{id}", "/v1/replays/{id}"} // each shows what is the caller's own
	for path, item := range readDocument(t, s).Paths {
		for method, op := range item {
			if op.Security != nil && len(*op.Security) == 0 || slices.Contains(open, path) && method == "get" {
				continue
			}
			for _, token := range []string{"reads-t1", "publish-t1"} {
				resp, body := call(t, s, strings.ToUpper(method), paths.Replace(path), token, "{}")
				if resp.StatusCode != http.StatusForbidden {
					t.Errorf("%s: %s %s: %d %s", token, method, path, resp.StatusCode, body)
				}
			}
		}
	}
}

func TestTheConfigurationsTokenCanBeReplacedWhileItServes(t *testing.T) {
	s := setup(t, &fakeNode{})
	if err := s.SetTokens(nil); err == nil {
		t.Error("nobody could use it any more")
	}
	if err := s.SetTokens([]string{"next"}); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]int{"next": 200, goodToken: 401} {
		if resp, _ := call(t, s, http.MethodGet, "/v1/tokens/self", token, ""); resp.StatusCode != want {
			t.Errorf("%s: %d", token, resp.StatusCode)
		}
	}
}
