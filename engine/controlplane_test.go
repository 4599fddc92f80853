package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// controlPlane is a service that knows sources; it counts who asks for what.
type controlPlane struct {
	mu      sync.Mutex
	sources map[string]string // path to JSON
	asked   map[string]int
	down    bool
	tokens  map[string]bool
}

func (c *controlPlane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked[r.URL.Path]++
	c.tokens[r.Header.Get("Authorization")] = true
	source, ok := c.sources[r.URL.Path]
	switch {
	case c.down:
		w.WriteHeader(http.StatusBadGateway)
	case !ok:
		http.NotFound(w, r)
	default:
		_, _ = w.Write([]byte(source))
	}
}

func (c *controlPlane) set(path, destination string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sources["/v1/tenants/"+path] = fmt.Sprintf(`{"scheme":"github","secrets":[%q],"destination":%s}`, githubSecret, destination)
}

func (c *controlPlane) count(path string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked["/v1/tenants/"+path]
}

// withControlPlane starts one and makes the node read its sources from there.
func withControlPlane(t *testing.T, ttl time.Duration) (*controlPlane, func(*Config)) {
	t.Helper()
	c := &controlPlane{sources: map[string]string{}, asked: map[string]int{}, tokens: map[string]bool{}}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	return c, func(config *Config) {
		withIngress(config)
		config.Ingress.ControlPlane = &ingress.ControlPlaneConfig{URL: s.URL + "/v1", Token: signing.NewSecret("plane-token")}
		config.Ingress.Cache = ingress.CacheConfig{TTL: ttl, RetryAfter: time.Millisecond}
	}
}

// hookTo is hook for any tenant.
func (b *bundle) hookTo(tenant, source, id string, body []byte) answer {
	b.t.Helper()
	header := githubHeaders(b.t, id, "push", body, githubSecret)
	return b.postTo("/webhook/"+tenant+"/"+source, header, bytes.NewReader(body))
}

// The node knows nobody: tenants, sources and the origin come from the control
// plane, and events go all the way.
func TestNodeTakesTenantsAndSourcesFromItsControlPlane(t *testing.T) {
	plane, with := withControlPlane(t, time.Minute)
	b := setup(t, with, allAtOnce)
	o, url := startOrigin(t)
	plane.set("newcomer/sources/gh", fmt.Sprintf(`{"type":"origin","url":%q,"token":"origin-token"}`, url))
	plane.set("t/sources/gh", `{"type":"fanout"}`)
	received := make(chan received, 10)
	b.subscribeHTTP("s", capture(t, received))

	const events = 10
	var wg sync.WaitGroup
	for i := range events {
		wg.Go(func() {
			if a := b.hookTo("newcomer", "gh", fmt.Sprint("d-", i), realBody().Body); a.status != http.StatusAccepted {
				t.Errorf("event %d: %+v", i, a)
			}
		})
	}
	wg.Wait()
	if a := b.hookTo("t", "gh", "d", realBody().Body); a.status != http.StatusAccepted {
		t.Errorf("fan-out: %+v", a)
	}
	for range events {
		if a := b.hookTo("nobody", "gh", "d", realBody().Body); a.status != http.StatusNotFound || a.Reason != "unknown_source" {
			t.Errorf("unknown tenant: %+v", a)
		}
	}
	if got := <-received; got.header.Get("Webhook-Topic") != "gh.push" {
		t.Errorf("fanned out as %v", got.header)
	}
	b.eventually("all are at the origin", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.taken) == events && o.token == "Bearer origin-token"
	})
	for _, path := range []string{"newcomer/sources/gh", "t/sources/gh", "nobody/sources/gh"} {
		if n := plane.count(path); n != 1 {
			t.Errorf("%s was asked for %d times", path, n)
		}
	}
	if len(plane.tokens) != 1 || !plane.tokens["Bearer plane-token"] {
		t.Errorf("asked with %v", plane.tokens)
	}
	if _, err := b.registry.GetTenant("nobody"); err == nil {
		t.Error("a tenant that the control plane does not know was made")
	}
}

// A source that was known goes on being taken while the control plane is down,
// and a change at the control plane arrives without a restart.
func TestNodeLivesThroughAnOutageOfItsControlPlane(t *testing.T) {
	plane, with := withControlPlane(t, time.Millisecond)
	b := setup(t, with, allAtOnce)
	first, url := startOrigin(t)
	plane.set("t/sources/gh", fmt.Sprintf(`{"type":"origin","url":%q}`, url))
	if a := b.hook("gh", "before", "push", realBody().Body, githubSecret); a.status != http.StatusAccepted {
		t.Fatalf("%+v", a)
	}
	plane.mu.Lock()
	plane.down = true
	plane.mu.Unlock()
	asked := plane.count("t/sources/gh")
	for i := 0; plane.count("t/sources/gh") < asked+3; i++ {
		if a := b.hook("gh", fmt.Sprint("during-", i), "push", realBody().Body, githubSecret); a.status != http.StatusAccepted {
			t.Fatalf("while it is down: %+v", a)
		}
	}
	if a := b.hookTo("other", "gh", "d", realBody().Body); a.status != http.StatusServiceUnavailable {
		t.Errorf("nobody knows: %+v", a)
	}
	b.eventually("the first is delivered", func() bool {
		first.mu.Lock()
		defer first.mu.Unlock()
		return first.taken["gh:before"] != ""
	})
	second, moved := startOrigin(t)
	plane.set("t/sources/gh", fmt.Sprintf(`{"type":"origin","url":%q}`, moved))
	plane.mu.Lock()
	plane.down = false
	plane.mu.Unlock()
	i := 0
	b.eventually("the new origin gets events", func() bool {
		i++
		b.hook("gh", fmt.Sprint("after-", i), "push", realBody().Body, githubSecret)
		second.mu.Lock()
		defer second.mu.Unlock()
		return len(second.taken) > 0
	})
}

// An origin inside has a certificate that no public authority knows.
func TestOriginWithACAOfItsOwn(t *testing.T) {
	b := setup(t, withIngress, allAtOnce)
	r := b.receiver(testnet.Config{})
	destination := map[string]any{"type": "origin", "url": r.URL("", "/in")}
	put := func() *Source {
		raw, err := json.Marshal(destination)
		if err != nil {
			t.Fatal(err)
		}
		return b.source("gh", `"destination":`+string(raw))
	}
	put()
	if a := b.hook("gh", "d-1", "push", realBody().Body, githubSecret); a.status != http.StatusAccepted {
		t.Fatalf("%+v", a)
	}
	b.eventually("the attempt fails", func() bool {
		list, _, err := b.ListDeliveries(t.Context(), DeliveryFilter{Tenant: "t", State: "retrying"}, Page{})
		return err == nil && len(list) == 1
	})
	destination["tls"] = map[string]any{"ca_pem": string(b.ca.PEM())}
	s := put()
	if shown, err := json.Marshal(s.Config); err != nil || !strings.Contains(string(shown), "BEGIN CERTIFICATE") {
		t.Errorf("shown as %s, %v", shown, err)
	}
	b.settled() // by the next attempt of the same delivery
	list, _, err := b.ListDeliveries(t.Context(), DeliveryFilter{Tenant: "t"}, Page{})
	if err != nil || len(list) != 1 || list[0].State != delivery.StateDelivered {
		t.Errorf("%+v, %v", list, err)
	}
}
