package netguard

import (
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
)

// Limits on names (RFC 1035 section 2.3.4, without the trailing dot).
const (
	maxName  = 253
	maxLabel = 63
)

// idnaProfile maps a host as browsers do (UTS 46, non-transitional), so that
// full-width digits, ideographic full stops, soft hyphens and the like become
// what a resolver would make of them before anything is checked. Hyphens are not
// checked, as `r3---sn-x` is a name in use, and the ASCII set is checked here
// afterwards instead of by StrictDomainName, which refuses the underscore.
var idnaProfile = idna.New(
	idna.MapForLookup(),
	idna.BidiRule(),
	idna.StrictDomainName(false),
	idna.CheckHyphens(false),
)

// hostKind is what a host turned out to be.
type hostKind uint8

const (
	kindName      hostKind = iota
	kindLiteral            // an IP address
	kindLocalhost          // localhost or below it (RFC 6761 section 6.3)
)

// parsedHost is a host in its one canonical spelling.
type parsedHost struct {
	kind hostKind
	// name is lower-case ASCII without a trailing dot; for a literal its
	// canonical text without brackets or zone.
	name string
	// addr is the literal's address, zone stripped, mapped form kept.
	addr netip.Addr
}

// parseHost reads a host as it comes from a URL (without brackets), an Alt-Svc
// header or an HTTPS record. rule is empty on success.
//
// A literal is taken in the one spelling that every parser reads alike. All
// others (octal, hexadecimal, short or 32-bit forms, digits of another script)
// are refused instead of translated: what one library calls a name, the next
// resolver calls 127.0.0.1.
func (p *Policy) parseHost(host string) (h parsedHost, rule Rule) {
	if addr, err := netip.ParseAddr(host); err == nil {
		addr = addr.WithZone("")
		return parsedHost{kind: kindLiteral, name: addr.String(), addr: addr}, ""
	}
	// Bounded before the mapping, which is not linear for every input. A name of
	// 253 bytes has at most as many characters, of at most 4 bytes each.
	if host == "" || len(host) > 4*maxName {
		return h, RuleHost
	}
	name, err := idnaProfile.ToASCII(host)
	if err != nil {
		return h, RuleHost
	}
	name = strings.TrimSuffix(name, ".") // `h.example.` and `h.example` are one origin
	if !validName(name) {
		return h, RuleHost
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	switch {
	case isNumber(last):
		// The canonical literals were taken above, so this is another spelling.
		return h, RuleNumericHost
	case last == "localhost":
		return parsedHost{kind: kindLocalhost, name: name}, ""
	case len(last) == len(name) && !p.allowSingleLabel:
		return h, RuleSingleLabel
	}
	return parsedHost{name: name}, ""
}

// validName reports whether name is a host name in ASCII: labels of letters,
// digits, hyphens and underscores, no hyphen at either end.
func validName(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > maxLabel ||
			label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// isNumber reports whether inet_aton would read label, in lower case, as a
// number. A host whose last label is one is an IPv4 address to browsers and to
// libc; no top-level domain is.
func isNumber(label string) bool {
	digits, hex := strings.CutPrefix(label, "0x")
	for i := range len(digits) {
		c := digits[i]
		if (c < '0' || c > '9') && (!hex || c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// hostHint says what to do about a host that parseHost refused.
func hostHint(rule Rule) (hint, setting string) {
	switch rule {
	case RuleNumericHost:
		return "write an IPv4 address as four decimal numbers without leading zeros", ""
	case RuleSingleLabel:
		return "use a fully qualified name; search domains are never applied (" +
			SettingAllowSingleLabel + " lifts this)", SettingAllowSingleLabel
	default:
		return "the host must be a DNS name or an IP address, not percent-encoded", ""
	}
}
