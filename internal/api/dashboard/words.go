package dashboard

import (
	"net/url"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// tones are the colours of states, by their wire names. Colour never says
// anything that the word beside it does not.
var tones = map[string]string{
	"delivered": "good", "active": "good", "closed": "good", "confirmed": "good", "up": "good",
	"retrying": "warn", "half_open": "warn", "suspect": "warn", "throttled": "warn", "paused": "warn", "held": "warn",
	"dead": "bad", "open": "bad", "disabled": "bad", "broken": "bad", "rejected": "bad", "gone": "bad", "blocked": "bad",
	"leased": "busy", "attempted": "busy", "received": "busy", "advertised": "busy",
}

func tone(name string) string {
	if t, ok := tones[name]; ok {
		return t
	}
	return "calm"
}

// reasonTexts say in a sentence what a reason means for whoever has to act.
var reasonTexts = map[delivery.Reason]string{
	delivery.ReasonStatusRetry:       "The receiver answered that it has trouble; it is tried again.",
	delivery.ReasonStatusMendable:    "The receiver refused in a way that is usually mended on its side; it is tried again.",
	delivery.ReasonThrottled:         "The receiver asked for a pause.",
	delivery.ReasonRedirect:          "The receiver redirected; redirects are never followed.",
	delivery.ReasonRejected:          "The receiver rejected these bytes for good.",
	delivery.ReasonGone:              "The receiver says that it is gone (410); the subscriber is disabled.",
	delivery.ReasonDNSFailed:         "The host name has no address.",
	delivery.ReasonConnectFailed:     "No connection came up.",
	delivery.ReasonTLSFailed:         "TLS failed: look at the certificate.",
	delivery.ReasonRefused:           "The receiver refused without processing.",
	delivery.ReasonUnknown:           "It failed after bytes had left; it may have been processed.",
	delivery.ReasonTimeout:           "No answer in time; it may have been processed.",
	delivery.ReasonBlocked:           "The address policy denies the URL's address.",
	delivery.ReasonBlockedDNS:        "The address policy denies what DNS answered.",
	delivery.ReasonInterrupted:       "The node stopped; this cost no attempt.",
	delivery.ReasonLocalError:        "The fault is on this node's side.",
	delivery.ReasonPortExhausted:     "This machine has no port left.",
	delivery.ReasonRecovered:         "The node died while this was under way; it may have been sent.",
	delivery.ReasonExhausted:         "Every attempt of the retry ladder failed.",
	delivery.ReasonExpired:           "It became too old.",
	delivery.ReasonBreakerOpen:       "The circuit breaker is open after failures in a row.",
	delivery.ReasonPaused:            "An operator paused the subscriber.",
	delivery.ReasonDisabled:          "The subscriber is disabled.",
	delivery.ReasonOrder:             "An earlier event of its ordering key is not finished.",
	delivery.ReasonRateLimited:       "The subscriber's rate limit.",
	delivery.ReasonConcurrency:       "The subscriber's bound of attempts in flight.",
	delivery.ReasonFailingTooLong:    "It failed for longer than disable_after.",
	delivery.ReasonTooManyFailed:     "Too many failures in a row.",
	delivery.ReasonDue:               "Its time has not come.",
	delivery.ReasonTenantLimited:     "The tenant's rate limit or share.",
	delivery.ReasonNodeLimited:       "The node's bound of attempts in flight.",
	delivery.ReasonReserved:          "What is left of the tenant's or the node's attempts in flight is reserved for others.",
	delivery.ReasonSlowBudget:        "The budget of slow receivers is used up.",
	delivery.ReasonSubscriberDeleted: "The subscriber was deleted.",
	delivery.ReasonEventDeleted:      "The event was deleted.",
	delivery.ReasonTenantDeleted:     "The tenant was deleted.",
}

func reasonHelp(name string) string {
	r, _ := delivery.ParseReason(name)
	return reasonTexts[r]
}

// shownURL is a subscriber's URL without what may be a secret: userinfo and the
// values of its query.
func shownURL(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "unreadable URL"
	}
	if u.User != nil {
		u.User = url.User("***")
	}
	if u.RawQuery != "" {
		u.RawQuery = "***"
	}
	u.Fragment, u.RawFragment = "", ""
	return u.String()
}

// reasonName is a reason's wire name, "" for none.
func reasonName(r delivery.Reason) string {
	if r == delivery.ReasonNone {
		return ""
	}
	return r.String()
}
