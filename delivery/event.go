package delivery

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// Priority is the lane an event or a subscriber asks for.
type Priority uint8

// Priorities, in the order in which lanes are served. The numbers are stored.
const (
	PriorityHigh   Priority = 0
	PriorityNormal Priority = 1
	PriorityLow    Priority = 2
)

// Lanes is the number of priorities.
const Lanes = 3

var priorityNames = [Lanes]string{"high", "normal", "low"}

// String returns the wire name.
func (p Priority) String() string {
	if int(p) < len(priorityNames) {
		return priorityNames[p]
	}
	return "invalid"
}

// ParsePriority reads a wire name.
func ParsePriority(s string) (Priority, bool) {
	for i, name := range priorityNames {
		if s == name {
			return Priority(i), true //nolint:gosec // three names
		}
	}
	return PriorityNormal, false
}

// Event is what a platform published. It is immutable once accepted.
type Event struct {
	Key         EventKey  // internal UUIDv7; orders storage
	ID          string    // public id: webhook-id on the wire; see CheckEventID
	Tenant      TenantNum // owner
	Topic       string    // dot-separated segments
	ContentType string    // of Payload
	Payload     []byte    // sent exactly as given; nil when Spool is set
	OrderingKey string    // "" = free
	Priority    Priority  // lane; PriorityNormal unless asked
	PrioritySet bool      // the publisher named Priority; otherwise the subscriber's counts
	DeliverAt   time.Time // zero = now
	TraceParent string    // W3C trace context of the publish, "" = none
	Spool       string    // name of the spool file that holds a large payload, "" = inline
	Size        int64     // payload bytes, inline or spooled
	Headers     []Header  // of the request it came in, to go on with it; sorted, at most MaxEventHeaders
}

// Header is a header that goes on with an event.
type Header struct {
	Name  string // canonical
	Value string
}

// MaxEventHeaders bounds [Event].Headers.
const MaxEventHeaders = 32

// AcceptedAt returns when the event was accepted, to the millisecond.
func (e *Event) AcceptedAt() time.Time { return e.Key.Time() }

// KeyHash identifies an ordering key inside one subscriber. Zero means "free".
// Two keys with the same hash share one order, which is stricter than asked and
// never wrong.
type KeyHash uint64

// HashKey returns the hash of an ordering key; "" gives zero, every other key a
// value that is not zero. The function is part of the store format.
func HashKey(key string) KeyHash {
	if key == "" {
		return 0
	}
	h := fnv.New128a()
	_, _ = h.Write([]byte(key))
	sum := h.Sum(nil)
	v := binary.BigEndian.Uint64(sum[:8]) ^ binary.BigEndian.Uint64(sum[8:])
	if v == 0 {
		v = 1
	}
	return KeyHash(v)
}
