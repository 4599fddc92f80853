package origin

import "github.com/dispatcher-engine/dispatcher/delivery"

// Verdict is what a batch's result says about its events. It is a closed list,
// for metrics.
type Verdict uint8

// Verdicts.
const (
	// VerdictDown: nothing. The origin was not reached, refused, asked for
	// patience, or is set up wrongly.
	VerdictDown Verdict = iota
	// VerdictDelivered: all of them were taken.
	VerdictDelivered
	// VerdictRejected: the content of at least one cannot be accepted.
	VerdictRejected
	// VerdictSuspect: the origin had them and failed; one may be the cause.
	VerdictSuspect
	// VerdictInterrupted: nothing, and it was us who stopped.
	VerdictInterrupted
)

var verdictNames = [...]string{"down", "delivered", "rejected", "suspect", "interrupted"}

// String returns the metric label.
func (v Verdict) String() string {
	if int(v) < len(verdictNames) {
		return verdictNames[v]
	}
	return "invalid"
}

// Judge translates the result of an attempt and its classification. One rule
// decides: only an origin that has seen the events can have failed because of
// them.
func Judge(r delivery.Result, o delivery.Outcome) Verdict {
	switch o.Class {
	case delivery.ClassDelivered:
		return VerdictDelivered
	case delivery.ClassRejected:
		return VerdictRejected
	case delivery.ClassInterrupted:
		return VerdictInterrupted
	case delivery.ClassUnknown:
		// Bytes left and no answer came: an event that kills or hangs the origin
		// looks like this. Recovered is our own crash.
		if o.Reason != delivery.ReasonRecovered {
			return VerdictSuspect
		}
	case delivery.ClassRetry:
		if r.Status >= 500 {
			return VerdictSuspect
		}
	case delivery.ClassThrottled, delivery.ClassGone, delivery.ClassBlocked:
	}
	return VerdictDown
}
