package sched

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// jain is Jain's fairness index: 1 = all shares are equal, 1/n = one has all.
func jain(shares []float64) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += s
		squares += s * s
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// TestTenantsThatAreAlwaysBehindGetEqualShares has tenants of very different
// size compete for too few slots.
func TestTenantsThatAreAlwaysBehindGetEqualShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxInFlight, c.WindowRows = 32, 16 })
		r.send.lax, r.q.state.silent = true, true
		const tenants = 20
		perTenant := make([]float64, tenants)
		var mu sync.Mutex
		r.send.setAnswer(func(c call) delivery.Result {
			mu.Lock()
			perTenant[(int(c.sub)-1)%tenants]++
			mu.Unlock()
			return hang(c, 20*time.Millisecond, status(200))
		})
		// Tenant i has about 60/(i+1) subscribers, all with a backlog.
		var all []delivery.SubscriberNum
		for i := range tenants {
			for j := range max(2, 60/(i+1)) {
				num := delivery.SubscriberNum(1 + i + j*tenants) //nolint:gosec // small
				all = append(all, num)
				r.sub(num, func(s *delivery.Subscriber) {
					s.Tenant, s.Ordering = delivery.TenantNum(i+1), delivery.OrderingNone //nolint:gosec // small
				})
			}
		}
		for range 60 {
			var batch []*delivery.Published
			for range 8 {
				batch = append(batch, r.fact(r.event("e", nil), all...))
			}
			if err := r.q.publish(batch...); err != nil {
				t.Fatal(err)
			}
		}
		settle(time.Second) // everybody is known by now
		mu.Lock()
		clear(perTenant)
		mu.Unlock()
		settle(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		index := jain(perTenant)
		t.Logf("Jain's index over %d tenants: %.4f; deliveries %v", tenants, index, perTenant)
		if index < 0.99 {
			t.Errorf("Jain's index %.4f, want at least 0.99", index)
		}
	})
}

// TestSimulation runs a large estate with Zipf traffic and faults through the
// scheduler in virtual time, and prints how late deliveries were.
func TestSimulation(t *testing.T) {
	const (
		subscribers = 100_000
		tenants     = 1000
		span        = 15 * time.Second
		seed        = 1
	)
	events := 30_000
	if raceEnabled {
		events /= 3
	}
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MaxInFlight = 2048 })
		r.send.lax, r.q.state.silent = true, true
		rnd := seeded(seed)
		zipf := rand.NewZipf(rnd, 1.1, 8, subscribers-1)
		kind := func(num delivery.SubscriberNum) int { return int(num * 2654435761 % 100) } //nolint:gosec // below 100
		r.send.setAnswer(func(c call) delivery.Result {
			switch k := kind(c.sub); {
			case k < 2:
				return hang(c, 15*time.Second, timeout())
			case k < 5:
				return hang(c, 5*time.Millisecond, status(503))
			default:
				return hang(c, time.Duration(5+k%40)*time.Millisecond, status(200))
			}
		})
		r.addMany(subscribers, tenants)
		published := map[string]time.Time{}
		const perBatch = 40
		for i := 0; i < events; i += perBatch {
			var batch []*delivery.Published
			for j := range perBatch {
				id := fmt.Sprint(i + j)
				published[id] = time.Now()
				batch = append(batch, r.fact(r.event(id, nil), delivery.SubscriberNum(1+zipf.Uint64())))
			}
			if err := r.q.publish(batch...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(span * perBatch / time.Duration(events))
		}
		settle(time.Second)
		r.reportLateness(published, kind)
	})
}

// addMany adds subscribers spread over tenants.
func (r *rig) addMany(subscribers, tenants int) {
	for num := 1; num <= subscribers; num++ {
		r.sub(delivery.SubscriberNum(num), func(s *delivery.Subscriber) {
			s.Tenant, s.Ordering = delivery.TenantNum(1+num%tenants), delivery.OrderingNone //nolint:gosec // small
		})
	}
}

func (r *rig) reportLateness(published map[string]time.Time, kind func(delivery.SubscriberNum) int) {
	var late []float64
	healthy := 0
	for _, c := range r.send.sent() {
		if kind(c.sub) < 5 || c.attempt > 1 {
			continue
		}
		healthy++
		late = append(late, float64(c.at.Sub(published[c.id]))/float64(time.Millisecond))
	}
	slices.Sort(late)
	at := func(p float64) float64 { return late[int(p*float64(len(late)-1))] }
	st := r.s.Stats()
	r.t.Logf("healthy deliveries %d, late by p50 %.1f ms, p99 %.1f ms, max %.1f ms; most in flight %d; now %+v",
		healthy, at(0.5), at(0.99), late[len(late)-1], r.send.most, st)
	if math.IsNaN(at(0.99)) || at(0.99) > 50 {
		r.t.Errorf("healthy deliveries are late by %.1f ms (p99)", at(0.99))
	}
}
