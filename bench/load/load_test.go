package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/signing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBodiesHaveTheirSizeAndSayWhenTheyWereSent(t *testing.T) {
	for _, size := range []int{MinBody, 1024} {
		b, err := NewBodies(size, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 7, 999_999_999} {
			body := b.Append(nil, n, 123456789*time.Nanosecond)
			var got struct{ Sent, N, Pad string }
			if len(body) != size || json.Unmarshal(body, &got) != nil || got.N != fmt.Sprintf("%09d", n) {
				t.Errorf("%d bytes: %s", len(body), body)
			}
			if sent, ok := Sent(body); !ok || sent != 123456789 {
				t.Errorf("%v %v", sent, ok)
			}
		}
	}
	if _, err := NewBodies(MinBody-1, 1); err == nil {
		t.Error("a body without room was made")
	}
	one, _ := NewBodies(200, 1)
	two, _ := NewBodies(200, 2)
	if bytes.Equal(one.tail, two.tail) {
		t.Error("the seed changes nothing")
	}
}

func FuzzSent(f *testing.F) {
	b, _ := NewBodies(MinBody, 1)
	f.Add(b.Append(nil, 3, 42))
	f.Add([]byte(`{"sent":"zzzzzzzzzzzzzzzz"}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, body []byte) {
		if sent, ok := Sent(body); ok && sent < 0 {
			t.Errorf("%q: %v", body, sent)
		}
	})
}

func TestIDsAndPathsAreReadBack(t *testing.T) {
	if tag, n, ok := parseID(EventID("drain-2", 17)); !ok || tag != "drain-2" || n != 17 {
		t.Errorf("%q %d %v", tag, n, ok)
	}
	for _, bad := range []string{"", "x", "x-", "x-y", "x--1x"} {
		if _, _, ok := parseID(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
	if n, ok := parsePath(Path(12)); !ok || n != 12 {
		t.Errorf("%d %v", n, ok)
	}
	for _, bad := range []string{"/", "/s/", "/s/-1", "/s/x", "/t/1"} {
		if _, ok := parsePath(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
}

func receiver(t *testing.T, origins int, p Phase) *Receiver {
	t.Helper()
	r, err := NewReceiver(origins)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := r.Begin(p); err != nil {
		t.Fatal(err)
	}
	return r
}

func post(t *testing.T, url, id string, header http.Header, body []byte) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Webhook-Id", id)
	resp, err := once.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// once keeps no connection.
var once = &http.Transport{DisableKeepAlives: true}

func TestLostDuplicatedAndStrayAreCounted(t *testing.T) {
	r := receiver(t, 1, Phase{Tag: "a", Events: 4, Subscribers: 2, Hang: -1})
	url := r.Origins()[0]
	b, _ := NewBodies(200, 1)
	for _, one := range []struct{ path, id string }{
		{"/s/0", "a-0"}, {"/s/1", "a-1"}, {"/s/0", "a-2"}, {"/s/0", "a-2"}, // one twice, a-3 never
		{"/s/1", "a-0"}, {"/s/0", "b-0"}, {"/s/0", "a-4"}, {"/s/9", "a-1"}, {"/x", "a-0"}, {"/s/0", ""},
	} {
		post(t, url+one.path, one.id, nil, b.Append(nil, 0, host.Now()))
	}
	s := r.Seen()
	if s.Expected != 4 || s.Arrived != 3 || s.Duplicates != 1 || s.Stray != 6 || s.Latency.N != 3 || s.First == 0 || s.Last < s.First {
		t.Errorf("%+v", s)
	}
	if reached, err := r.Wait(t.Context(), Wait{Arrived: 4, Quiet: time.Millisecond}); reached || err != nil {
		t.Errorf("%v %v", reached, err)
	}
	if reached, err := r.Wait(t.Context(), Wait{Arrived: 3}); !reached || err != nil {
		t.Errorf("%v %v", reached, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Wait(ctx, Wait{Arrived: 4}); err == nil {
		t.Error("a wait outlived its context")
	}
}

func TestFanOutHasASlotForEachSubscriber(t *testing.T) {
	r := receiver(t, 1, Phase{Tag: "f", Events: 2, Subscribers: 3, FanOut: true, Hang: -1})
	for n := range 2 {
		for sub := range 3 {
			post(t, r.Origins()[0]+Path(sub), EventID("f", n), nil, []byte("no time in it"))
		}
	}
	if s := r.Seen(); s.Arrived != 6 || s.Duplicates+s.Stray != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSignaturesAreChecked(t *testing.T) {
	secret, err := signing.GenerateSecret(signing.Standard)
	if err != nil {
		t.Fatal(err)
	}
	r := receiver(t, 1, Phase{Tag: "a", Events: 2, Subscribers: 1, Secret: secret.Reveal(), Hang: -1})
	signer, err := signing.NewSigner(signing.SignerConfig{Schemes: []signing.SchemeConfig{{Scheme: signing.Standard, Keys: signing.Ring{{Secret: secret}}}}})
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{}
	body := []byte(`{}`)
	if err := signer.Headers(header, "a-0", time.Now(), body); err != nil {
		t.Fatal(err)
	}
	if status := post(t, r.Origins()[0]+Path(0), "a-0", header, body); status != http.StatusOK {
		t.Errorf("good signature: %d", status)
	}
	if status := post(t, r.Origins()[0]+Path(0), "a-1", nil, body); status != http.StatusUnauthorized {
		t.Errorf("no signature: %d", status)
	}
	if s := r.Seen(); s.Verified != 1 || s.BadSignatures != 1 || s.Arrived != 1 {
		t.Errorf("%+v", s)
	}
	if err := r.Begin(Phase{Secret: "nonsense"}); err == nil {
		t.Error("a secret that is none was taken")
	}
}

func TestHangingRequestsEndWithTheirPhase(t *testing.T) {
	r := receiver(t, 1, Phase{Tag: "a", Events: 1, Subscribers: 1, Hang: 5})
	done := make(chan int, 1)
	go func() { done <- post(t, r.Origins()[0]+Path(5), "h-0", nil, nil) }()
	if reached, err := r.Wait(t.Context(), Wait{Hanging: 1}); !reached || err != nil {
		t.Fatal(reached, err)
	}
	select {
	case <-done:
		t.Error("it did not hang")
	default:
	}
	if err := r.Begin(Phase{Hang: -1}); err != nil {
		t.Fatal(err)
	}
	<-done
}

func TestManySubscribersHangAndTheOthersAreAnsweredAfterTheirDelay(t *testing.T) {
	r := receiver(t, 1, Phase{Tag: "a", Events: 1, Subscribers: 2, Hang: -1, HangFrom: 2, Delay: time.Millisecond})
	done := make(chan int, 2)
	for _, sub := range []int{2, 7} {
		go func() { done <- post(t, r.Origins()[0]+Path(sub), "h-0", nil, nil) }()
	}
	post(t, r.Origins()[0]+Path(0), "a-0", nil, nil)
	post(t, r.Origins()[0]+Path(1), "other-0", nil, nil)
	if reached, err := r.Wait(t.Context(), Wait{Arrived: 1, Hanging: 2, Stray: 1}); !reached || err != nil {
		t.Fatal(reached, err)
	}
	if err := r.Begin(Phase{Hang: -1}); err != nil {
		t.Fatal(err)
	}
	<-done
	<-done
}

func TestTenantsShareTheSubscribers(t *testing.T) {
	p := Publish{Tenant: "all", Subscribers: 5}
	if got := p.tenantOf(3); got != "all" {
		t.Error(got)
	}
	p.Tenants = []string{"a", "b"}
	for n, want := range []string{"a", "b", "a", "b", "a", "a", "b"} { // subscribers 0 1 2 3 4 0 1
		if got := p.tenantOf(n); got != want {
			t.Errorf("event %d: %s, want %s", n, got, want)
		}
	}
	p.Batch, p.Body, p.Events, p.Connections = 2, 256, 2, 1
	if _, err := p.Run(t.Context()); err == nil {
		t.Error("a batch for several tenants was published")
	}
}

func TestTheMarkRemembersTheNextNewDelivery(t *testing.T) {
	r := receiver(t, 1, Phase{Tag: "a", Events: 2, Subscribers: 1, Hang: -1})
	post(t, r.Origins()[0]+Path(0), "a-0", nil, nil)
	r.Mark()
	marked := host.Now()
	if s := r.Seen(); s.AfterMark != 0 {
		t.Errorf("%+v", s)
	}
	post(t, r.Origins()[0]+Path(0), "a-1", nil, nil)
	if s := r.Seen(); s.AfterMark < marked {
		t.Errorf("%+v", s)
	}
}

func TestBothFloorsPostEverythingOnce(t *testing.T) {
	for _, stack := range []Stack{Client, ClientConn} {
		t.Run(string(stack), func(t *testing.T) {
			r := receiver(t, 2, Phase{Tag: "f", Events: 40, Subscribers: 4, Hang: -1})
			f := Floor{Stack: stack, Origins: r.Origins(), Tag: "f", Posts: 40, Subscribers: 4, Concurrency: 3, Body: 1024, Seed: 1}
			got, err := f.Run(t.Context())
			if err != nil || got.Failed != 0 || got.Rate(40) <= 0 || got.Latency.N != 40 {
				t.Errorf("%+v %v", got, err)
			}
			if s := r.Seen(); s.Arrived != 40 || s.Duplicates+s.Stray != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestAFloorWithoutAReceiverFailsEveryPost(t *testing.T) {
	r, err := NewReceiver(1)
	if err != nil {
		t.Fatal(err)
	}
	url := r.Origins()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	for _, stack := range []Stack{Client, ClientConn} {
		f := Floor{Stack: stack, Origins: url, Posts: 3, Subscribers: 1, Concurrency: 1, Body: 1024}
		if got, err := f.Run(t.Context()); err != nil || got.Failed != 3 || got.Error == "" || got.Rate(3) != 0 {
			t.Errorf("%+v %v", got, err)
		}
	}
	if _, err := (Floor{Body: 1024}).Run(t.Context()); err == nil {
		t.Error("a floor without anything ran")
	}
}

// node is a stand-in for the node's API.
type node struct {
	mu     sync.Mutex
	bodies []string
	status int
	answer string
}

func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	n.mu.Lock()
	n.bodies = append(n.bodies, r.URL.Path+" "+r.Header.Get("Authorization")+"\n"+string(raw))
	n.mu.Unlock()
	w.WriteHeader(n.status)
	for range strings.Count(string(raw), "\n") {
		_, _ = io.WriteString(w, n.answer)
	}
}

func TestEveryEventIsPublishedOnce(t *testing.T) {
	for _, c := range []struct {
		name     string
		task     Publish
		status   int
		requests int
	}{
		{"single", Publish{Events: 10, Batch: 1, Subscribers: 3}, http.StatusAccepted, 10},
		{"batches", Publish{Events: 10, Batch: 4, Subscribers: 3}, http.StatusOK, 3},
		{"paced", Publish{Events: 6, Batch: 2, Topic: TopicAll, Rate: 1e6}, http.StatusOK, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &node{status: c.status, answer: `{"line":1,"status":202}` + "\n"}
			server := httptest.NewServer(n)
			defer server.Close()
			c.task.URL, c.task.Token, c.task.Tenant, c.task.Tag = server.URL, "secret", "t", "p"
			c.task.Connections, c.task.Body = 2, 256
			got, err := c.task.Run(t.Context())
			if err != nil || got.Accepted != c.task.Events || got.Refused != 0 || got.Ack.N != c.requests || got.Rate() <= 0 {
				t.Fatalf("%+v %v", got, err)
			}
			var ids []string
			for _, b := range n.bodies {
				head, lines, _ := strings.Cut(b, "\n")
				if !strings.HasPrefix(head, "/v1/tenants/t/events") || !strings.HasSuffix(head, "Bearer secret") {
					t.Error(head)
				}
				for line := range strings.Lines(lines) {
					var e struct {
						ID, Topic string
						Payload   json.RawMessage
					}
					if err := json.Unmarshal([]byte(line), &e); err != nil || len(e.Payload) != 256 || e.Topic == "" {
						t.Errorf("%v %s", err, line)
					}
					ids = append(ids, e.ID)
				}
			}
			slices.Sort(ids)
			if ids = slices.Compact(ids); len(ids) != c.task.Events {
				t.Errorf("%v", ids)
			}
		})
	}
}

func TestRefusedEventsAreCountedAndExplained(t *testing.T) {
	for _, c := range []struct {
		task   Publish
		status int
		answer string
	}{
		{Publish{Events: 3, Batch: 1}, http.StatusServiceUnavailable, "disk is full"},
		{Publish{Events: 3, Batch: 3}, http.StatusOK, `{"status":503,"error":"disk is full"}` + "\n"},
		{Publish{Events: 3, Batch: 3}, http.StatusUnauthorized, "disk is full"},
	} {
		server := httptest.NewServer(&node{status: c.status, answer: c.answer})
		c.task.URL, c.task.Connections, c.task.Body, c.task.Topic = server.URL, 1, 256, TopicNone
		got, err := c.task.Run(t.Context())
		if err != nil || got.Accepted != 0 || got.Refused != 3 || !strings.Contains(got.Error, "disk is full") {
			t.Errorf("%+v %v", got, err)
		}
		server.Close()
		if got, err := c.task.Run(t.Context()); err != nil || got.Refused != 3 || got.Error == "" {
			t.Errorf("nobody listens: %+v %v", got, err)
		}
	}
	for _, bad := range []Publish{{}, {Events: 1, Batch: 1, Connections: 1, Body: 256, Topic: "x", URL: "nonsense"}, {Body: 1}} {
		if _, err := bad.Run(t.Context()); err == nil {
			t.Errorf("%+v ran", bad)
		}
	}
}

func TestAPacedLoadEndsWithItsContext(t *testing.T) {
	server := httptest.NewServer(&node{status: http.StatusAccepted})
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	task := Publish{URL: server.URL, Topic: "x", Events: 10, Batch: 1, Connections: 1, Rate: 0.01, Body: 256}
	if _, err := task.Run(ctx); err == nil {
		t.Error("it waited for its rate")
	}
}

// TestFloorsOverTLSReachTheReceiverOnSharedConnections posts over HTTP/2 and
// HTTP/3 and counts at the receiver.
func TestFloorsOverTLSReachTheReceiverOnSharedConnections(t *testing.T) {
	const posts, subscribers = 60, 3
	for _, stack := range []Stack{HTTP2, HTTP3} {
		t.Run(string(stack), func(t *testing.T) {
			r := receiver(t, 1, Phase{Tag: "tls", Events: posts, Subscribers: subscribers, Hang: -1})
			secure, err := r.Secure()
			if err != nil {
				t.Fatal(err)
			}
			if again, err := r.Secure(); err != nil || again != secure {
				t.Errorf("another origin the second time: %+v, %v", again, err)
			}
			floor := Floor{
				Stack: stack, Origins: []string{secure.Origin}, CA: secure.CAPEM, Tag: "tls", Posts: posts, Subscribers: subscribers,
				Concurrency: 8, Conns: 2, Body: 256, Seed: 1,
			}
			got, err := floor.Run(t.Context())
			if err != nil || got.Failed > 0 || got.Latency.N != posts {
				t.Errorf("%+v, %v", got, err)
			}
			if s := r.Seen(); s.Arrived != posts || s.Duplicates > 0 {
				t.Errorf("%d arrived, %d twice", s.Arrived, s.Duplicates)
			}
			floor.CA = "none"
			if _, err := floor.Run(t.Context()); err == nil {
				t.Error("it posted without a CA")
			}
		})
	}
}
