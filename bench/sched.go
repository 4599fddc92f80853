package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/sched"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// NatureMeasure is how the subscribers of one nature were served.
type NatureMeasure struct {
	Nature      string        `json:"nature"`
	Subscribers int           `json:"subscribers"` // that were offered anything
	Offered     int64         `json:"offered"`
	Delivered   int64         `json:"delivered"` // when the last event had been published
	Attempts    int           `json:"attempts"`
	Lateness    stats.Latency `json:"lateness"` // from when a row could be sent to when it was
	CDF         []stats.Point `json:"cdf,omitempty"`
	Jain        float64       `json:"jain"` // of the delivered share of what each was offered
}

// ZipfMeasure is the traffic with faults.
type ZipfMeasure struct {
	Published  int             `json:"published"`
	Seconds    float64         `json:"seconds"`
	Offered    float64         `json:"offered_rate"` // events a second that were published
	Attempts   float64         `json:"attempt_rate"`
	Natures    []NatureMeasure `json:"natures"`
	SettledS   float64         `json:"healthy_settled_s"` // after the last publish; negative = not within the time
	PeakFlight int             `json:"in_flight_max"`
	PeakSlow   int             `json:"slow_max"`
	PeakActors int             `json:"actors_max"`
	RSS        int64           `json:"rss_max"`
	CPU        float64         `json:"cpu_ms_per_1000_attempts"` // store and simulated receivers included
	InFlight   []stats.Point   `json:"in_flight"`                // s, attempts
	Slow       []stats.Point   `json:"slow"`
}

// SchedData are the raw figures of a run, in its JSON report.
type SchedData struct {
	Config     SchedConfig        `json:"config"`
	Zipf       *ZipfMeasure       `json:"zipf,omitempty"`
	Contention *ContentionMeasure `json:"contention,omitempty"`
}

// Sched measures the scheduler: a real store in memory, simulated subscribers,
// real time.
func Sched(ctx context.Context, c SchedConfig) (*report.Report, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("bench sched: %w", err)
	}
	rep, _ := c.Run.begin("dispatcher bench sched")
	r := &schedRun{c: c, progress: newProgress(c.Run.Progress), data: SchedData{Config: c}}
	if slices.Contains(c.Parts, "zipf") {
		if err := r.zipf(ctx); err != nil {
			return nil, fmt.Errorf("bench sched: zipf: %w", err)
		}
	}
	if slices.Contains(c.Parts, "contention") {
		if err := r.contention(ctx); err != nil {
			return nil, fmt.Errorf("bench sched: contention: %w", err)
		}
	}
	rep.Took = time.Since(rep.Started)
	r.fill(rep)
	return rep, nil
}

type schedRun struct {
	c        SchedConfig
	progress *progress
	data     SchedData
	failures []string
}

// memoryStore is a store without a disk: the scheduler is measured, not fsync.
func memoryStore() (*storage.Store, error) {
	return storage.Open(storage.Config{Dir: "store", FS: storage.InMemory(), Watermark: storage.Watermark{Bytes: -1}, Retention: storage.Retention{Every: -1}})
}

// attempts collects what the scheduler reports.
type attempts struct {
	world *world
	mu    [natures]sync.Mutex
	late  [natures][]time.Duration
}

func (a *attempts) finished(e sched.AttemptFinished) {
	n := a.world.natures[e.Subscriber.Num-1]
	a.mu[n].Lock()
	defer a.mu[n].Unlock()
	a.late[n] = append(a.late[n], max(0, e.Lateness))
}

// natureOf draws a subscriber's nature.
func (c SchedConfig) natureOf(rng *rand.Rand) nature {
	switch x := rng.Float64(); {
	case x < max(0, c.Failing):
		return failing
	case x < max(0, c.Failing)+max(0, c.Slow):
		return slow
	case x < max(0, c.Failing)+max(0, c.Slow)+max(0, c.Hanging):
		return hanging
	}
	return healthy
}

func (r *schedRun) zipf(ctx context.Context) (err error) {
	store, err := memoryStore()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	rng := rand.New(rand.NewPCG(r.c.Run.Seed, 0x7a697066)) //nolint:gosec // repeatable, not secret
	w := newWorld(r.c.Subscribers, r.c.Tenants, r.c.Run.Seed,
		func(sub int) int { return sub % r.c.Tenants }, func(int) nature { return r.c.natureOf(rng) })
	seen := &attempts{world: w}
	s, err := sched.New(store, w, w, sched.Config{Observer: sched.Observer{AttemptFinished: seen.finished}, DrainFor: -1})
	if err != nil {
		return err
	}
	store.SetHooks(storage.Hooks{Admit: s.Admit, Committed: s.Committed, Aborted: s.Aborted})
	if err := s.Start(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop(context.WithoutCancel(ctx))) }()
	m := &ZipfMeasure{}
	r.data.Zipf = m
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { m.watch(watching, s) })
	err = r.traffic(ctx, store, w, rng, seen, m)
	stop()
	watcher.Wait()
	return err
}

