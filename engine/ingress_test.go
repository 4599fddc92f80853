package engine

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/ingress"
	github "github.com/dispatcher-engine/dispatcher/internal/payloads"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// withIngress adds an ingress on a free port.
func withIngress(c *Config) {
	c.Ingress = &ingress.Config{Addr: "127.0.0.1:0", KernelEvery: -1, Failures: ingress.FailureConfig{Burst: 10_000}}
}

// providerTrace is the trace in which the provider sends.
const providerTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

const githubSecret = "it's a secret to everybody"

func (b *bundle) source(id, rest string) *Source {
	b.t.Helper()
	raw := fmt.Sprintf(`{"scheme":"github","secrets":[%q],%s}`, githubSecret, rest)
	s, _, err := b.PutSource(b.t.Context(), "t", id, json.RawMessage(raw))
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// answer is what the ingress said.
type answer struct {
	status int
	header http.Header
	Status string `json:"status"`
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// hook sends a webhook as GitHub does.
func (b *bundle) hook(source, id, event string, body []byte, secret string) answer {
	b.t.Helper()
	return b.post(source, githubHeaders(b.t, id, event, body, secret), bytes.NewReader(body))
}

func githubHeaders(t *testing.T, id, event string, body []byte, secret string) http.Header {
	t.Helper()
	header := signed(t, signing.GitHub, secret, id, body)
	header.Set("X-GitHub-Event", event)
	header.Set("X-GitHub-Delivery", id)
	header.Set("Content-Type", "application/json")
	header.Set("Traceparent", providerTrace)
	return header
}

func signed(t *testing.T, scheme signing.Scheme, secret, id string, body []byte) http.Header {
	t.Helper()
	config := signing.SchemeConfig{Scheme: scheme, Keys: signing.Ring{{Secret: signing.NewSecret(secret)}}}
	out, err := signing.Sign(config, signing.Message{ID: id, Body: body})
	if err != nil {
		t.Fatal(err)
	}
	return out.Header
}

func (b *bundle) post(source string, header http.Header, body io.Reader) answer {
	b.t.Helper()
	return b.postTo("/webhook/t/"+source, header, body)
}

func (b *bundle) postTo(path string, header http.Header, body io.Reader) answer {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.IngressURL()+path, body)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header = header
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Error(err)
		return answer{}
	}
	defer resp.Body.Close()
	a := answer{status: resp.StatusCode, header: resp.Header}
	var any struct {
		Status any `json:"status"`
		ID     string
		Reason string
	}
	if err := json.NewDecoder(resp.Body).Decode(&any); err != nil {
		b.t.Error(err)
	}
	a.Status, a.ID, a.Reason = fmt.Sprint(any.Status), any.ID, any.Reason
	return a
}

// realBody is a real body of GitHub's.
func realBody() github.Payload {
	return github.GitHub()[0]
}

