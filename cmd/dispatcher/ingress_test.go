package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/payloads"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/signing"
)

var ingressAddress = regexp.MustCompile(`ingress=(http://[0-9.:]+)`)

// ingress returns the address that the node logged.
func (p *process) ingress() string {
	p.t.Helper()
	var url string
	eventually(p.t, 10*time.Second, "the ingress's address is logged", func() bool {
		if m := ingressAddress.FindStringSubmatch(p.logged()); m != nil {
			url = m[1]
		}
		return url != ""
	})
	return url
}

const hookSecret = "a secret of GitHub's"

// source registers GitHub as a provider.
func (p *process) source(destination any) {
	p.t.Helper()
	p.call(http.MethodPut, "/v1/tenants/t/sources/gh", map[string]any{
		"scheme": "github", "secrets": []string{hookSecret}, "destination": destination, "forward_headers": []string{"X-GitHub-Event"},
	}, nil)
}

// hook posts a webhook as GitHub does and returns the status, 0 if there was no
// answer.
func hook(t *testing.T, base, id string, body []byte) int {
	t.Helper()
	config := signing.SchemeConfig{Scheme: signing.GitHub, Keys: signing.Ring{{Secret: signing.NewSecret(hookSecret)}}}
	signed, err := signing.Sign(config, signing.Message{Body: body})
	if err != nil {
		t.Error(err)
		return 0
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/webhook/t/gh", bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0
	}
	req.Header = signed.Header
	req.Header.Set("X-GitHub-Event", "push")
	req.Header.Set("X-GitHub-Delivery", id)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0 // killed under the request
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// TestAcknowledgedWebhooksOutliveKillNine kills the node in the middle of a flood
// of webhooks, and again after the last 202. Whatever got a 2xx is delivered.
func TestAcknowledgedWebhooksOutliveKillNine(t *testing.T) {
	receiver, err := testnet.Start(testnet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	dir := t.TempDir()
	flags := []string{"--allow-private", "127.0.0.0/8", "--allow-http"}
	node := serve(t, dir, flags...)
	node.call(http.MethodPut, "/v1/tenants/t", nil, nil)
	node.call(http.MethodPost, "/v1/tenants/t/subscribers", map[string]any{"id": "s", "url": receiver.URL("", "/h"), "topics": []string{"gh.*"}}, nil)
	node.source(map[string]any{"type": "fanout"})
	node.call(http.MethodPost, "/v1/tenants/t/subscribers/s/pause", nil, nil) // nothing is delivered before the kill
	bodies := payloads.GitHub()
	var mu sync.Mutex
	var acked []string
	var next atomic.Int64
	var senders sync.WaitGroup
	base := node.ingress()
	for range 4 {
		senders.Go(func() {
			for {
				n := next.Add(1)
				id := fmt.Sprintf("d-%04d", n)
				status := hook(t, base, id, bodies[int(n)%len(bodies)].Body)
				if status == 0 {
					return
				}
				if status != http.StatusAccepted {
					t.Errorf("%s: %d", id, status)
					return
				}
				mu.Lock()
				acked = append(acked, "gh:"+id)
				mu.Unlock()
			}
		})
	}
	eventually(t, 30*time.Second, "some are acknowledged", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(acked) >= 200
	})
	node.kill()
	senders.Wait()
	node = serve(t, dir, flags...)
	if status := hook(t, node.ingress(), "last", bodies[0].Body); status != http.StatusAccepted {
		t.Fatalf("after the restart: %d", status)
	}
	acked = append(acked, "gh:last")
	node.kill()
	node = serve(t, dir, flags...)
	if status := hook(t, node.ingress(), "last", bodies[0].Body); status != http.StatusOK {
		t.Errorf("the same again after two kills: %d", status)
	}
	node.call(http.MethodPost, "/v1/tenants/t/subscribers/s/resume", nil, nil)
	eventually(t, 60*time.Second, "all are delivered", func() bool {
		for _, id := range acked {
			if !receiver.Tally().Has(id) {
				return false
			}
		}
		return true
	})
	t.Logf("%d webhooks were acknowledged and delivered", len(acked))
}

func TestSecretsOfSourcesAreNeverShown(t *testing.T) {
	node := serve(t, t.TempDir(), "--allow-private", "127.0.0.0/8", "--allow-http")
	node.call(http.MethodPut, "/v1/tenants/t", nil, nil)
	destination := map[string]any{"type": "origin", "url": "http://127.0.0.1:9/in", "token": "tok-123"}
	node.source(destination)
	for _, path := range []string{"/v1/tenants/t/sources/gh", "/v1/tenants/t/sources", "/v1/tenants/t/subscribers/origin-gh", "/v1/tenants/t/subscribers"} {
		status, body := node.try(http.MethodGet, path, nil)
		if status != http.StatusOK || bytes.Contains(body, []byte(hookSecret)) || bytes.Contains(body, []byte("tok-123")) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	var shown struct {
		Secrets     []string
		Path        string
		Destination struct{ Token string }
	}
	node.call(http.MethodGet, "/v1/tenants/t/sources/gh", nil, &shown)
	if len(shown.Secrets) != 1 || shown.Secrets[0] != "***" || shown.Destination.Token != "***" || shown.Path != "/webhook/t/gh" {
		t.Errorf("%+v", shown)
	}
	status, body := node.try(http.MethodPatch, "/v1/tenants/t/subscribers/origin-gh", map[string]any{"concurrency": 1})
	if status != http.StatusConflict || !strings.Contains(string(body), "gh") {
		t.Errorf("change of an origin: %d %s", status, body)
	}
	status, body = node.try(http.MethodPut, "/v1/tenants/t/sources/bad", `{"scheme":"github","secrets":["x"],"destination":{"type":"origin","url":"http://10.0.0.1/"}}`)
	var problem struct {
		Errors []struct{ Field string }
	}
	if err := json.Unmarshal(body, &problem); err != nil || status != http.StatusUnprocessableEntity || len(problem.Errors) != 1 || problem.Errors[0].Field != "destination.url" {
		t.Errorf("a denied origin: %d %s", status, body)
	}
	status, body = node.try(http.MethodGet, "/metrics", nil)
	if status != http.StatusOK || !bytes.Contains(body, []byte(`dispatcher_ingress_answers_total{status="202",step="buffered"}`)) {
		t.Errorf("metrics: %d, without the ingress's", status)
	}
	node.call(http.MethodDelete, "/v1/tenants/t/sources/gh", nil, nil)
	if status, _ := node.try(http.MethodGet, "/v1/tenants/t/subscribers/origin-gh", nil); status != http.StatusNotFound {
		t.Errorf("the origin of a deleted source: %d", status)
	}
}
