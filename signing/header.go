package signing

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
)

// The headers of Standard Webhooks, in the form net/http stores them.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp"
	HeaderSignature = "Webhook-Signature"
)

// Bounds of a header that a user may configure.
const (
	maxHeaderName  = 128
	maxHeaderValue = 4096
)

// reserved are the headers that a user's own may not name, because the sender
// owns them. Beside these, everything that begins with "webhook-" and "proxy-".
//
//   - What frames the message or the connection: a second opinion on it is
//     request smuggling on HTTP/1.1 and a protocol error on HTTP/2 and HTTP/3.
//   - What the signature depends on: the body's type and coding. The signed
//     bytes are the uncompressed ones.
//   - What the delivery promises: its trace, its agent, an identity response,
//     no early data.
var reserved = map[string]struct{}{
	"host": {}, "content-length": {}, "transfer-encoding": {}, "connection": {},
	"keep-alive": {}, "te": {}, "trailer": {}, "upgrade": {}, "http2-settings": {}, "expect": {},
	"content-type": {}, "content-encoding": {},
	"user-agent": {}, "accept-encoding": {}, "traceparent": {}, "tracestate": {},
	"alt-used": {}, "early-data": {},
}

// ReservedHeader reports whether the sender sets name itself, so that a
// subscriber's own headers may not: in any case, and with _ for -, which CGI
// and its descendants fold into one.
func ReservedHeader(name string) bool {
	n := strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	if strings.HasPrefix(n, "webhook-") || strings.HasPrefix(n, "proxy-") || strings.HasPrefix(n, ":") {
		return true
	}
	_, ok := reserved[n]
	return ok
}

// ValidateHeader checks a header that a subscriber wants on its requests: the
// name is a token and not reserved, the value is visible ASCII with spaces or
// tabs inside. That is the part of the rules on which HTTP/1.1, HTTP/2 and
// HTTP/3 agree, so that a header accepted here is sent unchanged on each, and
// one refused is refused on all. The error is a [*ConfigError] without the value.
func ValidateHeader(name, value string) error {
	if rule := nameFault(name); rule != "" {
		return &ConfigError{Field: "headers", Rule: fmt.Sprintf("%.80q %s", name, rule)}
	}
	if ReservedHeader(name) {
		return &ConfigError{Field: "headers", Rule: fmt.Sprintf("%q is set by the sender", name), Hint: "choose another name, for example with x- in front"}
	}
	if rule := valueFault(value); rule != "" {
		return &ConfigError{Field: "headers", Rule: fmt.Sprintf("the value of %q %s", name, rule)}
	}
	return nil
}

// nameFault says why name is not a header name (RFC 9110 section 5.1), "" if it is.
func nameFault(name string) string {
	switch {
	case name == "":
		return "is an empty name"
	case len(name) > maxHeaderName:
		return fmt.Sprintf("is longer than %d bytes", maxHeaderName)
	}
	for i := range len(name) {
		if !isToken(name[i]) {
			return fmt.Sprintf("has the byte %#02x at position %d, which no header name may have", name[i], i)
		}
	}
	return ""
}

func isToken(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	default:
		return strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
	}
}

// valueFault says why value cannot be sent, "" if it can. HTTP/1.1 would strip
// outer white space and HTTP/2 and 3 must refuse it (RFC 9113 section 8.2.1),
// so it is refused.
func valueFault(value string) string {
	switch {
	case len(value) > maxHeaderValue:
		return fmt.Sprintf("is longer than %d bytes", maxHeaderValue)
	case strings.Trim(value, " \t") != value:
		return "begins or ends with white space"
	}
	for i := range len(value) {
		switch c := value[i]; {
		case c == '\r' || c == '\n':
			return fmt.Sprintf("has a line break at position %d", i)
		case c != '\t' && (c < 0x20 || c > 0x7e):
			return fmt.Sprintf("has the byte %#02x at position %d; visible ASCII, space and tab are allowed", c, i)
		}
	}
	return ""
}

// canonical is the form in which net/http keeps name.
func canonical(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }

// headerValues returns the values of name, which is canonical. A header made by
// net/http has canonical keys; one written by hand may not, so that before a
// header counts as missing every key is compared without case.
func headerValues(h http.Header, name string) []string {
	if v := h[name]; len(v) > 0 {
		return v
	}
	var out []string
	for k, v := range h {
		if len(k) == len(name) && strings.EqualFold(k, name) {
			out = append(out, v...)
		}
	}
	return out
}

// maxSignatureHeader bounds what a verification reads of one header.
const maxSignatureHeader = 4096

// single returns the one value of a header that verification depends on. Two
// values, even equal ones, are refused: which of them another reader of the
// same request takes is anyone's guess.
func (l *layout) single(h http.Header, name string) (string, error) {
	values := headerValues(h, name)
	switch {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", l.fail(ReasonMissingHeader, name, "is missing")
	case len(values) > 1:
		return "", l.fail(ReasonMalformed, name, "is there more than once")
	case len(values[0]) > maxSignatureHeader:
		return "", l.fail(ReasonMalformed, name, fmt.Sprintf("is longer than %d bytes", maxSignatureHeader))
	}
	return values[0], nil
}

func (l *layout) fail(r Reason, header, detail string) error {
	return &VerifyError{Scheme: l.scheme, Reason: r, Header: header, Detail: detail}
}
