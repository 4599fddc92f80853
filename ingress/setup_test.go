package ingress

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// fakeStore is an Enqueuer that is honest about durability and deduplication:
// what it answers with a nil error it has, by id and, where asked, by body.
type fakeStore struct {
	ready   atomic.Pointer[error]
	fail    atomic.Pointer[error]
	enqueue atomic.Int64                  // calls
	asked   atomic.Int64                  // calls of Ready
	block   atomic.Pointer[chan struct{}] // Enqueue waits for it, if set

	// skipBody stores large bodies by their digest alone.
	skipBody atomic.Bool

	mu     sync.Mutex
	rows   []row
	byID   map[[2]string]int
	byBody map[string]int
}

// row is one durable event, with the bytes that were stored.
type row struct {
	Message
	stored []byte // nil for bodies above 1 MiB
	digest [sha256.Size]byte
}

func newFakeStore() *fakeStore {
	return &fakeStore{byID: map[[2]string]int{}, byBody: map[string]int{}}
}

// hold makes Enqueue wait until the channel is closed.
func (s *fakeStore) hold() chan struct{} {
	c := make(chan struct{})
	s.block.Store(&c)
	return c
}

func (s *fakeStore) setFail(err error)  { s.fail.Store(&err) }
func (s *fakeStore) setReady(err error) { s.ready.Store(&err) }

// Ready implements Enqueuer.
func (s *fakeStore) Ready() error {
	s.asked.Add(1)
	if p := s.ready.Load(); p != nil {
		return *p
	}
	return nil
}

// Enqueue implements Enqueuer.
func (s *fakeStore) Enqueue(ctx context.Context, m *Message) (Receipt, error) {
	s.enqueue.Add(1)
	if block := s.block.Load(); block != nil {
		select {
		case <-*block:
		case <-ctx.Done():
			return Receipt{}, context.Cause(ctx)
		}
	}
	if p := s.fail.Load(); p != nil && *p != nil {
		return Receipt{}, *p
	}
	r := row{Message: *m}
	h, kept := sha256.New(), new(bytes.Buffer)
	var sink io.Writer = h
	if m.Body.Size() <= 1<<20 {
		sink = io.MultiWriter(h, kept)
	}
	if s.skipBody.Load() {
		r.digest = m.Digest
	} else {
		if _, err := io.Copy(sink, m.Body.Reader()); err != nil {
			return Receipt{}, err
		}
		h.Sum(r.digest[:0])
	}
	r.stored = kept.Bytes()
	r.Body = nil // it belongs to the request

	s.mu.Lock()
	defer s.mu.Unlock()
	d := m.Dedupe()
	id, body := [2]string{d.Source, d.ID}, d.Source+"\x00"+string(d.Content[:])
	if i, ok := s.byID[id]; ok && d.ID != "" {
		if s.rows[i].digest != r.digest {
			return Receipt{}, &delivery.ConflictError{ID: d.ID}
		}
		return Receipt{ID: s.rows[i].ID, Deduplicated: true}, nil
	}
	if i, ok := s.byBody[body]; ok && d.Body {
		return Receipt{ID: s.rows[i].ID, Deduplicated: true}, nil
	}
	if r.ID == "" {
		r.ID = "made-" + string(rune('a'+len(s.rows)))
	}
	s.rows = append(s.rows, r)
	if d.ID != "" {
		s.byID[id] = len(s.rows) - 1
	}
	if d.Body {
		s.byBody[body] = len(s.rows) - 1
	}
	return Receipt{ID: r.ID}, nil
}

func (s *fakeStore) stored() []row {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]row(nil), s.rows...)
}

// fakeSources is the registry, or a control plane's far side.
type fakeSources struct {
	mu    sync.Mutex
	all   map[sourceKey]*Source
	err   error
	calls map[sourceKey]int
	delay time.Duration
	total int
}

func newFakeSources() *fakeSources {
	return &fakeSources{all: map[sourceKey]*Source{}, calls: map[sourceKey]int{}}
}

