package netguard

// Rule is the stable name of one reason for a verdict. Rules form a closed list
// and are used as metric labels, in the API's `rule` field and in the
// documentation, so a name is never reused for something else.
type Rule string

// Rules about an address. They can follow from a literal in a URL and from a DNS
// answer alike.
const (
	// RuleInvalid is the zero netip.Addr, or a dial to something that is not an
	// IP address and port.
	RuleInvalid Rule = "invalid"
	// RuleUnspecified is 0.0.0.0 or ::, which most systems connect to
	// themselves.
	RuleUnspecified Rule = "unspecified"
	// RuleThisNetwork is the rest of 0.0.0.0/8.
	RuleThisNetwork Rule = "this_network"
	// RuleLoopback is 127.0.0.0/8 or ::1.
	RuleLoopback Rule = "loopback"
	// RulePrivate is RFC 1918 space or fc00::/7 (RFC 4193).
	RulePrivate Rule = "private"
	// RuleCGNAT is 100.64.0.0/10, shared address space (RFC 6598).
	RuleCGNAT Rule = "cgnat"
	// RuleLinkLocal is 169.254.0.0/16 or fe80::/10.
	RuleLinkLocal Rule = "link_local"
	// RuleMetadata is a well-known address of a cloud's instance metadata or
	// credential service. Some of them are public addresses.
	RuleMetadata Rule = "metadata"
	// RuleIETFProtocol is 192.0.0.0/24 or 2001::/23 without Teredo.
	RuleIETFProtocol Rule = "ietf_protocol"
	// RuleDocumentation is 192.0.2.0/24, 198.51.100.0/24, 203.0.113.0/24,
	// 2001:db8::/32 or 3fff::/20.
	RuleDocumentation Rule = "documentation"
	// RuleBenchmarking is 198.18.0.0/15 (RFC 2544).
	RuleBenchmarking Rule = "benchmarking"
	// RuleRelay6to4 is 192.88.99.0/24, the withdrawn 6to4 relay anycast prefix
	// (RFC 7526).
	RuleRelay6to4 Rule = "relay_6to4"
	// RuleMulticast is 224.0.0.0/4 or ff00::/8.
	RuleMulticast Rule = "multicast"
	// RuleBroadcast is 255.255.255.255.
	RuleBroadcast Rule = "broadcast"
	// RuleReserved is 240.0.0.0/4, or IPv6 space outside 2000::/3 that no other
	// rule names: the IANA has given no global unicast address out of it.
	RuleReserved Rule = "reserved"
	// RuleTeredo is 2001::/32 (RFC 4380), whose client address is hidden by
	// exclusive-or and reaches a host behind somebody's NAT.
	RuleTeredo Rule = "teredo"
	// RuleSiteLocal is fec0::/10 (deprecated by RFC 3879, still routed by some).
	RuleSiteLocal Rule = "site_local"
	// RuleDiscard is 100::/64 or the dummy prefix 100:0:0:1::/64 (RFC 6666,
	// RFC 9780).
	RuleDiscard Rule = "discard"
	// RuleSRv6 is 5f00::/16, segment identifiers (RFC 9602).
	RuleSRv6 Rule = "srv6"
	// RuleNAT64 is 64:ff9b::/96 or 64:ff9b:1::/48 when no configured NAT64 prefix
	// covers the address, or a malformed address inside a configured one.
	RuleNAT64 Rule = "nat64"
	// RuleOwnListener is an address and port this process listens on.
	RuleOwnListener Rule = "own_listener"
	// RuleDenyExtra is a range the operator denied.
	RuleDenyExtra Rule = "deny_extra"
)

// Rules about a host name. They follow from the name alone.
const (
	// RuleHost is a host that is neither a DNS name nor an IP address: empty,
	// too long, percent-encoded, or with characters a name cannot have.
	RuleHost Rule = "host"
	// RuleNumericHost is a host whose last label is a number without being an
	// address in the one spelling everybody reads alike: `127.1`, `0x7f000001`,
	// `2130706433`, `0177.0.0.1`, `127.0.0.1.`.
	RuleNumericHost Rule = "numeric_host"
	// RuleSingleLabel is a name without a dot, which only a search domain or a
	// hosts file could complete.
	RuleSingleLabel Rule = "single_label"
)

// Rules about a URL. They occur at registration only.
const (
	// RuleURLLength is a URL longer than MaxURLLength bytes.
	RuleURLLength Rule = "url_length"
	// RuleURLCharacters is a URL with white space, a control character, a
	// backslash or bytes that are not UTF-8.
	RuleURLCharacters Rule = "url_characters"
	// RuleURLSyntax is a URL that does not parse or is not absolute.
	RuleURLSyntax Rule = "url_syntax"
	// RuleScheme is a scheme other than https (or http where it is allowed).
	RuleScheme Rule = "scheme"
	// RuleUserinfo is a URL with a user name or password.
	RuleUserinfo Rule = "userinfo"
	// RuleFragment is a URL with a fragment, which would never be sent.
	RuleFragment Rule = "fragment"
	// RulePort is a port that is not a number from 1 to 65535.
	RulePort Rule = "port"
	// RuleZone is an IPv6 literal with a zone identifier.
	RuleZone Rule = "zone"
)

// Settings that lift a rule, as they are called in the configuration.
const (
	// SettingAllowPrivate is Config.AllowPrivate (`--allow-private`).
	SettingAllowPrivate = "allow_private"
	// SettingNAT64Prefixes is Config.NAT64Prefixes.
	SettingNAT64Prefixes = "nat64_prefixes"
	// SettingDenyExtra is Config.DenyExtra; the range has to be taken out of it.
	SettingDenyExtra = "egress.deny"
	// SettingAllowSingleLabel is Config.AllowSingleLabel.
	SettingAllowSingleLabel = "egress.single_label_hosts"
	// SettingAllowHTTP is Config.AllowHTTP (`--allow-http`).
	SettingAllowHTTP = "allow_http"
)

// Rules returns every rule that a dial can be denied by, in a fixed order, so
// that a counter can exist for each before it first happens.
func Rules() []Rule {
	return []Rule{
		RuleInvalid, RuleUnspecified, RuleThisNetwork, RuleLoopback, RulePrivate,
		RuleCGNAT, RuleLinkLocal, RuleMetadata, RuleIETFProtocol,
		RuleDocumentation, RuleBenchmarking, RuleRelay6to4, RuleMulticast,
		RuleBroadcast, RuleReserved, RuleTeredo, RuleSiteLocal, RuleDiscard,
		RuleSRv6, RuleNAT64, RuleOwnListener, RuleDenyExtra,
		RuleHost, RuleNumericHost, RuleSingleLabel,
	}
}

// URLRules returns the rules that only [Guard.ParseTarget] reports.
func URLRules() []Rule {
	return []Rule{
		RuleURLLength, RuleURLCharacters, RuleURLSyntax, RuleScheme,
		RuleUserinfo, RuleFragment, RulePort, RuleZone,
	}
}
