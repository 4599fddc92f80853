package netguard

import (
	"net/netip"
	"testing"
)

// edge is one address and the rule that decides it; an empty rule is "allowed".
type edge struct {
	addr string
	rule Rule
}

// boundary is one range with its first and last address and the addresses just
// outside, written out rather than computed from the table under test.
type boundary struct {
	prefix                     string
	before, first, last, after edge
}

var boundaries4 = []boundary{
	{"169.254.169.254/32", edge{"169.254.169.253", RuleLinkLocal}, edge{"169.254.169.254", RuleMetadata}, edge{"169.254.169.254", RuleMetadata}, edge{"169.254.169.255", RuleLinkLocal}},
	{"169.254.170.2/32", edge{"169.254.170.1", RuleLinkLocal}, edge{"169.254.170.2", RuleMetadata}, edge{"169.254.170.2", RuleMetadata}, edge{"169.254.170.3", RuleLinkLocal}},
	{"169.254.170.23/32", edge{"169.254.170.22", RuleLinkLocal}, edge{"169.254.170.23", RuleMetadata}, edge{"169.254.170.23", RuleMetadata}, edge{"169.254.170.24", RuleLinkLocal}},
	{"169.254.42.42/32", edge{"169.254.42.41", RuleLinkLocal}, edge{"169.254.42.42", RuleMetadata}, edge{"169.254.42.42", RuleMetadata}, edge{"169.254.42.43", RuleLinkLocal}},
	{"169.254.0.23/32", edge{"169.254.0.22", RuleLinkLocal}, edge{"169.254.0.23", RuleMetadata}, edge{"169.254.0.23", RuleMetadata}, edge{"169.254.0.24", RuleLinkLocal}},
	{"100.100.100.200/32", edge{"100.100.100.199", RuleCGNAT}, edge{"100.100.100.200", RuleMetadata}, edge{"100.100.100.200", RuleMetadata}, edge{"100.100.100.201", RuleCGNAT}},
	{"168.63.129.16/32", edge{"168.63.129.15", ""}, edge{"168.63.129.16", RuleMetadata}, edge{"168.63.129.16", RuleMetadata}, edge{"168.63.129.17", ""}},
	{"192.0.0.192/32", edge{"192.0.0.191", RuleIETFProtocol}, edge{"192.0.0.192", RuleMetadata}, edge{"192.0.0.192", RuleMetadata}, edge{"192.0.0.193", RuleIETFProtocol}},
	{"0.0.0.0/32", edge{"::ffff:0:0", RuleUnspecified}, edge{"0.0.0.0", RuleUnspecified}, edge{"0.0.0.0", RuleUnspecified}, edge{"0.0.0.1", RuleThisNetwork}},
	{"255.255.255.255/32", edge{"255.255.255.254", RuleReserved}, edge{"255.255.255.255", RuleBroadcast}, edge{"255.255.255.255", RuleBroadcast}, edge{"::ffff:ffff:ffff", RuleBroadcast}},
	{"0.0.0.0/8", edge{"0.0.0.0", RuleUnspecified}, edge{"0.0.0.1", RuleThisNetwork}, edge{"0.255.255.255", RuleThisNetwork}, edge{"1.0.0.0", ""}},
	{"10.0.0.0/8", edge{"9.255.255.255", ""}, edge{"10.0.0.0", RulePrivate}, edge{"10.255.255.255", RulePrivate}, edge{"11.0.0.0", ""}},
	{"100.64.0.0/10", edge{"100.63.255.255", ""}, edge{"100.64.0.0", RuleCGNAT}, edge{"100.127.255.255", RuleCGNAT}, edge{"100.128.0.0", ""}},
	{"127.0.0.0/8", edge{"126.255.255.255", ""}, edge{"127.0.0.0", RuleLoopback}, edge{"127.255.255.255", RuleLoopback}, edge{"128.0.0.0", ""}},
	{"169.254.0.0/16", edge{"169.253.255.255", ""}, edge{"169.254.0.0", RuleLinkLocal}, edge{"169.254.255.255", RuleLinkLocal}, edge{"169.255.0.0", ""}},
	{"172.16.0.0/12", edge{"172.15.255.255", ""}, edge{"172.16.0.0", RulePrivate}, edge{"172.31.255.255", RulePrivate}, edge{"172.32.0.0", ""}},
	{"192.0.0.0/24", edge{"191.255.255.255", ""}, edge{"192.0.0.0", RuleIETFProtocol}, edge{"192.0.0.255", RuleIETFProtocol}, edge{"192.0.1.0", ""}},
	{"192.0.2.0/24", edge{"192.0.1.255", ""}, edge{"192.0.2.0", RuleDocumentation}, edge{"192.0.2.255", RuleDocumentation}, edge{"192.0.3.0", ""}},
	{"192.88.99.0/24", edge{"192.88.98.255", ""}, edge{"192.88.99.0", RuleRelay6to4}, edge{"192.88.99.255", RuleRelay6to4}, edge{"192.88.100.0", ""}},
	{"192.168.0.0/16", edge{"192.167.255.255", ""}, edge{"192.168.0.0", RulePrivate}, edge{"192.168.255.255", RulePrivate}, edge{"192.169.0.0", ""}},
	{"198.18.0.0/15", edge{"198.17.255.255", ""}, edge{"198.18.0.0", RuleBenchmarking}, edge{"198.19.255.255", RuleBenchmarking}, edge{"198.20.0.0", ""}},
	{"198.51.100.0/24", edge{"198.51.99.255", ""}, edge{"198.51.100.0", RuleDocumentation}, edge{"198.51.100.255", RuleDocumentation}, edge{"198.51.101.0", ""}},
	{"203.0.113.0/24", edge{"203.0.112.255", ""}, edge{"203.0.113.0", RuleDocumentation}, edge{"203.0.113.255", RuleDocumentation}, edge{"203.0.114.0", ""}},
	{"224.0.0.0/4", edge{"223.255.255.255", ""}, edge{"224.0.0.0", RuleMulticast}, edge{"239.255.255.255", RuleMulticast}, edge{"240.0.0.0", RuleReserved}},
	{"240.0.0.0/4", edge{"239.255.255.255", RuleMulticast}, edge{"240.0.0.0", RuleReserved}, edge{"255.255.255.254", RuleReserved}, edge{"255.255.255.255", RuleBroadcast}},
}

