package ingress

import (
	"cmp"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/signing"
)

// FieldError names one bad field of a [Source]: what was given, which rule it
// breaks and how to mend it. Value never holds a secret.
type FieldError struct {
	Field string
	Value string
	Rule  string
	Hint  string
}

// Error implements error.
func (e FieldError) Error() string {
	return fmt.Sprintf("%s %q: %s (%s)", e.Field, e.Value, e.Rule, e.Hint)
}

// SourceError is every fault of a [Source].
type SourceError struct {
	Fields []FieldError
}

// Error implements error.
func (e *SourceError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Error()
	}
	return "invalid source: " + strings.Join(parts, "; ")
}

// Bounds of a source.
const (
	defaultMaxBody = 1 << 20
	// MaxBuffered is the largest max_body of a scheme that needs the body in
	// memory ([signing.Verifier.Buffers]). Their providers send kilobytes.
	MaxBuffered = 1 << 20
	// maxTolerance stays far inside the time for which ids are remembered, so
	// that what is replayed within the tolerance is recognised.
	maxTolerance  = 24 * time.Hour
	maxListed     = 64
	maxPerSecond  = 1e6
	maxDedupeName = 128
)

// faults collects field errors.
type faults struct {
	fields []FieldError
}

func (f *faults) add(field, value, rule, hint string) {
	const most = 100
	if len(value) > most {
		value = value[:most] + "…"
	}
	f.fields = append(f.fields, FieldError{field, value, rule, hint})
}

func (f *faults) err() error {
	if len(f.fields) == 0 {
		return nil
	}
	return &SourceError{f.fields}
}

// Validate reports every fault of s as a [*SourceError]. maxBody is the node's
// cap, [Config].MaxBody; 0 = its default.
func (s *Source) Validate(maxBody int64) error {
	_, err := prepare("", "", s, cmp.Or(maxBody, nodeMaxBody))
	return err
}

// prepare validates s and makes of it what the checks need.
func prepare(tenant, name string, s *Source, maxBody int64) (*prepared, error) {
	var f faults
	p := &prepared{Source: s, tenant: tenant, name: name, verifier: s.verifier(&f), maxBody: s.MaxBody}
	if p.maxBody == 0 {
		p.maxBody = min(defaultMaxBody, maxBody)
	}
	f.body(s, p, maxBody)
	p.dedupeHeader = f.dedupe(s)
	p.forward = f.forward(s, p.verifier)
	p.types = f.contentTypes(s)
	p.allow = f.allowIPs(s)
	f.destination(&s.Destination)
	f.rateLimit(s.RateLimit)
	if err := f.err(); err != nil {
		return nil, err
	}
	return p, nil
}

func (f *faults) body(s *Source, p *prepared, maxBody int64) {
	value := strconv.FormatInt(s.MaxBody, 10)
	switch {
	case s.MaxBody < 0:
		f.add("max_body", value, "must not be negative", "leave it out for 1 MiB")
	case s.MaxBody > maxBody:
		f.add("max_body", value, fmt.Sprintf("the node's cap is %d bytes", maxBody), "lower it, or raise the node's cap")
	case p.verifier != nil && p.verifier.Buffers() && s.MaxBody > MaxBuffered:
		f.add("max_body", value, fmt.Sprintf("%s needs the body in memory, at most %d bytes", s.Scheme, MaxBuffered), "lower it; this provider sends kilobytes")
	}
	if t := s.Tolerance; t != nil && time.Duration(*t) > maxTolerance {
		f.add("tolerance", time.Duration(*t).String(), "at most 24h", "5m is usual; within it a request can be replayed")
	}
}

// takesIDHeader reports whether the signed content, or the scheme, has an id
// header that a source may rename. Elsewhere the header is read beside the scheme.
func takesIDHeader(scheme signing.Scheme) bool {
	switch scheme {
	case signing.Standard, signing.StandardEd25519, signing.HMACHex, signing.HMACBase64:
		return true
	default:
		return false
	}
}

