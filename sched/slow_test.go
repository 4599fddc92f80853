package sched

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// crowd is hanging and healthy receivers that get an event each every 100 ms.
type crowd struct {
	hanging, healthy, maxInFlight int
	known                         bool // the healthy ones were served before
}

const crowdRounds = 50

// lateness returns what a percentile of the healthy deliveries waited from
// publish to attempt.
func (w crowd) lateness(t *testing.T, percentile float64) time.Duration {
	r := newRig(t, func(c *Config) { c.MaxInFlight = w.maxInFlight })
	r.send.lax, r.q.state.silent = true, true
	for num := range w.hanging + w.healthy {
		r.sub(delivery.SubscriberNum(num+1), func(s *delivery.Subscriber) { s.Ordering = delivery.OrderingNone })
	}
	r.send.setAnswer(func(c call) delivery.Result {
		if int(c.sub) <= w.hanging {
			return hang(c, 30*time.Second, timeout())
		}
		return hang(c, 20*time.Millisecond, status(200))
	})
	if w.known {
		for num := w.hanging + 1; num <= w.hanging+w.healthy; num++ {
			r.publish(fmt.Sprintf("%d/warm", num), "", delivery.SubscriberNum(num))
		}
		settle(time.Second)
	}
	published := map[string]time.Time{}
	for round := range crowdRounds {
		var batch []*delivery.Published
		for num := 1; num <= w.hanging+w.healthy; num++ {
			id := fmt.Sprintf("%d/%d", num, round)
			published[id] = time.Now()
			batch = append(batch, r.fact(r.event(id, nil), delivery.SubscriberNum(num)))
		}
		if err := r.q.publish(batch...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	synctest.Wait()
	var waits []time.Duration
	for _, c := range r.send.sent() {
		if at, ok := published[c.id]; ok && int(c.sub) > w.hanging {
			waits = append(waits, c.at.Sub(at))
		}
	}
	if len(waits) < crowdRounds*w.healthy {
		t.Errorf("only %d of %d healthy deliveries were attempted", len(waits), crowdRounds*w.healthy)
	}
	slices.Sort(waits)
	return waits[int(percentile*float64(len(waits)-1))]
}

func TestHangingReceiversDelayNobodyElse(t *testing.T) {
	tests := []struct {
		name string
		with crowd
	}{
		{"when all of them are new", crowd{hanging: 120, healthy: 20, maxInFlight: 1024}},
		{"however many they are, those that are known", crowd{hanging: 150, healthy: 20, maxInFlight: 96, known: true}},
	}
	for _, tt := range tests {
		without := tt.with
		without.hanging = 0
		var alone, beside time.Duration
		synctest.Test(t, func(t *testing.T) { alone = without.lateness(t, 0.99) })
		synctest.Test(t, func(t *testing.T) { beside = tt.with.lateness(t, 0.99) })
		if beside > alone+2*time.Millisecond {
			t.Errorf("%s: p99 of healthy deliveries is %s beside hanging ones, %s alone", tt.name, beside, alone)
		}
	}
}

// TestFreeSlotsAreTakenBeforeTheOutcomeIsDurable: each success allows one more
// attempt. The second does not wait for the commit of the outcome, nor for
// anything else that happens to look for work.
func TestFreeSlotsAreTakenBeforeTheOutcomeIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.q.delay, r.q.sync = 0, 10*time.Second
		r.sub(1, func(s *delivery.Subscriber) { s.Ordering = delivery.OrderingNone })
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, time.Second, status(200)) })
		var batch []*delivery.Published
		for i := range 7 {
			batch = append(batch, r.fact(r.event(fmt.Sprint(i), nil), 1))
		}
		if err := r.q.publish(batch...); err != nil {
			t.Fatal(err)
		}
		settle(time.Minute)
		at := map[time.Duration]int{}
		calls := r.send.sent()
		for _, c := range calls {
			at[c.at.Sub(calls[0].at)]++
		}
		if at[0] != 1 || at[time.Second] != 2 || at[2*time.Second] != 4 {
			t.Errorf("attempts began %v after the first, want 1, then 2 after one second, then 4 after two", at)
		}
	})
}

// TestNobodyWaitsWhileWorkersGoOnWithTheirOwn: a subscriber that fills the node
// and competes for nothing more hands its slots on all the same.
func TestNobodyWaitsWhileWorkersGoOnWithTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxInFlight = 4 })
		free := func(s *delivery.Subscriber) { s.Ordering, s.Concurrency = delivery.OrderingNone, 4 }
		r.sub(1, free)
		r.sub(2, free)
		r.publish("warm", "", 1)
		settle(time.Second)
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, 100*time.Millisecond, status(200)) })
		var batch []*delivery.Published
		for i := range 200 {
			batch = append(batch, r.fact(r.event(fmt.Sprint(i), nil), 1))
		}
		if err := r.q.publish(batch...); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		began := time.Now()
		r.publish("newcomer", "", 2)
		settle(time.Minute)
		for _, c := range r.send.sent() {
			if c.sub == 2 {
				if wait := c.at.Sub(began); wait > 250*time.Millisecond {
					t.Errorf("the newcomer waited for %s beside a subscriber that is at its own bound", wait)
				}
				return
			}
		}
		t.Error("the newcomer was never served")
	})
}
