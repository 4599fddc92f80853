package engine

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// originServer is an origin: it remembers what it took.
type originServer struct {
	mu      sync.Mutex
	poison  string
	batches []int
	taken   map[string]string // event id to body
	headers map[string]string
	token   string
}

func (o *originServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var batch struct {
		Events []struct {
			EventID       string            `json:"eventId"`
			ReceivedAt    time.Time         `json:"receivedAt"`
			ContentType   string            `json:"contentType"`
			Headers       map[string]string `json:"headers"`
			RawBody       string            `json:"rawBody"`
			RawBodyBase64 string            `json:"rawBodyBase64"`
		} `json:"events"`
	}
	err := json.NewDecoder(r.Body).Decode(&batch)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	o.token = r.Header.Get("Authorization")
	o.batches = append(o.batches, len(batch.Events))
	for _, e := range batch.Events {
		if o.poison != "" && strings.Contains(e.RawBody, o.poison) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
	}
	for _, e := range batch.Events {
		body := e.RawBody
		if e.RawBodyBase64 != "" {
			raw, _ := base64.StdEncoding.DecodeString(e.RawBodyBase64)
			body = string(raw)
		}
		o.taken[e.EventID] = body
		o.headers = e.Headers
	}
}

// allAtOnce starts without the gentle first deliveries, so that batches form.
func allAtOnce(c *Config) { c.Sched.StartAllowance = 100 }

func startOrigin(t *testing.T) (*originServer, string) {
	t.Helper()
	o := &originServer{taken: map[string]string{}}
	s := httptest.NewServer(o)
	t.Cleanup(s.Close)
	return o, s.URL + "/events"
}

func TestOneEventThatTheOriginRefusesIsDeadAndTheOthersAreDelivered(t *testing.T) {
	b := setup(t, withIngress, allAtOnce)
	o, url := startOrigin(t)
	o.poison = "poison"
	b.source("gh", `"destination":{"type":"origin","url":"`+url+`","token":"s3cret"},"forward_headers":["X-GitHub-Event"]`)
	const n = 50
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			body := fmt.Sprintf(`{"n":%d}`, i)
			if i == 17 {
				body = `{"n":"poison"}`
			}
			if a := b.hook("gh", fmt.Sprintf("d-%d", i), "push", []byte(body), githubSecret); a.status != http.StatusAccepted {
				t.Errorf("%+v", a)
			}
		})
	}
	wg.Wait()
	b.settled()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.taken) != n-1 || o.taken["gh:d-3"] != `{"n":3}` {
		t.Errorf("%d events arrived: %v", len(o.taken), o.taken)
	}
	if o.token != "Bearer s3cret" || o.headers["X-Github-Event"] != "push" {
		t.Errorf("token %q, headers %v", o.token, o.headers)
	}
	if largest := maxOf(o.batches); largest < n/2 {
		t.Errorf("batches of %v: nothing was gathered", o.batches)
	}
	dead, _, err := b.ListDeliveries(t.Context(), DeliveryFilter{Tenant: "t", Subscriber: "origin-gh", State: "dead"}, Page{})
	if err != nil || len(dead) != 1 || dead[0].Event.ID != "gh:d-17" || dead[0].Reason != delivery.ReasonRejected {
		t.Errorf("dead letters: %+v, %v", dead, err)
	}
}

func maxOf(list []int) (most int) {
	for _, n := range list {
		most = max(most, n)
	}
	return most
}

func TestLargeAndBinaryBodiesReachTheOrigin(t *testing.T) {
	b := setup(t, withIngress, allAtOnce)
	o, url := startOrigin(t)
	b.source("gh", `"destination":{"type":"origin","url":"`+url+`"},"max_body":8388608`)
	bodies := map[string]string{
		"gh:text": strings.Repeat("ü\n\"", 300_000), "gh:binary": strings.Repeat("\xff\x00", 600_000), "gh:small": "{}",
	}
	for id, body := range bodies {
		if a := b.hook("gh", strings.TrimPrefix(id, "gh:"), "push", []byte(body), githubSecret); a.status != http.StatusAccepted {
			t.Fatalf("%+v", a)
		}
	}
	b.settled()
	o.mu.Lock()
	defer o.mu.Unlock()
	for id, want := range bodies {
		if got := o.taken[id]; got != want {
			t.Errorf("%s: %d bytes arrived, want %d", id, len(got), len(want))
		}
	}
	if o.token != "" {
		t.Errorf("a token that nobody set: %q", o.token)
	}
}

func TestAnEventForAnOriginIsPublishedToNobodyElse(t *testing.T) {
	b := setup(t, withIngress)
	got := make(chan received, 1)
	b.subscribeHTTP("all", capture(t, got))
	o, url := startOrigin(t)
	b.source("gh", `"destination":{"type":"origin","url":"`+url+`"}`)
	b.hook("gh", "1", "push", []byte("{}"), githubSecret)
	b.settled()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.taken) != 1 || len(got) != 0 {
		t.Errorf("origin got %d, the subscriber %d", len(o.taken), len(got))
	}
	_, err := b.Publish(t.Context(), "t", EventInput{Topic: originTopic, Payload: []byte("{}")})
	if err == nil {
		t.Error("the topic of origins can be published")
	}
}
