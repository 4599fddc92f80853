package doctor

import (
	"crypto/tls"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

func TestGoodReceiverIsFoundGood(t *testing.T) {
	b := setup(t)
	config := verifying(t, secret)
	config.HTTP3 = true
	r := b.receiver(config, testnet.Leaf{})
	b.posting()
	got := b.examine()
	b.wants(got, true)
	if len(got.Addresses) != 1 || got.Addresses[0].TCP == nil || len(got.Addresses[0].QUIC) != 1 {
		t.Fatalf("%+v", got.Addresses)
	}
	tcp, quic := got.Addresses[0].TCP, got.Addresses[0].QUIC[0]
	if !tcp.Up || !tcp.Verified || tcp.Protocol != "h2" || tcp.TLSVersion != "TLS 1.3" || tcp.ConnectMS == 0 || tcp.TLSMS == 0 {
		t.Errorf("TCP: %+v", tcp)
	}
	if !quic.Up || !quic.Verified || quic.Protocol != "h3" || quic.QUICVersion != "v1" || quic.QUICMS == 0 {
		t.Errorf("QUIC: %+v", quic)
	}
	if c := tcp.Chain; len(c) != 2 || c[0].Names[0] != host || c[0].Issuer != c[1].Subject || c[0].NotAfter.IsZero() {
		t.Errorf("chain: %+v", c)
	}
	if s := got.Services; len(s) != 1 || s[0].Source != "alt_svc" || !s[0].Up {
		t.Errorf("services: %+v", s)
	}
	p := got.Post
	if p == nil || p.Status != 200 || p.Protocol != "h2" || p.Outcome != "delivered" || len(p.AltSvc) != 1 || p.Phases.TLS == 0 || p.Phases.FirstByte == 0 {
		t.Errorf("post: %+v", p)
	}
	if c := r.Tally().Counts(); c.Requests != 1 || c.SignatureFailures != 0 {
		t.Errorf("the receiver saw %+v", c)
	}
}

func TestWithoutPostNoRequestIsMade(t *testing.T) {
	b := setup(t)
	r := b.receiver(testnet.Config{HTTP3: true}, testnet.Leaf{})
	got := b.examine()
	b.wants(got, true, "note http3_not_advertised")
	if c := r.Tally().Counts(); c.Requests != 0 || got.Post != nil {
		t.Errorf("%+v %+v", c, got.Post)
	}
}

func TestTCPOnlyReceiverIsNoProblem(t *testing.T) {
	b := setup(t)
	b.receiver(verifying(t, secret), testnet.Leaf{})
	b.posting()
	got := b.examine()
	b.wants(got, true)
	if s := got.Services; len(s) != 1 || s[0].Up || s[0].Source != "assumed" || s[0].Verdict != "timeout" {
		t.Errorf("%+v", s)
	}
}

func TestHTTP3ThatIsAdvertisedAndDeadIsAWarning(t *testing.T) {
	b := setup(t)
	config := verifying(t, secret)
	config.AltSvcPort = true
	r := b.receiver(config, testnet.Leaf{})
	b.posting()
	got := b.examine()
	b.wants(got, true, "warning http3_timeout")
	if p := got.Problems[0]; !strings.Contains(p.Mend, "UDP port") || !strings.Contains(p.About[0], host) || got.Post.Status != 200 {
		t.Errorf("%+v", p)
	}
	if c := r.Tally().Counts(); c.Requests != 1 {
		t.Errorf("%+v", c)
	}
}

func TestAlternativeThatPolicyDoesNotUseIsNamed(t *testing.T) {
	b := setup(t)
	config := verifying(t, secret)
	config.AltSvc = `h3="elsewhere.example:443", h3=":1"`
	b.receiver(config, testnet.Leaf{})
	b.posting()
	b.wants(b.examine(), true, "note http3_host_not_allowed", "note http3_port_not_allowed")
}

func TestCertificateFaultsAreNamedWithTheWayOut(t *testing.T) {
	day := 24 * time.Hour
	cases := []struct {
		name  string
		leaf  testnet.Leaf
		tls   func(*bundle)
		want  string
		says  string
		works bool
	}{
		{"expired", testnet.Leaf{NotAfter: time.Now().Add(-day)}, nil, "error certificate_expired", "expired on", false},
		{"not yet valid", testnet.Leaf{NotBefore: time.Now().Add(day)}, nil, "error certificate_not_yet", "valid from", false},
		{"expires soon", testnet.Leaf{NotAfter: time.Now().Add(13*day + time.Hour)}, nil, "warning certificate_expires_soon", "in 13 days", true},
		{"expires very soon", testnet.Leaf{NotAfter: time.Now().Add(5*time.Hour + time.Minute)}, nil, "warning certificate_expires_soon", "in 5 hours", true},
		{"wrong name", testnet.Leaf{Names: []string{"other.example", "192.0.2.1"}}, nil, "error certificate_name", "other.example, 192.0.2.1 and not for " + host, false},
		{"unknown CA", testnet.Leaf{}, func(b *bundle) { b.config.TLS = nil }, "error certificate_authority", "does not trust", false},
		{"another CA was given", testnet.Leaf{}, func(b *bundle) {
			other, err := testnet.NewCA()
			if err != nil {
				b.t.Fatal(err)
			}
			b.config.TLS.CAPEM = other.PEM()
		}, "error certificate_authority", "not under the CA that was given", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.receiver(testnet.Config{}, c.leaf)
			if c.tls != nil {
				c.tls(b)
			}
			got := b.examine()
			b.wants(got, c.works, c.want)
			if !strings.Contains(got.Problems[0].What, c.says) {
				t.Errorf("%q does not say %q", got.Problems[0].What, c.says)
			}
			if chain := got.Addresses[0].TCP.Chain; len(chain) == 0 {
				t.Error("the chain is not shown")
			}
		})
	}
}