const ones = ":ffff:ffff:ffff:ffff" // an interface identifier of all ones

var boundaries6 = []boundary{
	{"::/128", edge{"::", RuleUnspecified}, edge{"::", RuleUnspecified}, edge{"::", RuleUnspecified}, edge{"::1", RuleLoopback}},
	{"::1/128", edge{"::", RuleUnspecified}, edge{"::1", RuleLoopback}, edge{"::1", RuleLoopback}, edge{"::2", RuleThisNetwork}},
	{"fd00:ec2::254/128", edge{"fd00:ec2::253", RulePrivate}, edge{"fd00:ec2::254", RuleMetadata}, edge{"fd00:ec2::254", RuleMetadata}, edge{"fd00:ec2::255", RulePrivate}},
	{"fd00:ec2::23/128", edge{"fd00:ec2::22", RulePrivate}, edge{"fd00:ec2::23", RuleMetadata}, edge{"fd00:ec2::23", RuleMetadata}, edge{"fd00:ec2::24", RulePrivate}},
	{"fd20:ce::254/128", edge{"fd20:ce::253", RulePrivate}, edge{"fd20:ce::254", RuleMetadata}, edge{"fd20:ce::254", RuleMetadata}, edge{"fd20:ce::255", RulePrivate}},
	{"fd00:42::42/128", edge{"fd00:42::41", RulePrivate}, edge{"fd00:42::42", RuleMetadata}, edge{"fd00:42::42", RuleMetadata}, edge{"fd00:42::43", RulePrivate}},
	{"fd00:c1::a9fe:a9fe/128", edge{"fd00:c1::a9fe:a9fd", RulePrivate}, edge{"fd00:c1::a9fe:a9fe", RuleMetadata}, edge{"fd00:c1::a9fe:a9fe", RuleMetadata}, edge{"fd00:c1::a9fe:a9ff", RulePrivate}},
	{"100::/64", edge{"ff:ffff:ffff:ffff" + ones, RuleReserved}, edge{"100::", RuleDiscard}, edge{"100:0:0:0" + ones, RuleDiscard}, edge{"100:0:0:1::", RuleDiscard}},
	{"100:0:0:1::/64", edge{"100:0:0:0" + ones, RuleDiscard}, edge{"100:0:0:1::", RuleDiscard}, edge{"100:0:0:1" + ones, RuleDiscard}, edge{"100:0:0:2::", RuleReserved}},
	{"2001::/32", edge{"2000:ffff:ffff:ffff" + ones, ""}, edge{"2001::", RuleTeredo}, edge{"2001:0:ffff:ffff" + ones, RuleTeredo}, edge{"2001:1::", RuleIETFProtocol}},
	{"2001::/23", edge{"2000:ffff:ffff:ffff" + ones, ""}, edge{"2001:1::", RuleIETFProtocol}, edge{"2001:1ff:ffff:ffff" + ones, RuleIETFProtocol}, edge{"2001:200::", ""}},
	{"2001:db8::/32", edge{"2001:db7:ffff:ffff" + ones, ""}, edge{"2001:db8::", RuleDocumentation}, edge{"2001:db8:ffff:ffff" + ones, RuleDocumentation}, edge{"2001:db9::", ""}},
	{"3fff::/20", edge{"3ffe:ffff:ffff:ffff" + ones, ""}, edge{"3fff::", RuleDocumentation}, edge{"3fff:fff:ffff:ffff" + ones, RuleDocumentation}, edge{"3fff:1000::", ""}},
	{"5f00::/16", edge{"5eff:ffff:ffff:ffff" + ones, RuleReserved}, edge{"5f00::", RuleSRv6}, edge{"5f00:ffff:ffff:ffff" + ones, RuleSRv6}, edge{"5f01::", RuleReserved}},
	{"fc00::/7", edge{"fbff:ffff:ffff:ffff" + ones, RuleReserved}, edge{"fc00::", RulePrivate}, edge{"fdff:ffff:ffff:ffff" + ones, RulePrivate}, edge{"fe00::", RuleReserved}},
	{"fe80::/10", edge{"fe7f:ffff:ffff:ffff" + ones, RuleReserved}, edge{"fe80::", RuleLinkLocal}, edge{"febf:ffff:ffff:ffff" + ones, RuleLinkLocal}, edge{"fec0::", RuleSiteLocal}},
	{"fec0::/10", edge{"febf:ffff:ffff:ffff" + ones, RuleLinkLocal}, edge{"fec0::", RuleSiteLocal}, edge{"feff:ffff:ffff:ffff" + ones, RuleSiteLocal}, edge{"ff00::", RuleMulticast}},
	{"ff00::/8", edge{"feff:ffff:ffff:ffff" + ones, RuleSiteLocal}, edge{"ff00::", RuleMulticast}, edge{"ffff:ffff:ffff:ffff" + ones, RuleMulticast}, edge{"ff02::1", RuleMulticast}},
	{"::/3", edge{"::1", RuleLoopback}, edge{"0:0:0:1::", RuleReserved}, edge{"1fff:ffff:ffff:ffff" + ones, RuleReserved}, edge{"2000::", ""}},
	{"4000::/2", edge{"3fff:ffff:ffff:ffff" + ones, ""}, edge{"4000::", RuleReserved}, edge{"7fff:ffff:ffff:ffff" + ones, RuleReserved}, edge{"8000::", RuleReserved}},
	{"8000::/1", edge{"7fff:ffff:ffff:ffff" + ones, RuleReserved}, edge{"8000::", RuleReserved}, edge{"fbff:ffff:ffff:ffff" + ones, RuleReserved}, edge{"fc00::", RulePrivate}},
}

