package sched

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestCases holds what other senders got wrong, by the ids of the list that the
// project keeps.
func TestCases(t *testing.T) {
	cases := []struct {
		id  string
		run func(*testing.T, *rig)
	}{
		{"B1", case429WithoutRetryAfter},
		{"B2", func(t *testing.T, r *rig) {
			wantWait(t, r, retryAfter(503, "30"), 30*time.Second, 33*time.Second)
		}},
		{"B3", caseRetryAfterDates},
		{"B4", func(t *testing.T, r *rig) {
			wantWait(t, r, retryAfter(503, time.Now().Add(-time.Hour).UTC().Format(time.RFC1123)), 5*time.Second, 5*time.Second)
		}},
		{"B6", func(t *testing.T, r *rig) { wantLadder(t, r, "1.5", "+3", "-3") }},
		{"B8", func(t *testing.T, r *rig) { wantLadder(t, r, "1e300", "inf", "NaN") }},
		{"B9", caseNoNameThenResolves},
		{"B10", caseRefusedForTenMinutes},
		{"B11", caseFanOut},
		{"B12", caseThresholdOfTwenty},
		{"B18", caseForcedReplay},
		{"Q1", caseKilledBeforeTheFirstAttempt},
		{"Q2", caseKilledAfterThePostWasWritten},
		{"Q3", caseInFlightRowsAreReclaimedOnce},
		{"Q6", caseStoreStallsAndReopens},
		{"Q10", caseOneHangs},
	}
	for _, c := range cases {
		t.Run(c.id, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, nil)
				r.sub(1, nil)
				c.run(t, r)
			})
		})
	}
}

// wantWait gives one answer and looks when the next attempt comes.
func wantWait(t *testing.T, r *rig, answer delivery.Result, least, most time.Duration) {
	t.Helper()
	r.send.setAnswer(func(c call) delivery.Result {
		if c.nth == 1 {
			return answer
		}
		return status(200)
	})
	from := len(r.send.sent())
	r.publish(fmt.Sprint("e", from), "", 1)
	settle(most + time.Second)
	calls := r.send.sent()[from:]
	if len(calls) != 2 {
		t.Fatalf("%q: %d attempts within %s, want 2", answer.RetryAfter, len(calls), most)
	}
	if wait := calls[1].at.Sub(calls[0].at); wait < least || wait > most+50*time.Millisecond {
		t.Errorf("%q: tried again after %s, want %s to %s", answer.RetryAfter, wait, least, most)
	}
}

func wantLadder(t *testing.T, r *rig, values ...string) {
	for _, v := range values {
		wantWait(t, r, retryAfter(503, v), 5*time.Second, 5*time.Second)
	}
}

func case429WithoutRetryAfter(t *testing.T, r *rig) {
	for range 8 { // more than open a circuit
		wantWait(t, r, status(429), 5*time.Second, 5*time.Second)
	}
	if len(r.breakers) > 0 {
		t.Errorf("the breaker changed: %+v", r.breakers)
	}
}

func caseRetryAfterDates(t *testing.T, r *rig) {
	for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", "Mon Jan _2 15:04:05 2006"} {
		// To the second: whatever the fraction, a second more at most; a tenth is jitter.
		wantWait(t, r, retryAfter(503, time.Now().UTC().Add(90*time.Second).Format(layout)), 88*time.Second, 100*time.Second)
	}
}

func caseNoNameThenResolves(t *testing.T, r *rig) {
	r.send.setAnswer(func(c call) delivery.Result {
		if c.nth < 3 {
			return delivery.Result{Cause: delivery.CauseDNS, Sent: delivery.SentNever}
		}
		return status(200)
	})
	e := r.publish("e", "", 1)
	settle(time.Hour)
	r.wantEnded(e, 1, delivery.NextDelivered)
}

func caseRefusedForTenMinutes(t *testing.T, r *rig) {
	begin := time.Now()
	r.send.setAnswer(func(call) delivery.Result {
		if time.Since(begin) < 10*time.Minute {
			return delivery.Result{Cause: delivery.CauseConnect, Sent: delivery.SentNever}
		}
		return status(200)
	})
	e := r.publish("e", "", 1)
	settle(10 * time.Minute)
	if n := r.send.sentTo(1); n != 3 { // at 0 s, 5 s, 5 min 5 s
		t.Errorf("%d attempts in 10 min, the ladder has 3", n)
	}
	settle(time.Hour)
	r.wantEnded(e, 1, delivery.NextDelivered)
}

func caseFanOut(t *testing.T, r *rig) {
	r.sub(2, nil)
	r.send.setAnswer(func(c call) delivery.Result {
		if c.sub == 2 && c.nth == 1 {
			return status(500)
		}
		return status(200)
	})
	e := r.publish("e", "", 1, 2)
	settle(time.Minute)
	r.wantEnded(e, 1, delivery.NextDelivered)
	r.wantEnded(e, 2, delivery.NextDelivered)
	if a, b := r.send.sentTo(1), r.send.sentTo(2); a != 1 || b != 2 {
		t.Errorf("%d attempts to the good one and %d to the other, want 1 and 2", a, b)
	}
}

