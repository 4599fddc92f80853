package signing

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Layout changes where a scheme's values travel and what it signs. The zero
// Layout is the scheme's own. The same Layout gives the same bytes for a
// [Signer] and a [Verifier].
type Layout struct {
	// SignatureHeader carries the signature. Default: the scheme's.
	SignatureHeader string
	// TimestampHeader carries the Unix time. Default: the scheme's; for
	// hmac-hex and hmac-base64 webhook-timestamp if SignedContent has
	// {timestamp}, and otherwise it must not be set: a timestamp outside the
	// signature proves nothing.
	TimestampHeader string
	// IDHeader carries the message id. Default: the scheme's; for hmac-hex and
	// hmac-base64 webhook-id if SignedContent has {id}. Only for the standard
	// schemes and those two.
	IDHeader string
	// SignaturePrefix stands before the signature in its header, such as
	// "sha256=". Only for hmac-hex and hmac-base64; default none.
	SignaturePrefix string
	// SignedContent is the template of what is signed, of {id}, {timestamp},
	// {body} and {url}. Only for hmac-hex and hmac-base64; default "{body}".
	SignedContent string
	// SecretEncoding says how a secret's text becomes the key: "text"
	// (default), "base64" or "hex". Only for hmac-hex and hmac-base64.
	SecretEncoding string
	// PublicURL is the URL at which the provider knows the receiver, as it was
	// given to the provider. Required for twilio and for {url} in
	// SignedContent. Host and X-Forwarded-* headers of a request are never
	// used in its place: they are the sender's to write.
	PublicURL string
}

// layout is a Layout made complete and checked for one scheme.
type layout struct {
	scheme Scheme
	spec   *spec

	sigHeader, tsHeader, idHeader string // canonical; "" if the scheme has none
	prefix                        string
	content                       template
	encoding                      string
	publicURL                     *publicURL // nil unless twilio
}

// resolve fills in the defaults of scheme. All faults are reported, each as a
// *ConfigError, joined. With a fault the layout still says how to read secrets,
// so that theirs can be reported too; it is nil only for an unknown scheme.
func (in Layout) resolve(scheme Scheme) (*layout, error) {
	sp, ok := specs[scheme]
	if !ok {
		return nil, unknownScheme(scheme)
	}
	l := &layout{
		scheme: scheme, spec: sp, prefix: sp.prefix,
		sigHeader: sp.sigHeader, tsHeader: sp.tsHeader, idHeader: sp.idHeader,
	}
	errs := []error{
		in.resolveContent(l),
		override(&l.sigHeader, "signature_header", in.SignatureHeader, true, scheme),
		override(&l.tsHeader, "timestamp_header", in.TimestampHeader, sp.tsHeader != "" || sp.generic, scheme),
		override(&l.idHeader, "id_header", in.IDHeader, sp.idHeader != "" || sp.generic, scheme),
		in.resolveURL(l),
	}
	if in.TimestampHeader != "" && sp.generic && !l.content.usesTimestamp {
		errs = append(errs, &ConfigError{
			Field: "timestamp_header", Rule: "is set, but signed_content has no {timestamp}",
			Hint: "an unsigned timestamp proves nothing; many providers sign {timestamp}.{body}",
		})
	}
	if err := errors.Join(errs...); err != nil {
		return l, err
	}
	if sp.generic && l.tsHeader == "" && l.content.usesTimestamp {
		l.tsHeader = HeaderTimestamp
	}
	if sp.generic && l.idHeader == "" && l.content.usesID {
		l.idHeader = HeaderID
	}
	if l.sigHeader == l.tsHeader || l.sigHeader == l.idHeader || l.idHeader != "" && l.idHeader == l.tsHeader {
		return l, &ConfigError{Field: "signature_header", Rule: "two values would share one header"}
	}
	return l, nil
}

// resolveContent settles the signed content and the other settings that only
// the generic schemes leave to the user.
func (in Layout) resolveContent(l *layout) error {
	content := l.spec.content
	if !l.spec.generic {
		if err := in.refuseGeneric(l.scheme); err != nil || content == "" {
			return err
		}
	} else {
		l.prefix, l.encoding = in.SignaturePrefix, in.SecretEncoding
		// The prefix may end with a space, the header's value may not.
		if len(l.prefix) > maxHeaderName || valueFault(l.prefix+"x") != "" {
			return &ConfigError{Field: "signature_prefix", Rule: "cannot stand in a header"}
		}
		switch l.encoding {
		case "", "text", "base64", "hex":
		default:
			return &ConfigError{Field: "secret_encoding", Rule: fmt.Sprintf("%.40q is not known", l.encoding), Hint: "text, base64 or hex"}
		}
		content = cmp.Or(in.SignedContent, content)
	}
	var err error
	l.content, err = parseTemplate(content, in.PublicURL)
	return err
}

// refuseGeneric refuses settings that scheme fixes itself.
func (in Layout) refuseGeneric(scheme Scheme) error {
	var errs []error
	for _, f := range [...]struct{ field, value string }{
		{"signed_content", in.SignedContent},
		{"signature_prefix", in.SignaturePrefix},
		{"secret_encoding", in.SecretEncoding},
	} {
		if f.value != "" {
			errs = append(errs, &ConfigError{
				Field: f.field, Rule: fmt.Sprintf("cannot be set for %s", scheme),
				Hint: "hmac-hex and hmac-base64 have it",
			})
		}
	}
	return errors.Join(errs...)
}

func (in Layout) resolveURL(l *layout) error {
	if in.PublicURL == "" {
		if l.scheme == Twilio {
			return &ConfigError{Field: "public_url", Rule: "is required for twilio", Hint: "the URL that was given to Twilio: its signature covers it"}
		}
		return nil
	}
	u, err := url.Parse(in.PublicURL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || strings.Contains(in.PublicURL, "#") {
		return &ConfigError{Field: "public_url", Rule: "is not an absolute http or https URL without user and fragment"}
	}
	if !strings.HasPrefix(in.PublicURL, u.Scheme+"://"+u.Host) {
		return &ConfigError{Field: "public_url", Rule: "has a scheme that is not in lower case"}
	}
	if l.scheme == Twilio {
		l.publicURL = newPublicURL(in.PublicURL, u)
	}
	return nil
}

// override puts a configured header name in the place of a default.
func override(dst *string, field, name string, allowed bool, scheme Scheme) error {
	if name == "" {
		return nil
	}
	if !allowed {
		return &ConfigError{Field: field, Rule: fmt.Sprintf("cannot be set for %s", scheme)}
	}
	if rule := nameFault(name); rule != "" {
		return &ConfigError{Field: field, Rule: rule}
	}
	*dst = canonical(name)
	return nil
}

// headers returns the names that carry the scheme's values.
func (l *layout) headers() []string {
	out := []string{l.sigHeader}
	for _, h := range [...]string{l.tsHeader, l.idHeader} {
		if h != "" {
			out = append(out, h)
		}
	}
	if l.scheme == Twilio {
		out = append(out, twilioSettingsHeader)
	}
	return out
}
