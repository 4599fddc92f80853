package netguard

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestCases has one subtest for each case of the case list's group U that is an
// address or URL decision.
func TestCases(t *testing.T) {
	for id, test := range map[string]func(*testing.T){
		"U1":  caseLiteral("https://[::ffff:127.0.0.1]/h", RuleLoopback),
		"U2":  caseLiteral("https://[0:0:0:0:0:ffff:a9fe:a9fe]/", RuleMetadata),
		"U3":  caseCompatible,
		"U4":  caseAnswers(RuleNAT64, "64:ff9b::a9fe:a9fe"),
		"U5":  caseNAT64,
		"U7":  caseLinkLocal,
		"U8":  caseSpecialRanges,
		"U9":  caseNumericHosts,
		"U10": caseMixedAnswer,
		"U11": caseRebinding,
		"U12": caseHints,
		"U13": caseUserinfo,
		"U14": caseParserTricks,
		"U16": caseRedirect,
		"U17": caseProxyTarget,
		"U19": caseNoProxy,
		"U21": casePorts,
		"U23": caseTokenURL,
	} {
		t.Run(id, test)
	}
}

// caseLiteral: refused at registration, and never dialled by a node that has the
// URL from before.
func caseLiteral(raw string, rule Rule) func(*testing.T) {
	return func(t *testing.T) {
		dialer, names := &recordingDialer{}, resolver(nil)
		g := newGuard(t, Config{Dialer: dialer, Resolver: names})
		refused := refusedAs(t, g, raw, rule)
		if d := deniedAs(t, refused, rule); !d.Literal || d.Retryable() {
			t.Errorf("%+v: a literal must not be retried", d)
		}
		host := strings.Trim(strings.TrimSuffix(strings.TrimSuffix(
			strings.TrimPrefix(raw, "https://"), "h"), "/"), "[]")
		_, err := g.DialContext(t.Context(), "tcp", net.JoinHostPort(host, "443"))
		if d := deniedAs(t, err, rule); !d.Literal {
			t.Errorf("%+v: want Literal", d)
		}
		if n := len(dialer.dials()) + len(names.lookups()); n != 0 {
			t.Errorf("%d dials and lookups, want none", n)
		}
	}
}

// caseAnswers: a name with these answers is denied, may be retried, and is not
// dialled.
func caseAnswers(rule Rule, answer ...string) func(*testing.T) {
	return func(t *testing.T) {
		dialer := &recordingDialer{}
		g := newGuard(t, Config{Dialer: dialer, Resolver: resolver(map[string][]string{"h.example.": answer})})
		_, err := g.DialContext(t.Context(), "tcp", "h.example:443")
		if d := deniedAs(t, err, rule); d.Literal || !d.Retryable() {
			t.Errorf("%+v: an answer of DNS is retried", d)
		}
		if got := dialer.dials(); len(got) != 0 {
			t.Errorf("dialled %v", got)
		}
	}
}

func caseCompatible(t *testing.T) {
	caseLiteral("https://[::127.0.0.1]/", RuleLoopback)(t)
	caseLiteral("https://[::7f00:1]/", RuleLoopback)(t)
}

func caseNAT64(t *testing.T) {
	addr := netip.MustParseAddr("64:ff9b::808:808")
	v := newPolicyT(t, Config{}).CheckAddr(addr)
	if v.Allowed || v.Rule != RuleNAT64 || v.Setting != SettingNAT64Prefixes {
		t.Errorf("by default: %+v, want denied by nat64 and its setting named", v)
	}
	p := newPolicyT(t, Config{NAT64Prefixes: prefixes("64:ff9b::/96")})
	if v := p.CheckAddr(addr); !v.Allowed || v.Embedded != netip.MustParseAddr("8.8.8.8") {
		t.Errorf("with the prefix named: %+v, want allowed by the embedded 8.8.8.8", v)
	}
	if v := p.CheckAddr(netip.MustParseAddr("64:ff9b::a9fe:a9fe")); v.Allowed || v.Rule != RuleMetadata {
		t.Errorf("with the prefix named: %+v, want the embedded address denied", v)
	}
}