// The forms that carry an IPv4 address begin with 0.0.0.0 and end with
// 255.255.255.255 inside.
var boundariesEmbedded = []boundary{
	{"::/96", edge{"::1", RuleLoopback}, edge{"::2", RuleThisNetwork}, edge{"::ffff:ffff", RuleBroadcast}, edge{"::1:0:0", RuleReserved}},
	{"::ffff:0:0/96", edge{"::fffe:ffff:ffff", RuleReserved}, edge{"::ffff:0:0", RuleUnspecified}, edge{"::ffff:ffff:ffff", RuleBroadcast}, edge{"::1:0:0:0", RuleReserved}},
	{"::ffff:0:0:0/96", edge{"::fffe:ffff:ffff:ffff", RuleReserved}, edge{"::ffff:0:0:0", RuleUnspecified}, edge{"::ffff:0:ffff:ffff", RuleBroadcast}, edge{"::ffff:1:0:0", RuleReserved}},
	{"64:ff9b::/96", edge{"64:ff9a:ffff:ffff" + ones, RuleReserved}, edge{"64:ff9b::", RuleNAT64}, edge{"64:ff9b::ffff:ffff", RuleNAT64}, edge{"64:ff9b::1:0:0", RuleReserved}},
	{"64:ff9b:1::/48", edge{"64:ff9b:0:ffff" + ones, RuleReserved}, edge{"64:ff9b:1::", RuleNAT64}, edge{"64:ff9b:1:ffff" + ones, RuleNAT64}, edge{"64:ff9b:2::", RuleReserved}},
	{"2002::/16", edge{"2001:ffff:ffff:ffff" + ones, ""}, edge{"2002::", RuleUnspecified}, edge{"2002:ffff:ffff:ffff" + ones, RuleBroadcast}, edge{"2003::", ""}},
}

