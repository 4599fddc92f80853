package netguard

import (
	"slices"
	"testing"
)

func TestRoute(t *testing.T) {
	names := map[string][]string{
		"h.example.": {"2606::1", "8.8.8.8"}, "a.corp.example.": {"10.0.0.9"}, "notcorp.example.": {"8.8.4.4"},
	}
	const proxy = "http://user:pass@10.255.0.1:3128"
	for _, c := range []struct {
		name    string
		cfg     Config
		host    string
		direct  []string
		connect []string
		asked   int
	}{
		{"no proxy configured", Config{}, "h.example", []string{"[2606::1]:443", "8.8.8.8:443"}, nil, 1},
		{"CONNECT to the vetted literals", Config{Proxy: proxy}, "h.example", nil, []string{"[2606::1]:443", "8.8.8.8:443"}, 1},
		{"a literal", Config{Proxy: proxy}, "8.8.8.8", nil, []string{"8.8.8.8:443"}, 0},
		{"the name, when the proxy resolves", Config{Proxy: proxy, ProxyRemoteDNS: true}, "H.example.", nil, []string{"h.example:443"}, 0},
		{"a literal, when the proxy resolves", Config{Proxy: proxy, ProxyRemoteDNS: true}, "8.8.8.8", nil, []string{"8.8.8.8:443"}, 0},
		{"no_proxy", Config{Proxy: proxy, NoProxy: []string{".corp.example"}}, "a.corp.example", []string{"10.0.0.9:443"}, nil, 1},
		{"no_proxy, other spelling", Config{Proxy: proxy, NoProxy: []string{".corp.example"}}, "A.CORP.example.", []string{"10.0.0.9:443"}, nil, 1},
		{"no_proxy, when the proxy resolves", Config{Proxy: proxy, ProxyRemoteDNS: true, NoProxy: []string{"corp.example"}}, "a.corp.example", []string{"10.0.0.9:443"}, nil, 1},
		{"beside no_proxy", Config{Proxy: proxy, NoProxy: []string{"corp.example"}}, "notcorp.example", nil, []string{"8.8.4.4:443"}, 1},
		{"loopback is never the proxy's", Config{Proxy: proxy}, "127.0.0.1", []string{"127.0.0.1:443"}, nil, 0},
		{"nor is localhost", Config{Proxy: proxy, ProxyRemoteDNS: true}, "localhost", []string{"127.0.0.1:443"}, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			resolver := resolver(names)
			c.cfg.Resolver, c.cfg.AllowPrivate = resolver, prefixes("10.0.0.9/32", "127.0.0.0/8")
			route, err := newGuard(t, c.cfg).Route(t.Context(), c.host, 443)
			if err != nil {
				t.Fatal(err)
			}
			var direct []string
			for _, a := range route.Addrs {
				direct = append(direct, a.String())
			}
			if !slices.Equal(direct, c.direct) || !slices.Equal(route.Connect, c.connect) {
				t.Errorf("direct %v, connect %v", direct, route.Connect)
			}
			if (route.Proxy != nil) != (c.connect != nil) {
				t.Errorf("proxy %v", route.Proxy)
			}
			if n := len(resolver.lookups()); n != c.asked {
				t.Errorf("%d lookups, want %d", n, c.asked)
			}
		})
	}
}

func TestAProxyThatResolvesIsNotAskedForANameThatIsRefused(t *testing.T) {
	g := newGuard(t, Config{Proxy: "http://proxy.example:3128", ProxyRemoteDNS: true, Resolver: resolver(nil)})
	for host, rule := range map[string]Rule{
		"intranet": RuleSingleLabel, "0x7f000001": RuleNumericHost, "localhost": RuleLoopback, "::ffff:10.0.0.1": RulePrivate,
	} {
		_, err := g.Route(t.Context(), host, 443)
		wantDenied(t, err, rule)
	}
}

func TestARoutesProxyIsACopy(t *testing.T) {
	g := newGuard(t, Config{Proxy: "http://user:pass@proxy.example:3128", Resolver: resolver(map[string][]string{"h.example.": {"8.8.8.8"}})})
	for range 2 {
		route, err := g.Route(t.Context(), "h.example", 443)
		if err != nil || route.Proxy.User == nil {
			t.Fatalf("%+v, %v", route, err)
		}
		route.Proxy.User = nil
	}
}

func TestNoProxyEntries(t *testing.T) {
	for _, c := range []struct {
		entry string
		host  string
		port  uint16
		want  bool
	}{
		{"*", "h.example", 443, true},
		{"corp.example:8443", "a.corp.example", 8443, true},
		{"corp.example:8443", "a.corp.example", 443, false},
		{"bücher.example", "xn--bcher-kva.example", 443, true},
		{".internal", "a.b.internal", 443, true},
		{"10.0.0.0/8", "10.1.2.3", 443, true},
		{"10.0.0.0/8", "::ffff:10.1.2.3", 443, true},
		{"10.0.0.0/8", "11.1.2.3", 443, false},
		{"10.0.0.1", "10.0.0.1", 443, true},
		{"10.0.0.1:8443", "10.0.0.1", 443, false},
		{"10.0.0.1:8443", "10.0.0.1", 8443, true},
		{"fd00::1", "fd00::1", 443, true},
		{"[fd00::1]", "fd00::1", 443, true},
		{"[fd00::1]:8443", "fd00::1", 8443, true},
		{"[fd00::1]:8443", "fd00::1", 443, false},
		{"localhost", "localhost", 443, true},
		{"a.example, corp.example ,", "b.corp.example", 443, true},
		{"1.example", "10.1.2.3", 443, false},
		{"", "h.example", 443, false},
	} {
		n, err := ParseNoProxy([]string{c.entry})
		if err != nil {
			t.Errorf("%q: %v", c.entry, err)
		}
		if got := n.Match(c.host, c.port); got != c.want {
			t.Errorf("%q matches %s port %d: %v", c.entry, c.host, c.port, got)
		}
	}
	for _, bad := range []string{"*corp.example", "a b", "10.0.0.0/33", "10.1.2.3/8", "corp.example:0", "corp.example:x", "127.1", "https://x.example", ".", "*."} {
		if _, err := ParseNoProxy([]string{bad}); err == nil {
			t.Errorf("%q accepted", bad)
		}
	}
}
