package signing

import (
	"errors"
	"strings"
)

// Reason says why a request was not accepted. The list is closed, so that it
// can label a metric.
type Reason string

// The reasons.
const (
	// ReasonMissingHeader: a header the scheme needs is absent or empty.
	ReasonMissingHeader Reason = "missing_header"
	// ReasonMalformed: a header is there but cannot be what the scheme asks
	// for: wrong encoding or length, sent twice, no signature of this version.
	ReasonMalformed Reason = "malformed"
	// ReasonTimestamp: the timestamp is further from now than the tolerance.
	ReasonTimestamp Reason = "timestamp"
	// ReasonMismatch: well formed, but no active secret gives this signature.
	ReasonMismatch Reason = "mismatch"
)

// One sentinel for each [Reason]; a [*VerifyError] matches its own with errors.Is.
var (
	ErrMissingHeader = errors.New("signature header missing")
	ErrMalformed     = errors.New("signature header malformed")
	ErrTimestamp     = errors.New("timestamp outside the tolerance")
	ErrMismatch      = errors.New("signature does not match")
)

// ErrNoActiveSecret is returned by a [Signer] all of whose secrets have
// expired. Nothing is ever sent unsigned in their place.
var ErrNoActiveSecret = errors.New("no secret is valid at this time")

// ErrInvalidID is returned for an id that is empty, longer than 256 bytes or
// has a character outside [A-Za-z0-9_~:-]. A dot above all: it would make the
// signed content "{id}.{timestamp}.{body}" ambiguous.
var ErrInvalidID = errors.New("id must be 1 to 256 characters of A-Z a-z 0-9 _ ~ : -")

// ErrFinished is returned when a [Stream] or [Check] is used after it gave its result.
var ErrFinished = errors.New("already finished")

// VerifyError is the one error of a failed verification. It never holds the
// signature that would have been right, nor any part of a secret, so it may be
// logged and sent back as it is.
type VerifyError struct {
	Scheme Scheme
	Reason Reason
	Header string // the header at fault, "" when there is no single one
	Detail string // what is wrong with it, in words
}

// Error returns "verify SCHEME: HEADER: DETAIL".
func (e *VerifyError) Error() string {
	var b strings.Builder
	b.WriteString("verify ")
	b.WriteString(string(e.Scheme))
	if e.Header != "" {
		b.WriteString(": ")
		b.WriteString(e.Header)
	}
	b.WriteString(": ")
	b.WriteString(e.Detail)
	return b.String()
}

// Is matches the sentinel of the error's reason.
func (e *VerifyError) Is(target error) bool {
	switch e.Reason {
	case ReasonMissingHeader:
		return target == ErrMissingHeader
	case ReasonMalformed:
		return target == ErrMalformed
	case ReasonTimestamp:
		return target == ErrTimestamp
	case ReasonMismatch:
		return target == ErrMismatch
	default:
		return false
	}
}

// ConfigError names one setting that cannot be used, the rule it breaks and,
// where there is an obvious one, the way out. It never holds a secret's value.
type ConfigError struct {
	Field string // as in the API: "scheme", "secret", "signature_header" …
	Rule  string
	Hint  string

	mistake Mistake // what Explain calls it; "" is MistakeConfig
}

// Error returns "FIELD: RULE (HINT)".
func (e *ConfigError) Error() string {
	s := e.Field + ": " + e.Rule
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// ConfigErrors returns every [*ConfigError] that err is or joins, in order:
// what [NewSigner] and [NewVerifier] found wrong, for a caller that reports
// each fault by itself.
func ConfigErrors(err error) []*ConfigError {
	if joined, ok := errors.AsType[interface {
		error
		Unwrap() []error
	}](err); ok {
		var out []*ConfigError
		for _, e := range joined.Unwrap() {
			out = append(out, ConfigErrors(e)...)
		}
		return out
	}
	if ce, ok := errors.AsType[*ConfigError](err); ok {
		return []*ConfigError{ce}
	}
	return nil
}
