package ingress

import (
	"net/http"
	"slices"
)

// Outcome is how a request ended. It is one closed list, in the order of the
// checks: it labels the counter and appears as "reason" in the answer. The zero
// value means that no check has decided yet.
type Outcome uint8

// Outcomes. The comment of each gives its status.
const (
	outcomeNone Outcome = iota

	OutcomeMethod           // 405: not a POST
	OutcomePath             // 404: not /webhook/{tenant}/{source}
	OutcomeDeclaredTooLarge // 413: declared length above the node's cap
	OutcomeThrottled        // 429: too many failed verifications from this address
	OutcomeUnknownSource    // 404: no such tenant or source
	OutcomeSourceUnknowable // 503: the configuration cannot be read now
	OutcomeTooLarge         // 413: declared, received or expanded body above the source's limit
	OutcomeContentType      // 415: not one of the source's content types
	OutcomeContentEncoding  // 415: compressed in a way that the source does not allow
	OutcomeAddress          // 403: not one of the source's allow_ips
	OutcomeNotReady         // 503: the store takes nothing now; the body was not read
	OutcomeMissingSignature // 401: a header of the scheme is absent
	OutcomeMalformed        // 401: a header, or a signed form, cannot be read
	OutcomeTimestamp        // 401: signed too long ago, or in the future
	OutcomeBusy             // 503: too many bodies, or too much memory or spool in use
	OutcomeBodyTimeout      // 408: the body did not arrive in time
	OutcomeBodyBroken       // 400: the body broke off
	OutcomeBadEncoding      // 400: the compressed body cannot be read
	OutcomeMismatch         // 401: no active secret gives this signature
	OutcomeHandshake        // 200 or 204: a provider tried out the URL; nothing is stored
	OutcomeOverQuota        // 429: over quota, and the source rejects then
	OutcomeBuffered         // 202: durable
	OutcomeDeduplicated     // 200: durable since an earlier request
	OutcomeStoreFull        // 503: no room
	OutcomeStoreFailed      // 503: not stored, or not known to be

	outcomeEnd
)

var outcomes = [outcomeEnd]struct {
	name   string
	status int
	title  string
}{
	outcomeNone:             {"none", 0, ""},
	OutcomeMethod:           {"method", http.StatusMethodNotAllowed, "only POST is accepted here"},
	OutcomePath:             {"path", http.StatusNotFound, "the path is /webhook/{tenant}/{source}"},
	OutcomeDeclaredTooLarge: {"declared_too_large", http.StatusRequestEntityTooLarge, "the body is larger than this node accepts"},
	OutcomeThrottled:        {"throttled", http.StatusTooManyRequests, "too many requests with a bad signature came from this address"},
	OutcomeUnknownSource:    {"unknown_source", http.StatusNotFound, "there is no such tenant or source"},
	OutcomeSourceUnknowable: {"source_unknowable", http.StatusServiceUnavailable, "the source's configuration cannot be read now"},
	OutcomeTooLarge:         {"too_large", http.StatusRequestEntityTooLarge, "the body is larger than this source accepts"},
	OutcomeContentType:      {"content_type", http.StatusUnsupportedMediaType, "this source does not accept the content type"},
	OutcomeContentEncoding:  {"content_encoding", http.StatusUnsupportedMediaType, "this source does not accept the content encoding"},
	OutcomeAddress:          {"address", http.StatusForbidden, "this source does not accept requests from this address"},
	OutcomeNotReady:         {"not_ready", http.StatusServiceUnavailable, "nothing can be stored now"},
	OutcomeMissingSignature: {"missing_signature", http.StatusUnauthorized, "the request is not signed"},
	OutcomeMalformed:        {"malformed_signature", http.StatusUnauthorized, "the signature cannot be read"},
	OutcomeTimestamp:        {"timestamp", http.StatusUnauthorized, "the timestamp is outside the tolerance"},
	OutcomeBusy:             {"busy", http.StatusServiceUnavailable, "too many bodies are being received"},
	OutcomeBodyTimeout:      {"body_timeout", http.StatusRequestTimeout, "the body did not arrive in time"},
	OutcomeBodyBroken:       {"body_broken", http.StatusBadRequest, "the body broke off"},
	OutcomeBadEncoding:      {"bad_encoding", http.StatusBadRequest, "the body is not what its content encoding says"},
	OutcomeMismatch:         {"mismatch", http.StatusUnauthorized, "the signature does not match"},
	OutcomeHandshake:        {"handshake", http.StatusOK, ""},
	OutcomeOverQuota:        {"over_quota", http.StatusTooManyRequests, "the quota is used up"},
	OutcomeBuffered:         {"buffered", http.StatusAccepted, ""},
	OutcomeDeduplicated:     {"deduplicated", http.StatusOK, ""},
	OutcomeStoreFull:        {"store_full", http.StatusServiceUnavailable, "the store is full"},
	OutcomeStoreFailed:      {"store_failed", http.StatusServiceUnavailable, "the event could not be stored"},
}

// String returns the name: the counter's label and the answer's reason.
func (o Outcome) String() string {
	if o < outcomeEnd {
		return outcomes[o].name
	}
	return "invalid"
}

// Status returns the HTTP status. That of a handshake is the provider's wish
// and may differ.
func (o Outcome) Status() int {
	if o < outcomeEnd {
		return outcomes[o].status
	}
	return http.StatusInternalServerError
}

// Stored reports whether the event is durable. Only then is the answer 2xx,
// a handshake aside.
func (o Outcome) Stored() bool { return o == OutcomeBuffered || o == OutcomeDeduplicated }

// unverified are the outcomes that charge the bucket of failed verifications.
var unverified = []Outcome{OutcomeMissingSignature, OutcomeMalformed, OutcomeTimestamp, OutcomeMismatch}

func (o Outcome) unverified() bool { return slices.Contains(unverified, o) }

// Outcomes returns the closed list in the order of the checks, for counters
// that exist before they count.
func Outcomes() []Outcome {
	out := make([]Outcome, 0, outcomeEnd-1)
	for o := outcomeNone + 1; o < outcomeEnd; o++ {
		out = append(out, o)
	}
	return out
}