func TestChainThatIsNotSentIsToldFromASelfSignedOne(t *testing.T) {
	for name, want := range map[string]string{"self-signed": "error certificate_self_signed", "issuer missing": "error certificate_chain"} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			leaf, err := b.ca.Issue(testnet.Leaf{Names: []string{host}})
			if err != nil {
				t.Fatal(err)
			}
			leaf.Certificate = leaf.Certificate[:1]
			if name == "self-signed" {
				if leaf, err = testnet.SelfSigned(host); err != nil {
					t.Fatal(err)
				}
			}
			b.receiver(testnet.Config{Getter: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &leaf, nil }}, testnet.Leaf{})
			b.config.TLS = nil
			b.wants(b.examine(), false, want)
		})
	}
}

func TestClientCertificateThatIsAskedForIsNamed(t *testing.T) {
	b := setup(t)
	b.receiver(testnet.Config{ClientCAs: b.ca}, testnet.Leaf{})
	b.posting()
	got := b.examine()
	if got.Works || got.Problems[0].Severity != SeverityError || got.Problems[len(got.Problems)-1].Code != "client_certificate" {
		t.Errorf("%+v", got.Problems)
	}
	cert, err := b.ca.Issue(testnet.Leaf{Names: []string{"node.example"}, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	if b.config.TLS.ClientCertPEM, b.config.TLS.ClientKeyPEM, err = testnet.EncodeKeyPair(cert); err != nil {
		t.Fatal(err)
	}
	b.wants(b.examine(), true)
}

func TestURLsThatRegistrationRefusesAreRefusedByTheSameRule(t *testing.T) {
	for url, want := range map[string]string{
		"https://127.1/in":                  "error numeric_host",
		"https://0x7f000001/in":             "error numeric_host",
		"https://10.1.2.3/in":               "error private",
		"https://[::ffff:169.254.169.254]/": "error metadata",
		"http://hook.example/in":            "error scheme",
		"https://hook/in":                   "error single_label",
		"https://u:s3cret@hook.example/":    "error userinfo",
		"https://hook.example:99999/":       "error port",
		"no url":                            "error url_characters",
	} {
		b := setup(t)
		b.config.URL = url
		got := b.examine()
		b.wants(got, false, want)
		if len(got.Addresses) != 0 {
			t.Errorf("%s: %+v", url, got.Addresses)
		}
	}
}

func TestOneDeniedAddressStopsEverythingAndEachIsShown(t *testing.T) {
	b := setup(t)
	r := b.receiver(testnet.Config{HTTP3: true}, testnet.Leaf{})
	b.config.Guard.Resolver = names{host: {loopback, netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("::ffff:169.254.169.254")}}
	b.posting()
	got := b.examine()
	b.wants(got, false, "error address_denied", "error address_denied")
	rules := []string{}
	for _, a := range got.Addresses {
		rules = append(rules, a.Rule)
		if a.TCP != nil || a.QUIC != nil {
			t.Errorf("%s was dialled", a.Address)
		}
	}
	if strings.Join(rules, " ") != "loopback private metadata" || !got.Addresses[0].Allowed || got.Addresses[1].Allowed {
		t.Errorf("%+v", got.Addresses)
	}
	if c := r.Tally().Counts(); c.TCPConnections != 0 || c.QUICConnections != 0 {
		t.Errorf("%+v", c)
	}
}

func TestEachAddressIsTriedAndADeadOneIsAWarning(t *testing.T) {
	b := setup(t)
	b.receiver(testnet.Config{}, testnet.Leaf{})
	b.config.Guard.Resolver = names{host: {netip.MustParseAddr("127.0.0.9"), loopback}}
	got := b.examine()
	b.wants(got, true, "warning connect_refused")
	if got.Problems[0].About[0] != "127.0.0.9" {
		t.Errorf("%+v", got.Problems)
	}
}

func TestWhatIsNotTLSOrNotThereIsNamed(t *testing.T) {
	plain, err := testnet.Start(testnet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plain.Close() })
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts, nobody speaks
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for name, c := range map[string]struct{ url, want string }{
		"http":    {"https://" + plain.Addr() + "/", "error not_tls"},
		"silence": {"https://" + silent.Addr().String() + "/", "error tls_silent"},
		"nobody":  {"https://127.0.0.77:1/", "error connect_refused"},
		"no name": {"https://missing.example/", "error dns"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.config.URL, b.config.Transport.DialTimeout = c.url, 300*time.Millisecond
			b.wants(b.examine(), false, c.want)
		})
	}
}

func TestPlainHTTPWorksWhereItIsAllowed(t *testing.T) {
	b := setup(t)
	r, err := testnet.Start(verifying(t, secret))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b.config.URL, b.config.Guard.AllowHTTP, b.config.TLS = r.URL("", "/in"), true, nil
	b.posting()
	got := b.examine()
	b.wants(got, true)
	if len(got.Services) != 0 || got.Post.Protocol != "h1" {
		t.Errorf("%+v", got)
	}
}
