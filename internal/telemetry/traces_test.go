package telemetry

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

// otlp is a receiver of spans.
type otlp struct {
	*httptest.Server
	mu      sync.Mutex
	spans   []*tracepb.Span
	headers http.Header
	raw     []byte
}

func startOTLP(t *testing.T) *otlp {
	t.Helper()
	o := &otlp{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		var request collector.ExportTraceServiceRequest
		if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(raw, &request) != nil {
			http.Error(w, "no OTLP", http.StatusBadRequest)
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.headers, o.raw = r.Header, append(o.raw, raw...)
		for _, resource := range request.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				o.spans = append(o.spans, scope.GetSpans()...)
			}
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(o.Close)
	return o
}

// named returns the spans of a name; Stop has flushed them.
func (o *otlp) named(name string) (out []*tracepb.Span) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.spans {
		if s.GetName() == name {
			out = append(out, s)
		}
	}
	return out
}

// traced is a node that exports, and the requests that its one subscriber got.
func traced(t *testing.T, o *otlp, ratio float64) (*engine.Engine, *Traces, chan http.Header) {
	t.Helper()
	got := make(chan http.Header, 16)
	var failed atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		if failed.CompareAndSwap(false, true) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(receiver.Close)
	traces, err := NewTraces(t.Context(), TraceConfig{Endpoint: o.URL + "/v1/traces", Headers: map[string]string{"x-key": "k"}, Ratio: ratio, Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	e, _ := node(t, traces.Observe)
	if _, _, err := e.PutTenant(t.Context(), "t", engine.TenantInput{}); err != nil {
		t.Fatal(err)
	}
	in := engine.SubscriberInput{ID: new("s"), URL: new(receiver.URL + "/secret-path?key=hush"), Secret: new("whsec_aHVzaGh1c2hodXNoaHVzaGh1c2hodXNoaHVzaA==")}
	in.Retry = &delivery.Retry{Schedule: []time.Duration{10 * time.Millisecond}}
	if _, err := e.CreateSubscriber(t.Context(), "t", in); err != nil {
		t.Fatal(err)
	}
	return e, traces, got
}

func TestOneTraceFromThePublisherToEveryAttempt(t *testing.T) {
	o := startOTLP(t)
	e, traces, got := traced(t, o, 0) // the publisher's mark counts, not the ratio
	const incoming = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if _, err := e.Publish(t.Context(), "t", engine.EventInput{ID: "e1", Topic: "order.created", Payload: []byte(`{"hush":1}`), TraceParent: incoming}); err != nil {
		t.Fatal(err)
	}
	sent := []string{(<-got).Get("Traceparent"), (<-got).Get("Traceparent")}
	eventually(t, "it is delivered", func() bool {
		rows, _, err := e.EventDeliveries(t.Context(), "t", "e1", engine.Page{})
		return err == nil && len(rows) == 1 && rows[0].State.String() == "delivered"
	})
	if err := traces.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	publish, attempts := o.named("publish"), o.named("attempt")
	if len(publish) != 1 || len(attempts) != 2 || len(o.named("queue")) != 2 {
		t.Fatalf("%d publish, %d attempt, %d queue", len(publish), len(attempts), len(o.named("queue")))
	}
	const id = "0af7651916cd43dd8448eb211c80319c"
	if p := publish[0]; hex.EncodeToString(p.GetTraceId()) != id || hex.EncodeToString(p.GetParentSpanId()) != "b7ad6b7169203331" {
		t.Errorf("publish is not in the publisher's trace: %v", p)
	}
	for i, a := range attempts {
		own := "00-" + id + "-" + hex.EncodeToString(a.GetSpanId()) + "-01"
		if hex.EncodeToString(a.GetTraceId()) != id || string(a.GetParentSpanId()) != string(publish[0].GetSpanId()) || sent[i] != own {
			t.Errorf("attempt %d sent %s, its span is %s", i+1, sent[i], own)
		}
		if len(a.GetEvents()) == 0 || a.GetEndTimeUnixNano() <= a.GetStartTimeUnixNano() {
			t.Errorf("attempt %d has no phases: %v", i+1, a)
		}
	}
	event, err := e.GetEvent(t.Context(), "t", "e1")
	if err != nil || !strings.Contains(event.TraceParent, hex.EncodeToString(publish[0].GetSpanId())) {
		t.Errorf("the event keeps %q: %v", event.TraceParent, err)
	}
	if o.headers.Get("X-Key") != "k" {
		t.Error("the configured header is missing")
	}
	for _, secret := range []string{"hush", "secret-path", "whsec"} {
		if strings.Contains(string(o.raw), secret) {
			t.Errorf("spans hold %q", secret)
		}
	}
}

// TestTracesBegunHereFollowTheRatio: the one that the node began with, and another that
// it took over since.
func TestTracesBegunHereFollowTheRatio(t *testing.T) {
	for _, c := range []struct {
		first, ratio float64
		want         int
	}{{0, 0, 0}, {1, 1, 1}, {0, 1, 1}, {1, 0, 0}} {
		ratio, want := c.ratio, c.want
		o := startOTLP(t)
		e, traces, got := traced(t, o, c.first)
		traces.SetRatio(ratio)
		if _, err := e.Publish(t.Context(), "t", engine.EventInput{Topic: "a", Payload: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
		if header := (<-got).Get("Traceparent"); header == "" || strings.HasSuffix(header, "-01") != (want == 1) {
			t.Errorf("ratio %v: traceparent %q", ratio, header)
		}
		<-got
		if err := e.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		if err := traces.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		if n := len(o.named("publish")); n != want {
			t.Errorf("ratio %v: %d traces", ratio, n)
		}
	}
}
