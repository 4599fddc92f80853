package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dispatcher-engine/dispatcher/bench/load"
)

// hanging makes subscribers that nothing is known about hang, with a backlog,
// in each disturbed side; they are deleted after it.
func (r *isolationRun) hanging() trial {
	return trial{
		name: "hanging", during: r.c.HangWindow, rate: r.c.Rate, tenants: []string{tenant},
		disturb: func(ctx context.Context, n *node, tag string, side *IsolationSide) (func(context.Context) error, error) {
			id := func(i int) string { return tag + "-" + strconv.Itoa(i) }
			err := n.each(ctx, r.c.Hanging, func(ctx context.Context, i int) error {
				return r.subscribe(ctx, n, tenant, r.c.Healthy+i, subscriber{
					ID: id(i), Topics: []string{load.TopicHang}, Timeout: r.c.HangFor.String(),
				})
			})
			if err != nil {
				return nil, err
			}
			backlog := load.Publish{
				Tenant: tenant, Tag: tag + "-hang", Topic: load.TopicHang, Events: r.c.HangBacklog, Batch: max(2, r.c.HangBacklog), Connections: 1,
			}
			if _, err := r.publish(ctx, n, backlog); err != nil {
				return nil, err
			}
			if err := r.allHang(ctx, side); err != nil {
				return nil, err
			}
			return func(ctx context.Context) error {
				return n.each(ctx, r.c.Hanging, func(ctx context.Context, i int) error {
					return n.call(ctx, http.MethodDelete, subscribersPath+"/"+id(i), nil, nil)
				})
			}, nil
		},
	}
}

// allHang waits until every hanging subscriber has a request that hangs.
func (r *isolationRun) allHang(ctx context.Context, side *IsolationSide) error {
	const patience = 3 * time.Second
	if err := r.receiver.Call(ctx, "wait", load.Wait{Hanging: r.c.Hanging, Quiet: patience}, nil); err != nil {
		return err
	}
	var seen load.Seen
	if err := r.receiver.Call(ctx, "seen", nil, &seen); err != nil {
		return err
	}
	side.Hanging = seen.Hanging
	if seen.Hanging < r.c.Hanging {
		r.doubts = append(r.doubts, fmt.Sprintf("hanging: %d of %d subscribers had a request that hangs", seen.Hanging, r.c.Hanging))
	}
	return nil
}

const noisyTenant = "noisy"

// noisy lets one tenant publish many times what each of the others does.
func (r *isolationRun) noisy() trial {
	t := trial{name: "noisy", during: r.c.For, rate: r.c.Rate, moves: true}
	for i := range r.c.Tenants {
		t.tenants = append(t.tenants, "quiet"+strconv.Itoa(i))
	}
	subscribers := max(1, r.c.Healthy/r.c.Tenants) // as many as each of the others has
	t.setup = func(ctx context.Context, n *node) error {
		if err := n.call(ctx, http.MethodPut, "/v1/tenants/"+noisyTenant, struct{}{}, nil); err != nil {
			return err
		}
		return n.each(ctx, subscribers, func(ctx context.Context, i int) error {
			return r.subscribe(ctx, n, noisyTenant, i, subscriber{
				ID: subscriberID(i), Topics: []string{load.TopicOf(i)}, URL: r.origins[r.c.Healthy+i] + load.Path(i),
			})
		})
	}
	t.disturb = func(ctx context.Context, n *node, tag string, _ *IsolationSide) (func(context.Context) error, error) {
		rate := r.c.Noise * r.c.Rate / float64(r.c.Tenants)
		noise := load.Publish{
			Tenant: noisyTenant, Tag: tag + "-noise", Subscribers: subscribers, Batch: r.c.NoiseBatch, Rate: rate,
			Events: max(1, int(rate*t.during.Seconds())),
		}
		var g errgroup.Group
		g.Go(func() error {
			_, err := r.publish(ctx, n, noise)
			return err
		})
		return func(ctx context.Context) error {
			return errors.Join(g.Wait(), r.strays(ctx, noise.Events))
		}, nil
	}
	return t
}

// lanes measures high priority beside a backlog of low priority of the same
// subscribers, on a node with few slots and receivers that take their time.
func (r *isolationRun) lanes() trial {
	t := trial{
		name: "lanes", during: r.c.For, rate: r.c.Rate / 2, delay: r.c.Delay, tenants: []string{tenant}, priority: "high", moves: true,
		env: []string{"DISPATCHER_LIMITS_IN_FLIGHT=" + strconv.Itoa(r.c.Slots)},
	}
	t.disturb = func(ctx context.Context, n *node, tag string, _ *IsolationSide) (func(context.Context) error, error) {
		// Half as much again as all slots can do in that time.
		backlog := int(1.5 * float64(r.c.Slots) * t.during.Seconds() / r.c.Delay.Seconds())
		low := load.Publish{
			Tenant: tenant, Tag: tag + "-low", Priority: "low", Subscribers: r.c.Healthy, Events: backlog, Batch: 500, Connections: 4,
		}
		if _, err := r.publish(ctx, n, low); err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return r.strays(ctx, backlog) }, nil
	}
	return t
}

// strays waits until what the phase does not expect has arrived, too.
func (r *isolationRun) strays(ctx context.Context, count int) error {
	var reached bool
	if err := r.receiver.Call(ctx, "wait", load.Wait{Stray: count, Quiet: quiet}, &reached); err != nil {
		return err
	}
	if !reached {
		r.fail("not all of %d deliveries of the others arrived", count)
	}
	return nil
}