// traffic publishes, takes stock at the end of it, and waits for the healthy
// ones' rest.
func (r *schedRun) traffic(ctx context.Context, store *storage.Store, w *world, rng *rand.Rand, seen *attempts, m *ZipfMeasure) error {
	before, err := host.UsageOf(os.Getpid())
	if err != nil {
		return err
	}
	r.progress.say("%d subscribers, %.0f events/s for %s", r.c.Subscribers, r.c.Rate, r.c.For)
	start := time.Now()
	if err := r.publish(ctx, store, w, rng, m); err != nil {
		return err
	}
	m.Seconds = time.Since(start).Seconds()
	after, err := host.UsageOf(os.Getpid())
	if err != nil {
		return err
	}
	m.stock(w, seen)
	m.Offered = float64(m.Published) / m.Seconds
	total := 0
	for _, n := range m.Natures {
		total += n.Attempts
	}
	m.Attempts = float64(total) / m.Seconds
	m.CPU = quotient((after.CPU-before.CPU).Seconds()*1000, float64(total)/1000)
	m.RSS = after.Peak
	r.progress.say("published %d events at %.0f/s, %.0f attempts/s; lateness of healthy ones p99 %.1f ms", m.Published, m.Offered, m.Attempts, m.Natures[healthy].Lateness.P99)
	m.SettledS = r.settle(ctx, w)
	if m.SettledS < 0 {
		r.failures = append(r.failures, fmt.Sprintf("%d deliveries to healthy subscribers were not made within %s after the last event", w.rest.Load(), r.c.Settle))
	}
	return ctx.Err()
}

// publish is open-loop: a batch of what is due every few milliseconds, whatever
// the scheduler does.
func (r *schedRun) publish(ctx context.Context, store *storage.Store, w *world, rng *rand.Rand, m *ZipfMeasure) error {
	const step = 5 * time.Millisecond
	zipf := rand.NewZipf(rng, r.c.Zipf, 1, uint64(r.c.Subscribers-1)) //nolint:gosec // positive
	place := rng.Perm(r.c.Subscribers)                                // so that rank says nothing about nature or tenant
	events, err := newEventMaker("z", r.c.Body, r.c.Run.Seed)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(64)
	begin := time.Now()
	for tick := 1; gctx.Err() == nil; tick++ {
		due := time.Duration(tick) * step
		if due > r.c.For || !sleepUntil(gctx, begin.Add(due)) {
			break
		}
		var batch []*delivery.Published
		for ; float64(m.Published) < r.c.Rate*due.Seconds(); m.Published++ {
			sub := place[zipf.Uint64()]
			w.offer(sub)
			batch = append(batch, events.event(m.Published, subscriberNum(sub, r.c.Subscribers)))
		}
		if len(batch) > 0 {
			g.Go(func() error { return publishAll(gctx, store, batch...) })
		}
	}
	return errors.Join(g.Wait(), ctx.Err())
}

func sleepUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// stock counts how each nature was served.
func (m *ZipfMeasure) stock(w *world, seen *attempts) {
	for n := range natures {
		seen.mu[n].Lock()
		late := slices.Clone(seen.late[n])
		seen.mu[n].Unlock()
		one := NatureMeasure{Nature: natureNames[n], Attempts: len(late)}
		one.Lateness, one.CDF = latencyOf([][]time.Duration{late})
		shares := w.served(n)
		one.Subscribers, one.Jain = len(shares), stats.Jain(shares)
		for i := range w.natures {
			if w.natures[i] == n {
				one.Offered += w.offered[i].Load()
				one.Delivered += w.delivered[i].Load()
			}
		}
		m.Natures = append(m.Natures, one)
	}
}

// settle waits until the healthy subscribers have everything and returns how
// long that took, or -1.
func (r *schedRun) settle(ctx context.Context, w *world) float64 {
	start := time.Now()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for w.rest.Load() > 0 {
		if time.Since(start) > r.c.Settle {
			return -1
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return -1
		}
	}
	return time.Since(start).Seconds()
}

// watch samples the scheduler's gauges.
func (m *ZipfMeasure) watch(ctx context.Context, s *sched.Scheduler) {
	const every = 100 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for at := 0.0; ; at += every.Seconds() {
		g := s.Stats()
		m.PeakFlight, m.PeakSlow, m.PeakActors = max(m.PeakFlight, g.InFlight), max(m.PeakSlow, g.Slow), max(m.PeakActors, g.Actors)
		m.InFlight = append(m.InFlight, stats.Point{X: at, Y: float64(g.InFlight)})
		m.Slow = append(m.Slow, stats.Point{X: at, Y: float64(g.Slow)})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
