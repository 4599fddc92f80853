package engine

import (
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestWithoutTracingAPublishersTraceGoesThroughAndCostsNothing(t *testing.T) {
	const incoming = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	e, s := &Engine{}, &sender{}
	event, sub := &delivery.Event{TraceParent: incoming}, &delivery.Subscriber{Num: 1}
	now := time.Now()
	allocs := testing.AllocsPerRun(100, func() {
		if e.config.Tracing.begin(incoming) != incoming || s.traceParent(sub, event, 1) != incoming {
			t.Error("the trace was changed")
		}
		e.config.Tracing.published(now, event, incoming, PublishResult{})
	})
	if allocs != 0 {
		t.Errorf("%v allocations for an event without tracing", allocs)
	}
}
