package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// cleaner removes what deleted tenants and subscribers left behind: pending
// deliveries are canceled with the reason on their timelines, dead letters and
// events go. The registry lists what is still to do, over restarts too.
//
// Invariant: one goroutine, from start to stop. It sleeps until it is kicked;
// an idle node runs no timer for it unless a run failed.
type cleaner struct {
	engine *Engine
	wake   chan struct{}
	cancel context.CancelFunc
	done   sync.WaitGroup
}

const (
	cleanChunk = 100
	cleanAgain = 10 * time.Second
)

func newCleaner(e *Engine) *cleaner { return &cleaner{engine: e, wake: make(chan struct{}, 1)} }

// kick says that there may be something to do.
func (c *cleaner) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *cleaner) start() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel = cancel
	c.kick() // what a crash left
	c.done.Go(func() { c.run(ctx) })
}

func (c *cleaner) stop(context.Context) error {
	c.cancel()
	c.done.Wait()
	return nil
}

func (c *cleaner) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		for err := c.clean(ctx); err != nil && ctx.Err() == nil; err = c.clean(ctx) {
			c.engine.logger.Error("cleaning_failed", "error", err.Error())
			select {
			case <-ctx.Done():
				return
			case <-time.After(cleanAgain):
			}
		}
	}
}

func (c *cleaner) clean(ctx context.Context) error {
	if err := c.subscribers(ctx); err != nil {
		return err
	}
	return c.tenants(ctx)
}

func (c *cleaner) subscribers(ctx context.Context) error {
	e := c.engine
	for after := delivery.SubscriberNum(0); ; {
		list, err := e.registry.DeletedSubscribers(after, cleanChunk)
		if err != nil {
			return fmt.Errorf("list deleted subscribers: %w", err)
		}
		for _, s := range list {
			if err := c.drop(ctx, s.Num, delivery.ReasonSubscriberDeleted); err != nil {
				return err
			}
			if err := e.registry.SubscriberCleaned(s.Num); err != nil {
				return fmt.Errorf("mark subscriber %d cleaned: %w", s.Num, err)
			}
			after = s.Num
		}
		if len(list) < cleanChunk {
			return nil
		}
	}
}

func (c *cleaner) drop(ctx context.Context, num delivery.SubscriberNum, reason delivery.Reason) error {
	c.engine.sched.Forget(num)
	if err := c.engine.store.DropSubscriber(ctx, time.Now(), num, reason); err != nil {
		return fmt.Errorf("drop subscriber %d: %w", num, err)
	}
	return nil
}

func (c *cleaner) tenants(ctx context.Context) error {
	e := c.engine
	for after := delivery.TenantNum(0); ; {
		list, err := e.registry.DeletedTenants(after, cleanChunk)
		if err != nil {
			return fmt.Errorf("list deleted tenants: %w", err)
		}
		for _, t := range list {
			if err := c.tenant(ctx, t.Num); err != nil {
				return err
			}
			after = t.Num
		}
		if len(list) < cleanChunk {
			return nil
		}
	}
}

func (c *cleaner) tenant(ctx context.Context, num delivery.TenantNum) error {
	e := c.engine
	for {
		members, err := e.registry.Members(num, cleanChunk)
		if err != nil {
			return fmt.Errorf("list members of tenant %d: %w", num, err)
		}
		if len(members) == 0 {
			break
		}
		for _, m := range members {
			if err := c.drop(ctx, m.Num, delivery.ReasonTenantDeleted); err != nil {
				return err
			}
		}
		if err := e.registry.MembersCleaned(num, members); err != nil {
			return fmt.Errorf("mark members of tenant %d cleaned: %w", num, err)
		}
	}
	if err := e.store.ExpungeTenant(ctx, time.Now(), num); err != nil {
		return fmt.Errorf("expunge tenant %d: %w", num, err)
	}
	return e.registry.TenantCleaned(num)
}
