package bench

import (
	"context"
	"fmt"
	"slices"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/load"
)

var stacks = []load.Stack{load.Client, load.ClientConn}

// calibrate measures each floor once at every concurrency, so that the rounds
// need to repeat the best few only.
func (r *engineRun) calibrate(ctx context.Context) error {
	// The first floor pays for the receiver's and the generator's own warm-up.
	if _, err := r.floorAt(ctx, load.Client, r.c.FloorConcurrency[0]); err != nil {
		return err
	}
	for _, stack := range stacks {
		rates := map[int]float64{}
		order := slices.Clone(r.c.FloorConcurrency)
		for _, concurrency := range order {
			f, err := r.floorAt(ctx, stack, concurrency)
			if err != nil {
				return err
			}
			rates[concurrency] = f.Rate
			r.progress.say("floor: %s on %d connections: %.0f/s", stack, concurrency, f.Rate)
		}
		slices.SortFunc(order, func(a, b int) int {
			switch {
			case rates[a] > rates[b]:
				return -1
			case rates[a] < rates[b]:
				return 1
			}
			return a - b
		})
		r.best[stack] = order[:min(r.c.FloorKeep, len(order))]
	}
	return nil
}

// floor measures a stack's best concurrencies and returns the best of them.
func (r *engineRun) floor(ctx context.Context, stack load.Stack) (FloorRate, error) {
	var best FloorRate
	for _, concurrency := range r.best[stack] {
		f, err := r.floorAt(ctx, stack, concurrency)
		if err != nil {
			return best, err
		}
		if f.Rate > best.Rate {
			best = f
		}
	}
	return best, nil
}

// floors measures both.
func (r *engineRun) floors(ctx context.Context, m *Measure) error {
	var err error
	if m.Floor, err = r.floor(ctx, load.Client); err != nil {
		return err
	}
	m.FloorConn, err = r.floor(ctx, load.ClientConn)
	return err
}

func (r *engineRun) floorAt(ctx context.Context, stack load.Stack, concurrency int) (FloorRate, error) {
	const tag = "floor"
	if err := r.receiver.Call(ctx, "begin", load.Phase{Tag: tag, Events: r.c.FloorPosts, Subscribers: r.c.Subscribers, Hang: -1}, nil); err != nil {
		return FloorRate{}, err
	}
	before, err := host.UsageOf(r.load.PID())
	if err != nil {
		return FloorRate{}, err
	}
	var got load.Posted
	task := load.Floor{
		Stack: stack, Origins: r.origins, Tag: tag, Posts: r.c.FloorPosts, Subscribers: r.c.Subscribers,
		Concurrency: concurrency, Body: r.c.Body, Seed: r.c.Run.Seed,
	}
	if err := r.load.Call(ctx, "floor", task, &got); err != nil {
		return FloorRate{}, err
	}
	after, err := host.UsageOf(r.load.PID())
	if err != nil {
		return FloorRate{}, err
	}
	var seen load.Seen
	if err := r.receiver.Call(ctx, "seen", nil, &seen); err != nil {
		return FloorRate{}, err
	}
	if got.Failed > 0 || seen.Arrived != r.c.FloorPosts {
		return FloorRate{}, fmt.Errorf("floor: %d of %d posts arrived, %d failed: %s", seen.Arrived, r.c.FloorPosts, got.Failed, got.Error)
	}
	return FloorRate{
		Rate: got.Rate(r.c.FloorPosts), Concurrency: concurrency, Latency: got.Latency,
		CPU: (after.CPU - before.CPU).Seconds() * 1000 / (float64(r.c.FloorPosts) / 1000),
	}, nil
}
