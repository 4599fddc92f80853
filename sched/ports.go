package sched

import (
	"context"
	"iter"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Queue is the durable queue as the scheduler sees it. Reads reflect at least
// all facts whose done was called.
type Queue interface {
	// Ready lists rows of one lane with a sequence above after, in order.
	Ready(sub delivery.SubscriberNum, lane delivery.Priority, after delivery.Seq, limit int) ([]delivery.Row, error)
	// Retrying lists rows that wait for a due time, by (due, seq), after a cursor.
	Retrying(sub delivery.SubscriberNum, afterDue time.Time, afterSeq delivery.Seq, limit int) ([]delivery.Row, error)
	// Parked lists rows that wait behind a head of their key, in order.
	Parked(sub delivery.SubscriberNum, key delivery.KeyHash, after delivery.Seq, limit int) ([]delivery.Row, error)
	// Blocked returns Row.First of the head that blocks a key.
	Blocked(sub delivery.SubscriberNum, key delivery.KeyHash) (head delivery.Seq, ok bool, err error)
	// BlockedKeys lists keys with a head, in a stable order.
	BlockedKeys(sub delivery.SubscriberNum, limit int) ([]delivery.KeyHash, error)
	// Backlogs finds subscribers with ready or parked rows, lazily.
	Backlogs(ctx context.Context) iter.Seq2[delivery.SubscriberNum, error]
	// Wakes lists due times after a cursor, up to and including until.
	Wakes(after delivery.WakeCursor, until time.Time, limit int) ([]delivery.Wake, delivery.WakeCursor, error)
	// NextWake returns the earliest due time that is not before after.
	NextWake(after time.Time) (time.Time, bool, error)
	// Event reads an event; [delivery.ErrEventGone] when it was deleted.
	Event(ctx context.Context, key delivery.EventKey) (*delivery.Event, error)
	// EventPage reads several events at once. out[i] is nil where there is no
	// event, or none any more without exceeding most bytes of payloads.
	EventPage(keys []delivery.EventKey, most int64) (out []*delivery.Event, err error)
	// Health returns what was last committed about a subscriber's health.
	Health(sub delivery.SubscriberNum) (delivery.Health, bool, error)
	// Commit hands facts over. It never blocks; the order of calls is the order
	// of positions. done runs on the committer's goroutine, or inside Commit if the
	// queue takes nothing: it is closed, or is being opened again.
	Commit(facts []delivery.Fact, done func(error))
	// Lease is the right to act that facts and attempts carry.
	Lease() delivery.Lease
}

// Directory answers with configuration records. Values are immutable.
type Directory interface {
	// Subscriber returns the current record; [delivery.ErrNoSubscriber] when
	// there is none.
	Subscriber(num delivery.SubscriberNum) (*delivery.Subscriber, error)
	// Tenant returns the current record; [delivery.ErrNoTenant] when there is none.
	Tenant(num delivery.TenantNum) (*delivery.Tenant, error)
}

// Sender makes one attempt. It returns when the outcome is known, and soon
// after ctx is canceled; the subscriber's timeout is its business.
type Sender interface {
	Send(ctx context.Context, sub *delivery.Subscriber, event *delivery.Event, attempt int) delivery.Result
}

// Limiter holds token buckets. Take must answer within a few milliseconds: the
// caller has an attempt's slot in its hand.
type Limiter interface {
	// Take takes one token from each bucket of the draw, or none at all.
	Take(ctx context.Context, draw Draw) Drawn
}

// Draw names the buckets one attempt needs a token from.
type Draw struct {
	Subscriber      delivery.SubscriberNum
	SubscriberLimit delivery.RateLimit // zero PerSecond = unlimited
	Tenant          delivery.TenantNum
	TenantLimit     delivery.RateLimit // zero PerSecond = unlimited
}

// limited reports whether any bucket is bounded.
func (d Draw) limited() bool { return d.SubscriberLimit.PerSecond > 0 || d.TenantLimit.PerSecond > 0 }

// Drawn is a limiter's answer.
type Drawn struct {
	Wait   time.Duration // 0 = the tokens are yours; otherwise not worth asking before
	Tenant bool          // with Wait: it was the tenant's bucket that was short
}
