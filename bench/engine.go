package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/load"
	"github.com/dispatcher-engine/dispatcher/bench/report"
)

// Engine measures a node: durable publish, signed delivery, 2xx. Node, load
// generator and receiver are processes of their own. It returns a report also
// when promises did not hold (its Failures say which); an error means that
// there is none.
func Engine(ctx context.Context, c EngineConfig) (*report.Report, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("bench engine: %w", err)
	}
	r := &engineRun{c: c, stage: newStage(c.Run, c.NodeConfig), best: map[load.Stack][]setting{}}
	rep, _ := c.Run.begin("dispatcher bench engine")
	err := r.open()
	if err == nil {
		err = r.measure(ctx)
	}
	err = errors.Join(err, r.close())
	if err != nil {
		return nil, fmt.Errorf("bench engine: %w", err)
	}
	rep.Took = time.Since(rep.Started)
	r.fill(rep)
	return rep, nil
}

// engineRun is one run of [Engine].
type engineRun struct {
	stage
	c        EngineConfig
	hangs    string                   // origin of the one that hangs
	secure   load.Secure              // the origin for HTTP/2 and HTTP/3; zero if no workload asks
	best     map[load.Stack][]setting // best first
	measures []Measure
	inFlight []InFlight
}

// open makes directory and processes, and looks at the disk.
func (r *engineRun) open() error {
	all, err := r.stage.open(r.c.Origins + 1)
	if err != nil {
		return err
	}
	r.origins, r.hangs = all[:r.c.Origins], all[r.c.Origins]
	if !slices.ContainsFunc([]string{"drain-h2", "drain-h3", "in-flight"}, r.wants) {
		return nil
	}
	return r.receiver.Call(context.Background(), "secure", nil, &r.secure)
}

func (r *engineRun) wants(name string) bool { return slices.Contains(r.c.Workloads, name) }

// measure runs everything: the calibration of the floor, the workloads in
// turns on one node, then those that need nodes of their own.
func (r *engineRun) measure(ctx context.Context) error {
	if err := r.calibrate(ctx); err != nil {
		return err
	}
	if err := r.turns(ctx); err != nil {
		return err
	}
	for _, w := range r.secured() {
		if r.wants(w.name) {
			if err := r.overTLS(ctx, w); err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	if r.wants("kill") {
		for round := range r.c.Rounds {
			if err := r.kill(ctx, round); err != nil {
				return fmt.Errorf("kill: %w", err)
			}
		}
	}
	if r.wants("cores") {
		if err := r.cores(ctx); err != nil {
			return fmt.Errorf("cores: %w", err)
		}
	}
	if r.wants("in-flight") {
		if err := r.hanging(ctx); err != nil {
			return fmt.Errorf("in-flight: %w", err)
		}
	}
	if !r.wants("scale") {
		return nil
	}
	for _, n := range r.c.Scale {
		if err := r.scale(ctx, n); err != nil {
			return fmt.Errorf("scale to %d subscribers: %w", n, err)
		}
	}
	return nil
}

// turns interleaves the workloads: each of them in each round.
func (r *engineRun) turns(ctx context.Context) error {
	var list []workload
	for _, w := range r.workloads() {
		if r.wants(w.name) {
			list = append(list, w)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return r.withNode(ctx, r.plain(r.c.Subscribers), func(n *node) error {
		for round := range r.c.Rounds {
			for _, w := range list {
				if err := r.turn(ctx, n, w, round); err != nil {
					return fmt.Errorf("%s, round %d: %w", w.name, round+1, err)
				}
			}
		}
		return nil
	})
}

// setup says what a node is and which subscribers it has.
type setup struct {
	env []string
	group
}

// plain are subscribers over plain HTTP/1.1.
func (r *engineRun) plain(subscribers int) setup {
	return setup{group: group{count: subscribers, origins: r.origins, secret: r.secret, concurrency: r.c.Concurrency, protocol: "h1"}}
}

// withNode starts a node with subscribers, warms it up, and stops it in the
// end.
func (r *engineRun) withNode(ctx context.Context, s setup, do func(*node) error) (err error) {
	spec := r.newData()
	spec.env = s.env
	n, err := startNode(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	r.progress.say("a node with %d subscribers over %s", s.count, s.protocol)
	if err := n.register(ctx, s.group); err != nil {
		return err
	}
	if err := r.warmUp(ctx, n, s.count); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	return do(n)
}

// warmUp opens connections and fills caches: not measured, but checked.
func (r *engineRun) warmUp(ctx context.Context, n *node, subscribers int) error {
	events := max(200, min(2000, subscribers))
	m := Measure{Workload: "warm-up", Events: events, Deliveries: events}
	tag := "warm-" + strconv.Itoa(r.nodes)
	if err := r.begin(ctx, tag, events, subscribers, false); err != nil {
		return err
	}
	if _, err := r.publish(ctx, n, load.Publish{Tag: tag, Subscribers: subscribers, Events: events, Batch: r.c.BatchSize}, &m); err != nil {
		return err
	}
	return r.arrived(ctx, &m)
}

// profile takes the profiles that were asked for while a workload runs. The
// returned function waits for them.
func (r *engineRun) profile(ctx context.Context, n *node, w workload, round int) func() error {
	if w.name != r.c.ProfileOf || round != 0 {
		return func() error { return nil }
	}
	cpu := make(chan error, 1)
	if r.c.CPUProfile == "" {
		cpu <- nil
	} else {
		path := fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(r.c.ProfileFor.Seconds()))
		go func() { cpu <- n.save(ctx, path, r.c.CPUProfile) }()
	}
	return func() error {
		err := <-cpu
		if r.c.MemProfile != "" {
			err = errors.Join(err, n.save(ctx, "/debug/pprof/heap", r.c.MemProfile))
		}
		for _, file := range []string{r.c.CPUProfile, r.c.MemProfile} {
			if file != "" && err == nil {
				r.progress.say("profile of the node during %s: %s", w.name, filepath.Clean(file))
			}
		}
		return err
	}
}
