package sched

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// memoryInUse returns what is allocated and what goroutines' stacks take.
func memoryInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// blockingSender holds every attempt until it is released.
type blockingSender struct{ release chan struct{} }

func (b blockingSender) Send(ctx context.Context, _ *delivery.Subscriber, _ *delivery.Event, _ int) delivery.Result {
	select {
	case <-b.release:
	case <-ctx.Done():
	}
	return delivery.Result{Status: 200}
}

// TestMemoryPerSubscriber: one that is idle costs next to nothing, one with an
// attempt in flight some kilobytes, most of it its worker's stack.
func TestMemoryPerSubscriber(t *testing.T) {
	const subs = 20_000
	q, dir := newMemoryQueue(), newFakeDirectory()
	defer close(q.end)
	send := blockingSender{make(chan struct{})}
	for num := 1; num <= subs; num++ {
		dir.put(&delivery.Subscriber{Num: delivery.SubscriberNum(num), Tenant: 1, Version: 1, Concurrency: 8})
	}
	s, err := New(q, dir, send, Config{MaxInFlight: 2 * subs, MaxNew: 2 * subs, MaxRows: 10 * subs})
	if err != nil {
		t.Fatal(err)
	}
	q.s = s
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, goroutines := memoryInUse(), runtime.NumGoroutine()
	for num := 1; num <= subs; num++ {
		s.wake(delivery.SubscriberNum(num), nil)
	}
	for s.inMemory.Load() > 0 {
		runtime.Gosched()
	}
	if per := int64(memoryInUse()-before) / subs; per > 100 {
		t.Errorf("an idle subscriber that was served before costs %d bytes", per)
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines more than before", n-goroutines)
	}
	before = memoryInUse()
	event := &delivery.Event{ID: "e", Tenant: 1, Payload: make([]byte, 100)}
	copy(event.Key[:], keyOf(time.Now()))
	for num := 1; num <= subs; num++ {
		q.publish(&delivery.Published{Event: event, Targets: []delivery.Target{{
			Subscriber: delivery.SubscriberNum(num), Lane: delivery.PriorityNormal,
		}}})
	}
	for s.dispatch.total() < subs {
		runtime.Gosched()
	}
	per := int64(memoryInUse()-before) / subs
	t.Logf("%d bytes per subscriber with an attempt in flight", per)
	if per > 9000 && !raceEnabled {
		t.Errorf("a subscriber with an attempt in flight costs %d bytes: a hundred thousand would need more than 1 GiB with their senders", per)
	}
	close(send.release)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// keyOf is the beginning of an event key of a time.
func keyOf(at time.Time) []byte {
	ms := at.UnixMilli()
	return []byte{byte(ms >> 40), byte(ms >> 32), byte(ms >> 24), byte(ms >> 16), byte(ms >> 8), byte(ms)}
}
