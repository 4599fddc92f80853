package delivery

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Class is what an attempt's result means for the delivery.
type Class uint8

// Classes of outcome. The numbers are stored.
const (
	ClassRetry       Class = 0 // unlisted means retry
	ClassDelivered   Class = 1
	ClassThrottled   Class = 2 // retry, at least RetryAfter later; not the breaker's business
	ClassUnknown     Class = 3 // retry: it may have been processed
	ClassRejected    Class = 4 // dead at once: the same bytes cannot succeed
	ClassGone        Class = 5 // dead, and the subscriber is disabled
	ClassBlocked     Class = 6 // dead at once: the URL names a denied address
	ClassInterrupted Class = 7 // costs no attempt
)

var classNames = [...]string{
	"retry", "delivered", "throttled", "unknown", "rejected", "gone", "blocked", "interrupted",
}

// String returns the wire name.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "invalid"
}

// Final reports whether no further attempt follows by itself.
func (c Class) Final() bool {
	return c == ClassDelivered || c == ClassRejected || c == ClassGone || c == ClassBlocked
}

// Outcome is [Classify]'s judgement.
type Outcome struct {
	Class  Class
	Reason Reason
	// RetryAfter is the least wait the peer asked for; 0 = none. At most MaxRetryAfter.
	RetryAfter time.Duration
	// Failure counts towards the breaker and towards disabling.
	Failure bool
}

// MaxRetryAfter caps what a peer may ask for.
const MaxRetryAfter = 24 * time.Hour

// Classify judges a result at the wall time now. It is the only place where an
// answer's meaning is decided; what is not listed is retried.
func Classify(r Result, now time.Time) Outcome {
	if r.Status == 0 {
		return classifyFailure(r)
	}
	out := classifyStatus(r.Status)
	if out.Class != ClassRetry {
		return out
	}
	if wait, ok := ParseRetryAfter(r.RetryAfter, r.Date, now); ok {
		return Outcome{Class: ClassThrottled, Reason: ReasonThrottled, RetryAfter: wait}
	}
	if r.Status == http.StatusTooManyRequests {
		return Outcome{Class: ClassThrottled, Reason: ReasonThrottled}
	}
	return out
}

func classifyStatus(status int) Outcome {
	switch {
	case status >= 200 && status <= 299:
		return Outcome{Class: ClassDelivered, Reason: ReasonDelivered}
	case status >= 300 && status <= 399:
		return Outcome{Class: ClassRetry, Reason: ReasonRedirect, Failure: true}
	}
	switch status {
	case http.StatusGone:
		return Outcome{Class: ClassGone, Reason: ReasonGone, Failure: true}
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return Outcome{Class: ClassRetry, Reason: ReasonStatusRetry, Failure: true}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusProxyAuthRequired,
		http.StatusConflict, http.StatusMisdirectedRequest, http.StatusLocked, http.StatusFailedDependency:
		return Outcome{Class: ClassRetry, Reason: ReasonStatusMendable, Failure: true}
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return Outcome{Class: ClassRejected, Reason: ReasonRejected, Failure: true}
	}
	if status >= 400 && status <= 499 {
		return Outcome{Class: ClassRejected, Reason: ReasonRejected, Failure: true}
	}
	return Outcome{Class: ClassRetry, Reason: ReasonStatusRetry, Failure: true}
}

func classifyFailure(r Result) Outcome {
	switch r.Cause {
	case CauseShutdown:
		// Whether bytes left is on the timeline (Result.Sent); a stop of ours
		// costs the delivery nothing either way.
		return Outcome{Class: ClassInterrupted, Reason: ReasonInterrupted}
	case CausePolicyLiteral:
		return Outcome{Class: ClassBlocked, Reason: ReasonBlocked, Failure: true}
	case CausePolicy:
		return Outcome{Class: ClassRetry, Reason: ReasonBlockedDNS, Failure: true}
	case CausePorts:
		// Our shortage says nothing about the peer: no breaker.
		return Outcome{Class: ClassRetry, Reason: ReasonPortExhausted}
	case CauseLocal:
		return Outcome{Class: ClassRetry, Reason: ReasonLocalError}
	case CauseRecovered:
		return Outcome{Class: ClassUnknown, Reason: ReasonRecovered}
	}
	switch r.Sent {
	case SentRefused:
		return Outcome{Class: ClassRetry, Reason: ReasonRefused, Failure: true}
	case SentNever:
		return Outcome{Class: ClassRetry, Reason: neverSentReason(r.Cause), Failure: true}
	}
	if r.Cause == CauseTimeout {
		return Outcome{Class: ClassUnknown, Reason: ReasonTimeout, Failure: true}
	}
	return Outcome{Class: ClassUnknown, Reason: ReasonUnknown, Failure: true}
}

func neverSentReason(c Cause) Reason {
	switch c {
	case CauseDNS:
		return ReasonDNSFailed
	case CauseTLS:
		return ReasonTLSFailed
	case CauseConnect, CauseProxy, CauseTimeout:
		return ReasonConnectFailed
	default:
		return ReasonNotSent
	}
}

// ParseRetryAfter reads a Retry-After header (RFC 9110 §10.2.3) in both forms:
// delay-seconds, and the three HTTP-date forms, which are measured against the
// response's own Date header when that is valid, else against now. Invalid
// values and instants that are not in the future give false; the wait is capped
// at [MaxRetryAfter].
func ParseRetryAfter(value, date string, now time.Time) (time.Duration, bool) {
	value = strings.Trim(value, " \t")
	if value == "" {
		return 0, false
	}
	if allDigits(value) {
		seconds, err := strconv.ParseUint(value, 10, 64)
		if err != nil || seconds > uint64(MaxRetryAfter/time.Second) {
			return MaxRetryAfter, true // more digits than an hour-glass has: the cap
		}
		return time.Duration(seconds) * time.Second, true //nolint:gosec // at most a day
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	from := now
	if d, err := http.ParseTime(strings.Trim(date, " \t")); err == nil {
		from = d
	}
	wait := at.Sub(from)
	if wait <= 0 {
		return 0, false
	}
	return min(wait, MaxRetryAfter), true
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
