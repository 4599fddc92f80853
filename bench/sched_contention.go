package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/stats"
	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/sched"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// ContentionMeasure is many tenants that all have more work than there are
// slots.
type ContentionMeasure struct {
	Slots      int           `json:"slots"`
	Seconds    float64       `json:"seconds"`
	Rate       float64       `json:"rate"` // attempts a second
	Tenants    []RivalTenant `json:"tenants"`
	JainTenant float64       `json:"jain_tenants"`
	// JainSubscriber is the least of the tenants' indexes over their own
	// subscribers.
	JainSubscriber float64 `json:"jain_subscribers_min"`
}

// RivalTenant is one of them.
type RivalTenant struct {
	Subscribers int     `json:"subscribers"`
	Backlog     int     `json:"backlog"`
	Delivered   int64   `json:"delivered"` // in the window
	Jain        float64 `json:"jain"`      // over its subscribers
}

// maxRivals bounds the subscribers of one tenant in the contention, so that each
// gets more than a few deliveries: an index over ones and twos says nothing.
const maxRivals = 64

// contention gives tenants with 1, 2, 4 … subscribers backlogs that do not fit
// the window, and counts who gets how much of the slots.
func (r *schedRun) contention(ctx context.Context) (err error) {
	store, err := memoryStore()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	var owner []int // tenant of each subscriber
	sizes := make([]int, r.c.Rivals)
	for t := range sizes {
		// The smallest tenant must be able to use its share.
		sizes[t] = min(maxRivals, max(1, r.c.Slots/r.c.Rivals/2)<<min(t, 16))
		for range sizes[t] {
			owner = append(owner, t)
		}
	}
	w := newWorld(len(owner), r.c.Rivals, r.c.Run.Seed, func(sub int) int { return owner[sub] }, func(int) nature { return healthy })
	m := &ContentionMeasure{Slots: r.c.Slots}
	r.data.Contention = m
	if err := r.rivalBacklog(ctx, store, w, owner, sizes); err != nil {
		return err
	}
	s, err := sched.New(store, w, w, sched.Config{MaxInFlight: r.c.Slots, DrainFor: -1})
	if err != nil {
		return err
	}
	store.SetHooks(storage.Hooks{Admit: s.Admit, Committed: s.Committed, Aborted: s.Aborted})
	if err := s.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	return r.shares(ctx, w, owner, sizes, m)
}

// rivalBacklog queues, for each tenant, twice what all slots could deliver in
// the window and its warm-up.
func (r *schedRun) rivalBacklog(ctx context.Context, store *storage.Store, w *world, owner, sizes []int) error {
	const usual = 2 * time.Millisecond // below the mean of world.answer
	perTenant := int(float64(r.c.Slots)*(r.c.Window+rivalWarmUp).Seconds()/usual.Seconds())/r.c.Rivals*2 + 1
	events, err := newEventMaker("c", r.c.Body, r.c.Run.Seed)
	if err != nil {
		return err
	}
	var batch []*delivery.Published
	flush := func() error {
		err := publishAll(ctx, store, batch...)
		batch = nil
		return err
	}
	n := 0
	for sub, t := range owner {
		for range perTenant/sizes[t] + 1 {
			w.offer(sub)
			batch = append(batch, events.event(n, subscriberNum(sub, len(owner))))
			n++
			if len(batch) == fillBatch {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	r.progress.say("%d tenants with %d subscribers have %d deliveries queued for %d slots", r.c.Rivals, len(owner), n, r.c.Slots)
	return flush()
}

// rivalWarmUp passes before shares are counted: all backlogs are found by then.
const rivalWarmUp = 500 * time.Millisecond

func (r *schedRun) shares(ctx context.Context, w *world, owner, sizes []int, m *ContentionMeasure) error {
	if !sleepUntil(ctx, time.Now().Add(rivalWarmUp)) {
		return ctx.Err()
	}
	start, before := time.Now(), make([]int64, len(owner))
	for i := range before {
		before[i] = w.delivered[i].Load()
	}
	if !sleepUntil(ctx, start.Add(r.c.Window)) {
		return ctx.Err()
	}
	m.Seconds = time.Since(start).Seconds()
	m.Tenants = make([]RivalTenant, len(sizes))
	each := make([][]float64, len(sizes))
	total := int64(0)
	for i, t := range owner {
		got := w.delivered[i].Load() - before[i]
		m.Tenants[t].Subscribers++
		m.Tenants[t].Backlog += int(w.offered[i].Load())
		m.Tenants[t].Delivered += got
		each[t] = append(each[t], float64(got))
		total += got
		if w.delivered[i].Load() >= w.offered[i].Load() {
			r.failures = append(r.failures, fmt.Sprintf("subscriber %d had no backlog left: the contention was over before its end", i))
		}
	}
	m.Rate, m.JainSubscriber = float64(total)/m.Seconds, 1
	all := make([]float64, len(sizes))
	for t := range sizes {
		all[t] = float64(m.Tenants[t].Delivered)
		m.Tenants[t].Jain = stats.Jain(each[t])
		m.JainSubscriber = min(m.JainSubscriber, m.Tenants[t].Jain)
	}
	m.JainTenant = stats.Jain(all)
	r.progress.say("%.0f attempts/s; Jain's index over tenants %.4f, over subscribers at least %.4f", m.Rate, m.JainTenant, m.JainSubscriber)
	return nil
}
