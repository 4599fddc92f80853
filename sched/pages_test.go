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