func caseLinkLocal(t *testing.T) {
	for addr, rule := range map[string]Rule{
		"fe81::1": RuleLinkLocal, "febf::1": RuleLinkLocal, "::": RuleUnspecified,
	} {
		caseLiteral("https://["+addr+"]/", rule)(t)
		caseAnswers(rule, addr)(t)
	}
}

func caseSpecialRanges(t *testing.T) {
	for addr, rule := range map[string]Rule{
		"100.64.0.1": RuleCGNAT, "0.1.2.3": RuleThisNetwork,
		"198.18.0.1": RuleBenchmarking, "240.0.0.1": RuleReserved,
	} {
		caseLiteral("https://"+addr+"/", rule)(t)
		caseAnswers(rule, addr)(t)
	}
}

func caseNumericHosts(t *testing.T) {
	dialer, names := &recordingDialer{}, resolver(nil)
	g := newGuard(t, Config{
		Dialer: dialer, Resolver: names, AllowSingleLabel: true, AllowPrivate: prefixes("127.0.0.0/8"),
	})
	for _, host := range []string{
		"127.1", "0177.0.0.1", "2130706433", "0x7f000001",
		"0X7F000001", "0x7f.1", "127.0.0.0x1", "127.0.1", "017700000001", "127.0.0.01", "127.0.0.1.",
		"0x", "1.2.3.4.5", "256.1.1.1", "4294967296", "example.1", "example.0x1f",
		"１２７.１", "１２７.０.０.１", "127。0。0。1", "①②⑦.0.0.1", "０ｘ７ｆ000001", "127.0.0.1\u00ad",
	} {
		wantRefused(t, g, "https://"+host+"/", RuleNumericHost)
		_, err := g.Resolve(t.Context(), host)
		wantDenied(t, err, RuleNumericHost)
	}
	for _, raw := range []string{"https://%31%32%37.0.0.1/", "https://127%2e0.0.1/", "https://%EF%BC%91.1/"} {
		wantRefused(t, g, raw, RuleHost)
	}
	if asked := names.lookups(); len(asked) != 0 {
		t.Errorf("asked the resolver for %v", asked)
	}
}

func caseMixedAnswer(t *testing.T) {
	caseAnswers(RulePrivate, "93.184.216.34", "10.0.0.5")(t)
	caseAnswers(RulePrivate, "10.0.0.5", "93.184.216.34")(t)
	caseAnswers(RuleLoopback, "2606:4700::1", "93.184.216.34", "::1")(t)
	caseAnswers(RuleLoopback, "93.184.216.34", "2002:7f00:1::1")(t)
}

func caseRebinding(t *testing.T) {
	var seen struct {
		sync.Mutex
		host, sni string
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		seen.Lock()
		defer seen.Unlock()
		seen.host, seen.sni = r.Host, r.TLS.ServerName
	}))
	server.StartTLS()
	defer server.Close()
	names := resolver(nil).then("example.com.", "93.184.216.34").then("example.com.", "127.0.0.1")
	dialer := &recordingDialer{to: server.Listener.Addr().String()}
	g := newGuard(t, Config{Resolver: names, Dialer: dialer})
	roots := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	client := &http.Client{Transport: &http.Transport{
		DialContext: g.DialContext, DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots},
	}}

	res, err := client.Get("https://example.com/hook")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	if got := names.lookups(); !slices.Equal(got, []string{"ip example.com."}) {
		t.Errorf("lookups %v, want one, of the absolute name", got)
	}
	if got := dialer.dials(); !slices.Equal(got, []string{"93.184.216.34:443"}) {
		t.Errorf("dialled %v, want the literal that was judged", got)
	}
	seen.Lock()
	if seen.host != "example.com" || seen.sni != "example.com" {
		t.Errorf("Host %q, SNI %q, want the name in both", seen.host, seen.sni)
	}
	seen.Unlock()

	_, err = client.Get("https://example.com/hook")
	wantDenied(t, err, RuleLoopback)
	if got := dialer.dials(); len(got) != 1 {
		t.Errorf("dialled %v after the answer had changed", got)
	}
}

