package netguard

import (
	"net/netip"
	"testing"
)

func TestAddressesOfTheInternetAreAllowedWithoutARule(t *testing.T) {
	p := newPolicyT(t, Config{})
	for _, a := range addrs("8.8.8.8", "93.184.216.34", "1.1.1.1", "2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888",
		"::ffff:8.8.8.8", "::8.8.8.8", "::ffff:0:808:808", "2002:808:808::1", "2606:4700::5efe:808:808") {
		if v := p.CheckAddr(a); !v.Allowed || v.Rule != "" || v.Setting != "" {
			t.Errorf("%v: %+v", a, v)
		}
	}
}

func TestAnEmbeddedAddressIsJudgedInEveryForm(t *testing.T) {
	p := newPolicyT(t, Config{NAT64Prefixes: prefixes("64:ff9b::/96", "2a00:64::/32")})
	for _, c := range []struct {
		addr string
		via  Via
		rule Rule
		in   string
	}{
		{"::ffff:10.0.0.5", ViaMapped, RulePrivate, "10.0.0.5"},
		{"::ffff:10.0.0.5%eth0", ViaMapped, RulePrivate, "10.0.0.5"},
		{"::10.0.0.5", ViaCompatible, RulePrivate, "10.0.0.5"},
		{"::ffff:0:a00:5", ViaTranslated, RulePrivate, "10.0.0.5"},
		{"2002:a00:5::1", Via6to4, RulePrivate, "10.0.0.5"},
		{"2606:4700::5efe:a00:5", ViaISATAP, RulePrivate, "10.0.0.5"},
		{"2606:4700::200:5efe:a00:5", ViaISATAP, RulePrivate, "10.0.0.5"},
		{"2606:4700::300:5efe:a00:5", ViaISATAP, RulePrivate, "10.0.0.5"},
		{"2002:808:808::5efe:a00:5", ViaISATAP, RulePrivate, "10.0.0.5"},
		{"2002:a00:5::5efe:808:808", Via6to4, RulePrivate, "10.0.0.5"},
		{"64:ff9b::a00:5", ViaNAT64, RulePrivate, "10.0.0.5"},
		{"2a00:64:a00:5::", ViaNAT64, RulePrivate, "10.0.0.5"},
		{"64:ff9b::a9fe:a9fe", ViaNAT64, RuleMetadata, "169.254.169.254"},
	} {
		v := p.CheckAddr(netip.MustParseAddr(c.addr))
		if v.Allowed || v.Rule != c.rule || v.Via != c.via || v.Embedded != netip.MustParseAddr(c.in) || v.Decided() != v.Embedded {
			t.Errorf("%s: %+v, want %s via %s", c.addr, v, c.rule, c.via)
		}
	}
}

func TestAZoneDoesNotChangeTheVerdict(t *testing.T) {
	p := newPolicyT(t, Config{AllowPrivate: prefixes("fe80::/10")})
	v := p.CheckAddr(netip.MustParseAddr("fe80::1%eth0"))
	if !v.Allowed || v.Addr != netip.MustParseAddr("fe80::1") || v.Rule != RuleLinkLocal || v.Setting != SettingAllowPrivate {
		t.Errorf("%+v", v)
	}
	if v := newPolicyT(t, Config{}).CheckAddr(netip.MustParseAddr("::1%lo")); v.Allowed || v.Rule != RuleLoopback {
		t.Errorf("%+v", v)
	}
}

func TestAnInvalidAddressIsDenied(t *testing.T) {
	if v := newPolicyT(t, Config{}).CheckAddr(netip.Addr{}); v.Allowed || v.Rule != RuleInvalid {
		t.Errorf("%+v", v)
	}
}

