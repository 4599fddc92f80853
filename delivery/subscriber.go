package delivery

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Ordering says which of a subscriber's deliveries must keep their order.
type Ordering uint8

// Ordering modes. The numbers are stored.
const (
	OrderingKeyed  Ordering = 0 // default: events with the same ordering key, one at a time
	OrderingStrict Ordering = 1 // the whole subscriber is one key
	OrderingNone   Ordering = 2 // up to Concurrency in flight, any order
)

var orderingNames = [...]string{"key", "strict", "none"}

// String returns the wire name.
func (o Ordering) String() string {
	if int(o) < len(orderingNames) {
		return orderingNames[o]
	}
	return "invalid"
}

// ParseOrdering reads a wire name.
func ParseOrdering(s string) (Ordering, bool) {
	for i, name := range orderingNames {
		if s == name {
			return Ordering(i), true //nolint:gosec // three names
		}
	}
	return OrderingKeyed, false
}

// ProtocolPolicy says which protocols a subscriber may be reached over.
type ProtocolPolicy uint8

// Protocol policies. The numbers are stored.
const (
	ProtocolAuto ProtocolPolicy = 0 // the selector decides
	ProtocolH3   ProtocolPolicy = 1 // HTTP/3 only, no fallback
	ProtocolTCP  ProtocolPolicy = 2 // HTTP/2 or HTTP/1.1 by ALPN
	ProtocolH2   ProtocolPolicy = 3
	ProtocolH1   ProtocolPolicy = 4
)

var protocolPolicyNames = [...]string{"auto", "h3", "tcp", "h2", "h1"}

// String returns the wire name.
func (p ProtocolPolicy) String() string {
	if int(p) < len(protocolPolicyNames) {
		return protocolPolicyNames[p]
	}
	return "invalid"
}

// ParseProtocolPolicy reads a wire name.
func ParseProtocolPolicy(s string) (ProtocolPolicy, bool) {
	for i, name := range protocolPolicyNames {
		if s == name {
			return ProtocolPolicy(i), true //nolint:gosec // five names
		}
	}
	return ProtocolAuto, false
}

// DefaultSchedule is the retry ladder of a subscriber that sets none: about
// three days.
var DefaultSchedule = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour,
	10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
}

// Retry is a subscriber's retry ladder: an explicit Schedule (±10 % jitter) or
// exponential growth with full jitter. Zero value: [DefaultSchedule].
type Retry struct {
	Schedule []time.Duration // waits after attempt 1, 2 …; nil with Base 0 = DefaultSchedule
	Base     time.Duration   // first ceiling of the exponential ladder; 0 = use Schedule
	Factor   float64         // growth per attempt; 0 = 2
	Max      time.Duration   // ceiling of one wait; 0 = 24 h
	Attempts int             // attempts in all with Base; 0 = 10
	MaxAge   time.Duration   // dead (expired) after this age; 0 = DefaultMaxAge
}

// DefaultMaxAge is after which age a delivery is dead (expired), unless the
// subscriber says otherwise: the default ladder's sum (75 h 35 min 5 s) plus a
// tenth for jitter, and slack for waits that use up no attempts.
const DefaultMaxAge = 96 * time.Hour

// Defaults of a subscriber's policy.
const (
	DefaultConcurrency  = 8
	DefaultTimeout      = 15 * time.Second
	DefaultDisableAfter = 120 * time.Hour
)

// RateLimit is a token bucket over deliveries. Zero PerSecond = unlimited.
type RateLimit struct {
	PerSecond float64
	Burst     int
}

// SigningScheme is one entry of a subscriber's signing list. The secrets live
// beside it in Secrets, newest first.
type SigningScheme struct {
	Scheme  string   // a name known to package signing
	Header  string   // header name where the scheme lets one choose; "" = its own
	Secrets []Secret // newest first; the others are inside their rotation window
}

// Secret is one signing secret in plain text in memory. It never reaches a log,
// a listing or the disk in this form.
type Secret struct {
	Value     string
	CreatedAt time.Time
	ExpiresAt time.Time // zero = current; otherwise signs until then
}

// String hides the value.
func (Secret) String() string { return "***" }

// Format hides the value from every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "***") }

// SubscriberStatus is whether a subscriber takes deliveries.
type SubscriberStatus uint8

