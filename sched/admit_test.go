package sched

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestAKnownSubscribersDeliveryNeverTouchesTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, nil)
		r.publish("first", "", 1)
		settle(time.Second)
		reads, _ := r.q.counts()
		for i := range 50 {
			r.publish(fmt.Sprint("e", i), "k", 1)
			settle(20 * time.Millisecond)
		}
		if n, _ := r.q.counts(); n != reads {
			t.Errorf("50 deliveries cost %d reads", n-reads)
		}
		if n := r.send.sentTo(1); n != 51 {
			t.Errorf("%d attempts", n)
		}
	})
}

func TestNothingOvertakesWhatIsOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.WindowRows = 4 })
		r.sub(1, func(s *delivery.Subscriber) { s.Ordering = delivery.OrderingStrict })
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, 7*time.Millisecond, status(200)) })
		for i := range 200 {
			r.publish(fmt.Sprint("e", i), "", 1)
			time.Sleep(time.Duration(i%9) * time.Millisecond)
		}
		settle(10 * time.Second)
		for i, c := range r.send.sent() {
			if c.id != fmt.Sprint("e", i) {
				t.Fatalf("attempt %d was %s", i, c.id)
			}
		}
	})
}

func TestOutcomesAreAwaitedWhereTheNextDeliveryWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		ordering := map[delivery.SubscriberNum]delivery.Ordering{1: delivery.OrderingStrict, 2: delivery.OrderingKeyed, 3: delivery.OrderingNone}
		for num, o := range ordering {
			r.sub(num, func(s *delivery.Subscriber) { s.Ordering = o })
		}
		r.publish("a", "k", 1, 2, 3)
		r.publish("b", "k", 1, 2, 3)
		settle(time.Second)
		seen := map[delivery.SubscriberNum]int{}
		r.q.mu.Lock()
		defer r.q.mu.Unlock()
		for _, l := range r.q.log {
			if m, ok := l.fact.(*delivery.Moved); ok {
				seen[m.Row.Subscriber]++
				if o := ordering[m.Row.Subscriber]; m.Awaited != (o == delivery.OrderingStrict) {
					t.Errorf("with ordering %s an outcome is awaited: %v", o, m.Awaited)
				}
			}
		}
		if seen[1] != 2 || seen[2] != 2 || seen[3] != 2 {
			t.Errorf("outcomes %v, want two each", seen)
		}
	})
}

func TestPayloadsInMemoryAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.PayloadBytes = 10_000 })
		r.sub(1, func(s *delivery.Subscriber) { s.Ordering, s.Concurrency = delivery.OrderingNone, 2 })
		r.sub(2, func(s *delivery.Subscriber) { s.Ordering, s.Concurrency = delivery.OrderingNone, 2 })
		r.publish("first", "", 1, 2)
		settle(time.Second)
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, 50*time.Millisecond, status(200)) })
		for i := range 100 {
			e := r.event(fmt.Sprint("e", i), func(e *delivery.Event) { e.Payload = make([]byte, 1000) })
			if err := r.q.publish(r.fact(e, 1, 2)); err != nil {
				t.Fatal(err)
			}
			if n := r.s.Stats().PayloadBytes; n > 10_000 {
				t.Fatalf("%d bytes of payloads in memory", n)
			}
		}
		settle(10 * time.Second)
		if n := r.send.sentTo(1) + r.send.sentTo(2); n != 202 {
			t.Errorf("%d attempts", n)
		}
		if n := r.s.Stats().PayloadBytes; n != 0 {
			t.Errorf("%d bytes are never given back", n)
		}
	})
}

func TestMemoryDoesNotFollowTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.WindowRows = 16 })
		r.send.lax = true
		r.sub(1, nil)
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, 10*time.Millisecond, status(200)) })
		for range 100 {
			var batch []*delivery.Published
			for i := range 50 {
				batch = append(batch, r.fact(r.event(fmt.Sprint("e", i), nil), 1))
			}
			if err := r.q.publish(batch...); err != nil {
				t.Fatal(err)
			}
			if n := r.s.Stats().Rows; n > 32 {
				t.Fatalf("%d rows in memory, the window has 16", n)
			}
		}
		settle(time.Minute)
		if n := r.send.sentTo(1); n != 5000 {
			t.Errorf("%d attempts", n)
		}
	})
}

func TestAnAbortedPublishLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, nil)
		r.publish("first", "", 1)
		settle(time.Second)
		for range 3 {
			f := r.fact(r.event("gone", nil), 1)
			r.s.Admit(f)
			r.s.Aborted(f)
		}
		synctest.Wait()
		if n := r.s.Stats().Actors; n != 0 {
			t.Errorf("%d actors stay", n)
		}
		e := r.publish("next", "", 1)
		settle(time.Second)
		r.wantEnded(e, 1, delivery.NextDelivered)
	})
}

func TestUnknownAndUnreadableSubscribersDoNotStayInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		f := &delivery.Published{Event: r.event("e", nil), Targets: []delivery.Target{{Subscriber: 99, Lane: delivery.PriorityNormal}}}
		if err := r.q.publish(f); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if n := r.s.Stats().Actors; n != 0 {
			t.Errorf("%d actors stay", n)
		}
		if _, err := r.s.Status(99); !errors.Is(err, delivery.ErrNoSubscriber) {
			t.Errorf("status of an unknown subscriber: %v", err)
		}
	})
}

// Whoever brings work in whatever order and at whatever moment: all of it is
// done, and nobody is left waiting. Run with -race.
func TestNoWakeUpIsLost(t *testing.T) {
	for _, subs := range []int{1, 3, 50} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.WindowRows, c.MaxInFlight, c.MaxUncommitted = 4, 8, 5 })
			r.q.delay, r.q.sync = 0, 0
			r.send.lax = true
			for num := range subs {
				r.sub(delivery.SubscriberNum(num+1), func(s *delivery.Subscriber) {
					s.Concurrency = 1 + num%4
					s.Ordering = delivery.Ordering(num % 3) //nolint:gosec // three of them
					s.RateLimit.PerSecond = float64((num % 5) * 1000)
				})
			}
			var wg sync.WaitGroup
			for worker := range 8 {
				wg.Go(func() {
					for i := range 150 {
						sub := delivery.SubscriberNum((worker*31+i)%subs + 1)
						r.publish(fmt.Sprintf("%d/%d", worker, i), fmt.Sprint(i%3), sub)
						if i%7 == 0 {
							r.s.Kick(sub)
						}
						if i%11 == 0 {
							runtime.Gosched()
						}
					}
				})
			}
			wg.Wait()
			settle(5 * time.Minute)
			if n := len(r.send.sent()); n != 8*150 {
				t.Errorf("%d subscribers: %d attempts for %d deliveries", subs, n, 8*150)
			}
			if st := r.s.Stats(); st.Actors != 0 || st.Contending != 0 || st.Uncommitted != 0 {
				t.Errorf("something waits for ever: %+v", st)
			}
		})
	}
}

func TestRowsOfAPausedSubscriberCostNothingWhenTheyBecomeDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, func(s *delivery.Subscriber) { s.Ordering = delivery.OrderingNone })
		begin := time.Now()
		for i := range 100 {
			e := r.event(fmt.Sprint("e", i), func(e *delivery.Event) { e.DeliverAt = begin.Add(time.Duration(i+1) * 5 * time.Minute) })
			if err := r.q.publish(r.fact(e, 1)); err != nil {
				t.Fatal(err)
			}
		}
		r.dir.change(1, func(s *delivery.Subscriber) { s.Status = delivery.SubscriberPaused })
		r.s.Kick(1)
		settle(6 * time.Minute) // the first one was due
		reads, _ := r.q.counts()
		settle(20 * time.Hour)
		// The clock reads ahead; nobody reads the subscriber's rows.
		if n, _ := r.q.counts(); n-reads > 3*100 {
			t.Errorf("%d reads for a subscriber that is paused", n-reads)
		}
		r.dir.change(1, func(s *delivery.Subscriber) { s.Status = delivery.SubscriberActive })
		r.s.Kick(1)
		settle(time.Minute)
		if n := r.send.sentTo(1); n != 100 {
			t.Errorf("%d of 100 were sent after the resume", n)
		}
	})
}