// TestRFC6052Vectors takes the table of RFC 6052 section 2.4. The embedded
// 192.0.2.33 is a documentation address, so the verdict shows that it was found.
func TestRFC6052Vectors(t *testing.T) {
	for prefix, addr := range map[string]string{
		"2001:db8::/32":         "2001:db8:c000:221::",
		"2001:db8:100::/40":     "2001:db8:1c0:2:21::",
		"2001:db8:122::/48":     "2001:db8:122:c000:2:2100::",
		"2001:db8:122:300::/56": "2001:db8:122:3c0:0:221::",
		"2001:db8:122:344::/64": "2001:db8:122:344:c0:2:2100::",
		"2001:db8:122:344::/96": "2001:db8:122:344::192.0.2.33",
	} {
		p := newPolicyT(t, Config{NAT64Prefixes: prefixes(prefix)})
		v := p.CheckAddr(netip.MustParseAddr(addr))
		if v.Allowed || v.Embedded != netip.MustParseAddr("192.0.2.33") || v.Rule != RuleDocumentation {
			t.Errorf("%s in %s: %+v", addr, prefix, v)
		}
	}
}

func TestNAT64(t *testing.T) {
	for _, c := range []struct {
		name     string
		prefixes []netip.Prefix
		addr     string
		allowed  bool
		rule     Rule
		setting  string
	}{
		{"unnamed well-known", nil, "64:ff9b::808:808", false, RuleNAT64, SettingNAT64Prefixes},
		{"unnamed local", nil, "64:ff9b:1::808:808", false, RuleNAT64, SettingNAT64Prefixes},
		{"the other one is named", prefixes("64:ff9b:1::/48"), "64:ff9b::808:808", false, RuleNAT64, SettingNAT64Prefixes},
		{"named", prefixes("64:ff9b::/96"), "64:ff9b::808:808", true, "", ""},
		{"part of local named", prefixes("64:ff9b:1:abcd::/96"), "64:ff9b:1:abcd::808:808", true, "", ""},
		{"beside the part", prefixes("64:ff9b:1:abcd::/96"), "64:ff9b:1:abce::808:808", false, RuleNAT64, SettingNAT64Prefixes},
		{"network's own, in documentation space", prefixes("2001:db8:64::/96"), "2001:db8:64::808:808", true, "", ""},
		{"u octet is not zero", prefixes("2a00:64::/64"), "2a00:64::ff08:808:800:0", false, RuleNAT64, ""},
		{"nested, inner denied", prefixes("2a00:64::/32", "2a00:64:808:808::/96"), "2a00:64:808:808::a00:5", false, RulePrivate, SettingAllowPrivate},
		{"nested, outer denied", prefixes("2a00:64:a00:5::/96", "2a00:64::/32"), "2a00:64:a00:5::808:808", false, RulePrivate, SettingAllowPrivate},
		{"nested, both allowed", prefixes("2a00:64:101:101::/96", "2a00:64::/32"), "2a00:64:101:101::808:808", true, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newPolicyT(t, Config{NAT64Prefixes: c.prefixes}).CheckAddr(netip.MustParseAddr(c.addr))
			if v.Allowed != c.allowed || v.Rule != c.rule || v.Setting != c.setting {
				t.Errorf("%+v", v)
			}
		})
	}
}

