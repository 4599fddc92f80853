package delivery

import (
	"errors"
	"fmt"
	"time"
)

// Errors of the store that its users tell apart.
var (
	// ErrEventGone: the event was deleted, or its retention has passed.
	ErrEventGone = errors.New("event is gone")
	// ErrNoSubscriber: no such subscriber, or it was deleted.
	ErrNoSubscriber = errors.New("no such subscriber")
	// ErrNoTenant: no such tenant, or it was deleted.
	ErrNoTenant = errors.New("no such tenant")
	// ErrNoDelivery: the event was not for that subscriber, or both are gone.
	ErrNoDelivery = errors.New("no such delivery")
	// ErrClosed: the store is closed, or closing.
	ErrClosed = errors.New("store is closed")
	// ErrNotReady: the store cannot write until it is opened again; the wrapping
	// error says why.
	ErrNotReady = errors.New("store is not ready")
	// ErrUnknownCommit: the caller stopped waiting while the commit was running.
	// The event may have been stored; publishing it again under the same id is
	// answered as a duplicate if so.
	ErrUnknownCommit = errors.New("commit outcome is unknown")
	// ErrConflict is wrapped by [ConflictError].
	ErrConflict = errors.New("same id, other content")
	// ErrStoreFull is wrapped by [StoreFullError].
	ErrStoreFull = errors.New("store is full")
	// ErrState: the delivery's state does not allow what was asked (replaying what
	// is pending, or a delivered one without force).
	ErrState = errors.New("delivery is in another state")
)

// ConflictError: an event with the same id and other content was accepted
// before, inside the dedupe window.
type ConflictError struct {
	ID       string   // as published
	Existing EventKey // the event that has the id
}

// Error implements error.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("publish %q: %v as event %s", clip(e.ID), ErrConflict, e.Existing)
}

// Unwrap returns [ErrConflict].
func (e *ConflictError) Unwrap() error { return ErrConflict }

// StoreFullError: free disk space is below the watermark. Deliveries go on and
// make room.
type StoreFullError struct {
	Free       uint64        // bytes that are free
	Watermark  uint64        // bytes that must be
	RetryAfter time.Duration // what to tell the publisher
}

// Error implements error.
func (e *StoreFullError) Error() string {
	return fmt.Sprintf("%v: its disk has %d bytes free, publishes need %d; retry in %s", ErrStoreFull, e.Free, e.Watermark, e.RetryAfter)
}

// Unwrap returns [ErrStoreFull].
func (e *StoreFullError) Unwrap() error { return ErrStoreFull }

// Receipt answers one published event. With a nil Err the event is durable.
type Receipt struct {
	Event        EventKey // internal key; with Deduplicated the first event's
	ID           string   // public id; with Deduplicated the first event's
	Position     Position // zero with Deduplicated
	Deliveries   int      // deliveries it fans out to; with Deduplicated the first event's
	Deduplicated bool     // the same event was accepted before
	Err          error    // see [ConflictError], [StoreFullError], [ErrNotReady], [ErrUnknownCommit]
}

// Wake says that a subscriber has a row whose due time comes at Due.
type Wake struct {
	Due        time.Time
	Subscriber SubscriberNum
}

// WakeCursor is a place in the order of wakes: by due time, then by
// subscriber. The zero value stands before all of them.
type WakeCursor struct {
	Due        time.Time
	Subscriber SubscriberNum
}
