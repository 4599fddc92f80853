package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHealthcheckSaysWhetherTheNodeLivesWithoutAToken(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			t.Error("a token was sent")
		}
		if r.URL.Path == "/readyz" {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"title":"Service Unavailable","status":503,"detail":"the node is stopping"}`))
			return
		}
		_, _ = w.Write([]byte(`{"status":"ok"}`))
	}))
	t.Cleanup(node.Close)
	t.Setenv("DISPATCHER_API_TOKEN", "secret")
	cases := []struct {
		name string
		args []string
		want int
		says string
	}{
		{"alive", []string{"--addr", node.URL}, ExitOK, ""},
		{"without a scheme", []string{"--addr", strings.TrimPrefix(node.URL, "http://")}, ExitOK, ""},
		{"not ready", []string{"--addr", node.URL, "--ready"}, ExitFailed, "the node is stopping"},
		{"nobody there", []string{"--addr", "127.0.0.1:1"}, ExitFailed, "127.0.0.1:1"},
		{"no address", []string{"--addr", "http://[::"}, ExitUsage, "--addr"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, "", append([]string{"healthcheck"}, c.args...)...)
			if r.status != c.want || !strings.Contains(r.err, c.says) {
				t.Errorf("status %d, want %d; stderr: %s", r.status, c.want, r.err)
			}
		})
	}
}
