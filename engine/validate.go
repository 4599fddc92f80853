package engine

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// Bounds of what a subscriber may ask for.
const (
	maxTopics      = 64
	maxTopicLen    = 256
	maxHeaders     = 32
	maxConcurrency = 1024
	minTimeout     = 100 * time.Millisecond
	maxTimeout     = 5 * time.Minute
	maxLadder      = 64
	maxWait        = 7 * 24 * time.Hour
	maxMaxAge      = 30 * 24 * time.Hour
	maxSigning     = 2
)

// faults collects what is wrong with an input, field by field.
type faults []FieldError

func (f *faults) add(field, value, rule, hint string) {
	if len(value) > 200 {
		value = value[:200] + "…"
	}
	*f = append(*f, FieldError{Field: field, Value: value, Rule: rule, Hint: hint})
}

// err returns nil or an *InvalidError with everything that was found.
func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return &InvalidError{Fields: f}
}

// name checks an id that appears in paths.
func (f *faults) name(field, value string) {
	if delivery.CheckName(value) != nil {
		f.add(field, value, "1 to 128 of A-Z a-z 0-9 _ -", "choose an id of those characters")
	}
}

// applySubscriber puts what in gives onto sub and reports everything that is
// wrong. It needs sub.CreatedAt set.
func applySubscriber(sub *delivery.Subscriber, in SubscriberInput, guard *netguard.Guard, now time.Time) error {
	var f faults
	if in.URL != nil {
		f.url(sub, *in.URL, guard)
	} else if sub.URL == "" {
		f.add("url", "", "required", "give the https URL to deliver to")
	}
	if in.Topics != nil {
		f.topics(sub, *in.Topics)
	}
	if in.Headers != nil {
		f.headers(sub, *in.Headers)
	}
	if in.TLS != nil {
		f.tls(sub, in.TLS)
	}
	f.modes(sub, in)
	f.limits(sub, in)
	if in.Retry != nil {
		f.retry(sub, *in.Retry)
	}
	f.signing(sub, in, now)
	if in.Enabled != nil {
		f.enabled(sub, *in.Enabled)
	}
	return f.err()
}

func (f *faults) url(sub *delivery.Subscriber, raw string, guard *netguard.Guard) {
	target, err := guard.ParseTarget(raw)
	if err != nil {
		if fe, ok := errors.AsType[*netguard.FieldError](err); ok {
			f.add("url", fe.Value, ruleText(fe), fe.Hint)
			return
		}
		f.add("url", "***", "must be a URL", "give an absolute https URL")
		return
	}
	sub.URL = target.URL.String()
}

func ruleText(fe *netguard.FieldError) string {
	if denied, ok := errors.AsType[*netguard.DeniedError](fe.Err); ok {
		return denied.Error()
	}
	return string(fe.Rule)
}

func (f *faults) topics(sub *delivery.Subscriber, topics []string) {
	if len(topics) == 0 || len(topics) > maxTopics {
		f.add("topics", strconv.Itoa(len(topics)), fmt.Sprintf("1 to %d patterns", maxTopics), `leave it out for ["*"]`)
		return
	}
	seen := map[string]bool{}
	var clean []string
	for i, p := range topics {
		if !validPattern(p) {
			f.add(fmt.Sprintf("topics[%d]", i), p,
				"dot-separated segments of A-Z a-z 0-9 _ -; the last may be *", `write "order.created", "order.*" or "*"`)
			continue
		}
		if !seen[p] {
			seen[p] = true
			clean = append(clean, p)
		}
	}
	sub.Topics = clean
}

// validPattern accepts a topic, "*", or a topic whose last segment is "*".
func validPattern(p string) bool {
	if p == "*" {
		return true
	}
	return ValidTopic(strings.TrimSuffix(p, ".*"))
}

// ValidTopic accepts dot-separated segments of [A-Za-z0-9_-], 256 bytes at most.
func ValidTopic(topic string) bool {
	if topic == "" || len(topic) > maxTopicLen {
		return false
	}
	for segment := range strings.SplitSeq(topic, ".") {
		if delivery.CheckName(segment) != nil {
			return false
		}
	}
	return true
}

func (f *faults) headers(sub *delivery.Subscriber, headers map[string]string) {
	if len(headers) > maxHeaders {
		f.add("headers", strconv.Itoa(len(headers)), fmt.Sprintf("at most %d", maxHeaders), "remove some")
		return
	}
	clean := make(map[string]string, len(headers))
	for name, value := range headers {
		if err := signing.ValidateHeader(name, value); err != nil {
			if ce, ok := errors.AsType[*signing.ConfigError](err); ok {
				f.add("headers."+clipName(name), "***", ce.Rule, ce.Hint)
			} else {
				f.add("headers."+clipName(name), "***", err.Error(), "change the header")
			}
			continue
		}
		clean[http.CanonicalHeaderKey(name)] = value
	}
	sub.Headers = clean
}

func clipName(name string) string {
	if !utf8.ValidString(name) || len(name) > 64 {
		return "?"
	}
	return name
}

func (f *faults) modes(sub *delivery.Subscriber, in SubscriberInput) {
	if in.Ordering != nil {
		mode, ok := delivery.ParseOrdering(*in.Ordering)
		if !ok {
			f.add("ordering", *in.Ordering, "one of key, strict, none", `"key" keeps order per ordering key`)
		}
		sub.Ordering = mode
	}
	if in.Protocol != nil {
		policy, ok := delivery.ParseProtocolPolicy(*in.Protocol)
		if !ok {
			f.add("protocol", *in.Protocol, "one of auto, h3, tcp, h2, h1", `"auto" lets the selector decide`)
		}
		sub.Protocol = policy
	}
	if in.Priority != nil {
		priority, ok := delivery.ParsePriority(*in.Priority)
		if !ok {
			f.add("priority", *in.Priority, "one of high, normal, low", `leave it out for "normal"`)
		}
		sub.Priority = priority
	}
}