func TestAllowPrivateLiftsExactlyWhatItNames(t *testing.T) {
	for _, c := range []struct {
		name    string
		allow   string
		addr    string
		allowed bool
	}{
		{"covered", "10.1.0.0/16", "10.1.2.3", true},
		{"outside", "10.1.0.0/16", "10.2.0.0", false},
		{"inside a mapped address", "127.0.0.0/8", "::ffff:127.0.0.1", true},
		{"inside 6to4", "10.0.0.0/8", "2002:a00:5::1", true},
		{"IPv6", "fd00::/8", "fd12::1", true},
		{"ISATAP under an allowed prefix", "fd00::/8", "fd12::5efe:a00:5", false},
		{"all of IPv6 does not hold IPv4", "::/0", "::ffff:10.0.0.5", false},
		{"all of IPv6 does not hold NAT64", "::/0", "64:ff9b::808:808", false},
		{"reserved", "240.0.0.0/4", "240.0.0.1", true},
		{"metadata is not in a range", "169.254.0.0/16", "169.254.169.254", false},
		{"metadata is not in everything", "0.0.0.0/0", "169.254.169.254", false},
		{"metadata, public", "0.0.0.0/0", "168.63.129.16", false},
		{"metadata, IPv6", "fd00::/8", "fd00:ec2::254", false},
		{"metadata by name", "169.254.169.254/32", "169.254.169.254", true},
		{"metadata by name, mapped", "169.254.169.254/32", "::ffff:a9fe:a9fe", true},
		{"metadata by name, IPv6", "fd00:ec2::254/128", "fd00:ec2::254", true},
		{"unspecified is not in a range", "0.0.0.0/8", "0.0.0.0", false},
		{"unspecified by name", "0.0.0.0/32", "0.0.0.0", true},
		{"multicast never", "224.0.0.1/32", "224.0.0.1", false},
		{"IPv6 multicast never", "ff00::/8", "ff02::1", false},
		{"broadcast never", "255.255.255.255/32", "255.255.255.255", false},
		{"Teredo never", "2001::/32", "2001::1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := newPolicyT(t, Config{AllowPrivate: prefixes(c.allow)}).CheckAddr(netip.MustParseAddr(c.addr))
			if v.Allowed != c.allowed {
				t.Errorf("%+v", v)
			}
			if v.Allowed && v.Rule == "" {
				t.Errorf("%+v: does not name the rule that was lifted", v)
			}
		})
	}
}

func TestDenyExtraBeatsAllowPrivateAndReachesInside(t *testing.T) {
	p := newPolicyT(t, Config{
		AllowPrivate:  prefixes("10.0.0.0/8"),
		DenyExtra:     prefixes("10.9.0.0/16", "8.8.8.0/24", "2606:4700::/32", "64:ff9b::/97"),
		NAT64Prefixes: prefixes("64:ff9b::/96"),
	})
	for _, a := range addrs("10.9.1.1", "8.8.8.8", "::ffff:8.8.8.8", "2002:808:808::", "2606:4700::1", "2a00::5efe:808:808", "64:ff9b::101:101") {
		if v := p.CheckAddr(a); v.Allowed || v.Rule != RuleDenyExtra || v.Setting != SettingDenyExtra {
			t.Errorf("%v: %+v", a, v)
		}
	}
	if v := p.CheckAddr(netip.MustParseAddr("10.8.1.1")); !v.Allowed {
		t.Errorf("%+v", v)
	}
}

func TestAPolicyDoesNotChangeWithItsConfig(t *testing.T) {
	cfg := Config{AllowPrivate: prefixes("10.0.0.0/8")}
	p := newPolicyT(t, cfg)
	cfg.AllowPrivate[0] = netip.MustParsePrefix("192.168.0.0/16")
	if v := p.CheckAddr(netip.MustParseAddr("192.168.0.1")); v.Allowed {
		t.Errorf("%+v", v)
	}
}

func TestAnAllowedAddressCostsNoAllocation(t *testing.T) {
	g := newGuard(t, Config{
		AllowPrivate: prefixes("10.0.0.0/8"), NAT64Prefixes: prefixes("64:ff9b::/96"),
		OwnListeners: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:443")},
	})
	for _, a := range addrs("8.8.8.8", "10.1.2.3", "2606:4700::1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1") {
		if n := testing.AllocsPerRun(100, func() {
			if !g.Policy().CheckAddr(a).Allowed || g.CheckUDP(netip.AddrPortFrom(a, 443)) != nil {
				t.Fatal(a)
			}
		}); n != 0 {
			t.Errorf("%v: %v allocations", a, n)
		}
	}
}

func BenchmarkCheckAddr(b *testing.B) {
	p := newPolicyT(b, Config{})
	for _, a := range addrs("93.184.216.34", "2606:4700::1111") {
		b.Run(a.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.CheckAddr(a)
			}
		})
	}
}
