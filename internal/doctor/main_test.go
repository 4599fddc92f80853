package doctor

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/signing"
	"github.com/dispatcher-engine/dispatcher/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	host   = "hook.example"
	secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

var loopback = netip.MustParseAddr("127.0.0.1")

// names is a resolver with a table.
type names map[string][]netip.Addr

func (n names) LookupNetIP(_ context.Context, _, name string) ([]netip.Addr, error) {
	if addrs := n[strings.TrimSuffix(name, ".")]; addrs != nil {
		return addrs, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

// bundle is what most tests need: a CA and a configuration that trusts it and
// may dial loopback.
type bundle struct {
	t      *testing.T
	ca     *testnet.CA
	config Config
}

func setup(t *testing.T) *bundle {
	t.Helper()
	ca, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	return &bundle{t: t, ca: ca, config: Config{
		TLS: &delivery.TLSMaterial{CAPEM: ca.PEM()},
		Guard: netguard.Config{
			AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Resolver: names{host: {loopback}},
		},
		Transport: transport.Config{QUICHandshakeTimeout: 150 * time.Millisecond, DialTimeout: 2 * time.Second},
		Selector:  protoselect.Config{DNS: protoselect.DNSConfig{Disabled: true}},
	}}
}

// receiver starts one with a certificate of the CA for host; its URL under that
// name becomes the one to examine.
func (b *bundle) receiver(config testnet.Config, leaf testnet.Leaf) *testnet.Receiver {
	b.t.Helper()
	if leaf.Names == nil {
		leaf.Names = []string{host}
	}
	cert, err := b.ca.Issue(leaf)
	if err != nil {
		b.t.Fatal(err)
	}
	config.Certificate = &cert
	r, err := testnet.Start(config)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = r.Close() })
	b.config.URL = r.URL(host, "/in?token=s3cret")
	return r
}

// posting asks for a POST, signed with the secret that receivers verify.
func (b *bundle) posting() {
	b.config.Post = &Post{Secret: signing.NewSecret(secret)}
}

func verifying(t *testing.T, with string) testnet.Config {
	t.Helper()
	v, err := signing.NewVerifier(signing.VerifierConfig{Scheme: signing.Standard, Secrets: signing.Secrets(with)})
	if err != nil {
		t.Fatal(err)
	}
	return testnet.Config{Verify: func(h http.Header, body []byte) error { return v.Verify(h, body, time.Now()) }}
}

func (b *bundle) examine() Report {
	b.t.Helper()
	r, err := Examine(b.t.Context(), b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

// codes are the problems of a report as "severity code", in order.
func codes(r Report) []string {
	out := []string{}
	for _, p := range r.Problems {
		out = append(out, string(p.Severity)+" "+p.Code)
	}
	return out
}

// wants compares works and problems; every problem must say how to mend it.
func (b *bundle) wants(r Report, works bool, problems ...string) {
	b.t.Helper()
	if got := codes(r); r.Works != works || !slices.Equal(got, problems) {
		b.t.Errorf("works %v, problems %q; want %v, %q\n%+v", r.Works, got, works, problems, r.Problems)
	}
	for _, p := range r.Problems {
		if p.What == "" || p.Mend == "" || strings.Contains(p.What+p.Mend, "\n") || len(p.About) == 0 {
			b.t.Errorf("not a line each of what and how to mend: %+v", p)
		}
	}
	var text strings.Builder
	if err := r.Print(&text); err != nil {
		b.t.Fatal(err)
	}
	for _, hidden := range []string{"s3cret", secret, "/in"} {
		if strings.Contains(text.String(), hidden) {
			b.t.Errorf("the report shows %q:\n%s", hidden, text.String())
		}
	}
	for _, p := range r.Problems {
		if !strings.Contains(text.String(), p.What) || !strings.Contains(text.String(), "mend: "+p.Mend) {
			b.t.Errorf("the text leaves a problem out: %+v", p)
		}
	}
}