func caseHints(t *testing.T) {
	var heard denials
	g := newGuard(t, Config{
		Resolver: resolver(map[string][]string{"h.example.": {"93.184.216.34"}}), Observer: heard.observer(),
	})
	wantDenied(t, g.CheckHost("10.0.0.1", 443), RulePrivate)
	wantDenied(t, g.CheckAnswer("h.example", addrs("10.0.0.1"), 443), RulePrivate)
	if n := heard.count(StageHint, RulePrivate); n != 2 {
		t.Errorf("%d denials heard, want 2", n)
	}
	if err := g.CheckHost("alt.example", 443); err != nil {
		t.Error(err)
	}
	got, err := g.ResolvePort(t.Context(), "h.example", 443)
	if err != nil || len(got) != 1 {
		t.Errorf("the origin must stay reachable: %v, %v", got, err)
	}
}

func caseUserinfo(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	g := newGuard(t, Config{Observer: Observer{Denied: func(d Denial) {
		logger.Info("denied", "rule", d.Rule, "err", d.Err)
	}}})
	for raw, rule := range map[string]Rule{
		"https://u:hunter2@h.example/":           RuleUserinfo,
		"https://hunter2@h.example/":             RuleUserinfo,
		"https://@h.example/":                    RuleUserinfo,
		"https://u:hunter2%40@h.example/":        RuleUserinfo,
		"https://u:hunter2@127.0.0.1/":           RuleUserinfo,
		"ftp://u:hunter2@h.example/":             RuleScheme,
		"https://u:hunter2/x@h.example/":         RuleURLSyntax, // the slash ends the authority
		"https://u:hunter2#x@h.example/":         RuleFragment,
		"https://hunter2/x@h.example/":           RuleSingleLabel,
		"https://u:99999/hunter2@h.example":      RulePort,
		"https://u:hunter2＠h.example/":           RuleURLSyntax,
		"https://u:hunter2 @h.example/":          RuleURLCharacters,
		"https:u:hunter2@h.example":              RuleURLSyntax,
		"u:hunter2@h.example/?next=https://x.y/": RuleURLSyntax,
	} {
		refused := refusedAs(t, g, raw, rule)
		logger.Info("refused", "err", refused, "value", refused.Value, "url", Redact(raw))
	}
	if strings.Contains(log.String(), "hunter2") {
		t.Errorf("the log has the password:\n%s", log.String())
	}
}

