package sched

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// backlogged publishes n events for one subscriber in one go: all but the first
// few go by the queue.
func backlogged(r *rig, n int) {
	r.t.Helper()
	var events []*delivery.Published
	for i := range n {
		events = append(events, r.fact(r.event(fmt.Sprint("e", i), nil), 1))
	}
	if err := r.q.publish(events...); err != nil {
		r.t.Fatal(err)
	}
}

// TestPagesOfAQuickReceiverGrow: each page is a read and a lease of its own, and
// small ones are dear, but what is in memory stays bounded.
func TestPagesOfAQuickReceiverGrow(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Config)
		reads  int // of rows, records and single events
		rows   int // in memory
	}{
		{"up to the window", nil, 80, 128},
		{"not while memory for rows is half full", func(c *Config) { c.MaxRows = 20 }, 1000, 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, c.change)
				r.sub(1, func(s *delivery.Subscriber) { s.Concurrency = 4 })
				r.send.setAnswer(func(c call) delivery.Result { return hang(c, 10*time.Millisecond, status(200)) })
				before, _ := r.q.counts()
				backlogged(r, 1000)
				peak := int64(0)
				for range 1000 {
					settle(10 * time.Millisecond)
					peak = max(peak, r.s.Stats().Rows)
				}
				if sent := r.send.sentTo(1); sent != 1000 {
					t.Errorf("%d attempts for 1000 deliveries", sent)
				}
				if after, _ := r.q.counts(); after-before > c.reads {
					t.Errorf("%d reads for 1000 deliveries, want %d at most", after-before, c.reads)
				}
				if peak > int64(c.rows) {
					t.Errorf("%d rows in memory, want %d at most", peak, c.rows)
				}
			})
		})
	}
}

// TestPagesOfASlowReceiverStaySmall: what it would hold in memory is not worth it.
func TestPagesOfASlowReceiverStaySmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, func(s *delivery.Subscriber) { s.Concurrency = 1 })
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, time.Second, status(200)) })
		backlogged(r, 1000)
		for range 60 {
			settle(time.Second)
			if n := r.s.Stats().Rows; n > 2*firstWindow {
				t.Fatalf("%d rows in memory for a receiver that takes one a second", n)
			}
		}
	})
}

// TestAnEventInMemoryIsHeldOnceForAllItsSubscribers: and given back when the last
// of them is done.
func TestAnEventInMemoryIsHeldOnceForAllItsSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const subs, events, size = 20, 100, 1 << 10
		r := newRig(t, nil)
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, 50*time.Millisecond, status(200)) })
		var to []delivery.SubscriberNum
		for i := range subs {
			num := delivery.SubscriberNum(i + 1)
			r.sub(num, func(s *delivery.Subscriber) { s.Concurrency = 4 })
			to = append(to, num)
		}
		var batch []*delivery.Published
		for i := range events {
			e := r.event(fmt.Sprint("e", i), func(e *delivery.Event) { e.Payload = make([]byte, size) })
			batch = append(batch, r.fact(e, to...))
		}
		if err := r.q.publish(batch...); err != nil {
			t.Fatal(err)
		}
		var peak, rows int64
		for range 1000 {
			settle(10 * time.Millisecond)
			st := r.s.Stats()
			peak, rows = max(peak, st.PayloadBytes), max(rows, st.Rows)
		}
		if rows < 2*events || peak == 0 || peak > events*(size+eventOverhead) {
			t.Errorf("%d bytes held for %d rows of %d events", peak, rows, events)
		}
		if n := r.s.Stats().PayloadBytes; n != 0 || len(r.s.payloads.held) != 0 {
			t.Errorf("%d bytes and %d events are never given back", n, len(r.s.payloads.held))
		}
		for _, p := range batch {
			r.wantEnded(p.Event, to[subs-1], delivery.NextDelivered)
		}
	})
}

// TestWhatWasReadBeforeADeletionIsNotTrusted: the event may be the one that is gone.
func TestWhatWasReadBeforeADeletionIsNotTrusted(t *testing.T) {
	b := budget{most: 1 << 20}
	e := &delivery.Event{Key: delivery.EventKey{1}}
	read := b.era.Load()
	b.era.Add(1)
	old := b.hold(e, read)
	if old.current() || b.find(e.Key) != nil {
		t.Error("what was read before a deletion counts as current")
	}
	fresh := b.hold(e, b.era.Load())
	if !fresh.current() || b.find(e.Key) != e {
		t.Error("what was read after a deletion does not")
	}
	old.release()
	if b.find(e.Key) != e {
		t.Error("giving the old one back took the new one along")
	}
	fresh.release()
	if b.used.Load() != 0 || len(b.held) != 0 {
		t.Errorf("%d bytes and %d events are never given back", b.used.Load(), len(b.held))
	}
}
