package netguard

import (
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
)

func TestParseTargetMakesTheCanonicalForm(t *testing.T) {
	g := newGuard(t, Config{
		AllowHTTP: true, AllowSingleLabel: true, AllowPrivate: prefixes("127.0.0.0/8", "10.0.0.0/8", "::1/128"),
	})
	for _, c := range []struct{ raw, url, host, origin string }{
		{"https://h.example", "https://h.example", "h.example", "https://h.example:443"},
		{"HTTPS://H.Example.:443/Hook?A=b", "https://h.example/Hook?A=b", "h.example", "https://h.example:443"},
		{"http://h.example:80/", "http://h.example/", "h.example", "http://h.example:80"},
		{"http://h.example:443/", "http://h.example:443/", "h.example", "http://h.example:443"},
		{"https://h.example:08443/", "https://h.example:8443/", "h.example", "https://h.example:8443"},
		{"https://bücher.example/", "https://xn--bcher-kva.example/", "xn--bcher-kva.example", "https://xn--bcher-kva.example:443"},
		{"https://ｈ．example/", "https://h.example/", "h.example", "https://h.example:443"},
		{"https://a_b.r3---sn-x.example/", "https://a_b.r3---sn-x.example/", "a_b.r3---sn-x.example", "https://a_b.r3---sn-x.example:443"},
		{"https://8.8.8.8/", "https://8.8.8.8/", "8.8.8.8", "https://8.8.8.8:443"},
		{"https://[2606:4700:0:0:0:0:0:1]:8443/", "https://[2606:4700::1]:8443/", "2606:4700::1", "https://[2606:4700::1]:8443"},
		{"https://[2606:4700::1]:443/", "https://[2606:4700::1]/", "2606:4700::1", "https://[2606:4700::1]:443"},
		{"http://127.0.0.1:9000/h", "http://127.0.0.1:9000/h", "127.0.0.1", "http://127.0.0.1:9000"},
		{"http://localhost:9000/h", "http://localhost:9000/h", "localhost", "http://localhost:9000"},
		{"http://a.localhost/h", "http://a.localhost/h", "a.localhost", "http://a.localhost:80"},
		{"https://receiver/h", "https://receiver/h", "receiver", "https://receiver:443"},
		{"https://h.example/%2e%2E/ü?x=%0d%0a", "https://h.example/%2e%2E/%C3%BC?x=%0d%0a", "h.example", "https://h.example:443"},
		{"https://h.example/a%2Fb/{x}|\"?q={y}", "https://h.example/a%2Fb/%7Bx%7D%7C%22?q=%7By%7D", "h.example", "https://h.example:443"},
		{"https://127.0.0.1.nip.example/", "https://127.0.0.1.nip.example/", "127.0.0.1.nip.example", "https://127.0.0.1.nip.example:443"},
	} {
		target, err := g.ParseTarget(c.raw)
		if err != nil {
			t.Errorf("%s: %v", c.raw, err)
			continue
		}
		if target.URL.String() != c.url || target.Host != c.host || target.Origin() != c.origin {
			t.Errorf("%s: %s, host %s, origin %s", c.raw, target.URL, target.Host, target.Origin())
		}
		addr, err := netip.ParseAddr(c.host)
		if target.Addr != addr || target.Addr.IsValid() != (err == nil) {
			t.Errorf("%s: address %v", c.raw, target.Addr)
		}
	}
}

