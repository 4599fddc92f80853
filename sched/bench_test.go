package sched

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// memoryQueue costs as little as a queue can: publishes go to memory, commits
// are done at once by a goroutine of their own. What is not taken into memory is
// listed once.
type memoryQueue struct {
	s    *Scheduler
	disk map[delivery.SubscriberNum][]delivery.Row
	last *delivery.Event
	pos  delivery.Position
	mu   sync.Mutex
	todo []func(error)
	poke chan struct{}
	end  chan struct{}
}

func newMemoryQueue() *memoryQueue {
	q := &memoryQueue{disk: map[delivery.SubscriberNum][]delivery.Row{}, poke: make(chan struct{}, 1), end: make(chan struct{})}
	go func() {
		var batch []func(error)
		for {
			select {
			case <-q.poke:
			case <-q.end:
				return
			}
			q.mu.Lock()
			batch, q.todo = q.todo, batch[:0]
			q.mu.Unlock()
			for i, done := range batch {
				done(nil)
				batch[i] = nil
			}
		}
	}()
	return q
}

func (q *memoryQueue) Commit(_ []delivery.Fact, done func(error)) {
	q.mu.Lock()
	q.todo = append(q.todo, done)
	first := len(q.todo) == 1
	q.mu.Unlock()
	if first {
		select {
		case q.poke <- struct{}{}:
		default:
		}
	}
}

func (q *memoryQueue) publish(p *delivery.Published) {
	q.s.Admit(p)
	q.pos++
	if t := p.Targets[0]; !t.Leased {
		q.mu.Lock()
		q.last = p.Event
		q.disk[t.Subscriber] = append(q.disk[t.Subscriber], delivery.Row{
			Subscriber: t.Subscriber, Event: p.Event.Key, Lane: t.Lane, Key: t.Key, Seq: q.pos, First: q.pos, EnteredAt: time.Now(),
		})
		q.mu.Unlock()
	}
	q.s.Committed(p, q.pos)
}

func (q *memoryQueue) Ready(sub delivery.SubscriberNum, lane delivery.Priority, after delivery.Seq, limit int) ([]delivery.Row, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	rows := q.disk[sub]
	if len(rows) == 0 || lane != delivery.PriorityNormal {
		return nil, nil
	}
	n := min(limit, len(rows))
	q.disk[sub] = rows[n:]
	return rows[:n], nil
}

func (q *memoryQueue) Retrying(delivery.SubscriberNum, time.Time, delivery.Seq, int) ([]delivery.Row, error) {
	return nil, nil
}

func (q *memoryQueue) Parked(delivery.SubscriberNum, delivery.KeyHash, delivery.Seq, int) ([]delivery.Row, error) {
	return nil, nil
}

func (q *memoryQueue) Blocked(delivery.SubscriberNum, delivery.KeyHash) (delivery.Seq, bool, error) {
	return 0, false, nil
}

func (q *memoryQueue) BlockedKeys(delivery.SubscriberNum, int) ([]delivery.KeyHash, error) {
	return nil, nil
}

func (q *memoryQueue) Backlogs(context.Context) iter.Seq2[delivery.SubscriberNum, error] {
	return func(func(delivery.SubscriberNum, error) bool) {}
}

func (q *memoryQueue) Wakes(after delivery.WakeCursor, _ time.Time, _ int) ([]delivery.Wake, delivery.WakeCursor, error) {
	return nil, after, nil
}

func (q *memoryQueue) NextWake(time.Time) (time.Time, bool, error) { return time.Time{}, false, nil }

func (q *memoryQueue) Event(context.Context, delivery.EventKey) (*delivery.Event, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.last, nil
}

func (q *memoryQueue) EventPage(keys []delivery.EventKey, _ int64) ([]*delivery.Event, error) {
	return make([]*delivery.Event, len(keys)), nil
}

func (q *memoryQueue) Health(delivery.SubscriberNum) (delivery.Health, bool, error) {
	return delivery.Health{}, false, nil
}

func (q *memoryQueue) Lease() delivery.Lease { return delivery.Lease{Node: "n", Epoch: 1} }

// countingSender delivers at once.
type countingSender struct {
	n    atomic.Int64
	want int64
	done chan struct{}
}

func (c *countingSender) Send(context.Context, *delivery.Subscriber, *delivery.Event, int) delivery.Result {
	if c.n.Add(1) == c.want {
		close(c.done)
	}
	return delivery.Result{Status: 200}
}

// BenchmarkScheduledDelivery is everything the scheduler does for a delivery
// that succeeds at once: admission, order, fairness, claim, outcome, commit. The
// publisher keeps at most inFlight ahead, so that the rows stay in memory.
func BenchmarkScheduledDelivery(b *testing.B) {
	for _, subs := range []int{1, 100, 10_000} {
		for _, key := range []string{"", "k"} {
			name := fmt.Sprintf("subscribers=%d/keyed=%v", subs, key != "")
			b.Run(name, func(b *testing.B) { benchmarkDelivery(b, subs, key) })
		}
	}
}

func benchmarkDelivery(b *testing.B, subs int, key string) {
	const ahead = 64
	q, dir := newMemoryQueue(), newFakeDirectory()
	defer close(q.end)
	send := &countingSender{done: make(chan struct{})}
	for num := 1; num <= subs; num++ {
		dir.put(&delivery.Subscriber{Num: delivery.SubscriberNum(num), Tenant: delivery.TenantNum(1 + num%7), Version: 1, Concurrency: 8}) //nolint:gosec // small
	}
	s, err := New(q, dir, send, Config{})
	if err != nil {
		b.Fatal(err)
	}
	q.s = s
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	}()
	// Known subscribers take the fast path; the first touch of each is not
	// measured.
	for num := 1; num <= subs; num++ {
		s.wake(delivery.SubscriberNum(num), nil) //nolint:gosec // small
	}
	for s.inMemory.Load() > 0 {
		runtime.Gosched()
	}
	event := &delivery.Event{ID: "e", Tenant: 1, Payload: make([]byte, 512), OrderingKey: key}
	binary.BigEndian.PutUint64(event.Key[:8], uint64(time.Now().UnixMilli())<<16) //nolint:gosec // positive
	hash := delivery.HashKey(key)
	b.ReportAllocs()
	send.want = int64(b.N) + 1
	published := int64(0)
	for b.Loop() {
		published++
		binary.BigEndian.PutUint64(event.Key[8:], uint64(published)) //nolint:gosec // positive
		p := &delivery.Published{Event: event, Targets: []delivery.Target{{
			Subscriber: delivery.SubscriberNum(1 + published%int64(subs)), Lane: delivery.PriorityNormal, Key: hash, //nolint:gosec // positive
		}}}
		q.publish(p)
		for published-send.n.Load() >= ahead {
			runtime.Gosched()
		}
	}
	for send.n.Load() < published {
		runtime.Gosched()
	}
}
