//go:build real

package realtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/cli"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// demoNode is `dispatcher demo` as a person runs it, and what the test adds.
type demoNode struct {
	t          *testing.T
	url, token string
	rejecting  *testnet.Receiver // answers 422 until the test mends it
}

// lockedBuffer is written by the node and read by the test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// markup is what a stranger would put wherever he may write.
const markup = `"><img src=x onerror="alert(1)"><script>alert(2)</script>`

// strangeEvents are published for the strange tenant's subscribers.
const strangeEvents = 4

// startDemo runs the demo until its last line, which says where the dashboard is.
func startDemo(t *testing.T) *demoNode {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	said := &lockedBuffer{}
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, "1.0.0-test", []string{"demo", "--events", "60"}, cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: said})
	}()
	t.Cleanup(func() {
		cancel()
		if status := <-ended; status != 0 {
			t.Errorf("the demo ended with %d: %s", status, said)
		}
	})
	last := regexp.MustCompile(`(?s)(http://\S+)/ui/\n.*DISPATCHER_API_TOKEN=(\S+)`)
	deadline := time.After(time.Minute)
	for {
		if m := last.FindStringSubmatch(said.String()); m != nil {
			return &demoNode{t: t, url: m[1], token: m[2]}
		}
		select {
		case status := <-ended:
			ended <- status
			t.Fatalf("the demo ended with %d: %s", status, said)
		case <-deadline:
			t.Fatalf("the demo did not get to its end: %s", said)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// call uses the node's API.
func (n *demoNode) call(method, path string, in any) map[string]any {
	n.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		n.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(n.t.Context(), method, n.url+path, bytes.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+n.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	out := map[string]any{}
	text, _ := io.ReadAll(resp.Body)
	if resp.StatusCode >= 300 {
		n.t.Fatalf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	_ = json.Unmarshal(text, &out)
	return out
}

// furnish adds what goes wrong, and what a stranger would write.
func (n *demoNode) furnish() {
	n.t.Helper()
	ca, err := testnet.NewCA()
	if err != nil {
		n.t.Fatal(err)
	}
	cert, err := ca.Issue(testnet.Leaf{Names: []string{"127.0.0.1"}})
	if err != nil {
		n.t.Fatal(err)
	}
	receiver := func(b testnet.Behaviour) *testnet.Receiver {
		r, err := testnet.Start(testnet.Config{Certificate: &cert, Behaviour: b})
		if err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { _ = r.Close() })
		return r
	}
	n.call("PUT", "/v1/tenants/strange", map[string]any{"name": markup})
	subscribe := func(id, url string, more map[string]any) {
		in := map[string]any{"id": id, "url": url, "tls": map[string]string{"ca_pem": string(ca.PEM())}}
		maps.Copy(in, more)
		n.call("POST", "/v1/tenants/strange/subscribers", in)
	}
	n.rejecting = receiver(testnet.Behaviour{Status: 422, Body: markup})
	redirecting := receiver(testnet.Behaviour{Status: 302, Location: "https://evil.example/" + markup, Body: markup})
	subscribe("billing-events", n.rejecting.URL("", "/hooks/x")+"?q=%22%3E%3Cscript%3Ealert(3)%3C/script%3E&key=hush-hush", nil)
	subscribe("redirects", redirecting.URL("", "/"), map[string]any{
		"retry": map[string]any{"schedule": []string{"100ms", "200ms", "1h"}, "max_age": "2h"},
	})
	subscribe("nobody-home", "https://127.0.0.1:1/hook", map[string]any{
		"retry": map[string]any{"schedule": []string{"50ms", "100ms"}, "max_age": "2h"},
	})
	gone := receiver(testnet.Behaviour{Status: 410})
	subscribe("legacy-crm", gone.URL("", "/"), nil)
	// Fewer than the failures in a row that open a breaker.
	for i := range strangeEvents {
		n.call("POST", "/v1/tenants/strange/events", map[string]any{
			"id": fmt.Sprintf("inv-%03d", i+1), "topic": "invoice.paid", "payload": map[string]string{"note": "payload-" + markup},
		})
	}
	n.call("PUT", "/v1/tenants/strange/sources/github", map[string]any{
		"scheme": "github", "secrets": []string{"source-secret-hush-hush"}, "destination": map[string]any{"type": "fanout"},
	})
	n.awaitDead(strangeEvents + 1)
}

// awaitDead waits until so many deliveries of the strange tenant are dead.
func (n *demoNode) awaitDead(want int) {
	n.t.Helper()
	n.await(func() bool {
		rows, _ := n.call("GET", "/v1/deliveries?tenant=strange&state=dead&limit=200", nil)["data"].([]any)
		return len(rows) >= want
	})
}

// await waits until something is so, for ten seconds at most.
func (n *demoNode) await(done func() bool) {
	n.t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for range 200 {
		if done() {
			return
		}
		<-ticker.C
	}
	n.t.Fatal("it did not come true in ten seconds")
}

// idOf returns the id of the first delivery that matches.
func (n *demoNode) idOf(query string) string {
	n.t.Helper()
	rows, _ := n.call("GET", "/v1/deliveries?limit=1&"+query, nil)["data"].([]any)
	if len(rows) == 0 {
		n.t.Fatalf("no delivery with %s", query)
	}
	id, _ := rows[0].(map[string]any)["id"].(string)
	return id
}

// retried is the delivery with most attempts, which are more than one.
func (n *demoNode) retried(query string) (id string) {
	n.t.Helper()
	most := 1.0
	rows, _ := n.call("GET", "/v1/deliveries?limit=200&"+query, nil)["data"].([]any)
	for _, row := range rows {
		row, _ := row.(map[string]any)
		if attempts, _ := row["attempts"].(float64); attempts > most {
			most, id = attempts, row["id"].(string)
		}
	}
	if id == "" {
		n.t.Fatalf("none of %d deliveries with %s was tried twice", len(rows), query)
	}
	return id
}
