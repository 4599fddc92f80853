package netguard

import "net/netip"

// waiver says how an operator can lift a rule for an address.
type waiver uint8

const (
	// waiveByRange: any prefix in AllowPrivate that covers the address.
	waiveByRange waiver = iota
	// waiveByName: only a prefix that names exactly this one address (/32 or
	// /128). Somebody who allows 169.254.0.0/16 or 0.0.0.0/0 for a laboratory
	// has not thereby asked for the credentials of the machine.
	waiveByName
	// waiveNever: no setting. Nothing that answers a webhook lives there.
	waiveNever
)

// denied is one row of the table of ranges that are not dialled.
type denied struct {
	prefix netip.Prefix
	rule   Rule
	waiver waiver
}

func deny(prefix string, rule Rule, w waiver) denied {
	return denied{prefix: netip.MustParsePrefix(prefix), rule: rule, waiver: w}
}

// denied4 is the IPv4 table. The first row that matches decides, so a narrow
// range with a telling name stands above the wide one it is in. Source: the IANA
// IPv4 special-purpose address registry (RFC 6890) and the providers' documents.
var denied4 = [...]denied{
	deny("169.254.169.254/32", RuleMetadata, waiveByName), // nearly every cloud
	deny("169.254.170.2/32", RuleMetadata, waiveByName),   // AWS ECS task credentials
	deny("169.254.170.23/32", RuleMetadata, waiveByName),  // AWS EKS pod identity
	deny("169.254.42.42/32", RuleMetadata, waiveByName),   // Scaleway
	deny("169.254.0.23/32", RuleMetadata, waiveByName),    // Tencent
	deny("100.100.100.200/32", RuleMetadata, waiveByName), // Alibaba
	deny("168.63.129.16/32", RuleMetadata, waiveByName),   // Azure; a public address
	deny("192.0.0.192/32", RuleMetadata, waiveByName),     // Oracle, classic
	deny("0.0.0.0/32", RuleUnspecified, waiveByName),
	deny("255.255.255.255/32", RuleBroadcast, waiveNever),

	deny("0.0.0.0/8", RuleThisNetwork, waiveByRange),
	deny("10.0.0.0/8", RulePrivate, waiveByRange),
	deny("100.64.0.0/10", RuleCGNAT, waiveByRange),
	deny("127.0.0.0/8", RuleLoopback, waiveByRange),
	deny("169.254.0.0/16", RuleLinkLocal, waiveByRange),
	deny("172.16.0.0/12", RulePrivate, waiveByRange),
	deny("192.0.0.0/24", RuleIETFProtocol, waiveByRange),
	deny("192.0.2.0/24", RuleDocumentation, waiveByRange),
	deny("192.88.99.0/24", RuleRelay6to4, waiveByRange),
	deny("192.168.0.0/16", RulePrivate, waiveByRange),
	deny("198.18.0.0/15", RuleBenchmarking, waiveByRange),
	deny("198.51.100.0/24", RuleDocumentation, waiveByRange),
	deny("203.0.113.0/24", RuleDocumentation, waiveByRange),
	deny("224.0.0.0/4", RuleMulticast, waiveNever),
	deny("240.0.0.0/4", RuleReserved, waiveByRange),
}

// denied6 is the IPv6 table, read like denied4. NAT64 and the forms that carry an
// IPv4 address are in embed.go. The last three rows are all that is not
// 2000::/3, the only space from which the IANA assigns global unicast addresses:
// what nobody has named yet is denied until somebody does.
var denied6 = [...]denied{
	deny("::/128", RuleUnspecified, waiveByName),
	deny("::1/128", RuleLoopback, waiveByRange),
	deny("fd00:ec2::254/128", RuleMetadata, waiveByName),      // AWS
	deny("fd00:ec2::23/128", RuleMetadata, waiveByName),       // AWS EKS pod identity
	deny("fd20:ce::254/128", RuleMetadata, waiveByName),       // Google Cloud
	deny("fd00:42::42/128", RuleMetadata, waiveByName),        // Scaleway
	deny("fd00:c1::a9fe:a9fe/128", RuleMetadata, waiveByName), // Oracle

	deny("100::/64", RuleDiscard, waiveByRange),
	deny("100:0:0:1::/64", RuleDiscard, waiveByRange),
	deny("2001::/32", RuleTeredo, waiveNever),
	deny("2001::/23", RuleIETFProtocol, waiveByRange),
	deny("2001:db8::/32", RuleDocumentation, waiveByRange),
	deny("3fff::/20", RuleDocumentation, waiveByRange),
	deny("5f00::/16", RuleSRv6, waiveByRange),
	deny("fc00::/7", RulePrivate, waiveByRange),
	deny("fe80::/10", RuleLinkLocal, waiveByRange),
	deny("fec0::/10", RuleSiteLocal, waiveByRange),
	deny("ff00::/8", RuleMulticast, waiveNever),

	deny("::/3", RuleReserved, waiveByRange),
	deny("4000::/2", RuleReserved, waiveByRange),
	deny("8000::/1", RuleReserved, waiveByRange),
}

// lookup returns the first row that contains addr, which has no zone and is not
// a mapped address, or nil.
func lookup(addr netip.Addr) *denied {
	table := denied6[:]
	if addr.Is4() {
		table = denied4[:]
	}
	for i := range table {
		if table[i].prefix.Contains(addr) {
			return &table[i]
		}
	}
	return nil
}
