package netguard

import (
	"log/slog"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxURLLength is the longest URL in bytes that is accepted. It leaves room for
// signed query strings and keeps a registration small.
const MaxURLLength = 4096

// Target is a URL that has been vetted, in canonical form.
type Target struct {
	// URL has a lower-case scheme, the canonical host, no port where it is the
	// scheme's default, no userinfo and no fragment. Path and query are as given,
	// save that characters a URL must not hold bare are percent-encoded.
	URL *url.URL
	// Host is the name in lower-case ASCII without a trailing dot, or the
	// literal without brackets. It is what SNI and certificate checks use.
	Host string
	// Addr is the address if Host is a literal, else invalid.
	Addr netip.Addr
	// Port is the port, explicit or by default.
	Port uint16
}

// Origin returns scheme://host:port, always with the port. It is the key under
// which connections and protocol memory are kept, and safe to log.
func (t Target) Origin() string {
	return t.URL.Scheme + "://" + authority(t.Host, t.Port)
}

// String returns the origin: a path or query can be a secret, and a target that
// finds its way into a log line must not be one.
func (t Target) String() string {
	if t.URL == nil {
		return ""
	}
	return t.Origin()
}

// LogValue logs the origin.
func (t Target) LogValue() slog.Value { return slog.StringValue(t.String()) }

// Redact returns what of a URL may be logged: scheme and host with the port, and
// `***` where that cannot be told apart from a secret.
func Redact(raw string) string {
	scheme, authority, ok := splitAuthority(raw)
	if !ok || secretive(raw) {
		return "***"
	}
	u, err := url.Parse(scheme + "://" + authority)
	if err != nil || u.Host == "" {
		return "***"
	}
	return u.Scheme + "://" + u.Host
}

// ParseTarget vets a URL for registration; the error is a *[FieldError] for the
// field `url`. It judges a literal address and the spelling of a name but looks
// nothing up: an answer of today says nothing about the day of the delivery.
// Fragments are refused, not dropped, since a `#` in a token would silently cut
// it off.
func (g *Guard) ParseTarget(raw string) (Target, error) {
	t, ferr := g.Policy().parseTarget(raw)
	if ferr == nil {
		ferr = g.checkTarget(raw, t)
	}
	if ferr != nil {
		g.observer.denied(StageRegister, ferr.Rule, ferr)
		return Target{}, ferr
	}
	return t, nil
}

// checkTarget judges the address of a literal or of localhost.
func (g *Guard) checkTarget(raw string, t Target) *FieldError {
	var v Verdict
	switch h, _ := g.Policy().parseHost(t.Host); h.kind {
	case kindName:
		return nil
	case kindLiteral:
		v = g.CheckAddrPort(netip.AddrPortFrom(t.Addr, t.Port))
	case kindLocalhost:
		_, v = g.loopback(t.Port)
	}
	if v.Allowed {
		return nil
	}
	host := shown(raw, t.Host)
	denied := deniedBy(v, host, true)
	return &FieldError{
		Field: "url", Value: host, Rule: v.Rule,
		Hint: "this address is not dialled; " + denied.Hint(), Err: denied,
	}
}

// parseTarget does everything that needs no address to be judged.
func (p *Policy) parseTarget(raw string) (Target, *FieldError) {
	if err := checkText(raw); err != nil {
		return Target{}, err
	}
	u, err := p.parseURL(raw)
	if err != nil {
		return Target{}, err
	}
	t := Target{URL: u, Port: 443}
	if u.Scheme == "http" {
		t.Port = 80
	}
	if text := u.Port(); text != "" {
		port, ok := parsePort(text)
		if !ok {
			return Target{}, refused(raw, text, RulePort, "the port must be from 1 to 65535")
		}
		t.Port = port
	}
	host := u.Hostname()
	h, rule := p.parseHost(host)
	if rule != "" {
		hint, setting := hostHint(rule)
		err := refused(raw, host, rule, hint)
		err.Err = &DeniedError{Host: err.Value, Rule: rule, Setting: setting, Literal: true}
		return Target{}, err
	}
	if h.kind == kindLiteral && strings.Contains(host, "%") {
		return Target{}, refused(raw, h.name, RuleZone, "remove the zone identifier")
	}
	t.Host, t.Addr = h.name, h.addr
	u.Host = canonicalHost(u.Scheme, t.Host, t.Port)
	return t, nil
}

// checkText refuses what must not reach a URL parser, since parsers differ in
// what they make of it.
func checkText(raw string) *FieldError {
	if len(raw) > MaxURLLength {
		return &FieldError{Field: "url", Value: strconv.Itoa(len(raw)) + " bytes", Rule: RuleURLLength,
			Hint: "the URL must not be longer than " + strconv.Itoa(MaxURLLength) + " bytes"}
	}
	if !utf8.ValidString(raw) {
		return refused("", "", RuleURLCharacters, "the URL must be UTF-8")
	}
	for _, r := range raw {
		if r == '\\' || unicode.IsControl(r) || unicode.IsSpace(r) || r == '\u2028' || r == '\u2029' {
			return refused("", "", RuleURLCharacters,
				"the URL must not contain white space, control characters or a backslash")
		}
	}
	return nil
}

// parseURL parses raw and refuses what a webhook URL does not have.
func (p *Policy) parseURL(raw string) (*url.URL, *FieldError) {
	scheme, authority, ok := splitAuthority(raw)
	if !ok {
		return nil, refused("", "", RuleURLSyntax, "write the URL as https://host/path")
	}
	switch scheme {
	case "https":
	case "http":
		if !p.allowHTTP {
			return nil, refused(raw, scheme, RuleScheme, "use https ("+SettingAllowHTTP+" admits http)")
		}
	default:
		return nil, refused(raw, scheme, RuleScheme, "use https")
	}
	if strings.ContainsRune(authority, '@') {
		return nil, refused("", "", RuleUserinfo, "a user name or password cannot be part of the URL; use a header")
	}
	if strings.ContainsRune(raw, '#') {
		return nil, refused("", "", RuleFragment, "a fragment is never sent; write # as %23 if it belongs to the path or query")
	}
	if strings.ContainsRune(authority, '%') && !strings.HasPrefix(authority, "[") {
		return nil, refused("", "", RuleHost, "the host must not be percent-encoded")
	}
	// The parser's error quotes its input, so it is not passed on.
	rest := raw[len(scheme)+len("://")+len(authority):]
	u, err := url.Parse(scheme + "://" + authority + escapeRest(rest))
	if err != nil {
		return nil, refused("", "", RuleURLSyntax, "the URL does not parse; check the host, the port and % escapes")
	}
	if u.Hostname() == "" || u.Opaque != "" || u.User != nil {
		return nil, refused("", "", RuleURLSyntax, "write the URL as https://host/path")
	}
	return u, nil
}

// escapeRest percent-encodes what a path or query must not hold bare (RFC 3986
// section 3.3). url.URL would do so for a path, but by decoding and encoding all
// of it, and then `/a%2Fb/ü` becomes `/a/b/%C3%BC`: another resource.
func escapeRest(rest string) string {
	const upperHex = "0123456789ABCDEF"
	out := make([]byte, 0, len(rest))
	for i := range len(rest) {
		c := rest[i]
		if c >= 0x80 || strings.IndexByte("\"<>^`{|}", c) >= 0 {
			out = append(out, '%', upperHex[c>>4], upperHex[c&15])
			continue
		}
		out = append(out, c)
	}
	return string(out)
}

// splitAuthority takes the scheme, in lower case, and the authority off a URL.
func splitAuthority(raw string) (scheme, authority string, ok bool) {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found || !validScheme(scheme) {
		return "", "", false
	}
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	return strings.ToLower(scheme), rest, true
}

// validScheme is RFC 3986 section 3.1 without the demand for a letter in front:
// it only keeps text that is no scheme, perhaps half a URL, out of an error.
func validScheme(scheme string) bool {
	for i := range len(scheme) {
		c := scheme[i]
		lower := c | 0x20
		if (lower < 'a' || lower > 'z') && (c < '0' || c > '9') && c != '+' && c != '-' && c != '.' {
			return false
		}
	}
	return scheme != ""
}

// canonicalHost is the host as it stands in the URL and the Host header.
func canonicalHost(scheme, host string, port uint16) string {
	if scheme == "https" && port == 443 || scheme == "http" && port == 80 {
		if strings.Contains(host, ":") {
			return "[" + host + "]"
		}
		return host
	}
	return authority(host, port)
}

func validPort(text string) bool {
	_, ok := parsePort(text)
	return ok
}

// parsePort reads a port from 1 to 65535 in ASCII digits.
func parsePort(text string) (uint16, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return uint16(n), err == nil && n != 0
}

// refused makes a FieldError that shows part, unless raw could hold a secret.
func refused(raw, part string, rule Rule, hint string) *FieldError {
	return &FieldError{Field: "url", Value: shown(raw, part), Rule: rule, Hint: hint}
}

// shown returns part for display, or `***`.
func shown(raw, part string) string {
	if part == "" || secretive(raw) {
		return "***"
	}
	return strings.Trim(quoteHost(part), `"`)
}

// secretive reports whether raw may hold userinfo. A password with a slash or a
// question mark in it ends the authority early, so that half of it looks like a
// host or a port: with an @ anywhere, in any width, nothing is shown.
func secretive(raw string) bool {
	return strings.ContainsAny(raw, "@＠﹫")
}
