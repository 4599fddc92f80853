package engine

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// Backlog is what waits on the node and what is dead, as it was counted last.
type Backlog struct {
	// At is when the count ended, zero if there was none yet, and Took how long it
	// ran.
	At   time.Time
	Took time.Duration
	// Ready can be sent, Retrying waits for its time, Parked for an earlier event of
	// its ordering key.
	Ready, Retrying, Parked int64
	Dead                    int64
	// Oldest is when the oldest that waits was accepted; zero = nothing waits.
	Oldest time.Time
	// Worst are the tenants with the most that waits, the oldest that waits, and the
	// most dead letters: at most [WorstTenants] of each.
	Worst []TenantBacklog
}

// TenantBacklog is one tenant's part of a [Backlog].
type TenantBacklog struct {
	Tenant  string
	Waiting int64
	Dead    int64
	Oldest  time.Time
}

// WorstTenants is how many tenants are named by each measure.
const WorstTenants = 10

// census counts the backlog now and then. The store keeps no counters per tenant,
// which would cost every delivery a write; counting costs a step per row instead,
// so it is done in the background, at most [censusShare] of one processor, and only
// while somebody asks for it.
//
// Invariant: one goroutine, from start to stop, asleep until it is asked.
type census struct {
	engine *Engine
	wake   chan struct{}
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu   sync.Mutex
	last Backlog
}

const (
	// censusEvery is how old a count may be before a new one is begun.
	censusEvery = 10 * time.Second
	// censusShare is the part of the time that a count may use.
	censusShare = 20 // 1/20
)

func newCensus(e *Engine) *census { return &census{engine: e, wake: make(chan struct{}, 1)} }

func (c *census) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.ask()
	c.done.Go(func() { c.run(ctx) })
}

func (c *census) stop(context.Context) error {
	c.cancel()
	c.done.Wait()
	return nil
}

func (c *census) ask() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Backlog returns the last count, and has a new one begun if that is old. It never
// waits.
func (e *Engine) Backlog() Backlog {
	c := e.census
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.last.At) > censusEvery {
		c.ask()
	}
	return c.last
}

func (c *census) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		c.mu.Lock()
		fresh := time.Since(c.last.At) < censusEvery // asked for while it ran
		c.mu.Unlock()
		if fresh {
			continue
		}
		counted, err := c.count(ctx)
		switch {
		case err == nil:
			c.mu.Lock()
			c.last = counted
			c.mu.Unlock()
		case ctx.Err() == nil && !errors.Is(err, delivery.ErrNotReady):
			c.engine.logger.Warn("backlog_not_counted", "error", err.Error())
		}
	}
}

func (c *census) count(ctx context.Context) (Backlog, error) {
	start := time.Now()
	out := Backlog{}
	tenants := map[delivery.TenantNum]*TenantBacklog{}
	from := start
	pace := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After((censusShare - 1) * time.Since(from)):
			from = time.Now()
			return nil
		}
	}
	err := c.engine.store.Census(ctx, pace, func(n storage.Counted) { c.add(&out, tenants, n) })
	if err != nil {
		return Backlog{}, err
	}
	out.Worst = c.worst(tenants)
	out.At = time.Now()
	out.Took = out.At.Sub(start)
	return out, nil
}

func (c *census) add(out *Backlog, tenants map[delivery.TenantNum]*TenantBacklog, n storage.Counted) {
	tenant, _, err := c.engine.registry.Identify(n.Subscriber)
	if err != nil {
		tenant = 0 // deleted: it is canceled soon
	}
	t := tenants[tenant]
	if t == nil {
		t = &TenantBacklog{}
		tenants[tenant] = t
	}
	switch {
	case n.Dead:
		out.Dead += n.Rows
		t.Dead += n.Rows
		return
	case n.Place == delivery.PlaceRetry:
		out.Retrying += n.Rows
	case n.Place == delivery.PlaceParked:
		out.Parked += n.Rows
	default:
		out.Ready += n.Rows
	}
	t.Waiting += n.Rows
	out.Oldest, t.Oldest = earlier(out.Oldest, n.Oldest), earlier(t.Oldest, n.Oldest)
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// worst names the tenants that an operator looks for first.
func (c *census) worst(tenants map[delivery.TenantNum]*TenantBacklog) []TenantBacklog {
	nums := make([]delivery.TenantNum, 0, len(tenants))
	for num := range tenants {
		nums = append(nums, num)
	}
	chosen := map[delivery.TenantNum]bool{}
	choose := func(less func(a, b *TenantBacklog) int, counts func(*TenantBacklog) bool) {
		slices.SortFunc(nums, func(a, b delivery.TenantNum) int {
			return cmp.Or(less(tenants[a], tenants[b]), cmp.Compare(a, b))
		})
		for _, num := range nums[:min(WorstTenants, len(nums))] {
			chosen[num] = chosen[num] || counts(tenants[num])
		}
	}
	choose(func(a, b *TenantBacklog) int { return cmp.Compare(b.Waiting, a.Waiting) }, func(t *TenantBacklog) bool { return t.Waiting > 0 })
	choose(func(a, b *TenantBacklog) int { return cmp.Compare(b.Dead, a.Dead) }, func(t *TenantBacklog) bool { return t.Dead > 0 })
	now := time.Now()
	age := func(t *TenantBacklog) time.Duration {
		if t.Oldest.IsZero() {
			return 0
		}
		return now.Sub(t.Oldest)
	}
	choose(func(a, b *TenantBacklog) int { return cmp.Compare(age(b), age(a)) }, func(t *TenantBacklog) bool { return t.Waiting > 0 })
	var out []TenantBacklog
	for num := range chosen {
		t, err := c.engine.directory.Tenant(num)
		if err != nil || !chosen[num] {
			continue // deleted
		}
		row := *tenants[num]
		row.Tenant = t.ID
		out = append(out, row)
	}
	slices.SortFunc(out, func(a, b TenantBacklog) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Tenant, b.Tenant))
	})
	return out
}
