package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// nature is how a simulated subscriber answers.
type nature uint8

const (
	healthy nature = iota // 200 after one to five milliseconds
	failing               // 503
	slow                  // 200 after one to three seconds
	hanging               // never; the attempt times out
	natures
)

var natureNames = [natures]string{"healthy", "failing", "slow", "hanging"}

// world is the subscribers of a scheduler's benchmark and how they answer. It is
// the scheduler's Directory and its Sender.
type world struct {
	subs    []*delivery.Subscriber // by number - 1
	tenants []*delivery.Tenant     // by number - 1
	natures []nature
	seed    uint64

	offered   []atomic.Int64 // by number - 1
	delivered []atomic.Int64
	rest      atomic.Int64 // offered to healthy ones and not delivered yet
}

// hangFor is the timeout of an attempt; it bounds how long a hanging subscriber
// holds a slot.
const hangFor = 5 * time.Second

// newWorld makes subscribers whose tenant is given by tenantOf.
func newWorld(count, tenants int, seed uint64, tenantOf func(sub int) int, natureOf func(sub int) nature) *world {
	w := &world{
		subs: make([]*delivery.Subscriber, count), tenants: make([]*delivery.Tenant, tenants), natures: make([]nature, count), seed: seed,
		offered: make([]atomic.Int64, count), delivered: make([]atomic.Int64, count),
	}
	for i := range w.tenants {
		w.tenants[i] = &delivery.Tenant{Num: delivery.TenantNum(i + 1), ID: fmt.Sprintf("t%d", i), Version: 1} //nolint:gosec // a small number
	}
	ladder := delivery.Retry{Schedule: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}}
	for i := range w.subs {
		w.natures[i] = natureOf(i)
		w.subs[i] = &delivery.Subscriber{
			Num: subscriberNum(i, count), Tenant: w.tenants[tenantOf(i)].Num, ID: subscriberID(i), Version: 1,
			URL: "https://receiver.test/", Topics: []string{"*"}, Concurrency: delivery.DefaultConcurrency, Retry: ladder,
			Timeout: hangFor, DisableAfter: delivery.DefaultDisableAfter, Priority: delivery.PriorityNormal,
		}
	}
	return w
}

// Subscriber implements sched.Directory.
func (w *world) Subscriber(num delivery.SubscriberNum) (*delivery.Subscriber, error) {
	if num < 1 || int(num) > len(w.subs) { //nolint:gosec // bounded by our own numbers
		return nil, delivery.ErrNoSubscriber
	}
	return w.subs[num-1], nil
}

// Tenant implements sched.Directory.
func (w *world) Tenant(num delivery.TenantNum) (*delivery.Tenant, error) {
	if num < 1 || int(num) > len(w.tenants) {
		return nil, delivery.ErrNoTenant
	}
	return w.tenants[num-1], nil
}

// Send implements sched.Sender: it waits as long as the subscriber would.
func (w *world) Send(ctx context.Context, sub *delivery.Subscriber, event *delivery.Event, attempt int) delivery.Result {
	start := time.Now()
	wait, status := w.answer(sub, event, attempt)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return delivery.Result{Sent: delivery.SentAmbiguous, Cause: delivery.CauseShutdown, Phases: delivery.Phases{Total: time.Since(start)}}
	}
	r := delivery.Result{Status: status, Protocol: delivery.ProtocolHTTP2, Reused: true, Phases: delivery.Phases{Total: time.Since(start)}}
	if status == 0 {
		r.Sent, r.Cause = delivery.SentAmbiguous, delivery.CauseTimeout
		return r
	}
	r.Sent = delivery.SentProcessed
	if status == 200 {
		w.delivered[sub.Num-1].Add(1)
		if w.natures[sub.Num-1] == healthy {
			w.rest.Add(-1)
		}
	}
	return r
}

// answer is a function of the seed, the delivery and the attempt: the same run
// meets the same receivers.
func (w *world) answer(sub *delivery.Subscriber, event *delivery.Event, attempt int) (time.Duration, int) {
	rng := rand.New(rand.NewPCG(w.seed^uint64(sub.Num), uint64(event.Key[15])<<8|uint64(event.Key[14])<<16|uint64(attempt))) //nolint:gosec // repeatable, not secret
	between := func(low, high time.Duration) time.Duration { return low + time.Duration(rng.Int64N(int64(high-low))) }
	switch w.natures[sub.Num-1] {
	case failing:
		return between(time.Millisecond, 5*time.Millisecond), 503
	case slow:
		return between(time.Second, 3*time.Second), 200
	case hanging:
		return sub.Timeout, 0
	default:
		return between(time.Millisecond, 5*time.Millisecond), 200
	}
}

// offer counts an event for a subscriber.
func (w *world) offer(sub int) {
	w.offered[sub].Add(1)
	if w.natures[sub] == healthy {
		w.rest.Add(1)
	}
}

// served returns, for the subscribers of one nature that were offered anything,
// which share of it was delivered.
func (w *world) served(of nature) []float64 {
	var out []float64
	for i := range w.offered {
		if n := w.offered[i].Load(); n > 0 && w.natures[i] == of {
			out = append(out, float64(w.delivered[i].Load())/float64(n))
		}
	}
	return out
}
