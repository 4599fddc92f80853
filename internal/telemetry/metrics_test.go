package telemetry

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write docs/metrics.md")

// node is an engine with its metrics.
func node(t *testing.T, adjust ...func(*engine.Config)) (*engine.Engine, *Metrics) {
	t.Helper()
	config := engine.Config{
		Guard:    netguard.Config{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowHTTP: true},
		Storage:  storage.Config{Dir: t.TempDir(), Watermark: storage.Watermark{Bytes: -1}},
		Selector: protoselect.Config{DNS: protoselect.DNSConfig{Disabled: true}},
		Ingress:  &ingress.Config{Addr: "127.0.0.1:0"},
	}
	m := New()
	m.Observe(&config)
	for _, f := range adjust {
		f(&config)
	}
	e, err := engine.New(config)
	if err != nil {
		t.Fatal(err)
	}
	m.Watch(e)
	t.Cleanup(func() {
		if err := e.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return e, m
}

// family is a metric as a scrape shows it.
type family struct {
	typ, help string
	series    map[string]string // by labels, with the value
}

var labelName = regexp.MustCompile(`([a-z_0-9]+)="`)

// labels are the names of its labels, those of histograms' buckets left out.
func (f *family) labels() string {
	set := map[string]bool{}
	for series := range f.series {
		for _, m := range labelName.FindAllStringSubmatch(series, -1) {
			set[m[1]] = true
		}
	}
	delete(set, "le")
	return strings.Join(slices.Sorted(maps.Keys(set)), ", ")
}

// families scrapes.
func families(t *testing.T, m *Metrics) map[string]*family {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	out := map[string]*family{}
	last := &family{}
	for line := range strings.Lines(w.Body.String()) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, help, _ := strings.Cut(rest, " ")
			last = &family{help: help, series: map[string]string{}}
			if strings.HasPrefix(name, namespace+"_") {
				out[name] = last
			}
			continue
		}
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			_, last.typ, _ = strings.Cut(rest, " ")
			continue
		}
		series, value, _ := strings.Cut(line[strings.IndexAny(line, "{ "):], "} ")
		last.series[line[:strings.IndexAny(line, "{ ")]+series] = strings.TrimSpace(value)
	}
	return out
}

// eventually waits for what the node does in the background.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}

// TestEveryMetricIsDocumentedAndThereFromTheStart holds docs/metrics.md against a
// node that has just begun.
func TestEveryMetricIsDocumentedAndThereFromTheStart(t *testing.T) {
	const path = "../../docs/metrics.md"
	e, m := node(t)
	if _, _, err := e.PutTenant(t.Context(), "t", engine.TenantInput{}); err != nil {
		t.Fatal(err)
	}
	r, err := testnet.Start(testnet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := e.CreateSubscriber(t.Context(), "t", engine.SubscriberInput{URL: new(r.URL("", "/"))}); err != nil {
		t.Fatal(err)
	}
	// The tenants' part has series only where something waits.
	later := time.Now().Add(time.Hour)
	if _, err := e.Publish(t.Context(), "t", engine.EventInput{Topic: "a", Payload: []byte("{}"), DeliverAt: later}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first count", func() bool { return !e.Backlog().At.IsZero() })
	all := families(t, m)
	var table bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := all[name]
		fmt.Fprintf(&table, "| `%s` | %s | %s | %s |\n", name, f.typ, f.labels(), f.help)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- metrics: made by go test ./internal/telemetry -update -->\n", "<!-- end -->"
	before, rest, ok := strings.Cut(string(raw), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", path)
	}
	want := before + begin + "| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n" + table.String() + end + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	// The first count may or may not have seen the event.
	without := func(s string) string {
		var keep []string
		for line := range strings.Lines(s) {
			if !strings.Contains(line, "_tenant_") {
				keep = append(keep, line)
			}
		}
		return strings.Join(keep, "")
	}
	if without(want) != without(string(raw)) {
		t.Errorf("%s is not what the node shows: run go test ./internal/telemetry -update", path)
	}
}

// TestTrafficMakesNoNewSeries: what is delivered and refused has its series from
// the start, so that rates work from the first event on.
func TestTrafficMakesNoNewSeries(t *testing.T) {
	e, m := node(t)
	count := func() (n int) {
		for name, f := range families(t, m) {
			if !strings.Contains(name, "_tenant_") && !strings.Contains(name, "backlog") && name != "dispatcher_dead_letters" {
				n += len(f.series)
			}
		}
		return n
	}
	before := count()
	if _, _, err := e.PutTenant(t.Context(), "t", engine.TenantInput{}); err != nil {
		t.Fatal(err)
	}
	for id, b := range map[string]testnet.Behaviour{"good": {}, "bad": {Status: 400}, "busy": {Status: 503}} {
		r, err := testnet.Start(testnet.Config{Behaviour: b})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := e.CreateSubscriber(t.Context(), "t", engine.SubscriberInput{ID: &id, URL: new(r.URL("", "/"))}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Publish(t.Context(), "t", engine.EventInput{Topic: "a", Payload: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "three outcomes", func() bool {
		moved := families(t, m)["dispatcher_moves_total"].series
		one := func(next, reason string) bool {
			return moved[`dispatcher_moves_total{next="`+next+`",reason="`+reason+`"`] == "1"
		}
		return one("delivered", "delivered") && one("dead", "rejected") && one("retrying", "status_retry")
	})
	if after := count(); after != before {
		t.Errorf("%d series before, %d after", before, after)
	}
}
