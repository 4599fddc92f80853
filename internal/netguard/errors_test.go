package netguard

import (
	"net/netip"
	"strings"
	"testing"
)

func TestADeniedErrorNamesHostAddressRuleAndSetting(t *testing.T) {
	g := newGuard(t, Config{
		DenyExtra:    prefixes("8.8.8.0/24"),
		OwnListeners: []netip.AddrPort{netip.MustParseAddrPort("93.184.216.34:443")},
		Resolver: resolver(map[string][]string{
			"private.example.": {"10.0.0.5"}, "carried.example.": {"2002:a00:5::1"}, "meta.example.": {"169.254.169.254"},
			"nat.example.": {"64:ff9b::808:808"}, "extra.example.": {"8.8.8.8"}, "own.example.": {"93.184.216.34"},
			"multi.example.": {"224.0.0.1"},
		}),
	})
	for host, want := range map[string][]string{
		"private.example":        {`"private.example"`, "10.0.0.5", "rule private", "allow_private"},
		"carried.example":        {"2002:a00:5::1", "10.0.0.5 as 6to4", "rule private", "allow_private", "covering 10.0.0.5"},
		"meta.example":           {"rule metadata", "allow_private naming exactly 169.254.169.254/32"},
		"nat.example":            {"64:ff9b::808:808", "rule nat64", "nat64_prefixes"},
		"extra.example":          {"rule deny_extra", "listed in egress.deny"},
		"own.example":            {"rule own_listener", "no setting allows it"},
		"multi.example":          {"rule multicast", "no setting allows it"},
		"10.0.0.5":               {"10.0.0.5", "rule private", "allow_private"},
		"intranet":               {`"intranet"`, "rule single_label", "egress.single_label_hosts"},
		"127.1":                  {`"127.1"`, "rule numeric_host", "no setting allows it"},
		"a\nb.example":           {`"a\nb.example"`, "rule host"},
		strings.Repeat("x", 300): {"…", "rule host"},
	} {
		_, err := g.ResolvePort(t.Context(), host, 443)
		if err == nil {
			t.Errorf("%q: no error", host)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q is not in %q", part, err)
			}
		}
		if strings.ContainsAny(err.Error(), "\r\n") || len(err.Error()) > 300 {
			t.Errorf("%q is not one short line", err)
		}
	}
}
