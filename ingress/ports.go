package ingress

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// ErrUnknownSource is what [Sources] returns for a tenant or source that does
// not exist. Any other error means that nobody knows at the moment.
var ErrUnknownSource = errors.New("no such tenant or source")

// Enqueuer makes messages durable. The engine is one.
type Enqueuer interface {
	// Ready returns nil while messages are taken. It is asked before a body is
	// read and has to be cheap.
	Ready() error
	// Enqueue returns when the message is on disk, or repeats one that is. Any
	// error means that it is not known to be:
	//
	//   - wrapping [delivery.ErrConflict]: the id was accepted with another body;
	//   - wrapping [delivery.ErrStoreFull]: there is no room;
	//   - wrapping [delivery.ErrNoTenant] or [ErrUnknownSource]: it was deleted;
	//   - anything else: it failed, or ctx ended first.
	//
	// A body in a file belongs to the Enqueuer once it is needed later; see
	// [SpoolFile]. Body bytes in memory may be kept, and are never changed.
	Enqueue(ctx context.Context, m *Message) (Receipt, error)
}

// Receipt answers an enqueued message.
type Receipt struct {
	ID           string // public event id; with Deduplicated the first event's
	Deduplicated bool
}

// Sources reads the configuration of sources. The engine is one, over its
// store; [ControlPlane] is another.
type Sources interface {
	// Source returns a source that is not changed afterwards, or
	// [ErrUnknownSource]. It is called for what the cache does not hold; ctx
	// carries the deadline.
	Source(ctx context.Context, tenant, source string) (*Source, error)
}

// Spool makes files for bodies that are too large for memory.
type Spool interface {
	// Create opens a new empty file.
	Create(ctx context.Context) (SpoolFile, error)
}

// SpoolFile is a body on its way through the checks. It is written once, then
// read. Nobody has verified yet what is in it.
type SpoolFile interface {
	io.Writer
	io.ReaderAt
	// Discard removes the file. It is called once at the end of every request:
	// of a file that the [Enqueuer] has taken over it must leave the bytes alone.
	Discard() error
}

// Quota limits how many messages are processed, per tenant or source.
// [LocalQuota] is one; several nodes share one through a common store.
type Quota interface {
	// Reserve takes one message out of key's bucket. An error counts as "within
	// quota": what shares the limit may be down, and then accepting is right.
	Reserve(ctx context.Context, key QuotaKey, limit delivery.RateLimit) (Reservation, error)
}

// QuotaKey names a bucket.
type QuotaKey struct {
	Tenant string
	Source string // "" = the tenant's bucket over all its sources
}

// Reservation is one message taken out of a bucket.
type Reservation struct {
	// Wait is how long the message has to wait to be within the limit; 0 = it is.
	Wait time.Duration
	// Cancel puts the message back, because it was a duplicate or was not stored.
	// Nil = there is nothing to put back.
	Cancel func()
}

func (r Reservation) cancel() {
	if r.Cancel != nil {
		r.Cancel()
	}
}
