package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/ingress/origin"
)

// fakeOrigin answers batches by what is in them.
type fakeOrigin struct {
	mu      sync.Mutex
	answer  func(ids []string) delivery.Result
	batches []string // ids of each, in order
}

func (o *fakeOrigin) post(_ context.Context, _ *prepared, calls []*call) delivery.Result {
	ids := make([]string, len(calls))
	for i, c := range calls {
		ids[i] = c.event.ID
	}
	o.mu.Lock()
	o.batches = append(o.batches, strings.Join(ids, ","))
	o.mu.Unlock()
	return o.answer(ids)
}

func status(code int) delivery.Result {
	return delivery.Result{Status: code, Sent: delivery.SentProcessed}
}

// poisoned answers 200 unless a batch has one of the given events.
func poisoned(result delivery.Result, events ...string) func([]string) delivery.Result {
	return func(ids []string) delivery.Result {
		if slices.ContainsFunc(ids, func(id string) bool { return slices.Contains(events, id) }) {
			return result
		}
		return status(200)
	}
}

func calls(n, attempt int) []*call {
	out := make([]*call, n)
	for i := range out {
		out[i] = &call{event: origin.Event{ID: fmt.Sprint(i)}, attempt: attempt, size: 100, done: make(chan struct{})}
	}
	return out
}

func originPrepared() *prepared {
	return &prepared{sub: &delivery.Subscriber{Num: 1, ID: "origin-x", Timeout: time.Second}}
}

// found counts the classes of results.
func found(list []*call) map[delivery.Class]int {
	out := map[delivery.Class]int{}
	for _, c := range list {
		out[delivery.Classify(c.result, time.Now()).Class]++
	}
	return out
}

func TestSearchFindsTheEventAtFaultAndNoOther(t *testing.T) {
	hang := delivery.Result{Sent: delivery.SentAmbiguous, Cause: delivery.CauseTimeout}
	refused := delivery.Result{Sent: delivery.SentNever, Cause: delivery.CauseConnect}
	class := func(c delivery.Class, n int) map[delivery.Class]int { return map[delivery.Class]int{c: n} }
	for name, c := range map[string]struct {
		n, attempt int
		answer     func([]string) delivery.Result
		want       map[delivery.Class]int
		most       int // requests
	}{
		"all is well":                    {50, 1, poisoned(status(500)), class(delivery.ClassDelivered, 50), 1},
		"one is refused":                 {50, 1, poisoned(status(422), "17"), map[delivery.Class]int{delivery.ClassDelivered: 49, delivery.ClassRejected: 1}, 13},
		"two are refused":                {50, 1, poisoned(status(400), "3", "49"), map[delivery.Class]int{delivery.ClassDelivered: 48, delivery.ClassRejected: 2}, 25},
		"one breaks it, the first time":  {50, 1, poisoned(status(500), "17"), class(delivery.ClassRetry, 50), 1},
		"one breaks it, the second time": {50, 2, poisoned(status(500), "17"), map[delivery.Class]int{delivery.ClassDelivered: 49, delivery.ClassRetry: 1}, 13},
		"one hangs it, the second time":  {50, 2, poisoned(hang, "0"), map[delivery.Class]int{delivery.ClassDelivered: 49, delivery.ClassUnknown: 1}, 13},
		"it fails for everything":        {50, 2, func([]string) delivery.Result { return status(500) }, class(delivery.ClassRetry, 50), 3},
		"it refuses everything":          {4, 1, func([]string) delivery.Result { return status(400) }, class(delivery.ClassRejected, 4), 7},
		"it is not there":                {50, 2, func([]string) delivery.Result { return refused }, class(delivery.ClassRetry, 50), 1},
		"it asks for patience":           {50, 2, func([]string) delivery.Result { return status(429) }, class(delivery.ClassThrottled, 50), 1},
		"it is gone":                     {50, 1, func([]string) delivery.Result { return status(410) }, map[delivery.Class]int{delivery.ClassGone: 1, delivery.ClassRetry: 49}, 1},
		"one alone is refused":           {1, 1, poisoned(status(400), "0"), class(delivery.ClassRejected, 1), 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := &fakeOrigin{answer: c.answer}
			list := calls(c.n, c.attempt)
			newSearch(o.post, originPrepared(), list).run(t.Context())
			if got := found(list); fmt.Sprint(got) != fmt.Sprint(c.want) || len(o.batches) > c.most {
				t.Errorf("%v after %d requests, want %v after at most %d", got, len(o.batches), c.want, c.most)
			}
		})
	}
}