// verifier builds the verifier; nil if it cannot.
func (s *Source) verifier(f *faults) *signing.Verifier {
	cfg := signing.VerifierConfig{
		Scheme: s.Scheme, Secrets: s.Secrets,
		Layout: signing.Layout{
			SignatureHeader: s.SignatureHeader, TimestampHeader: s.TimestampHeader, SignaturePrefix: s.SignaturePrefix,
			SignedContent: s.SignedContent, SecretEncoding: s.SecretEncoding, PublicURL: s.PublicURL,
		},
	}
	if takesIDHeader(s.Scheme) {
		cfg.IDHeader = s.DedupeHeader
	}
	if s.Tolerance != nil {
		cfg.Tolerance = new(time.Duration(*s.Tolerance))
	}
	v, err := signing.NewVerifier(cfg)
	if err == nil {
		return v
	}
	bad := 0 // secrets are reported in order, without their place
	for _, e := range signing.ConfigErrors(err) {
		field, value := e.Field, s.shown(e.Field)
		switch e.Field {
		case "secret":
			field = fmt.Sprintf("secrets[%d]", s.badSecret(cfg, bad))
			bad++
		case "id_header":
			field = "dedupe_header"
		}
		f.add(field, value, e.Rule, cmp.Or(e.Hint, "see the documentation of the scheme"))
	}
	return nil
}

// badSecret returns the place of the nth secret that is refused.
func (s *Source) badSecret(cfg signing.VerifierConfig, nth int) int {
	for i, secret := range s.Secrets {
		cfg.Secrets = []signing.Secret{secret}
		_, err := signing.NewVerifier(cfg)
		refused := slices.ContainsFunc(signing.ConfigErrors(err), func(e *signing.ConfigError) bool { return e.Field == "secret" })
		if !refused {
			continue
		}
		if nth == 0 {
			return i
		}
		nth--
	}
	return 0
}

// shown is the value of a field that the verifier complains of.
func (s *Source) shown(field string) string {
	switch field {
	case "secret":
		return "***"
	case "secrets":
		return strconv.Itoa(len(s.Secrets)) + " secrets"
	case "scheme":
		return string(s.Scheme)
	case "signature_header":
		return s.SignatureHeader
	case "timestamp_header":
		return s.TimestampHeader
	case "id_header":
		return s.DedupeHeader
	case "signature_prefix":
		return s.SignaturePrefix
	case "signed_content":
		return s.SignedContent
	case "secret_encoding":
		return s.SecretEncoding
	case "public_url":
		if strings.Contains(s.PublicURL, "@") {
			return "***" // it may hold a password
		}
		return s.PublicURL
	case "tolerance":
		return time.Duration(*s.Tolerance).String()
	default:
		return ""
	}
}

// dedupe returns the header that is read beside the scheme, "" for none.
func (f *faults) dedupe(s *Source) string {
	if s.DedupeHeader == "" || takesIDHeader(s.Scheme) {
		return ""
	}
	if rule := headerNameFault(s.DedupeHeader); rule != "" {
		f.add("dedupe_header", s.DedupeHeader, rule, "write the name of a header, such as X-Event-ID")
	}
	return textproto.CanonicalMIMEHeaderKey(s.DedupeHeader)
}

// headerNameFault says why name is no header name, "" if it is.
func headerNameFault(name string) string {
	if len(name) > maxDedupeName {
		return fmt.Sprintf("is longer than %d bytes", maxDedupeName)
	}
	// Only the rule about names is wanted, so the name is made one of nobody's.
	if err := signing.ValidateHeader("x-"+name, "v"); err != nil || name == "" {
		return "is not a header name"
	}
	return ""
}

// credentials are never stored: they are the sender's, and the origin has no
// use for them.
var credentials = []string{"Authorization", "Cookie", "Set-Cookie", "Proxy-Authorization"}

// forward returns the canonical names of the headers that go on.
func (f *faults) forward(s *Source, v *signing.Verifier) []string {
	if len(s.ForwardHeaders) > maxListed {
		f.add("forward_headers", strconv.Itoa(len(s.ForwardHeaders))+" names", fmt.Sprintf("at most %d", maxListed), "name those that the receiver needs")
		return nil
	}
	var out []string
	for i, name := range s.ForwardHeaders {
		field := fmt.Sprintf("forward_headers[%d]", i)
		canonical := http.CanonicalHeaderKey(name)
		rule := headerNameFault(name)
		switch {
		case rule != "":
			f.add(field, name, rule, "write the name of a header, such as X-GitHub-Event")
		case slices.Contains(credentials, canonical):
			f.add(field, name, "credentials are not stored", "remove it")
		case v != nil && slices.Contains(v.Headers(), canonical):
			f.add(field, name, "signatures are not stored: they are of no use behind the check", "remove it")
		case signing.ReservedHeader(name):
			f.add(field, name, "is set by the sender of the event", "remove it; the content type goes on by itself")
		case !slices.Contains(out, canonical):
			out = append(out, canonical)
		}
	}
	slices.Sort(out)
	return out
}