func (f *faults) limits(sub *delivery.Subscriber, in SubscriberInput) {
	if in.Concurrency != nil {
		if sub.Concurrency = *in.Concurrency; sub.Concurrency < 1 || sub.Concurrency > maxConcurrency {
			f.add("concurrency", strconv.Itoa(sub.Concurrency), fmt.Sprintf("1 to %d", maxConcurrency), "leave it out for 8")
		}
	}
	if in.Reserved != nil {
		sub.Reserved = *in.Reserved
	}
	switch {
	case sub.Reserved < 0:
		f.add("reserved_in_flight", strconv.Itoa(sub.Reserved), "0 (none) or more", "leave it out to reserve nothing")
	case sub.Reserved > 1 && sub.Ordering == delivery.OrderingStrict:
		f.add("reserved_in_flight", strconv.Itoa(sub.Reserved), "at most 1 with ordering strict, which has one attempt in flight", "reserve 1 or 0")
	case sub.Reserved > sub.Concurrency:
		f.add("reserved_in_flight", strconv.Itoa(sub.Reserved), fmt.Sprintf("at most concurrency, which is %d", sub.Concurrency), "reserve fewer, or raise concurrency")
	}
	if in.RateLimit != nil {
		f.rate("rate_limit", *in.RateLimit)
		sub.RateLimit = *in.RateLimit
		if sub.RateLimit.PerSecond > 0 && sub.RateLimit.Burst == 0 {
			sub.RateLimit.Burst = max(1, int(sub.RateLimit.PerSecond))
		}
	}
	if in.Timeout != nil {
		sub.Timeout = *in.Timeout
		f.span("timeout", sub.Timeout, minTimeout, maxTimeout)
	}
	if in.DisableAfter != nil {
		sub.DisableAfter = *in.DisableAfter
		f.span("disable_after", sub.DisableAfter, time.Minute, 365*24*time.Hour)
	}
	if in.DisableAfterFailures != nil {
		if sub.DisableAfterFailures = *in.DisableAfterFailures; sub.DisableAfterFailures < 0 {
			f.add("disable_after_failures", strconv.Itoa(sub.DisableAfterFailures), "0 (off) or more", "leave it out to switch it off")
		}
	}
	if in.GiveUpAfter != nil {
		if sub.GiveUpAfter = *in.GiveUpAfter; sub.GiveUpAfter < 0 {
			f.add("give_up_after", strconv.Itoa(sub.GiveUpAfter), "0 (the ladder's end) or more", "leave it out to use the ladder")
		}
	}
}

func (f *faults) rate(field string, r delivery.RateLimit) {
	if !(r.PerSecond >= 0 && r.PerSecond <= 1e6) { // also refuses NaN
		f.add(field+".per_second", strconv.FormatFloat(r.PerSecond, 'g', -1, 64), "0 (no limit) to 1000000", "give deliveries per second")
	}
	if r.Burst < 0 || r.Burst > 1e6 {
		f.add(field+".burst", strconv.Itoa(r.Burst), "0 (one second's worth) to 1000000", "leave it out")
	}
}

func (f *faults) span(field string, d, least, most time.Duration) {
	if d < least || d > most {
		f.add(field, d.String(), fmt.Sprintf("%v to %v", least, most), `write a duration such as "15s" or "120h"`)
	}
}

func (f *faults) retry(sub *delivery.Subscriber, r delivery.Retry) {
	if len(r.Schedule) > 0 && r.Base > 0 {
		f.add("retry", "schedule and base", "either schedule, or base, factor, max and attempts", "remove one of the two")
	}
	if len(r.Schedule) > maxLadder {
		f.add("retry.schedule", strconv.Itoa(len(r.Schedule)), fmt.Sprintf("at most %d steps", maxLadder), "use base and factor for long ladders")
	}
	for i, wait := range r.Schedule {
		f.span(fmt.Sprintf("retry.schedule[%d]", i), wait, 0, maxWait)
	}
	if r.Base != 0 {
		f.span("retry.base", r.Base, time.Millisecond, maxWait)
	}
	if r.Max != 0 {
		f.span("retry.max", r.Max, time.Millisecond, maxWait)
	}
	if r.Factor != 0 && !(r.Factor >= 1 && r.Factor <= 100) {
		f.add("retry.factor", strconv.FormatFloat(r.Factor, 'g', -1, 64), "1 to 100", "leave it out for 2")
	}
	if r.Attempts < 0 || r.Attempts > 1000 {
		f.add("retry.attempts", strconv.Itoa(r.Attempts), "0 (default) to 1000", "leave it out for 10")
	}
	if r.MaxAge != 0 {
		f.span("retry.max_age", r.MaxAge, time.Second, maxMaxAge)
	}
	sub.Retry = r
}

func (f *faults) enabled(sub *delivery.Subscriber, on bool) {
	switch {
	case on && sub.Status != delivery.SubscriberDeleted:
		sub.Status, sub.StatusReason = delivery.SubscriberActive, delivery.ReasonNone
	case !on && sub.Status == delivery.SubscriberActive:
		sub.Status, sub.StatusReason = delivery.SubscriberDisabled, delivery.ReasonOperator
	}
}