// TestASearchThatEndsEarlyKillsNoInnocentEvent: the origin goes away while the
// event at fault is being looked for.
func TestASearchThatEndsEarlyKillsNoInnocentEvent(t *testing.T) {
	for after := 1; after < 13; after++ {
		o := &fakeOrigin{}
		bad := poisoned(status(400), "17")
		o.answer = func(ids []string) delivery.Result {
			if len(o.batches) > after {
				return delivery.Result{Sent: delivery.SentNever, Cause: delivery.CauseConnect}
			}
			return bad(ids)
		}
		list := calls(50, 1)
		newSearch(o.post, originPrepared(), list).run(t.Context())
		for _, c := range list {
			class := delivery.Classify(c.result, time.Now()).Class
			if class == delivery.ClassRejected && c.event.ID != "17" {
				t.Errorf("away after %d requests: event %s is dead", after, c.event.ID)
			}
		}
	}
}

func TestASearchHasOneDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		slow := func(ctx context.Context, _ *prepared, _ []*call) delivery.Result {
			<-ctx.Done()
			r := delivery.Result{}
			fillFailure(&r, &delivery.SendError{Sent: delivery.SentAmbiguous, Cause: delivery.CauseTimeout}, ctx)
			return r
		}
		list := calls(50, 2)
		newSearch(slow, originPrepared(), list).run(t.Context())
		if took := time.Since(started); took > 3*time.Second {
			t.Errorf("took %v", took)
		}
		if got := found(list); got[delivery.ClassUnknown] != 50 {
			t.Errorf("%v: a deadline of ours is no stop", got)
		}
	})
}

func TestBatchesGoOutAtFiftyEventsOrAfterTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &fakeOrigin{answer: poisoned(status(500))}
		b, started := newBatches(o.post), time.Now()
		p := originPrepared()
		var wg sync.WaitGroup
		send := func(list []*call) {
			for _, c := range list {
				wg.Go(func() {
					if r := b.send(t.Context(), p, c); r.Status != 200 {
						t.Errorf("%+v", r)
					}
				})
			}
		}
		send(calls(50, 1))
		wg.Wait()
		if took := time.Since(started); took != 0 || len(o.batches) != 1 {
			t.Errorf("fifty: %d batches after %v", len(o.batches), took)
		}
		started = time.Now()
		send(calls(3, 1))
		wg.Wait()
		if took := time.Since(started); took != 2*time.Second || len(o.batches) != 2 {
			t.Errorf("three: %d batches after %v", len(o.batches), took)
		}
		large := calls(3, 1)
		for _, c := range large {
			c.size = batchBytes * 2 / 3
		}
		send(large)
		wg.Wait()
		if len(o.batches) != 5 {
			t.Errorf("three large ones made %d batches", len(o.batches)-2)
		}
		if len(b.open) != 0 {
			t.Errorf("%d gatherings were left", len(b.open))
		}
	})
}

func TestAStopEndsTheWaitForOthersAtNoCost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := newBatches(func(ctx context.Context, _ *prepared, _ []*call) delivery.Result {
			r := delivery.Result{}
			fillFailure(&r, &delivery.SendError{Sent: delivery.SentNever, Cause: delivery.CauseConnect}, ctx)
			return r
		})
		list := calls(3, 1)
		var wg sync.WaitGroup
		for _, c := range list {
			wg.Go(func() { b.send(ctx, originPrepared(), c) })
		}
		synctest.Wait()
		cancel()
		wg.Wait()
		if got := found(list); got[delivery.ClassInterrupted] != 3 {
			t.Errorf("%v", got)
		}
	})
}

func TestAPanicOfTheSenderLeavesNobodyWaiting(t *testing.T) {
	b := newBatches(func(context.Context, *prepared, []*call) delivery.Result { panic("broken") })
	list := calls(batchEvents, 1)
	var wg sync.WaitGroup
	for _, c := range list {
		wg.Go(func() {
			defer func() { _ = recover() }()
			b.send(t.Context(), originPrepared(), c)
		})
	}
	wg.Wait()
	if got := found(list); got[delivery.ClassRetry] != batchEvents {
		t.Errorf("%v", got)
	}
}