// TestWebhookGoesFromGitHubToASubscriberUnchanged is the whole way.
func TestWebhookGoesFromGitHubToASubscriberUnchanged(t *testing.T) {
	b := setup(t, withIngress)
	received := make(chan received, 10)
	target := capture(t, received)
	sub := b.subscribeHTTP("s", target)
	b.source("gh", `"destination":{"type":"fanout"},"forward_headers":["X-GitHub-Event","X-GitHub-Delivery"]`)
	p := realBody()
	a := b.hook("gh", "d-1", "push", p.Body, githubSecret)
	if a.status != http.StatusAccepted || a.Status != "buffered" || a.ID != "gh:d-1" {
		t.Fatalf("%+v", a)
	}
	got := <-received
	if !bytes.Equal(got.body, p.Body) {
		t.Errorf("%d bytes arrived, %d were sent", len(got.body), len(p.Body))
	}
	for name, want := range map[string]string{
		"Webhook-Topic": "gh.push", "Webhook-Id": "gh:d-1", "Content-Type": "application/json",
		"X-Github-Event": "push", "X-Github-Delivery": "d-1", "X-Hub-Signature-256": "",
		"Traceparent": providerTrace,
	} {
		if value := got.header.Get(name); value != want {
			t.Errorf("%s: %q, want %q", name, value, want)
		}
	}
	verifier, err := standardwebhooks.NewWebhook(sub.Signing[0].Secrets[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.Verify(got.body, got.header); err != nil {
		t.Errorf("signature: %v", err)
	}
	if a := b.hook("gh", "d-1", "push", p.Body, githubSecret); a.status != http.StatusOK || a.Status != "deduplicated" || a.ID != "gh:d-1" {
		t.Errorf("again: %+v", a)
	}
	if event, err := b.GetEvent(t.Context(), "t", "gh:d-1"); err != nil || event.Topic != "gh.push" || event.TraceParent != providerTrace {
		t.Errorf("the event by its id: %+v, %v", event, err)
	}
	b.settled()
	select {
	case again := <-received:
		t.Errorf("delivered twice: %v", again.header)
	default:
	}
}

// settled waits until nothing is pending.
func (b *bundle) settled() {
	b.t.Helper()
	b.eventually("everything is delivered", func() bool {
		for _, state := range []string{"received", "leased", "retrying"} {
			list, _, err := b.ListDeliveries(b.t.Context(), DeliveryFilter{Tenant: "t", State: state}, Page{})
			if err != nil {
				b.t.Fatal(err)
			}
			if len(list) > 0 {
				return false
			}
		}
		return true
	})
}

func (b *bundle) events() int {
	b.t.Helper()
	list, _, err := b.ListEvents(b.t.Context(), "t", Page{Limit: 1000})
	if err != nil {
		b.t.Fatal(err)
	}
	return len(list)
}

func TestNothingUnverifiedIsStored(t *testing.T) {
	b := setup(t, withIngress)
	b.source("gh", `"destination":{"type":"fanout"}`)
	p := realBody()
	for what, c := range map[string]struct {
		a      answer
		status int
		reason string
	}{
		"another secret": {b.hook("gh", "x-1", "push", p.Body, "another"), http.StatusUnauthorized, "mismatch"},
		"no signature":   {b.post("gh", http.Header{"X-Github-Event": {"push"}}, bytes.NewReader(p.Body)), http.StatusUnauthorized, "missing_signature"},
		"unknown source": {b.hook("nobody", "x-2", "push", p.Body, githubSecret), http.StatusNotFound, "unknown_source"},
	} {
		if c.a.status != c.status || c.a.Reason != c.reason {
			t.Errorf("%s: %+v", what, c.a)
		}
	}
	if n := b.events(); n != 0 {
		t.Errorf("%d events were stored", n)
	}
}

func TestASourceIsForgottenTheMomentItIsDeleted(t *testing.T) {
	b := setup(t, withIngress)
	if a := b.hook("gh", "1", "push", []byte("{}"), githubSecret); a.status != http.StatusNotFound {
		t.Fatalf("before: %+v", a)
	}
	b.source("gh", `"destination":{"type":"fanout"}`)
	if a := b.hook("gh", "1", "push", []byte("{}"), githubSecret); a.status != http.StatusAccepted {
		t.Errorf("made: %+v", a)
	}
	if err := b.DeleteSource(t.Context(), "t", "gh"); err != nil {
		t.Fatal(err)
	}
	if a := b.hook("gh", "2", "push", []byte("{}"), githubSecret); a.status != http.StatusNotFound {
		t.Errorf("deleted: %+v", a)
	}
	if err := b.DeleteSource(t.Context(), "t", "gh"); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted again: %v", err)
	}
}

// TestCases holds rows of the case list against the real store.
// Nothing is compressed on the way out, however well it would be: the bytes that
// are signed are those that were published.
func caseS12(t *testing.T) {
	b := setup(t)
	received := make(chan received, 1)
	sub := b.subscribeHTTP("s", capture(t, received))
	body := []byte(`{"a":"` + strings.Repeat("a", 100_000) + `"}`)
	if _, err := b.Publish(t.Context(), "t", EventInput{Topic: "x", Payload: body}); err != nil {
		t.Fatal(err)
	}
	got := <-received
	if coding := got.header.Get("Content-Encoding"); coding != "" || !bytes.Equal(got.body, body) {
		t.Errorf("%d bytes as %q, want %d as they were", len(got.body), coding, len(body))
	}
	verifier, err := standardwebhooks.NewWebhook(sub.Signing[0].Secrets[0].Value)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.Verify(got.body, got.header); err != nil {
		t.Errorf("signature: %v", err)
	}
}

func TestCases(t *testing.T) {
	t.Run("S12", caseS12)
	t.Run("V17", func(t *testing.T) {
		b := setup(t, withIngress)
		const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
		raw := `{"scheme":"standard","secrets":["` + key + `"],"destination":{"type":"fanout"}}`
		if _, _, err := b.PutSource(t.Context(), "t", "std", json.RawMessage(raw)); err != nil {
			t.Fatal(err)
		}
		header := signed(t, signing.Standard, key, "msg_1", []byte(`{"type":"a.b"}`))
		for _, want := range []int{http.StatusAccepted, http.StatusOK} {
			if a := b.post("std", header.Clone(), strings.NewReader(`{"type":"a.b"}`)); a.status != want {
				t.Errorf("%+v, want %d", a, want)
			}
		}
		if n := b.events(); n != 1 {
			t.Errorf("%d events", n)
		}
	})
	t.Run("V24", func(t *testing.T) {
		b := setup(t, withIngress)
		b.source("gh", `"destination":{"type":"fanout"}`)
		var fresh, repeated atomic.Int64
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				switch b.hook("gh", "one", "push", []byte(`{"n":1}`), githubSecret).status {
				case http.StatusAccepted:
					fresh.Add(1)
				case http.StatusOK:
					repeated.Add(1)
				}
			})
		}
		wg.Wait()
		if fresh.Load() != 1 || repeated.Load() != 49 || b.events() != 1 {
			t.Errorf("%d fresh, %d repeated, %d events", fresh.Load(), repeated.Load(), b.events())
		}
	})
}

