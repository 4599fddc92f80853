package protoselect

import (
	"strconv"
	"strings"
	"time"
)

// AltSvcEntry is one HTTP/3 alternative of an Alt-Svc header.
type AltSvcEntry struct {
	Host    string // lower case, IPv6 without brackets; "" = the origin's own
	Port    uint16
	MaxAge  time.Duration // as sent, before Age and the clamp; 24 h when absent
	Persist bool
}

// AltSvcHeader is what a response's Alt-Svc lines say.
type AltSvcHeader struct {
	// Clear asks to forget every alternative of the origin. It wins over
	// entries beside it: the doubt is decided against HTTP/3.
	Clear bool
	// Entries are the HTTP/3 alternatives in the origin's order, at most 8.
	Entries []AltSvcEntry
	// WellFormed counts well-formed entries of any protocol. With none and no
	// Clear the header said nothing, and what is known stays.
	WellFormed int
}

// Bounds of what is read from a header. Beyond them entries are dropped, never
// half-read.
const (
	maxAltSvcBytes   = 8 << 10
	maxAltSvcEntries = maxAdverts
	defaultMaxAge    = 24 * time.Hour
	minAdvert        = 60 * time.Second
	maxAdvert        = 7 * 24 * time.Hour
)

// ParseAltSvc reads the Alt-Svc header lines of one response (RFC 7838 §3) in
// one pass. Malformed entries, unknown protocols and unknown parameters are
// skipped; it never fails.
func ParseAltSvc(lines []string) AltSvcHeader {
	var h AltSvcHeader
	left := maxAltSvcBytes
	for _, line := range lines {
		if len(line) > left {
			return h
		}
		left -= len(line)
		p := altSvcParser{rest: line}
		for p.more() {
			p.entry(&h)
		}
	}
	return h
}

// altSvcParser consumes one field line from the front.
type altSvcParser struct{ rest string }

const headerSpace = " \t\r\n"

func (p *altSvcParser) skipSpace() { p.rest = strings.TrimLeft(p.rest, headerSpace) }

// more skips list separators and reports whether anything is left. Empty list
// elements are legal (RFC 9110 §5.6.1.2).
func (p *altSvcParser) more() bool {
	p.rest = strings.TrimLeft(p.rest, headerSpace+",")
	return p.rest != ""
}

// take consumes c if it is next.
func (p *altSvcParser) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *altSvcParser) token() string {
	i := 0
	for i < len(p.rest) && isTokenByte(p.rest[i]) {
		i++
	}
	t := p.rest[:i]
	p.rest = p.rest[i:]
	return t
}

// quoted consumes a quoted-string (RFC 9110 §5.6.4).
func (p *altSvcParser) quoted() (string, bool) {
	if !p.take('"') {
		return "", false
	}
	var out []byte
	for i := 0; i < len(p.rest); i++ {
		c := p.rest[i]
		switch {
		case c == '"':
			if out == nil {
				out = []byte(p.rest[:i])
			}
			p.rest = p.rest[i+1:]
			return string(out), true
		case c == '\\' && i+1 < len(p.rest):
			if out == nil {
				out = append(make([]byte, 0, len(p.rest)), p.rest[:i]...)
			}
			i++
			out = append(out, p.rest[i])
		case c == 0x7f || (c < 0x20 && c != '\t'):
			p.rest = "" // no HTTP stack lets this pass: the line is worth nothing
			return "", false
		case out != nil:
			out = append(out, c)
		}
	}
	p.rest = ""
	return "", false
}

func (p *altSvcParser) value() (string, bool) {
	if strings.HasPrefix(p.rest, `"`) {
		return p.quoted()
	}
	t := p.token()
	return t, t != ""
}

// recover skips to the end of a malformed entry: the next comma outside quotes.
func (p *altSvcParser) recover() {
	inQuotes := false
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '\\' && inQuotes:
			i++
		case c == '"':
			inQuotes = !inQuotes
		case c == ',' && !inQuotes:
			p.rest = p.rest[i:]
			return
		}
	}
	p.rest = ""
}

// entry consumes one list element.
func (p *altSvcParser) entry(h *AltSvcHeader) {
	protocol := p.token()
	if protocol == "clear" && p.atEnd() {
		h.Clear = true
		return
	}
	if protocol == "" || !p.take('=') {
		p.recover()
		return
	}
	authority, ok := p.quoted()
	e := AltSvcEntry{MaxAge: defaultMaxAge}
	if !ok || !e.setAuthority(authority) || !p.parameters(&e) {
		p.recover()
		return
	}
	h.WellFormed++
	// Only the final protocol's identifier: drafts ("h3-29") are not spoken.
	if protocol == "h3" && len(h.Entries) < maxAltSvcEntries {
		h.Entries = append(h.Entries, e)
	}
}

// atEnd reports whether the current element ends here.
func (p *altSvcParser) atEnd() bool {
	p.skipSpace()
	return p.rest == "" || p.rest[0] == ','
}

// parameters consumes `*( OWS ";" OWS parameter )`. The first of a repeated
// parameter counts.
func (p *altSvcParser) parameters(e *AltSvcEntry) bool {
	var sawAge, sawPersist bool
	for {
		if p.atEnd() {
			return true
		}
		if !p.take(';') {
			return false
		}
		if p.skipSpace(); p.atEnd() || p.rest[0] == ';' {
			continue // a trailing or doubled semicolon is harmless
		}
		name := p.token()
		if name == "" || !p.take('=') {
			return false
		}
		value, ok := p.value()
		if !ok {
			return false
		}
		switch strings.ToLower(name) {
		case "ma":
			age, ok := parseDeltaSeconds(value)
			if !ok {
				return false // a lifetime that cannot be read is not a day
			}
			if !sawAge {
				e.MaxAge, sawAge = age, true
			}
		case "persist":
			if !sawPersist {
				e.Persist, sawPersist = value == "1", true // other values are to be ignored (§3.1)
			}
		}
	}
}

// setAuthority reads `[ uri-host ] ":" port`.
func (e *AltSvcEntry) setAuthority(s string) bool {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return false
	}
	host, digits := s[:i], s[i+1:]
	port, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || port == 0 || digits[0] == '+' {
		return false
	}
	if strings.HasPrefix(host, "[") {
		if !strings.HasSuffix(host, "]") || !strings.Contains(host, ":") {
			return false
		}
		host = host[1 : len(host)-1]
	} else if strings.Contains(host, ":") {
		return false
	}
	host, ok := cleanHost(host)
	e.Host, e.Port = host, uint16(port)
	return ok
}

// cleanHost lower-cases a host and refuses what cannot be one. Whether it may
// be dialled is decided elsewhere.
func cleanHost(host string) (string, bool) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if len(host) > 253 {
		return "", false
	}
	for i := range len(host) {
		c := host[i]
		if c != '-' && c != '.' && c != '_' && c != ':' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return "", false
		}
	}
	return host, true
}

// parseDeltaSeconds reads 1*DIGIT; a number too large for anything is capped
// (RFC 9111 §1.2.2).
func parseDeltaSeconds(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = min(n*10+int64(s[i]-'0'), 1<<31)
	}
	return time.Duration(n) * time.Second, true
}

func isTokenByte(c byte) bool {
	switch {
	case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		return true
	}
	return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

// lifetime is how long an entry of a response with that Age stays fresh: 0 when
// it is stale already, else clamped so that neither a slip of zeros nor one of
// nines has the last word.
func (e AltSvcEntry) lifetime(age time.Duration) time.Duration {
	left := e.MaxAge - age
	if left <= 0 {
		return 0
	}
	return min(max(left, minAdvert), maxAdvert)
}
