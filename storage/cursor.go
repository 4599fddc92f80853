package storage

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// ErrBadCursor: the cursor is not one that this listing gave out.
var ErrBadCursor = errors.New("malformed cursor")

// Filter says which deliveries or dead letters are listed. Zero fields ask for
// nothing.
type Filter struct {
	Event      delivery.EventKey
	Subscriber delivery.SubscriberNum
	Tenant     delivery.TenantNum
	States     []delivery.State
	Reason     delivery.Reason
	Signature  string    // of dead letters
	Topic      string    // a pattern, see [delivery.MatchTopic]
	Since      time.Time // the event was accepted at or after it
	Until      time.Time // the event was accepted before it
	DiedBefore time.Time // the delivery died before it; of dead letters
}

// ErrBadFilter: the filter names neither an event, nor a subscriber, nor a
// tenant, and no listing scans everything.
var ErrBadFilter = errors.New("filter needs an event, a subscriber or a tenant")

// Page is one page of a listing. Next continues it; "" = there is no more. A page
// may hold fewer items than asked for, even none, and still have a Next: the
// number of rows that are looked at for one page is bounded.
type Page struct {
	Items []Summary
	Next  string
}

// rowsPerPage bounds how many rows are looked at for one page.
const rowsPerPage = 4096

// Bounds of a page's length.
const (
	defaultLimit = 100
	maxLimit     = 1000
)

func clampLimit(n int) int {
	if n <= 0 {
		return defaultLimit
	}
	return min(n, maxLimit)
}

// Kinds of cursor.
const (
	cursorEvent      byte = 'e'
	cursorSubscriber byte = 's'
	cursorTenant     byte = 't'
	cursorEvents     byte = 'v'
	cursorDead       byte = 'x'
)

// cursor is a place in a listing: the listing goes on after it.
type cursor struct {
	kind  byte
	event delivery.EventKey
	hour  hour
	sub   delivery.SubscriberNum
	index uint64 // of dead letters: the time of death
}

func (c cursor) String() string {
	b := append([]byte{codecVersion, c.kind}, c.event[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(c.hour))
	b = binary.AppendUvarint(b, uint64(c.sub))
	b = binary.AppendUvarint(b, c.index)
	return base64.RawURLEncoding.EncodeToString(b)
}

// parseCursor reads a cursor of a kind; "" is the zero cursor of that kind.
func parseCursor(s string, kind byte) (cursor, error) {
	if s == "" {
		return cursor{kind: kind}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(s) > 100 {
		return cursor{}, ErrBadCursor
	}
	d := decoder{b: raw}
	d.version("cursor")
	c := cursor{kind: d.byte(), event: d.eventKey()}
	c.hour, c.sub, c.index = hour(d.uint32()), delivery.SubscriberNum(d.uvarint()), d.uvarint()
	if d.end("cursor") != nil || c.kind != kind {
		return cursor{}, fmt.Errorf("cursor of %d bytes: %w", len(raw), ErrBadCursor)
	}
	return c, nil
}

// inTime reports whether an event was accepted in the filter's time.
func (f *Filter) inTime(k delivery.EventKey) bool {
	t := k.Time()
	return (f.Since.IsZero() || !t.Before(f.Since)) && (f.Until.IsZero() || t.Before(f.Until))
}

// matchesEvent reports whether what is known of an event passes the filter.
func (f *Filter) matchesEvent(e *delivery.Event) bool {
	if e == nil {
		return f.Topic == ""
	}
	return (f.Tenant == 0 || e.Tenant == f.Tenant) && (f.Topic == "" || delivery.MatchTopic(f.Topic, e.Topic))
}

// matchesState reports whether a delivery's state passes the filter.
func (f *Filter) matchesState(s *Summary) bool {
	if f.Reason != 0 && s.Reason != f.Reason || f.Signature != "" && s.Signature != f.Signature {
		return false
	}
	return len(f.States) == 0 || slices.Contains(f.States, s.State)
}

// upperEvent is the smallest event key that the filter's time excludes at its
// end, or the largest key there is.
func (f *Filter) upperEvent() delivery.EventKey {
	if !f.Until.IsZero() {
		return firstEventKey(f.Until)
	}
	return lastEventKey
}

// lastEventKey stands behind every key that there will ever be.
var lastEventKey = delivery.EventKey(bytes.Repeat([]byte{0xFF}, len(delivery.EventKey{})))