func (f *fakeSources) set(tenant, name string, s *Source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[sourceKey{tenant, name}] = s
}

func (f *fakeSources) remove(tenant, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, sourceKey{tenant, name})
}

func (f *fakeSources) setErr(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeSources) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total
}

func (f *fakeSources) callsFor(tenant, name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[sourceKey{tenant, name}]
}

// Source implements Sources.
func (f *fakeSources) Source(ctx context.Context, tenant, name string) (*Source, error) {
	f.mu.Lock()
	key := sourceKey{tenant, name}
	f.calls[key]++
	f.total++
	s, ok, err, delay := f.all[key], f.all[key] != nil, f.err, f.delay
	f.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, ErrUnknownSource
	}
	return s, nil
}

// countingSpool counts files, so that each is seen to be given back.
type countingSpool struct {
	Spool
	made, open atomic.Int64
	err        atomic.Pointer[error]
}

type countingFile struct {
	SpoolFile
	spool *countingSpool
}

func (s *countingSpool) Create(ctx context.Context) (SpoolFile, error) {
	if p := s.err.Load(); p != nil {
		return nil, *p
	}
	f, err := s.Spool.Create(ctx)
	if err != nil {
		return nil, err
	}
	s.made.Add(1)
	s.open.Add(1)
	return &countingFile{f, s}, nil
}

func (f *countingFile) Discard() error {
	f.spool.open.Add(-1)
	return f.SpoolFile.Discard()
}

// node is an ingress with everything around it.
type node struct {
	t       testing.TB
	in      *Ingress
	store   *fakeStore
	sources *fakeSources
	spool   *countingSpool

	mu      sync.Mutex
	answers []Answered
	lookups map[LookupResult]int
}

// setup makes a node with the sources of standardSources for tenant "acme".
func setup(t testing.TB, cfg Config) *node {
	t.Helper()
	n := &node{t: t, store: newFakeStore(), sources: newFakeSources(), lookups: map[LookupResult]int{}}
	dir, err := OpenSpool(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	n.spool = &countingSpool{Spool: dir}
	before := cfg.Observer
	cfg.Observer.Answered = func(a Answered) {
		if before.Answered != nil {
			before.Answered(a)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.answers = append(n.answers, a)
	}
	cfg.Observer.LookedUp = func(l Lookup) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.lookups[l.Result]++
	}
	for name, s := range standardSources() {
		n.sources.set("acme", name, s)
	}
	ports := Ports{Enqueuer: n.store, Spool: n.spool, Sources: n.sources}
	if cfg.ControlPlane != nil {
		ports.Sources = nil
	}
	n.in, err = New(cfg, ports)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.in.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
		_ = dir.Close()
		n.assertNothingHeld()
	})
	return n
}

// assertNothingHeld checks that every request gave back what it took.
func (n *node) assertNothingHeld() {
	n.t.Helper()
	in := n.in
	if b, m, d := in.bodies.used.Load(), in.memory.used.Load(), in.disk.used.Load(); b != 0 || m != 0 || d != 0 {
		n.t.Errorf("still held: %d bodies, %d bytes of memory, %d bytes of spool", b, m, d)
	}
	if open := n.spool.open.Load(); open != 0 {
		n.t.Errorf("%d spool files were not discarded", open)
	}
}

// last returns the last answer that was reported.
func (n *node) last() Answered {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.answers) == 0 {
		return Answered{}
	}
	return n.answers[len(n.answers)-1]
}

func (n *node) count(o Outcome) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	count := 0
	for _, a := range n.answers {
		if a.Outcome == o {
			count++
		}
	}
	return count
}

func (n *node) lookupCount(r LookupResult) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lookups[r]
}

// serve runs one request through the handler.
func (n *node) serve(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	n.in.ServeHTTP(w, r)
	return w
}

// post sends a body to a source of tenant acme.
func (n *node) post(source string, header http.Header, body []byte) *httptest.ResponseRecorder {
	return n.serve(request(source, header, bytes.NewReader(body)))
}