// Subscriber statuses. The numbers are stored.
const (
	SubscriberActive   SubscriberStatus = 0
	SubscriberPaused   SubscriberStatus = 1 // by an operator, until resumed
	SubscriberDisabled SubscriberStatus = 2 // by the dispatcher (gone, failing too long), until enabled
	SubscriberDeleted  SubscriberStatus = 3
)

var subscriberStatusNames = [...]string{"active", "paused", "disabled", "deleted"}

// String returns the wire name.
func (s SubscriberStatus) String() string {
	if int(s) < len(subscriberStatusNames) {
		return subscriberStatusNames[s]
	}
	return "invalid"
}

// Subscriber is an endpoint of a tenant with its policy, defaults filled in.
// A value that an actor or a sender holds is immutable: a change makes a new
// one with a higher Version.
type Subscriber struct {
	Num     SubscriberNum
	Tenant  TenantNum
	ID      string // public id, unique inside the tenant
	Version uint64 // raised by every change of the record

	URL      string
	Topics   []string
	Signing  []SigningScheme
	TLS      *TLSMaterial      // nil = system roots, no client certificate
	Headers  map[string]string // extra headers, canonical names
	Ordering Ordering
	// Concurrency bounds attempts in flight. With OrderingStrict it is 1.
	Concurrency int
	// Reserved is how many of them nobody else can take, at most Concurrency.
	Reserved             int
	RateLimit            RateLimit
	Retry                Retry
	GiveUpAfter          int           // attempts after which a failing head is dead; 0 = the ladder's end
	DisableAfter         time.Duration // failing for this long without a success disables
	DisableAfterFailures int           // consecutive failures that disable; 0 = off
	Timeout              time.Duration // one attempt, dial to body
	Protocol             ProtocolPolicy
	Priority             Priority
	Status               SubscriberStatus
	StatusReason         Reason // why it is paused or disabled
	CreatedAt            time.Time
	UpdatedAt            time.Time
}

// Lane returns the lane in which an event's row is stored for this subscriber.
// PriorityNormal stands for "the subscriber's own priority", whatever that is
// when the row is served; the other lanes are for free rows whose publisher
// named a priority. Rows with an ordering key never leave the common lane, so
// that priority cannot overtake order.
func (s *Subscriber) Lane(e *Event) Priority {
	if e.PrioritySet && s.KeyFor(e.OrderingKey) == 0 {
		return e.Priority
	}
	return PriorityNormal
}

// Effective returns the priority a stored lane is served with.
func (s *Subscriber) Effective(lane Priority) Priority {
	if lane == PriorityNormal {
		return s.Priority
	}
	return lane
}

// KeyFor returns the ordering key hash of an event for this subscriber. A
// strict subscriber has one key for everything, an unordered one none.
func (s *Subscriber) KeyFor(orderingKey string) KeyHash {
	switch s.Ordering {
	case OrderingStrict:
		return StrictKey
	case OrderingNone:
		return 0
	default:
		return HashKey(orderingKey)
	}
}

// StrictKey is the key hash of every row of a strict subscriber.
const StrictKey KeyHash = 1

// MatchTopic reports whether a topic matches a subscriber's pattern. "*" and a
// trailing ".*" match one or more segments; operational topics ("dispatcher.…")
// must be named: "*" does not match them.
func MatchTopic(pattern, topic string) bool {
	if pattern == topic {
		return true
	}
	if pattern == "*" {
		return topic != "" && !IsOperational(topic)
	}
	prefix, ok := strings.CutSuffix(pattern, "*")
	return ok && strings.HasSuffix(prefix, ".") && len(topic) > len(prefix) && strings.HasPrefix(topic, prefix)
}

// OperationalPrefix begins the topics of the dispatcher's own events.
const OperationalPrefix = "dispatcher."

// IsOperational reports whether a topic is one of the dispatcher's own.
func IsOperational(topic string) bool { return strings.HasPrefix(topic, OperationalPrefix) }

// Tenant is a customer of the platform: the unit of isolation and quota.
type Tenant struct {
	Num       TenantNum
	ID        string
	Version   uint64
	Name      string
	Weight    int       // share of the fair queue; 0 = 1
	RateLimit RateLimit // over all its deliveries
	MaxShare  int       // attempts in flight it may have; 0 = no own bound
	Reserved  int       // attempts in flight that others cannot take
	CreatedAt time.Time
	UpdatedAt time.Time
}
