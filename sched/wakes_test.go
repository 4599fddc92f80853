package sched

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestFarRetriesCostOneTimerAndEachWakeIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		const subs = 200
		for num := range subs {
			r.sub(delivery.SubscriberNum(num+1), func(s *delivery.Subscriber) {
				s.Retry.Schedule = []time.Duration{5*time.Hour + time.Duration(num)*time.Minute}
			})
		}
		r.send.setAnswer(func(c call) delivery.Result { return status([]int{500, 200}[c.nth-1]) })
		for num := range subs {
			r.publish(fmt.Sprint("e", num), "", delivery.SubscriberNum(num+1))
		}
		settle(time.Second)
		if st := r.s.Stats(); st.Actors != 0 || st.Wakes > 1 {
			t.Errorf("far retries are in memory: %+v", st)
		}
		reads, wakes := r.q.counts()
		settle(4 * time.Hour)
		if n, _ := r.q.counts(); n != reads {
			t.Errorf("an idle node read the queue %d times in 4 h", n-reads)
		}
		settle(6 * time.Hour)
		for num := range subs {
			if n := r.send.sentTo(delivery.SubscriberNum(num + 1)); n != 2 {
				t.Fatalf("subscriber %d got %d attempts", num+1, n)
			}
		}
		if _, n := r.q.counts(); n-wakes != subs {
			t.Errorf("%d wakes were read for %d rows", n-wakes, subs)
		}
		for _, c := range r.send.sent()[subs:] {
			first := r.send.sent()[c.sub-1]
			want := first.at.Add(5*time.Hour + time.Duration(c.sub-1)*time.Minute)
			if late := c.at.Sub(want); late < 0 || late > 20*time.Millisecond {
				t.Errorf("subscriber %d: late by %s", c.sub, late)
			}
		}
	})
}

func TestADueTimeBelowTheHorizonIsNoticedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, nil)
		at := time.Now()
		for i, in := range []time.Duration{50 * time.Second, 5 * time.Second, 20 * time.Second, 3 * time.Minute, -time.Hour} {
			e := r.event(fmt.Sprint("e", i), func(e *delivery.Event) { e.DeliverAt = at.Add(in) })
			if err := r.q.publish(r.fact(e, 1)); err != nil {
				t.Fatal(err)
			}
		}
		settle(5 * time.Minute)
		var order strings.Builder
		for _, c := range r.send.sent() {
			fmt.Fprintf(&order, "%s at %s, ", c.id, c.at.Sub(at).Round(time.Second))
		}
		if want := "e4 at 0s, e1 at 5s, e2 at 20s, e0 at 50s, e3 at 3m0s, "; order.String() != want {
			t.Errorf("sent %s want %s", order.String(), want)
		}
	})
}

func TestACenturyAheadIsNoOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, nil)
		e := r.event("far", func(e *delivery.Event) { e.DeliverAt = time.Now().AddDate(2000, 0, 0) })
		if err := r.q.publish(r.fact(e, 1)); err != nil {
			t.Fatal(err)
		}
		settle(time.Hour)
		if n := r.send.sentTo(1); n != 0 {
			t.Errorf("it was sent %d times", n)
		}
	})
}

func TestClockStepsAreNoticedAndTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var steps []time.Duration
		r := newRig(t, func(c *Config) { c.Observer.ClockStepped = func(by time.Duration) { steps = append(steps, by) } })
		r.s.time.read()
		r.s.time.skew.Store(int64(-time.Hour))
		r.s.time.read()
		r.s.time.read()
		r.s.time.skew.Store(int64(time.Hour))
		r.s.time.read()
		if fmt.Sprint(steps) != "[-1h0m0s 2h0m0s]" {
			t.Errorf("steps %v", steps)
		}
	})
}

func TestAges(t *testing.T) {
	now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	stepped := now.Add(-time.Minute).UnixNano()
	tests := []struct {
		name    string
		entered time.Time
		forward time.Duration
		want    time.Duration
	}{
		{"no step", now.Add(-time.Hour), 0, time.Hour},
		{"a step does not age what was before it", now.Add(-25 * time.Hour), 24 * time.Hour, time.Hour},
		{"what came after it ages as usual", now.Add(-30 * time.Second), 24 * time.Hour, 30 * time.Second},
		{"never negative", now.Add(time.Hour), 0, 0},
		{"never negative after a step", now.Add(-time.Hour), 24 * time.Hour, 0},
	}
	for _, tt := range tests {
		if got := ageOf(tt.entered, now, tt.forward, stepped); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestAFailingWakeIndexIsReadAgainAndNothingIsMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, func(s *delivery.Subscriber) { s.Retry.Schedule = []time.Duration{2 * time.Hour} })
		r.send.setAnswer(func(c call) delivery.Result { return status([]int{500, 200}[c.nth-1]) })
		e := r.publish("e", "", 1)
		settle(time.Hour)
		r.q.setFailing(delivery.ErrNotReady)
		settle(time.Hour + 10*time.Second)
		r.q.setFailing(nil)
		r.s.Resume()
		settle(time.Minute)
		r.wantEnded(e, 1, delivery.NextDelivered)
	})
}

func TestDueRetriesOfManySubscribersDoNotFillTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const subs, most = 400, 20
		r := newRig(t, func(c *Config) { c.MaxActors, c.MaxInFlight = most, 8 })
		r.send.lax = true
		at := time.Now().Add(time.Hour)
		var batch []*delivery.Published
		for num := range subs {
			r.sub(delivery.SubscriberNum(num+1), nil)
			e := r.event(fmt.Sprint("e", num), func(e *delivery.Event) { e.DeliverAt = at })
			batch = append(batch, r.fact(e, delivery.SubscriberNum(num+1)))
		}
		if err := r.q.publish(batch...); err != nil {
			t.Fatal(err)
		}
		highest := 0
		r.send.setAnswer(func(c call) delivery.Result {
			r.mu.Lock()
			highest = max(highest, r.s.Stats().Actors)
			r.mu.Unlock()
			return hang(c, 10*time.Millisecond, status(200))
		})
		settle(time.Hour + 2*time.Minute)
		if n := len(r.send.sent()); n != subs {
			t.Errorf("%d of %d were sent", n, subs)
		}
		if highest > 2*most {
			t.Errorf("%d actors in memory, %d may be", highest, most)
		}
	})
}