func TestEveryRangeIsDeniedFromItsFirstToItsLastAddress(t *testing.T) {
	p := newPolicyT(t, Config{})
	for _, table := range [][]boundary{boundaries4, boundaries6, boundariesEmbedded} {
		for _, b := range table {
			for where, e := range map[string]edge{"before": b.before, "first": b.first, "last": b.last, "after": b.after} {
				v := p.CheckAddr(netip.MustParseAddr(e.addr))
				if v.Allowed != (e.rule == "") || v.Rule != e.rule {
					t.Errorf("%s %s %s: allowed %v by rule %q, want rule %q", where, b.prefix, e.addr, v.Allowed, v.Rule, e.rule)
				}
			}
		}
	}
}

func TestEveryRowOfTheTablesHasItsBoundariesTested(t *testing.T) {
	for _, c := range []struct {
		rows []denied
		want []boundary
	}{{denied4[:], boundaries4}, {denied6[:], boundaries6}} {
		tested := map[netip.Prefix]bool{}
		for _, b := range c.want {
			tested[netip.MustParsePrefix(b.prefix)] = true
		}
		for _, row := range c.rows {
			if !tested[row.prefix] {
				t.Errorf("%v has no boundary test", row.prefix)
			}
			if row.prefix != row.prefix.Masked() {
				t.Errorf("%v has host bits", row.prefix)
			}
		}
	}
}

func TestNoRowIsHiddenByAWiderOneAboveIt(t *testing.T) {
	for _, table := range [][]denied{denied4[:], denied6[:]} {
		for i, row := range table {
			for _, above := range table[:i] {
				if above.prefix.Overlaps(row.prefix) && above.prefix.Bits() <= row.prefix.Bits() {
					t.Errorf("%v stands above %v", above.prefix, row.prefix)
				}
			}
		}
	}
}

func TestRulesListsEveryRuleOfTheTablesOnce(t *testing.T) {
	known := map[Rule]int{}
	for _, r := range append(Rules(), URLRules()...) {
		known[r]++
		if known[r] > 1 {
			t.Errorf("%q is listed twice", r)
		}
	}
	for _, table := range [][]denied{denied4[:], denied6[:]} {
		for _, row := range table {
			if known[row.rule] != 1 {
				t.Errorf("%q is not listed", row.rule)
			}
		}
	}
}
