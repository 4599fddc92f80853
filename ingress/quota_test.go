package ingress

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// limited is a source with a quota of one event a second and two at once.
func limited(reject bool) *Source {
	return &Source{
		Scheme: signing.Standard, Secrets: signing.Secrets(vectorStandard), Destination: Destination{Type: DestinationFanOut},
		RateLimit: &RateLimit{PerSecond: 1, Burst: 2}, RejectOverQuota: reject,
	}
}

func TestOverQuotaIsAcceptedAndProcessedAtTheQuotasPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := setup(t, Config{})
		n.sources.set("acme", "limited", limited(false))
		for i := range 5 {
			n.expect(n.post("limited", genuine(t, fmt.Sprintf("msg_%d", i), vectorBody), vectorBody), http.StatusAccepted, OutcomeBuffered)
		}
		for i, r := range n.store.stored() {
			want := time.Duration(max(0, i-1)) * time.Second
			var got time.Duration
			if !r.NotBefore.IsZero() {
				got = r.NotBefore.Sub(r.ReceivedAt)
			}
			if got != want {
				t.Errorf("event %d is processed after %v, want %v", i, got, want)
			}
		}
		if n.last().Delayed != 3*time.Second {
			t.Errorf("reported %v", n.last().Delayed)
		}
	})
}

func TestSourceThatRejectsOverQuotaSaysWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := setup(t, Config{})
		n.sources.set("acme", "limited", limited(true))
		send := func(i int) int {
			return n.post("limited", genuine(t, fmt.Sprintf("msg_%d", i), vectorBody), vectorBody).Code
		}
		for i, want := range []int{202, 202, 429, 429, 429} {
			if got := send(i); got != want {
				t.Errorf("event %d: %d, want %d", i, got, want)
			}
		}
		w := n.post("limited", genuine(t, "msg_9", vectorBody), vectorBody)
		n.expect(w, http.StatusTooManyRequests, OutcomeOverQuota)
		if got := w.Header().Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After %q", got)
		}
		// Those that were rejected are no debt.
		time.Sleep(time.Second)
		if got := send(7); got != http.StatusAccepted {
			t.Errorf("a second later: %d", got)
		}
	})
}

func TestDuplicatesAndFailuresCostNoQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := setup(t, Config{})
		n.sources.set("acme", "limited", limited(true))
		h := genuine(t, "msg_1", vectorBody)
		n.expect(n.post("limited", h, vectorBody), http.StatusAccepted, OutcomeBuffered)
		for range 20 {
			n.expect(n.post("limited", h, vectorBody), http.StatusOK, OutcomeDeduplicated)
		}
		n.store.setFail(errDown)
		for range 20 {
			n.expect(n.post("limited", genuine(t, "msg_2", vectorBody), vectorBody), http.StatusServiceUnavailable, OutcomeStoreFailed)
		}
		n.store.setFail(nil)
		n.expect(n.post("limited", genuine(t, "msg_2", vectorBody), vectorBody), http.StatusAccepted, OutcomeBuffered)
		n.expect(n.post("limited", genuine(t, "msg_3", vectorBody), vectorBody), http.StatusTooManyRequests, OutcomeOverQuota)
	})
}

func TestForgersUseUpNoQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := setup(t, Config{Failures: FailureConfig{Burst: 1000}})
		n.sources.set("acme", "limited", limited(true))
		forged := genuine(t, "msg_1", []byte("other"))
		for range 100 {
			n.expect(n.post("limited", forged, vectorBody), http.StatusUnauthorized, OutcomeMismatch)
		}
		for i := range 2 {
			n.expect(n.post("limited", genuine(t, fmt.Sprintf("msg_%d", i), vectorBody), vectorBody), http.StatusAccepted, OutcomeBuffered)
		}
	})
}

func TestTenantsQuotaIsOverAllItsSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := setup(t, Config{TenantQuota: &RateLimit{PerSecond: 1, Burst: 2}})
		n.sources.set("acme", "a", standardSources()["standard"])
		n.sources.set("acme", "b", limited(true))
		n.expect(n.post("a", genuine(t, "msg_1", vectorBody), vectorBody), http.StatusAccepted, OutcomeBuffered)
		n.expect(n.post("b", genuine(t, "msg_2", vectorBody), vectorBody), http.StatusAccepted, OutcomeBuffered)
		n.expect(n.post("b", genuine(t, "msg_3", vectorBody), vectorBody), http.StatusTooManyRequests, OutcomeOverQuota)
		n.expect(n.post("a", genuine(t, "msg_4", vectorBody), vectorBody), http.StatusAccepted, OutcomeBuffered)
		if n.last().Delayed != time.Second {
			t.Errorf("delayed by %v", n.last().Delayed)
		}
	})
}

// TestTenantsQuotaCanBeChangedWhileItServes: given, lowered and taken away.
func TestTenantsQuotaCanBeChangedWhileItServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := setup(t, Config{})
		n.sources.set("acme", "a", standardSources()["standard"])
		sent := 0
		delays := func(limit *RateLimit, want ...time.Duration) {
			t.Helper()
			n.in.SetTenantQuota(limit)
			for i, d := range want {
				sent++
				id := fmt.Sprintf("msg_%d", sent)
				n.expect(n.post("a", genuine(t, id, vectorBody), vectorBody), http.StatusAccepted, OutcomeBuffered)
				if got := n.last().Delayed; got != d {
					t.Errorf("event %d under %+v is delayed by %v, want %v", i, limit, got, d)
				}
			}
		}
		delays(nil, 0, 0, 0)
		delays(&RateLimit{PerSecond: 1, Burst: 1}, 0, time.Second, 2*time.Second)
		delays(nil, 0, 0, 0)
	})
}

// brokenQuota is a shared limit whose store is down.
type brokenQuota struct{}

func (brokenQuota) Reserve(context.Context, QuotaKey, delivery.RateLimit) (Reservation, error) {
	return Reservation{}, errDown
}

func TestQuotaThatCannotBeAskedAccepts(t *testing.T) {
	n := setup(t, Config{})
	n.in.quota = brokenQuota{}
	n.sources.set("acme", "limited", limited(true))
	for i := range 5 {
		n.expect(n.post("limited", genuine(t, fmt.Sprintf("msg_%d", i), vectorBody), vectorBody), http.StatusAccepted, OutcomeBuffered)
	}
}

func TestDebtIsBoundedAndLimitsCanChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := NewLocalQuota()
		key, limit := QuotaKey{Tenant: "acme"}, delivery.RateLimit{PerSecond: 1, Burst: 1}
		var last Reservation
		for range 10_000 {
			last, _ = q.Reserve(t.Context(), key, limit)
		}
		if last.Wait != maxQuotaWait {
			t.Errorf("waits %v after 10,000 events, want %v", last.Wait, maxQuotaWait)
		}
		time.Sleep(maxQuotaWait + time.Second)
		if r, _ := q.Reserve(t.Context(), key, limit); r.Wait != 0 {
			t.Errorf("still %v in debt", r.Wait)
		}
		if r, _ := q.Reserve(t.Context(), key, delivery.RateLimit{PerSecond: 1000, Burst: 1000}); r.Wait > time.Millisecond {
			t.Errorf("the raised limit does not count: %v", r.Wait)
		}
	})
}