// disabledAfter counts the attempts until a subscriber is disabled; the nth
// attempt may be let through.
func disabledAfter(r *rig, num delivery.SubscriberNum, good int) int {
	r.sub(num, func(s *delivery.Subscriber) {
		s.DisableAfterFailures, s.Ordering = 20, delivery.OrderingNone
		s.Retry.Schedule = []time.Duration{time.Minute, time.Minute, time.Minute, time.Minute}
	})
	n := 0
	r.send.setAnswer(func(call) delivery.Result {
		n++
		if n == good {
			return status(200)
		}
		return status(500)
	})
	for i := range 12 {
		r.publish(fmt.Sprintf("%d/%d", num, i), "", num)
	}
	settle(5 * time.Hour)
	return n
}

func caseThresholdOfTwenty(t *testing.T, r *rig) {
	if n := disabledAfter(r, 2, 0); n != 20 {
		t.Errorf("disabled after %d failures over several events, want 20", n)
	}
	if len(r.disabled) != 1 || r.disabled[0].Reason != delivery.ReasonTooManyFailed {
		t.Errorf("the operator hears once: %+v", r.disabled)
	}
	if n := disabledAfter(r, 3, 20); n != 40 {
		t.Errorf("disabled after %d attempts, a success after 19 failures resets the count: want 40", n)
	}
}

func caseForcedReplay(t *testing.T, r *rig) {
	e := r.publish("e", "", 1)
	settle(time.Second)
	r.wantEnded(e, 1, delivery.NextDelivered)
	done := make(chan error, 1)
	r.q.Commit([]delivery.Fact{&delivery.Replayed{
		Lease: r.q.Lease(), At: time.Now(), Event: e.Key, Subscriber: 1, Lane: delivery.PriorityNormal, Attempts: 1,
	}}, func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.s.Kick(1)
	settle(time.Second)
	calls := r.send.sent()
	if len(calls) != 2 || calls[1].attempt != 2 || calls[1].id != "e" {
		t.Errorf("attempts: %+v", calls)
	}
}

func caseKilledBeforeTheFirstAttempt(t *testing.T, r *rig) {
	r.q.setFailing(nil)
	r.s.stalled.Store(true) // nothing is sent before the node dies
	e := r.publish("e", "", 1)
	r.crash()
	settle(time.Second)
	r.wantEnded(e, 1, delivery.NextDelivered)
}

func caseKilledAfterThePostWasWritten(t *testing.T, r *rig) {
	r.send.setAnswer(func(c call) delivery.Result { return hang(c, 10*time.Second, status(200)) })
	e := r.publish("e", "", 1)
	settle(time.Second)
	r.crash()
	settle(time.Minute)
	r.wantEnded(e, 1, delivery.NextDelivered)
	calls := r.send.sent()
	if len(calls) != 2 || calls[1].id != "e" || calls[1].attempt != 2 {
		t.Fatalf("attempts: %+v", calls)
	}
	var m *delivery.Moved
	for _, entry := range r.q.state.timeline[ref{e.Key, 1}] {
		if f, ok := entry.fact.(*delivery.Moved); ok {
			m = f
		}
	}
	if m == nil || m.Prior == nil || m.Prior.Outcome.Class != delivery.ClassUnknown || m.Prior.Outcome.Reason != delivery.ReasonRecovered {
		t.Errorf("the timeline does not say that it may have been sent: %+v", m)
	}
}

func caseInFlightRowsAreReclaimedOnce(t *testing.T, r *rig) {
	r.send.setAnswer(func(c call) delivery.Result { return hang(c, 10*time.Second, status(200)) })
	var events []*delivery.Event
	for i := range 8 {
		events = append(events, r.publish(fmt.Sprint("e", i), "", 1))
	}
	settle(time.Second)
	r.send.setAnswer(func(call) delivery.Result { return status(200) })
	first := r.send.sentTo(1)
	r.crash()
	settle(time.Minute)
	for _, e := range events {
		r.wantEnded(e, 1, delivery.NextDelivered)
	}
	if n := r.send.sentTo(1) - first; n != 8 {
		t.Errorf("%d attempts after the restart, want one each", n)
	}
}

func caseStoreStallsAndReopens(t *testing.T, r *rig) {
	r.q.setFailing(delivery.ErrNotReady)
	f := r.fact(r.event("refused", nil), 1)
	if err := r.q.publish(f); err == nil {
		t.Error("a publish is acknowledged while the store cannot write")
	}
	r.q.reopen()
	e := r.publish("e", "", 1)
	settle(time.Second)
	r.q.setFailing(delivery.ErrNotReady)
	settle(time.Minute)
	r.q.reopen()
	r.s.Resume()
	e2 := r.publish("e2", "", 1)
	settle(time.Minute)
	r.wantEnded(e, 1, delivery.NextDelivered)
	r.wantEnded(e2, 1, delivery.NextDelivered)
}

func caseOneHangs(t *testing.T, r *rig) {
	const healthy = 99
	for num := range healthy {
		r.sub(delivery.SubscriberNum(num+2), nil)
	}
	r.send.lax = true
	r.send.setAnswer(func(c call) delivery.Result {
		if c.sub == 1 {
			return hang(c, 30*time.Second, timeout())
		}
		return status(200)
	})
	for round := range 20 {
		var to []delivery.SubscriberNum
		for num := range healthy + 1 {
			to = append(to, delivery.SubscriberNum(num+1))
		}
		e := r.event(fmt.Sprint("e", round), nil)
		if err := r.q.publish(r.fact(e, to...)); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		settle(5 * time.Millisecond)
		for _, num := range to[1:] {
			r.wantEnded(e, num, delivery.NextDelivered)
		}
		if t.Failed() {
			t.Fatalf("round %d: a healthy subscriber waited, since %s", round, at)
		}
	}
}