func request(source string, header http.Header, body io.Reader) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://edge.test/webhook/acme/"+source, body)
	for name, values := range header {
		r.Header[http.CanonicalHeaderKey(name)] = values
	}
	return r
}

// expect checks status and outcome of the last request.
func (n *node) expect(w *httptest.ResponseRecorder, status int, o Outcome) {
	n.t.Helper()
	if last := n.last(); w.Code != status || last.Outcome != o {
		n.t.Errorf("status %d, outcome %v (%v), want %d, %v; body %s", w.Code, last.Outcome, last.Err, status, o, w.Body)
	}
}

// answerOf decodes an answer of either kind.
func answerOf(t *testing.T, w *httptest.ResponseRecorder) (out struct {
	Status             any
	ID, Detail, Reason string
}) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatalf("answer %q: %v", w.Body, err)
	}
	return out
}

// Secrets and keys of the signature vectors.
const (
	vectorStandard = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	vectorSecond   = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
	vectorSecret   = "s3cret-for-test"
	vectorStripe   = "whsec_stripe_literal"
	vectorSlack    = "slack-signing-secret"
	vectorSeed     = "whsk_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	vectorPublic   = "I7xUkSwebpLEqGglyGfif/3FVb/71CRPF6Jqv//ull0="
	vectorHex      = "23bc54912c1e6e92c4a86825c867e27ffdc555bffbd4244f17a26abfffee965d"
	twilioURL      = "https://hooks.example.test/webhook/acme/twilio"
)

var vectorBody = []byte("{\"a\":1,\"name\":\"Zoë \U0001F60A\"}")

func standardSources() map[string]*Source {
	source := func(scheme signing.Scheme, secrets ...string) *Source {
		return &Source{Scheme: scheme, Secrets: signing.Secrets(secrets...), Destination: Destination{Type: DestinationFanOut}}
	}
	all := map[string]*Source{
		"standard": source(signing.Standard, vectorStandard),
		"ed25519":  source(signing.StandardEd25519, "whpk_"+vectorPublic),
		"stripe":   source(signing.Stripe, vectorStripe),
		"github":   source(signing.GitHub, vectorSecret),
		"shopify":  source(signing.Shopify, vectorSecret),
		"slack":    source(signing.Slack, vectorSlack),
		"discord":  source(signing.Discord, vectorHex),
		"telnyx":   source(signing.Telnyx, vectorPublic),
		"twilio":   source(signing.Twilio, vectorSecret),
		"hex":      source(signing.HMACHex, vectorSecret),
		"base64":   source(signing.HMACBase64, vectorSecret),
		"rotating": source(signing.Standard, vectorStandard, vectorSecond),
	}
	all["twilio"].PublicURL = twilioURL
	return all
}

// signed returns the headers that a provider of scheme sets.
func signed(t testing.TB, scheme signing.Scheme, secret, id string, body []byte, at time.Time) http.Header {
	t.Helper()
	cfg := signing.SchemeConfig{Scheme: scheme, Keys: signing.NewRing(signing.NewSecret(secret))}
	if scheme == signing.Twilio {
		cfg.PublicURL = twilioURL
	}
	out, err := signing.Sign(cfg, signing.Message{ID: id, Time: at, Body: body, ContentType: "application/x-www-form-urlencoded"})
	if err != nil {
		t.Fatal(err)
	}
	return out.Header
}

// genuine returns a request of scheme standard that is signed now.
func genuine(t testing.TB, id string, body []byte) http.Header {
	return signed(t, signing.Standard, vectorStandard, id, body, time.Now())
}

// countingBody counts what is read of a body.
type countingBody struct {
	r    io.Reader
	read atomic.Int64
}

func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.read.Add(int64(n))
	return n, err
}

func (*countingBody) Close() error { return nil }

// dirNames lists a directory.
func dirNames(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

var errDown = errors.New("down for a test")