// contentTypes returns the accepted media types in lower case.
func (f *faults) contentTypes(s *Source) []string {
	out := make([]string, 0, len(s.ContentTypes))
	if len(s.ContentTypes) > maxListed {
		f.add("content_types", strconv.Itoa(len(s.ContentTypes))+" types", fmt.Sprintf("at most %d", maxListed), "use a wildcard such as text/*")
		return nil
	}
	for i, kind := range s.ContentTypes {
		name, params, err := mime.ParseMediaType(kind)
		main, sub, ok := strings.Cut(name, "/")
		if err != nil || len(params) > 0 || !ok || main == "" || sub == "" || main == "*" && sub != "*" {
			f.add(fmt.Sprintf("content_types[%d]", i), kind, "is not a media type without parameters", `write "application/json", or "text/*"`)
			continue
		}
		out = append(out, name)
	}
	return out
}

func (f *faults) allowIPs(s *Source) []netip.Prefix {
	if len(s.AllowIPs) > maxListed*16 {
		f.add("allow_ips", strconv.Itoa(len(s.AllowIPs))+" entries", fmt.Sprintf("at most %d", maxListed*16), "use wider prefixes")
		return nil
	}
	out := make([]netip.Prefix, 0, len(s.AllowIPs))
	for i, text := range s.AllowIPs {
		p, err := parsePrefix(text)
		if err != nil {
			f.add(fmt.Sprintf("allow_ips[%d]", i), text, err.Error(), "write 203.0.113.7, or 203.0.113.0/24")
			continue
		}
		out = append(out, p)
	}
	return out
}

// parsePrefix reads an address or a prefix. A prefix with bits set after its
// length is more often a slip than a wish for the whole network.
func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		if addr.Zone() != "" {
			return netip.Prefix{}, errors.New("a zone cannot be part of it")
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, errors.New("is neither an address nor a prefix")
	case p.Addr().Is4In6():
		return netip.Prefix{}, errors.New("is IPv4 written as IPv6")
	case p != p.Masked():
		return netip.Prefix{}, fmt.Errorf("has bits set after its length: %v or %v", p.Masked(), netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
	}
	return p, nil
}

func (f *faults) destination(d *Destination) {
	const kinds = `"fanout" or "origin"`
	switch d.Type {
	case DestinationFanOut:
		if d.URL != "" || !d.Token.IsZero() || d.TLS != nil {
			f.add("destination", d.Type, "has a URL, a token or TLS, which only an origin has", `remove them, or choose type "origin"`)
		}
	case DestinationOrigin:
		f.origin(d)
	case "":
		f.add("destination.type", "", "is required", "choose "+kinds)
	default:
		f.add("destination.type", d.Type, "is not known", "choose "+kinds)
	}
}

func (f *faults) origin(d *Destination) {
	u, err := url.Parse(d.URL)
	switch {
	case d.URL == "":
		f.add("destination.url", "", "is required for an origin", "write https://host/path")
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || strings.Contains(d.URL, "#"):
		// The text may hold a password, and is not shown.
		f.add("destination.url", "***", "is not an absolute http or https URL without a fragment", "write https://host/path")
	case u.User != nil:
		f.add("destination.url", "***", "has a user name or password in it", "use the token")
	}
	if m := d.Material(); m != nil {
		for _, fault := range m.Faults() {
			f.add(strings.TrimSuffix("destination.tls."+fault.Field, "."), "***", fault.Rule, fault.Hint)
		}
		if u != nil && u.Scheme == "http" {
			f.add("destination.tls", "***", "has no use without TLS", "write https:// in destination.url, or remove it")
		}
	}
	if d.Token.IsZero() {
		return
	}
	if token := d.Token.Reveal(); signing.ValidateHeader("x-token", token) != nil || token == "" || strings.ContainsAny(token, " \t") {
		f.add("destination.token", "***", "cannot stand in a header", "use visible ASCII characters without spaces")
	}
}

func (f *faults) rateLimit(r *RateLimit) {
	if r == nil {
		return
	}
	// Written so that NaN is refused, too.
	if !(r.PerSecond > 0 && r.PerSecond <= maxPerSecond) {
		f.add("rate_limit.per_second", strconv.FormatFloat(r.PerSecond, 'g', -1, 64), "must be above 0, at most 1000000", "leave rate_limit out for no limit")
	}
	if r.Burst < 0 || r.Burst > maxPerSecond {
		f.add("rate_limit.burst", strconv.Itoa(r.Burst), "must be from 0 to 1000000", "leave it out for what comes in a second")
	}
}
