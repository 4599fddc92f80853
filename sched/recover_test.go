package sched

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestAStallStopsSendingAndNothingIsLostOrSentTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stalls := 0
		r := newRig(t, func(c *Config) { c.Observer.Stalled = func(error) { stalls++ } })
		r.sub(1, func(s *delivery.Subscriber) { s.Ordering, s.Concurrency = delivery.OrderingNone, 4 })
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, 100*time.Millisecond, status(200)) })
		var events []*delivery.Published
		for i := range 40 {
			events = append(events, r.fact(r.event(fmt.Sprint("e", i), nil), 1))
		}
		if err := r.q.publish(events...); err != nil {
			t.Fatal(err)
		}
		settle(350 * time.Millisecond)
		r.q.setFailing(fmt.Errorf("disk: %w", delivery.ErrNotReady))
		settle(500 * time.Millisecond)
		sent := r.send.sentTo(1)
		settle(time.Minute)
		if n := r.send.sentTo(1); n != sent {
			t.Errorf("%d attempts were made while the queue could not write", n-sent)
		}
		if st := r.s.Stats(); !st.Stalled || stalls != 1 {
			t.Errorf("stalled %v, told %d times", st.Stalled, stalls)
		}
		r.q.reopen()
		r.s.Resume()
		settle(time.Minute)
		for _, p := range events {
			r.wantEnded(p.Event, 1, delivery.NextDelivered)
		}
		if n := r.send.sentTo(1); n != 40 {
			t.Errorf("%d attempts for 40 deliveries: outcomes of the stall were forgotten", n)
		}
	})
}

func TestAFactThatCannotBeAppliedStopsOnlyItsSubscriberForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, nil)
		r.sub(2, nil)
		r.send.setAnswer(func(c call) delivery.Result {
			if c.id == "poison" {
				return status(400)
			}
			return status(200)
		})
		r.q.poison = func(f delivery.Fact) error {
			if m, ok := f.(*delivery.Moved); ok && m.Next == delivery.NextDead {
				return errors.New("payload is corrupt")
			}
			return nil
		}
		poison := r.publish("poison", "k", 1)
		after := r.publish("after", "k", 1)
		other := r.publish("other", "", 2)
		settle(100 * time.Millisecond)
		r.wantEnded(other, 2, delivery.NextDelivered)
		settle(2 * time.Minute)
		r.wantEnded(after, 1, delivery.NextDelivered)
		r.wantEnded(poison, 1, delivery.NextCanceled)
		if n := r.send.sentTo(1); n != 2 {
			t.Errorf("%d attempts for two deliveries", n)
		}
		last := r.q.state.timeline[ref{poison.Key, 1}]
		m := last[len(last)-1].fact.(*delivery.Moved)
		if m.Reason != delivery.ReasonLocalError || !strings.Contains(m.Note, "payload is corrupt") || m.Attempt == nil {
			t.Errorf("the timeline does not say why: %+v", m)
		}
	})
}

// refusing is a queue that answers inside Commit, as one that is closed does.
type refusing struct{ *fakeQueue }

func (q refusing) Commit(_ []delivery.Fact, done func(error)) { done(delivery.ErrClosed) }

func TestAQueueThatRefusesInsideCommitDoesNoHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, nil)
		synctest.Wait()
		r.s.queue = refusing{r.q} // nothing runs that could look at it
		r.publish("e", "", 1)
		settle(time.Second)
		if st := r.s.Stats(); !st.Stalled {
			t.Error("the refusal was not noticed")
		}
		synctest.Wait()
		r.s.queue = r.q
		r.s.Resume()
		settle(time.Second)
		if n := r.send.sentTo(1); n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}

func TestAFailedReadIsRepeatedWithGrowingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := 0
		r := newRig(t, func(c *Config) {
			c.Observer.ReadFailed = func(sub delivery.SubscriberNum, _ error) {
				if sub == 1 {
					failures++
				}
			}
		})
		r.sub(1, nil)
		e := r.event("e", nil)
		f := r.fact(e, 1)
		r.dir.failing = errors.New("records cannot be read")
		if err := r.q.publish(f); err != nil {
			t.Fatal(err)
		}
		settle(10 * time.Minute)
		if failures < 10 || failures > 30 {
			t.Errorf("%d reads in 10 min, want about 25: 1 s doubling to 30 s", failures)
		}
		r.dir.mu.Lock()
		r.dir.failing = nil
		r.dir.mu.Unlock()
		settle(31 * time.Second)
		r.wantEnded(e, 1, delivery.NextDelivered)
	})
}

func TestAPanickingSenderIsALocalError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, nil)
		r.send.setAnswer(func(c call) delivery.Result {
			if c.nth == 1 {
				r.send.forget(c)
				panic("boom")
			}
			return status(200)
		})
		e := r.publish("e", "", 1)
		settle(time.Minute)
		r.wantEnded(e, 1, delivery.NextDelivered)
	})
}

func TestStopIsBoundedWhenASenderIgnoresIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, nil)
		release := make(chan struct{})
		r.send.setAnswer(func(call) delivery.Result { <-release; return status(200) })
		r.publish("e", "", 1)
		settle(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		begin := time.Now()
		err := r.s.Stop(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 attempts did not end") {
			t.Errorf("stop: %v", err)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("stop took %s, its context has 3 s", took)
		}
		if err := r.s.Stop(t.Context()); err != nil {
			t.Errorf("a second stop: %v", err)
		}
		close(release)
		synctest.Wait()
	})
}

// The context may leave less than DrainFor: an attempt that hangs is interrupted
// early enough to be recorded.
func TestStopInterruptsEarlyEnoughToRecordIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.DrainFor = time.Hour })
		r.sub(1, nil)
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, time.Hour, status(200)) })
		e := r.publish("e", "", 1)
		settle(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		begin := time.Now()
		if err := r.s.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
		if took := time.Since(begin); took < 3*time.Second || took >= 4*time.Second {
			t.Errorf("stop took %s, want three quarters of the 4 s and the commit", took)
		}
		r.send.setAnswer(func(call) delivery.Result { return status(200) })
		r.start()
		settle(time.Second) // no backoff: an interruption is nobody's failure
		r.wantEnded(e, 1, delivery.NextDelivered)
	})
}

func TestStartAndStopAreIdempotent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		if err := r.s.Start(t.Context()); err != nil {
			t.Errorf("second start: %v", err)
		}
		r.stop()
		r.stop()
		if err := r.s.Start(t.Context()); err == nil {
			t.Error("a stopped scheduler starts again")
		}
		// Hooks that still come in do no harm.
		r.sub(1, nil)
		r.publish("late", "", 1)
		settle(time.Second)
		if n := r.send.sentTo(1); n != 0 {
			t.Errorf("%d attempts after the stop", n)
		}
	})
}

func TestADisablingWhoseCommitFailedIsMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, nil)
		r.send.setAnswer(func(c call) delivery.Result { return hang(c, 100*time.Millisecond, status(410)) })
		e := r.publish("e", "", 1)
		r.q.setFailing(delivery.ErrNotReady)
		settle(time.Second)
		if len(r.disabled) != 0 {
			t.Error("it was disabled before the reason was durable")
		}
		r.q.reopen()
		r.s.Resume()
		settle(time.Second)
		r.wantEnded(e, 1, delivery.NextDead)
		if len(r.disabled) != 1 || r.disabled[0].Reason != delivery.ReasonGone {
			t.Errorf("disabled: %+v", r.disabled)
		}
		if n := r.send.sentTo(1); n != 1 {
			t.Errorf("%d attempts", n)
		}
	})
}
