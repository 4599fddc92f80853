package sched

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestAPublishIsDeliveredAndTheActorLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, nil)
		for i := range 3 {
			e := r.publish(fmt.Sprint("e", i), "", 1)
			settle(50 * time.Millisecond)
			r.wantEnded(e, 1, delivery.NextDelivered)
		}
		if st := r.s.Stats(); st.Actors != 0 || st.InFlight != 0 || st.Rows != 0 || st.PayloadBytes != 0 {
			t.Errorf("something stayed in memory: %+v", st)
		}
	})
}

func TestABacklogIsDeliveredThroughTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.WindowRows = 8 })
		r.sub(1, nil)
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, 10*time.Millisecond, status(200)) })
		var events []*delivery.Published
		for i := range 300 {
			events = append(events, r.fact(r.event(fmt.Sprint("e", i), nil), 1))
		}
		if err := r.q.publish(events...); err != nil {
			t.Fatal(err)
		}
		settle(10 * time.Second)
		for _, p := range events {
			r.wantEnded(p.Event, 1, delivery.NextDelivered)
		}
		if n := r.send.sentTo(1); n != 300 {
			t.Errorf("%d attempts for 300 deliveries", n)
		}
		if st := r.s.Stats(); st.Actors != 0 || st.Rows != 0 {
			t.Errorf("something stayed in memory: %+v", st)
		}
	})
}

// TestADeletedEventIsNotSentFromMemory: what is in memory may be a copy of
// something that is not there any more.
func TestADeletedEventIsNotSentFromMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, func(s *delivery.Subscriber) { s.Concurrency = 1 })
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, time.Second, status(200)) })
		var events []*delivery.Published
		for i := range 8 {
			events = append(events, r.fact(r.event(fmt.Sprint("e", i), nil), 1))
		}
		if err := r.q.publish(events...); err != nil {
			t.Fatal(err)
		}
		settle(500 * time.Millisecond)
		if st := r.s.Stats(); st.PayloadBytes == 0 {
			t.Fatal("nothing was read ahead")
		}
		last := events[7].Event
		r.q.mu.Lock()
		delete(r.q.state.events, last.Key)
		r.q.mu.Unlock()
		r.s.EventDeleted()
		settle(20 * time.Second)
		if n := r.send.sentTo(1); n != 7 {
			t.Errorf("%d attempts, want 7", n)
		}
		r.wantEnded(last, 1, delivery.NextCanceled)
	})
}

func TestAFailureIsRetriedOnTheLadder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, nil)
		r.send.setAnswer(func(c call) delivery.Result {
			if c.nth == 1 {
				return status(500)
			}
			return status(200)
		})
		e := r.publish("e", "", 1)
		settle(time.Second)
		if n := r.send.sentTo(1); n != 1 {
			t.Fatalf("%d attempts, want 1", n)
		}
		settle(5 * time.Second)
		r.wantEnded(e, 1, delivery.NextDelivered)
	})
}

func TestOneKeyGoesInOrderAcrossRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, nil)
		r.send.setAnswer(func(c call) delivery.Result {
			if c.id == "a1" && c.nth < 3 {
				return status(500)
			}
			return hang(c, 5*time.Millisecond, status(200))
		})
		var a []*delivery.Event
		for i := range 5 {
			a = append(a, r.publish(fmt.Sprint("a", i), "a", 1))
			r.publish(fmt.Sprint("b", i), "b", 1)
		}
		settle(10 * time.Minute)
		var order []string
		for _, c := range r.send.sent() {
			if c.key == "a" {
				order = append(order, c.id)
			}
		}
		if got, want := fmt.Sprint(order), "[a0 a1 a1 a1 a2 a3 a4]"; got != want {
			t.Errorf("key a was sent as %s, want %s", got, want)
		}
		for _, e := range a {
			r.wantEnded(e, 1, delivery.NextDelivered)
		}
	})
}
