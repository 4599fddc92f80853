package ingress

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/signing"
)

// plane is a control plane on loopback.
func plane(t *testing.T, handler http.HandlerFunc) *ControlPlaneConfig {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return &ControlPlaneConfig{URL: s.URL + "/base", Token: signing.NewSecret("plane-token")}
}

func TestSourcesComeFromTheControlPlane(t *testing.T) {
	stored, err := standardSources()["standard"].MarshalStored()
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int64
	cfg := plane(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Method != http.MethodGet || r.Header.Get("Authorization") != "Bearer plane-token" {
			t.Errorf("%s with %q", r.Method, r.Header.Get("Authorization"))
		}
		if r.URL.Path != "/base/tenants/acme/sources/standard" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(stored)
	})
	n := setup(t, Config{ControlPlane: cfg})
	for i := range 5 {
		n.expect(n.post("standard", genuine(t, fmt.Sprintf("msg_%d", i), vectorBody), vectorBody), http.StatusAccepted, OutcomeBuffered)
		n.expect(n.post("nobody", nil, nil), http.StatusNotFound, OutcomeUnknownSource)
	}
	if asked.Load() != 2 {
		t.Errorf("asked %d times, want once for each id", asked.Load())
	}
}

func TestEveryOtherAnswerOfTheControlPlaneIs503(t *testing.T) {
	var answer atomic.Pointer[http.HandlerFunc]
	cfg := plane(t, func(w http.ResponseWriter, r *http.Request) { (*answer.Load())(w, r) })
	n := setup(t, Config{ControlPlane: cfg})
	for name, h := range map[string]http.HandlerFunc{
		"500":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) },
		"401":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) },
		"204":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) },
		"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"no json":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"huge":     func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 1<<20)) },
		"invalid":  func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"scheme":"github"}`)) },
		"dropped":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		answer.Store(&h)
		n.in.Forget("acme", "standard")
		w := n.post("standard", genuine(t, "msg_1", vectorBody), vectorBody)
		n.expect(w, http.StatusServiceUnavailable, OutcomeSourceUnknowable)
		err := n.last().Err
		if err == nil || strings.Contains(err.Error(), "plane-token") || strings.Contains(err.Error(), "/base/") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if n.lookupCount(LookupFailed) < 8 {
		t.Errorf("%d failures were counted", n.lookupCount(LookupFailed))
	}
}

func TestControlPlaneConfigNamesItsFaultsWithoutTheirValues(t *testing.T) {
	token := signing.NewSecret("t")
	for _, c := range []struct {
		cfg  ControlPlaneConfig
		want string
	}{
		{ControlPlaneConfig{Token: token}, "url"},
		{ControlPlaneConfig{URL: "/relative", Token: token}, "url"},
		{ControlPlaneConfig{URL: "https://user:hidden@plane.test", Token: token}, "url"},
		{ControlPlaneConfig{URL: "https://plane.test?key=hidden", Token: token}, "url"},
		{ControlPlaneConfig{URL: "http://plane.test", Token: token}, "https"},
		{ControlPlaneConfig{URL: "https://plane.test"}, "token"},
		{ControlPlaneConfig{URL: "https://plane.test", Token: signing.NewSecret("hid\nden")}, "token"},
	} {
		_, err := NewControlPlane(c.cfg)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
	for _, good := range []string{"https://plane.test/api", "http://127.0.0.1:9", "http://localhost:9", "http://[::1]:9"} {
		if _, err := NewControlPlane(ControlPlaneConfig{URL: good, Token: token}); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}

func TestControlPlaneThatHangsIsLeft(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	cfg := plane(t, func(http.ResponseWriter, *http.Request) { <-release })
	n := setup(t, Config{ControlPlane: cfg, Cache: CacheConfig{Timeout: 50 * time.Millisecond}})
	n.expect(n.post("standard", nil, nil), http.StatusServiceUnavailable, OutcomeSourceUnknowable)
	if !errors.Is(n.last().Err, errReadTimeout) {
		t.Errorf("error %v", n.last().Err)
	}
}
