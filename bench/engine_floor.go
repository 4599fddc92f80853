package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/load"
)

// setting is how a floor is run: how many goroutines post, and on how many
// connections where those are shared.
type setting struct{ concurrency, conns int }

// stacks are the floors that the run's workloads are compared with.
func (r *engineRun) stacks() []load.Stack {
	var out []load.Stack
	if slices.ContainsFunc(r.c.Workloads, func(name string) bool { return besidePlain[name] }) {
		out = append(out, load.Client, load.ClientConn)
	}
	for _, w := range r.secured() {
		if r.wants(w.name) {
			out = append(out, w.floor)
		}
	}
	return out
}

// besidePlain are the workloads that are compared with the floors over plain
// HTTP/1.1.
var besidePlain = map[string]bool{
	"drain": true, "fan-out": true, "single": true, "batch": true, "accept": true, "accept-batch": true, "scale": true,
}

// settings are those that a stack is tried with.
func (r *engineRun) settings(stack load.Stack) []setting {
	conns := []int{0}
	if stack.Multiplexed() {
		conns = r.c.FloorConns
	}
	var out []setting
	for _, concurrency := range r.c.FloorConcurrency {
		for _, n := range conns {
			if n <= concurrency {
				out = append(out, setting{concurrency, n})
			}
		}
	}
	return out
}

// calibrate measures each floor once at every setting, so that the rounds need to
// repeat the best few only.
func (r *engineRun) calibrate(ctx context.Context) error {
	for i, stack := range r.stacks() {
		all := r.settings(stack)
		if i == 0 {
			// The first floor pays for the receiver's and the generator's own warm-up.
			if _, err := r.floorAt(ctx, stack, all[0]); err != nil {
				return err
			}
		}
		rates := map[setting]float64{}
		for _, s := range all {
			f, err := r.floorAt(ctx, stack, s)
			if err != nil {
				return err
			}
			rates[s] = f.Rate
			r.progress.say("floor: %s: %.0f/s", f.name(stack), f.Rate)
		}
		slices.SortStableFunc(all, func(a, b setting) int { return cmp.Compare(rates[b], rates[a]) })
		r.best[stack] = all[:min(r.c.FloorKeep, len(all))]
	}
	return nil
}

// name says how a floor was run.
func (f FloorRate) name(stack load.Stack) string {
	if stack.Multiplexed() {
		return fmt.Sprintf("%s, %d at a time on %d connection(s)", stack, f.Concurrency, f.Conns)
	}
	return fmt.Sprintf("%s on %d connections", stack, f.Concurrency)
}

// floor measures a stack's best settings and returns the best of them.
func (r *engineRun) floor(ctx context.Context, stack load.Stack) (FloorRate, error) {
	var best FloorRate
	for _, s := range r.best[stack] {
		f, err := r.floorAt(ctx, stack, s)
		if err != nil {
			return best, err
		}
		if f.Rate > best.Rate {
			best = f
		}
	}
	return best, nil
}

// floors measures what a workload is compared with.
func (r *engineRun) floors(ctx context.Context, w workload, m *Measure) error {
	var err error
	if w.noFloor {
		return nil
	}
	if w.floor != "" {
		m.Floor, err = r.floor(ctx, w.floor)
		return err
	}
	if m.Floor, err = r.floor(ctx, load.Client); err != nil {
		return err
	}
	m.FloorConn, err = r.floor(ctx, load.ClientConn)
	return err
}

func (r *engineRun) floorAt(ctx context.Context, stack load.Stack, at setting) (FloorRate, error) {
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
		Concurrency: at.concurrency, Conns: at.conns, Body: r.c.Body, Seed: r.c.Run.Seed,
	}
	if stack.Multiplexed() {
		task.Origins, task.CA = []string{r.secure.Origin}, r.secure.CAPEM
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
		Rate: got.Rate(r.c.FloorPosts), Concurrency: at.concurrency, Conns: at.conns, Latency: got.Latency,
		CPU: (after.CPU - before.CPU).Seconds() * 1000 / (float64(r.c.FloorPosts) / 1000),
	}, nil
}
