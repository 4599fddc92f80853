package sched

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestObserversHearWhoseItIsAndWhichEventDidIt: who turns changes into events needs
// the tenant, and has to tell those events from others.
func TestObserversHearWhoseItIsAndWhichEventDidIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Breaker.Consecutive = 1 })
		r.sub(1, func(s *delivery.Subscriber) { s.Retry.MaxAge = 10 * time.Second })
		r.send.setAnswer(func(call) delivery.Result { return status(500) })
		r.publish("one", "", 1)
		settle(time.Second)
		r.publish("two", "", 1) // waits behind the open circuit until it is too old
		settle(time.Minute)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.breakers) == 0 || r.breakers[0].To != delivery.BreakerOpen || r.breakers[0].Topic != "a.b" || r.breakers[0].Tenant != 1 {
			t.Errorf("breakers: %+v", r.breakers)
		}
		for _, b := range r.breakers {
			if b.To == delivery.BreakerHalfOpen && b.Topic != "" {
				t.Errorf("time is said to have been an event: %+v", b)
			}
		}
		if len(r.decided) == 0 {
			t.Error("nothing expired")
		}
		for _, d := range r.decided {
			if d.Next != delivery.NextDead || d.Reason != delivery.ReasonExpired || d.Tenant != 1 || d.Subscriber != 1 {
				t.Errorf("decided: %+v", d)
			}
		}
	})
}