func caseParserTricks(t *testing.T) {
	g := newGuard(t, Config{AllowHTTP: true})
	for _, raw := range []string{
		`https://h.example\@evil.example/`, `https:\\h.example/`, `https://h.example/\..\`,
		"https://h.example/\r\nHost: evil.example", "https://h.example\r\n/", "https://h.example/\x00",
		" https://h.example/", "https://h.example/ ", "https://h.example/a b", "https://h.example/\u0085",
		"https://h.example/\u2028", "https://h.example/\xff", "\thttps://h.example/",
	} {
		wantRefused(t, g, raw, RuleURLCharacters)
	}
}

func caseRedirect(t *testing.T) {
	server := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/latest/meta-data/", http.StatusFound))
	defer server.Close()
	dialer := &recordingDialer{to: server.Listener.Addr().String()}
	g := newGuard(t, Config{
		AllowHTTP: true, Dialer: dialer, Resolver: resolver(map[string][]string{"h.example.": {"93.184.216.34"}}),
	})
	// Deliveries follow no redirect at all. A client that does, behind this
	// guard, still gets no further.
	client := &http.Client{Transport: &http.Transport{DialContext: g.DialContext, DisableKeepAlives: true}}
	_, err := client.Get("http://h.example/")
	wantDenied(t, err, RuleMetadata)
	if got := dialer.dials(); !slices.Equal(got, []string{"93.184.216.34:80"}) {
		t.Errorf("dialled %v, want no second connection", got)
	}
	wantRefused(t, g, "http://169.254.169.254/latest/meta-data/", RuleMetadata)
}

func caseProxyTarget(t *testing.T) {
	names := resolver(map[string][]string{"h.example.": {"10.1.2.3"}})
	for _, remote := range []bool{false, true} {
		g := newGuard(t, Config{Proxy: "http://proxy.corp.example:3128", Resolver: names, ProxyRemoteDNS: remote})
		route, err := g.Route(t.Context(), "10.1.2.3", 443)
		if d := deniedAs(t, err, RulePrivate); !d.Literal {
			t.Errorf("%+v: want Literal", d)
		}
		if route.Proxy != nil || route.Connect != nil {
			t.Errorf("route %+v, want none", route)
		}
	}
	g := newGuard(t, Config{Proxy: "http://proxy.corp.example:3128", Resolver: names})
	_, err := g.Route(t.Context(), "h.example", 443)
	wantDenied(t, err, RulePrivate)
}

func caseNoProxy(t *testing.T) {
	for _, entry := range []string{".corp.example", "corp.example", "*.corp.example", "CORP.example."} {
		n, err := ParseNoProxy([]string{entry})
		if err != nil {
			t.Fatal(err)
		}
		for host, want := range map[string]bool{
			"corp.example": true, "a.corp.example": true, "a.b.corp.example": true,
			"notcorp.example": false, "corp.example.org": false, "example": false,
		} {
			if got := n.Match(host, 443); got != want {
				t.Errorf("%q matches %q: %v, want %v", entry, host, got, want)
			}
		}
	}
}

func casePorts(t *testing.T) {
	g := newGuard(t, Config{AllowHTTP: true})
	for _, port := range []string{"99999", "0", "65536", "00", "18446744073709551617"} {
		wantRefused(t, g, "https://h.example:"+port+"/", RulePort)
	}
	for _, port := range []string{"-1", "+443", "4 43", "https", "443:443"} {
		if _, err := g.ParseTarget("https://h.example:" + port + "/"); err == nil {
			t.Errorf("port %q accepted", port)
		}
	}
	for raw, want := range map[string]uint16{
		"https://h.example:/": 443, "https://h.example/": 443, "http://h.example": 80, "http://h.example:/": 80,
		"https://h.example:0443/": 443, "https://h.example:65535": 65535, "https://h.example:1/": 1,
	} {
		target, err := g.ParseTarget(raw)
		if err != nil || target.Port != want {
			t.Errorf("%s: port %d, %v, want %d", raw, target.Port, err, want)
		}
	}
}

func caseTokenURL(t *testing.T) {
	var hits atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		hits.Add(1)
		_, _ = io.WriteString(w, `{"access_token":"tok-secret"}`)
	}))
	defer server.Close()
	g := newGuard(t, Config{})
	wantRefused(t, g, server.URL+"/token", RuleLoopback)

	client := server.Client()
	client.Transport.(*http.Transport).DialContext = g.DialContext
	form := strings.NewReader("grant_type=client_credentials&client_secret=hunter2")
	_, err := client.Post(server.URL+"/token", "application/x-www-form-urlencoded", form)
	wantDenied(t, err, RuleLoopback)
	for _, secret := range []string{"hunter2", "tok-secret"} {
		if strings.Contains(errors.Join(err).Error(), secret) {
			t.Errorf("%q in %v", secret, err)
		}
	}
	if n := hits.Load(); n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}