func TestParseTargetRefuses(t *testing.T) {
	g := newGuard(t, Config{OwnListeners: []netip.AddrPort{netip.MustParseAddrPort("93.184.216.34:8443")}})
	label := strings.Repeat("a", 63)
	for _, c := range []struct {
		raw   string
		rule  Rule
		value string
	}{
		{"", RuleURLSyntax, "***"},
		{"h.example/hook", RuleURLSyntax, "***"},
		{"//h.example/hook", RuleURLSyntax, "***"},
		{"/hook", RuleURLSyntax, "***"},
		{"https:/h.example", RuleURLSyntax, "***"},
		{"https:h.example", RuleURLSyntax, "***"},
		{"https://", RuleURLSyntax, "***"},
		{"https:///hook", RuleURLSyntax, "***"},
		{"https://?x", RuleURLSyntax, "***"},
		{"https://:443/", RuleURLSyntax, "***"},
		{"https://h.example/%zz", RuleURLSyntax, "***"},
		{"https://::1/", RuleURLSyntax, "***"},
		{"https://[v1.x]/", RuleURLSyntax, "***"},
		{"https://[127.0.0.1]/", RuleURLSyntax, "***"},
		{"https://[::1/", RuleURLSyntax, "***"},
		{"http://h.example/", RuleScheme, "http"},
		{"ftp://h.example/", RuleScheme, "ftp"},
		{"file:///etc/passwd", RuleScheme, "file"},
		{"gopher://h.example/", RuleScheme, "gopher"},
		{"https://h.example/#f", RuleFragment, "***"},
		{"https://h.example/#", RuleFragment, "***"},
		{"https://[fe80::1%25eth0]/", RuleZone, "fe80::1"},
		{"https://[2606:4700::1%25eth0]/", RuleZone, "2606:4700::1"},
		{"https://intranet/", RuleSingleLabel, "intranet"},
		{"https://intranet./", RuleSingleLabel, "intranet."},
		{"https://localhost/", RuleLoopback, "localhost"},
		{"https://LOCALHOST./", RuleLoopback, "localhost"},
		{"https://x.localhost/", RuleLoopback, "x.localhost"},
		{"https://loc\u00adalhost/", RuleLoopback, "localhost"},
		{"https://ⓛⓞcalhost/", RuleLoopback, "localhost"},
		{"https://h..example/", RuleHost, "h..example"},
		{"https://.h.example/", RuleHost, ".h.example"},
		{"https://h.example../", RuleHost, "h.example.."},
		{"https://./", RuleHost, "."},
		{"https://-h.example/", RuleHost, "-h.example"},
		{"https://h-.example/", RuleHost, "h-.example"},
		{"https://h,i.example/", RuleHost, "h,i.example"},
		{"https://h;i.example/", RuleHost, "h;i.example"},
		{"https://h!.example/", RuleHost, "h!.example"},
		{"https://*.example/", RuleHost, "*.example"},
		{"https://h.example％2e/", RuleHost, "h.example％2e"},
		{"https://a／b.example/", RuleHost, "a／b.example"},
		{"https://xn--a.example/", RuleHost, "xn--a.example"},
		{"https://xn--localhost-.example/", RuleHost, "xn--localhost-.example"},
		{"https://\u202eh.example/", RuleHost, `\u202eh.example`},
		{"https://\u200b/", RuleHost, `\u200b`},
		{"https://" + label + "a.example/", RuleHost, label + "a…"},
		{"https://" + strings.Repeat("a.", 124) + "example/", RuleHost, strings.Repeat("a.", 32) + "…"},
		{"https://h.example/" + strings.Repeat("a", MaxURLLength), RuleURLLength, "4114 bytes"},
		{"https://10.0.0.5/", RulePrivate, "10.0.0.5"},
		{"https://[fd00::1]/", RulePrivate, "fd00::1"},
		{"https://93.184.216.34:8443/", RuleOwnListener, "93.184.216.34"},
		{"https://[::ffff:93.184.216.34]:8443/", RuleOwnListener, "::ffff:93.184.216.34"},
	} {
		if got := refusedAs(t, g, c.raw, c.rule); got.Value != c.value {
			t.Errorf("%q: value %q, want %q", c.raw, got.Value, c.value)
		}
	}
	if _, err := g.ParseTarget("https://" + label + ".example/"); err != nil {
		t.Errorf("a label of 63: %v", err)
	}
	if _, err := g.ParseTarget("https://" + strings.Repeat("a.", 123) + "example/"); err != nil {
		t.Errorf("a name of 253: %v", err)
	}
}

func TestARefusedHostOrAddressIsAlsoADeniedError(t *testing.T) {
	g := newGuard(t, Config{})
	for raw, rule := range map[string]Rule{
		"https://10.0.0.5/": RulePrivate, "https://localhost/": RuleLoopback,
		"https://intranet/": RuleSingleLabel, "https://127.1/": RuleNumericHost,
	} {
		_, err := g.ParseTarget(raw)
		if d := deniedAs(t, err, rule); !d.Literal {
			t.Errorf("%s: %+v", raw, d)
		}
	}
	_, err := g.ParseTarget("http://h.example/")
	if _, ok := errors.AsType[*DeniedError](err); ok {
		t.Errorf("%v: a scheme is not an address", err)
	}
}

func TestATargetLogsItsOriginOnly(t *testing.T) {
	target, err := newGuard(t, Config{}).ParseTarget("https://h.example/services/path-secret?token=query-secret")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("target", "t", target, "s", target.String())
	if got := log.String(); strings.Contains(got, "secret") || !strings.Contains(got, "t=https://h.example:443") {
		t.Error(got)
	}
	if got := (Target{}).String(); got != "" {
		t.Errorf("the zero target: %q", got)
	}
}

func TestRedactKeepsSchemeAndHost(t *testing.T) {
	for raw, want := range map[string]string{
		"https://h.example:8443/a?b#c":         "https://h.example:8443",
		"HTTP://h.example":                     "http://h.example",
		"https://u:p@h.example/":               "***",
		"https://h.example/?mail=someone@else": "***",
		"https://u:p/x@h.example/":             "***",
		"https://u:pass":                       "***",
		"https://":                             "***",
		"not a url":                            "***",
		"":                                     "***",
	} {
		if got := Redact(raw); got != want {
			t.Errorf("Redact(%q) = %q, want %q", raw, got, want)
		}
	}
}

func TestADenialAtRegistrationIsObservedOnce(t *testing.T) {
	var heard denials
	g := newGuard(t, Config{Observer: heard.observer()})
	wantRefused(t, g, "https://10.0.0.5/", RulePrivate)
	if heard.count(StageRegister, RulePrivate) != 1 || len(heard.list) != 1 {
		t.Errorf("%+v", heard.list)
	}
}
