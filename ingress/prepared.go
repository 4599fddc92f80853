package ingress

import (
	"mime"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/dispatcher-engine/dispatcher/signing"
)

// prepared is a source made ready for requests. It is immutable.
type prepared struct {
	*Source
	tenant, name string
	verifier     *signing.Verifier
	maxBody      int64
	types        []string // media types, lower case; empty = all
	allow        []netip.Prefix
	forward      []string // canonical, sorted
	dedupeHeader string   // read beside the scheme; "" = none
}

// accepts reports whether the media type of a request is one of the source's.
func (p *prepared) accepts(contentType string) bool {
	if len(p.types) == 0 {
		return true
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(p.types, func(pattern string) bool {
		prefix, wild := strings.CutSuffix(pattern, "*")
		return pattern == kind || pattern == "*/*" || wild && strings.HasPrefix(kind, prefix)
	})
}

// allows reports whether client may send. An address that is not known is
// nobody's.
func (p *prepared) allows(client netip.Addr) bool {
	return len(p.allow) == 0 || slices.ContainsFunc(p.allow, func(prefix netip.Prefix) bool { return prefix.Contains(client) })
}

// Bounds of what goes on with an event.
const (
	maxForwarded      = 8 << 10 // bytes, of all headers together
	maxContentType    = 256
	defaultBinaryType = "application/octet-stream"
)

// forwarded selects the headers that go on. Values that no protocol would carry
// on unchanged are left out, as are those beyond the bound: an event must not
// fail later because of a header that nobody signed.
func (p *prepared) forwarded(h http.Header) []Header {
	var out []Header
	room := maxForwarded
	for _, name := range p.forward {
		for _, value := range h[name] {
			room -= len(name) + len(value)
			if room < 0 {
				return out
			}
			if value != "" && signing.ValidateHeader(name, value) == nil {
				out = append(out, Header{Name: name, Value: value})
			}
		}
	}
	return out
}

// contentType is the event's: as received, if it can be sent on.
func contentType(h http.Header) string {
	value := h.Get("Content-Type")
	if value == "" || len(value) > maxContentType || signing.ValidateHeader("x-content-type", value) != nil {
		return defaultBinaryType
	}
	return value
}

// identity is what makes a request recognisable as one that came before.
type identity struct {
	id      string // the provider's; "" = none
	signed  bool   // the signature covers id
	topic   string
	useBody bool // recognise the body, too
}

// identify reads a verified request's identity.
func (p *prepared) identify(h http.Header, body *Body) identity {
	var event signing.Event
	if p.verifier.IdentifiesByBody() {
		event = p.verifier.Identify(h, body.Reader())
	} else {
		event = p.verifier.Identify(h, nil)
	}
	if p.dedupeHeader != "" {
		if value := h.Get(p.dedupeHeader); value != "" && len(value) <= maxProviderID && signing.ValidateHeader("x-id", value) == nil {
			event.ID, event.IDSigned = value, false
		}
	}
	return identity{
		id: event.ID, signed: event.IDSigned, topic: event.Topic(p.name),
		useBody: event.ID == "" || p.DedupeBody && !event.IDSigned,
	}
}

const maxProviderID = 256
