package netguard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeResolver answers from a script: each lookup of a name takes that name's
// next answer, and the last one stays.
type fakeResolver struct {
	mu      sync.Mutex
	answers map[string][][]netip.Addr
	err     error
	asked   []string
}

// resolver makes a fakeResolver in which every name has one answer.
func resolver(answers map[string][]string) *fakeResolver {
	r := &fakeResolver{answers: map[string][][]netip.Addr{}}
	for name, answer := range answers {
		r.then(name, answer...)
	}
	return r
}

// then appends an answer for name.
func (r *fakeResolver) then(name string, answer ...string) *fakeResolver {
	r.answers[name] = append(r.answers[name], addrs(answer...))
	return r
}

func (r *fakeResolver) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, network+" "+host)
	if r.err != nil {
		return nil, r.err
	}
	script := r.answers[host]
	if len(script) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(script) > 1 {
		r.answers[host] = script[1:]
	}
	return slices.Clone(script[0]), nil
}

func (r *fakeResolver) lookups() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// recordingDialer notes what it is asked to dial and then dials to, or fails.
type recordingDialer struct {
	to string

	mu     sync.Mutex
	dialed []string
}

var errNotConnected = errors.New("not connected in this test")

func (d *recordingDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d.mu.Lock()
	d.dialed = append(d.dialed, address)
	d.mu.Unlock()
	if d.to == "" {
		return nil, errNotConnected
	}
	var plain net.Dialer
	return plain.DialContext(ctx, network, d.to)
}

func (d *recordingDialer) dials() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.dialed)
}

// denials collects what an Observer hears.
type denials struct {
	mu   sync.Mutex
	list []Denial
}

func (d *denials) observer() Observer {
	return Observer{Denied: func(n Denial) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.list = append(d.list, n)
	}}
}

func (d *denials) count(stage Stage, rule Rule) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, x := range d.list {
		if x.Stage == stage && x.Rule == rule {
			n++
		}
	}
	return n
}

func newGuard(t testing.TB, cfg Config) *Guard {
	t.Helper()
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func newPolicyT(t testing.TB, cfg Config) *Policy {
	t.Helper()
	p, err := NewPolicy(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func addrs(list ...string) []netip.Addr {
	out := make([]netip.Addr, len(list))
	for i, s := range list {
		out[i] = netip.MustParseAddr(s)
	}
	return out
}

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// wantDenied requires a *DeniedError with rule.
func wantDenied(t *testing.T, err error, rule Rule) {
	t.Helper()
	_ = deniedAs(t, err, rule)
}

// deniedAs is wantDenied for those who look at the error.
func deniedAs(t *testing.T, err error, rule Rule) *DeniedError {
	t.Helper()
	denied, ok := errors.AsType[*DeniedError](err)
	if !ok {
		t.Fatalf("error = %v, want a *DeniedError", err)
	}
	if denied.Rule != rule {
		t.Fatalf("rule = %q, want %q (%v)", denied.Rule, rule, err)
	}
	return denied
}

// wantRefused requires ParseTarget to refuse raw by rule.
func wantRefused(t *testing.T, g *Guard, raw string, rule Rule) {
	t.Helper()
	_ = refusedAs(t, g, raw, rule)
}

// refusedAs is wantRefused for those who look at the error.
func refusedAs(t *testing.T, g *Guard, raw string, rule Rule) *FieldError {
	t.Helper()
	target, err := g.ParseTarget(raw)
	refused, ok := errors.AsType[*FieldError](err)
	if !ok {
		t.Fatalf("ParseTarget(%q) = %v, %v, want a *FieldError", raw, target, err)
	}
	if refused.Rule != rule || refused.Field != "url" || refused.Hint == "" || refused.Value == "" {
		t.Fatalf("ParseTarget(%q): %+v, want rule %q", raw, refused, rule)
	}
	return refused
}
