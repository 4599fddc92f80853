package engine

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Page is a slice of a list: at most Limit rows after Cursor.
type Page struct {
	Limit  int    // 1 to 1000
	Cursor string // opaque, from the previous page; "" = first
}

// TenantInput is what PUT /v1/tenants/{tenant} takes; zero values mean default.
type TenantInput struct {
	Name      string
	Weight    int
	RateLimit *delivery.RateLimit
	MaxShare  int
	Reserved  int
}

// SubscriberInput is a new subscriber or a patch: nil means "not given".
type SubscriberInput struct {
	ID                   *string
	URL                  *string
	Topics               *[]string
	Secret               *string // of the default scheme
	TLS                  *delivery.TLSMaterial
	Signing              *[]SigningInput
	Headers              *map[string]string
	Ordering             *string
	Concurrency          *int
	Reserved             *int
	RateLimit            *delivery.RateLimit
	Retry                *delivery.Retry
	GiveUpAfter          *int
	DisableAfter         *time.Duration
	DisableAfterFailures *int
	Timeout              *time.Duration
	Protocol             *string
	Priority             *string
	Enabled              *bool
}

// SigningInput is one entry of a subscriber's signing list.
type SigningInput struct {
	Scheme string
	Secret string // "" = make one
	Header string
}

// RotateInput says how to rotate a secret.
type RotateInput struct {
	Scheme string        // "" = the first of the list
	Secret string        // "" = make one
	Keep   time.Duration // how long the old one stays valid; 0 = 24 h
}

// SubscriberStatus is what an operator wants to know about a subscriber now.
type SubscriberStatus struct {
	Breaker      string
	InFlight     int
	Waiting      delivery.Reason // why nothing goes, ReasonNone if it does
	NextDue      time.Time
	FailingSince time.Time
	LastSuccess  time.Time
	Consecutive  int
}

// EventInput is an event to publish.
type EventInput struct {
	ID          string // "" = made
	Topic       string
	Payload     []byte // sent exactly as given
	ContentType string // "" = application/json
	OrderingKey string
	Priority    string // "" = the subscriber's
	Subscribers []string
	DeliverAt   time.Time
	TraceParent string

	operational bool // one of the dispatcher's own
	urgent      bool // see [delivery.Published]
}

// Receipt answers a publish.
type Receipt struct {
	ID           string
	Key          delivery.EventKey
	Deliveries   int
	Deduplicated bool
}

// PublishResult is one line of a batch's answer.
type PublishResult struct {
	Receipt Receipt
	Err     error
}

// DeliveryFilter narrows a list; zero fields do not filter.
type DeliveryFilter struct {
	Tenant     string
	Subscriber string
	State      string
	Reason     string
	Topic      string // a pattern
	Signature  string // of dead letters, see [DeadGroup]
	Since      time.Time
	Until      time.Time
}

// DeliveryInfo is a delivery as lists show it.
type DeliveryInfo struct {
	ID          string // public delivery id
	Event       *delivery.Event
	Tenant      string
	Subscriber  string
	State       delivery.State
	Reason      delivery.Reason
	Attempts    int
	NextAttempt time.Time // with retrying
	UpdatedAt   time.Time
	PayloadHash string // sha-256 of the payload, hex; "" when unknown
	Signature   string // with dead: what it died of, see [DeadGroup]
}

// ReplayInput says how to replay many.
type ReplayInput struct {
	Since, Until time.Time
	PerSecond    float64 // 0 = no limit
	Force        bool    // delivered ones too
	Limit        int     // 0 = all
	Cursor       string  // go on after a previous call
	// Progress is called now and then with how many were replayed so far; nil =
	// nobody asks.
	Progress func(replayed int)
}

// ReplayResult tells what a bulk replay did.
type ReplayResult struct {
	Replayed int
	Cursor   string // resume here when Limit stopped it, "" = done
}

// ErrNotFound says that a tenant, subscriber, event or delivery does not exist.
var ErrNotFound = errors.New("not found")

// ConflictError is a request that contradicts what is stored: the same event id
// with other content, an id that exists, a record changed meanwhile.
type ConflictError struct {
	Field string
	Value string
	Rule  string
	Hint  string
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("conflict: %s %q: %s (%s)", e.Field, e.Value, e.Rule, e.Hint)
}

// FieldError names one bad field: what was given, which rule it breaks and how
// to mend it. Value never holds a secret; give "***" instead.
type FieldError struct {
	Field string `json:"field" doc:"where: a.b[0] of the body, a parameter, a header"`
	Value string `json:"value" doc:"what was sent; *** where that may be a secret"`
	Rule  string `json:"rule" doc:"what it broke"`
	Hint  string `json:"hint" doc:"how to mend it"`
}

// InvalidError is input that no retry can make good.
type InvalidError struct {
	Fields []FieldError
}

// Error implements error.
func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = fmt.Sprintf("%s %q: %s (%s)", f.Field, f.Value, f.Rule, f.Hint)
	}
	return "invalid: " + strings.Join(parts, "; ")
}

// UnavailableError is a request that may succeed later: nothing was stored.
type UnavailableError struct {
	Reason     string
	RetryAfter time.Duration
}

// Error implements error.
func (e *UnavailableError) Error() string { return "unavailable: " + e.Reason }
