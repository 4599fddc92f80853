package sched

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestBoundsAndBreakerChangeWhileAttemptsAreMade: what waits starts when there is
// more room, and the next outcome is judged by the new policy.
func TestBoundsAndBreakerChangeWhileAttemptsAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxInFlight, c.MaxSlow, c.MaxNew = 1, 1, 1 })
		r.send.setAnswer(func(call) delivery.Result {
			time.Sleep(time.Second)
			return status(500)
		})
		for num := delivery.SubscriberNum(1); num <= 12; num++ {
			r.sub(num, nil)
			r.publish("a", "", num)
		}
		settle(time.Millisecond)
		if n := r.s.Stats().InFlight; n != 1 {
			t.Fatalf("%d in flight, want 1", n)
		}
		if err := r.s.SetInFlight(16, 0); err != nil {
			t.Fatal(err)
		}
		if err := r.s.SetBreaker(BreakerPolicy{Consecutive: 1}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := r.s.Stats().InFlight; n != 4 { // a quarter, of whom nothing is known
			t.Errorf("%d in flight, want 4", n)
		}
		settle(1100 * time.Millisecond)
		r.mu.Lock()
		opened := len(r.breakers)
		r.mu.Unlock()
		if opened == 0 {
			t.Error("one failure opens no circuit")
		}
		if r.s.SetInFlight(1, 2) == nil || r.s.SetBreaker(BreakerPolicy{Window: 65}) == nil {
			t.Error("what Config refuses is taken")
		}
	})
}