// peakHeap samples the heap until stop is called.
func peakHeap() (stop func() uint64) {
	runtime.GC()
	var before, peak runtime.MemStats
	runtime.ReadMemStats(&before)
	done, ended := make(chan struct{}), make(chan struct{})
	most := before.HeapAlloc
	go func() {
		defer close(ended)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				runtime.ReadMemStats(&peak)
				most = max(most, peak.HeapAlloc)
			}
		}
	}()
	return func() uint64 {
		close(done)
		<-ended
		return most - before.HeapAlloc
	}
}

func TestLargeBodiesGoThroughWithoutBeingInMemory(t *testing.T) {
	b := setup(t, withIngress)
	received := make(chan received, 1)
	target := capture(t, received)
	b.subscribeHTTP("s", target)
	b.source("gh", `"destination":{"type":"fanout"},"max_body":26214400`)
	body := make([]byte, 25<<20)
	_, _ = rand.Read(body)
	header := githubHeaders(t, "big", "push", body, githubSecret)
	peak := peakHeap()
	if a := b.post("gh", header, bytes.NewReader(body)); a.status != http.StatusAccepted {
		t.Fatalf("%+v", a)
	}
	got := <-received
	if grown := peak(); grown > 16<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	if got.sum != sumOf(body) || got.size != int64(len(body)) {
		t.Errorf("%d bytes with another sum arrived", got.size)
	}
	left, err := os.ReadDir(filepath.Join(b.config.Storage.Dir, ingressDir))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestBodiesOfEverySizeArriveAsTheyWere(t *testing.T) {
	b := setup(t, withIngress)
	received := make(chan received, 1)
	b.subscribeHTTP("s", capture(t, received))
	b.source("gh", `"destination":{"type":"fanout"},"max_body":8388608`)
	for _, size := range []int{1, 64 << 10, 64<<10 + 1, 1 << 20, 1<<20 + 1} {
		body := bytes.Repeat([]byte("x"), size)
		if a := b.hook("gh", fmt.Sprint("d-", size), "push", body, githubSecret); a.status != http.StatusAccepted {
			t.Fatalf("%d bytes: %+v", size, a)
		}
		if got := <-received; got.sum != sumOf(body) {
			t.Errorf("%d bytes: %d arrived, or others", size, got.size)
		}
	}
}

func TestAFullStoreTellsTheSenderToComeBack(t *testing.T) {
	b := setup(t, withIngress, func(c *Config) {
		c.Storage.Watermark.Bytes, c.Storage.Watermark.Percent = 1<<30, 5
		c.Storage.Watermark.Usage = func() (uint64, uint64, error) { return 1, 100 << 30, nil }
	})
	b.source("gh", `"destination":{"type":"fanout"}`)
	a := b.hook("gh", "1", "push", []byte("{}"), githubSecret)
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "30" {
		t.Errorf("%+v", a)
	}
	if n := b.events(); n != 0 {
		t.Errorf("%d events", n)
	}
}

func TestOriginsOfSubscribersAreOursAlone(t *testing.T) {
	b := setup(t, withIngress)
	b.source("gh", `"destination":{"type":"origin","url":"http://127.0.0.1:1/in","token":"t0ken"}`)
	var conflict *ConflictError
	_, err := b.UpdateSubscriber(t.Context(), "t", "origin-gh", SubscriberInput{Concurrency: new(1)})
	if !errors.As(err, &conflict) || !strings.Contains(conflict.Rule, `"gh"`) {
		t.Errorf("change: %v", err)
	}
	if err := b.DeleteSubscriber(t.Context(), "t", "origin-gh"); !errors.As(err, &conflict) {
		t.Errorf("delete: %v", err)
	}
	if _, err := b.RotateSecret(t.Context(), "t", "origin-gh", RotateInput{}); !errors.As(err, &conflict) {
		t.Errorf("rotate: %v", err)
	}
	var invalid *InvalidError
	if _, err := b.CreateSubscriber(t.Context(), "t", SubscriberInput{ID: new("origin-x"), URL: new("http://127.0.0.1:1/")}); !errors.As(err, &invalid) {
		t.Errorf("create: %v", err)
	}
	own := "http://" + b.ingress.Addr().String() + "/webhook/t/gh"
	_, _, err = b.PutSource(t.Context(), "t", "loop", json.RawMessage(`{"scheme":"github","secrets":["s"],"destination":{"type":"origin","url":"`+own+`"}}`))
	if !errors.As(err, &invalid) || invalid.Fields[0].Field != "destination.url" {
		t.Errorf("an origin that is the node itself: %v", err)
	}
}

func TestTheOriginFollowsItsSource(t *testing.T) {
	b := setup(t, withIngress)
	s := b.source("gh", `"destination":{"type":"origin","url":"http://127.0.0.1:1/in","token":"one"}`)
	get := func() *delivery.Subscriber {
		t.Helper()
		sub, _, err := b.GetSubscriber(t.Context(), "t", "origin-gh")
		if err != nil {
			t.Fatal(err)
		}
		return sub
	}
	first := get()
	if s.Subscriber != "origin-gh" || first.Headers["Authorization"] != "Bearer one" || first.Ordering != delivery.OrderingNone {
		t.Errorf("%+v, %+v", s, first)
	}
	raw, err := json.Marshal(s.Config)
	if err != nil || strings.Contains(string(raw), `"one"`) || strings.Contains(string(raw), githubSecret) {
		t.Fatalf("%s, %v", raw, err)
	}
	// Secrets and the token that are left out are those that are stored.
	_, isNew, err := b.PutSource(t.Context(), "t", "gh", json.RawMessage(`{"scheme":"github","destination":{"type":"origin","url":"http://127.0.0.1:1/in"}}`))
	if err != nil || isNew {
		t.Errorf("without secrets: new %v, %v", isNew, err)
	}
	if again := get(); again.Version != first.Version {
		t.Error("nothing changed, and yet the origin did")
	}
	b.disable(first.Num, delivery.ReasonGone, time.Now())
	b.source("gh", `"destination":{"type":"origin","url":"http://127.0.0.1:2/in","token":"two"}`)
	if moved := get(); moved.Headers["Authorization"] != "Bearer two" || moved.Num != first.Num || moved.Status != delivery.SubscriberActive {
		t.Errorf("%+v", moved)
	}
	b.source("gh", `"destination":{"type":"fanout"}`)
	if _, _, err := b.GetSubscriber(t.Context(), "t", "origin-gh"); !errors.Is(err, ErrNotFound) {
		t.Errorf("after the change to fan-out: %v", err)
	}
}

func TestBadSourcesAreNamedFieldByField(t *testing.T) {
	b := setup(t, withIngress)
	for raw, field := range map[string]string{
		`{"scheme":"github","destination":{"type":"fanout"}}`:                                                           "secrets",
		`{"scheme":"github","secrets":["a"],"destination":{"type":"origin","url":"http://10.0.0.1/"}}`:                  "destination.url",
		`{"scheme":"github","secrets":["a"],"destination":{"type":"fanout"},"max_body":-1}`:                             "max_body",
		`{"scheme":"github","secrets":["a","***"],"destination":{"type":"fanout"}}`:                                     "source",
		`{"scheme":"github","secrets":["a"],"destination":{"type":"fanout"},"allow_ip":["x"]}`:                          "source",
		`{"scheme":"github","secrets":["a"],"destination":{"type":"fanout"},"forward_headers":["X` + many(33) + `"]}`:   "forward_headers",
		`{"scheme":"github","secrets":["a"],"destination":{"type":"fanout"},"forward_headers":["X-Hub-Signature-256"]}`: "forward_headers[0]",
	} {
		_, _, err := b.PutSource(t.Context(), "t", "s", json.RawMessage(raw))
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !slices.ContainsFunc(invalid.Fields, func(f FieldError) bool { return f.Field == field }) {
			t.Errorf("%s: %v, want %s", raw, err, field)
		}
	}
	if list, _, err := b.ListSources(t.Context(), "t", Page{}); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

func many(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, `-1","X-%d`, i)
	}
	return out.String()
}

// subscribeHTTP registers a receiver without TLS.
func (b *bundle) subscribeHTTP(id, url string) *delivery.Subscriber {
	b.t.Helper()
	s, err := b.CreateSubscriber(b.t.Context(), "t", SubscriberInput{ID: &id, URL: &url})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}
