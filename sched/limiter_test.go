package sched

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestLocalLimiterTakesFromBothBucketsOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocalLimiter()
		d := Draw{
			Subscriber: 1, SubscriberLimit: delivery.RateLimit{PerSecond: 10, Burst: 3},
			Tenant: 7, TenantLimit: delivery.RateLimit{PerSecond: 1, Burst: 2},
		}
		for i := range 2 {
			if got := l.Take(t.Context(), d); got.Wait != 0 {
				t.Fatalf("token %d: %+v", i, got)
			}
		}
		if got := l.Take(t.Context(), d); !got.Tenant || got.Wait != time.Second {
			t.Errorf("the tenant is out of tokens for a second: %+v", got)
		}
		// The subscriber's third token was not lost by that.
		d.TenantLimit = delivery.RateLimit{}
		if got := l.Take(t.Context(), d); got.Wait != 0 {
			t.Errorf("the subscriber has a token left: %+v", got)
		}
		if got := l.Take(t.Context(), d); got.Tenant || got.Wait != 100*time.Millisecond {
			t.Errorf("the subscriber waits 100 ms: %+v", got)
		}
	})
}

func TestLocalLimiterFollowsItsConfigAndForgetsFullBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLocalLimiter()
		draw := func(num int, perSecond float64) Drawn {
			return l.Take(context.Background(), Draw{
				Subscriber: delivery.SubscriberNum(num), SubscriberLimit: delivery.RateLimit{PerSecond: perSecond}, //nolint:gosec // small
			})
		}
		if got := draw(1, 1); got.Wait != 0 {
			t.Fatalf("first token: %+v", got)
		}
		if got := draw(1, 1); got.Wait != time.Second {
			t.Fatalf("second token: %+v", got)
		}
		time.Sleep(100 * time.Millisecond)
		if got := draw(1, 1000); got.Wait > time.Millisecond {
			t.Errorf("after its limit was raised: %+v", got)
		}
		for i := range 1000 {
			draw(i+2, 1000)
		}
		time.Sleep(time.Second)
		for range 600 {
			draw(1, 1)
		}
		if n := len(l.buckets); n > 2 {
			t.Errorf("%d buckets are held, all but one are full", n)
		}
	})
}

func TestASubscribersRateIsKeptToTheToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.sub(1, func(s *delivery.Subscriber) { s.RateLimit = delivery.RateLimit{PerSecond: 10, Burst: 5} })
		var events []*delivery.Published
		for i := range 105 {
			events = append(events, r.fact(r.event(fmt.Sprint("e", i), nil), 1))
		}
		if err := r.q.publish(events...); err != nil {
			t.Fatal(err)
		}
		settle(5*time.Second + 50*time.Millisecond)
		if n := r.send.sentTo(1); n < 54 || n > 56 {
			t.Errorf("%d sent in 5 s, want a burst of 5 and 10 a second", n)
		}
		st, err := r.s.Status(1)
		if err != nil || st.Waiting != delivery.ReasonRateLimited || time.Until(st.Until) > 100*time.Millisecond {
			t.Errorf("status: %+v, %v", st, err)
		}
		settle(6 * time.Second)
		if n := r.send.sentTo(1); n != 105 {
			t.Errorf("%d sent of 105", n)
		}
	})
}

func TestATenantsRateIsSharedInTurnsByItsSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		r.dir.tenants[1] = &delivery.Tenant{Num: 1, Version: 1, RateLimit: delivery.RateLimit{PerSecond: 10, Burst: 1}}
		for num := range 4 {
			r.sub(delivery.SubscriberNum(num+1), nil)
		}
		var events []*delivery.Published
		for i := range 100 {
			events = append(events, r.fact(r.event(fmt.Sprint("e", i), nil), 1, 2, 3, 4))
		}
		if err := r.q.publish(events...); err != nil {
			t.Fatal(err)
		}
		settle(20 * time.Second)
		total := 0
		for num := range 4 {
			n := r.send.sentTo(delivery.SubscriberNum(num + 1))
			total += n
			if n < 45 || n > 55 {
				t.Errorf("subscriber %d got %d of 200", num+1, n)
			}
		}
		if total < 199 || total > 202 {
			t.Errorf("%d sent in 20 s at 10 a second", total)
		}
		// Nobody else pays for it.
		r.sub(9, func(s *delivery.Subscriber) { s.Tenant = 2 })
		before := time.Now()
		r.publish("other", "", 9)
		settle(10 * time.Millisecond)
		if r.send.sentTo(9) != 1 {
			t.Errorf("another tenant's event waited, since %s", time.Since(before))
		}
	})
}
