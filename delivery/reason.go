package delivery

import "fmt"

// Reason says why something happened to a delivery or a subscriber. It is one
// closed list, shared by the timeline, the log, the metrics' labels and the
// API. The zero value means "none".
type Reason uint8

// Reasons. The numbers are stored: append only.
const (
	ReasonNone Reason = 0

	// Outcomes of an attempt.
	ReasonDelivered      Reason = 1  // 2xx
	ReasonStatusRetry    Reason = 2  // 408, 425, 5xx except 501 and 505, and unlisted answers
	ReasonStatusMendable Reason = 3  // 401, 403, 404, 407, 409, 421, 423, 424
	ReasonThrottled      Reason = 4  // 429, or a retryable answer with a valid Retry-After
	ReasonRedirect       Reason = 5  // 3xx, never followed
	ReasonRejected       Reason = 6  // other 4xx, 501, 505
	ReasonGone           Reason = 7  // 410
	ReasonDNSFailed      Reason = 8  // no address
	ReasonConnectFailed  Reason = 9  // TCP or QUIC handshake failed or timed out
	ReasonTLSFailed      Reason = 10 // certificate or TLS alert
	ReasonRefused        Reason = 11 // the peer refused without processing
	ReasonUnknown        Reason = 12 // failure after bytes left: may have been processed
	ReasonTimeout        Reason = 13 // deadline after bytes left: may have been processed
	ReasonBlocked        Reason = 14 // address policy, literal address
	ReasonBlockedDNS     Reason = 15 // address policy, answer of DNS
	ReasonInterrupted    Reason = 16 // shutdown or lost lease; costs no attempt
	ReasonLocalError     Reason = 17 // our own side: no ports, no files, bad TLS material
	ReasonPortExhausted  Reason = 18 // no ephemeral port left
	ReasonRecovered      Reason = 19 // leased when the node died: may have been sent
	ReasonNotSent        Reason = 20 // failed before a byte was sent, other than by name above

	// Ends without a new attempt.
	ReasonExhausted         Reason = 30 // the ladder or give_up_after ended
	ReasonExpired           Reason = 31 // maximum age passed
	ReasonSubscriberDeleted Reason = 32
	ReasonEventDeleted      Reason = 33
	ReasonTenantDeleted     Reason = 34
	ReasonPurged            Reason = 35 // dead letter removed by an operator

	// Why a pending delivery waits.
	ReasonDue            Reason = 50 // its retry or deliver_at time has not come
	ReasonOrder          Reason = 51 // an earlier event of its key is not finished
	ReasonConcurrency    Reason = 52 // the subscriber's in-flight bound
	ReasonRateLimited    Reason = 53 // the subscriber's token bucket
	ReasonTenantLimited  Reason = 54 // the tenant's token bucket or share
	ReasonNodeLimited    Reason = 55 // the node's in-flight bound
	ReasonSlowBudget     Reason = 56 // the budget of slow receivers is used up
	ReasonBreakerOpen    Reason = 57
	ReasonPaused         Reason = 58
	ReasonDisabled       Reason = 59
	ReasonFailingTooLong Reason = 60 // disable_after
	ReasonTooManyFailed  Reason = 61 // disable_after_failures
	ReasonOperator       Reason = 62 // an operator asked: pause, resume, replay, pin
	ReasonReplay         Reason = 63
	ReasonReserved       Reason = 64 // what is left of its tenant's or node's slots is reserved for others
)

var reasonNames = map[Reason]string{
	ReasonNone: "none", ReasonDelivered: "delivered", ReasonStatusRetry: "status_retry",
	ReasonStatusMendable: "status_mendable", ReasonThrottled: "throttled", ReasonRedirect: "redirect",
	ReasonRejected: "rejected", ReasonGone: "gone", ReasonDNSFailed: "dns_failed",
	ReasonConnectFailed: "connect_failed", ReasonTLSFailed: "tls_failed", ReasonRefused: "refused",
	ReasonUnknown: "unknown", ReasonTimeout: "timeout", ReasonBlocked: "blocked",
	ReasonBlockedDNS: "blocked_dns", ReasonInterrupted: "interrupted", ReasonLocalError: "local_error",
	ReasonPortExhausted: "port_exhausted", ReasonRecovered: "recovered", ReasonNotSent: "not_sent",
	ReasonExhausted: "exhausted", ReasonExpired: "expired", ReasonSubscriberDeleted: "subscriber_deleted",
	ReasonEventDeleted: "event_deleted", ReasonTenantDeleted: "tenant_deleted", ReasonPurged: "purged",
	ReasonDue: "due", ReasonOrder: "order", ReasonConcurrency: "concurrency",
	ReasonRateLimited: "rate_limited", ReasonTenantLimited: "tenant_limited", ReasonNodeLimited: "node_limited",
	ReasonSlowBudget: "slow_budget", ReasonBreakerOpen: "breaker_open", ReasonPaused: "paused",
	ReasonDisabled: "disabled", ReasonFailingTooLong: "failing_too_long", ReasonTooManyFailed: "too_many_failures",
	ReasonOperator: "operator", ReasonReplay: "replay", ReasonReserved: "reserved",
}

var reasonsByName = func() map[string]Reason {
	m := make(map[string]Reason, len(reasonNames))
	for r, name := range reasonNames {
		m[name] = r
	}
	return m
}()

// String returns the wire name; an unknown number prints as "reason_N" so that
// a newer store stays readable.
func (r Reason) String() string {
	if name, ok := reasonNames[r]; ok {
		return name
	}
	return fmt.Sprintf("reason_%d", uint8(r))
}

// ParseReason reads a wire name.
func ParseReason(name string) (Reason, bool) {
	r, ok := reasonsByName[name]
	return r, ok
}

// Reasons lists the closed list in ascending order, for metric labels and docs.
func Reasons() []Reason {
	out := make([]Reason, 0, len(reasonNames))
	for r := range 256 {
		if _, ok := reasonNames[Reason(r)]; ok { //nolint:gosec // below 256
			out = append(out, Reason(r)) //nolint:gosec // below 256
		}
	}
	return out
}
