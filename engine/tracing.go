package engine

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Tracing is told of publishes, for spans. Attempts it hears of from the
// scheduler's observer. Without one, a publisher's traceparent goes through
// unchanged and nothing is added.
type Tracing struct {
	// Begin returns the traceparent that an event keeps: that of the publish, in the
	// trace of the one that came with it ("" = none).
	Begin func(incoming string) string
	// Published: a publish ended. It must be quick.
	Published func(PublishedSpan)
}

// PublishedSpan is one event's publish.
type PublishedSpan struct {
	Event      *delivery.Event
	Parent     string // the traceparent that came with it, "" = none
	Start, End time.Time
	Deliveries int
	Err        error
}

// begin returns the traceparent an event keeps.
func (t *Tracing) begin(incoming string) string {
	if t == nil {
		return incoming
	}
	return t.Begin(incoming)
}

// published tells of stored events and of those that could not be stored.
func (t *Tracing) published(start time.Time, event *delivery.Event, parent string, r PublishResult) {
	if t == nil || r.Receipt.Deduplicated {
		return
	}
	t.Published(PublishedSpan{
		Event: event, Parent: traceParent(parent), Start: start, End: time.Now(), Deliveries: r.Receipt.Deliveries, Err: r.Err,
	})
}
