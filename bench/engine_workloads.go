package bench

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/load"
)

// EngineWorkloads names the workloads in the order of running.
func EngineWorkloads() []string {
	return []string{"drain", "fan-out", "single", "batch", "accept", "accept-batch", "latency", "hang", "drain-h2", "drain-h3", "kill", "cores", "in-flight", "scale"}
}

// workload is something to measure on a node with subscribers.
type workload struct {
	name  string
	about string
	// events and the deliveries they make (0 = nobody wants them).
	events, deliveries int
	fanOut             bool
	noFloor            bool
	floor              load.Stack // "" = both over plain HTTP/1.1
	// busy says that something stays in flight: nobody waits until nothing is.
	busy bool
	// prepare is done before anything is measured, run is measured, finish comes
	// after that.
	prepare, run, finish step
}

// step is a part of a workload. It fills in what it finds.
type step func(ctx context.Context, n *node, tag string, m *Measure) error

// quiet is how long nothing may arrive before the rest counts as lost. The
// first retry of a failed delivery comes after five seconds.
const quiet = 30 * time.Second

func (r *engineRun) workloads() []workload {
	c := r.c
	fanOut := c.FanOut / c.Subscribers
	return []workload{
		{
			name: "drain", events: c.Backlog, deliveries: c.Backlog,
			about:   fmt.Sprintf("%d queued deliveries over %d paused subscribers; measured from the first resume to the last delivery", c.Backlog, c.Subscribers),
			prepare: r.preload(c.Backlog), run: r.drain,
		},
		{
			name: "fan-out", events: fanOut, deliveries: fanOut * c.Subscribers, fanOut: true,
			about: fmt.Sprintf("%d events, each for all %d subscribers, in batches of %d", fanOut, c.Subscribers, c.BatchSize),
			run:   r.publishAndDeliver(load.Publish{Topic: load.TopicAll, Events: fanOut, Batch: c.BatchSize}),
		},
		{
			name: "single", events: c.Single, deliveries: c.Single,
			about: fmt.Sprintf("%d events published one by one on %d connections, each for one of %d subscribers, and delivered at once", c.Single, c.Connections, c.Subscribers),
			run:   r.publishAndDeliver(load.Publish{Events: c.Single, Batch: 1}),
		},
		{
			name: "batch", events: c.Batch, deliveries: c.Batch,
			about: fmt.Sprintf("the same with %d events in NDJSON batches of %d", c.Batch, c.BatchSize),
			run:   r.publishAndDeliver(load.Publish{Events: c.Batch, Batch: c.BatchSize}),
		},
		{
			name: "accept", events: c.Accept,
			about: fmt.Sprintf("%d events that no subscriber wants, one by one on %d connections: durable accept alone", c.Accept, c.Connections),
			run:   r.accept(load.Publish{Topic: load.TopicNone, Events: c.Accept, Batch: 1}),
		},
		{
			name: "accept-batch", events: c.Accept,
			about: fmt.Sprintf("the same in batches of %d", c.BatchSize),
			run:   r.accept(load.Publish{Topic: load.TopicNone, Events: c.Accept, Batch: c.BatchSize}),
		},
		r.latency(), r.hang(),
	}
}

// turn measures one round of a workload.
func (r *engineRun) turn(ctx context.Context, n *node, w workload, round int) error {
	m := Measure{Workload: w.name, Round: round + 1, Subscribers: r.c.Subscribers, Events: w.events, Deliveries: w.deliveries}
	if err := r.measured(ctx, n, w, &m, round); err != nil {
		return err
	}
	r.keep(m)
	return nil
}

// measured surrounds a workload with what is measured of it.
func (r *engineRun) measured(ctx context.Context, n *node, w workload, m *Measure, round int) error {
	tag := fmt.Sprintf("%s-%d-%d", w.name, r.nodes, round+1)
	var err error
	if err := r.floors(ctx, w, m); err != nil {
		return err
	}
	if err := r.begin(ctx, tag, w.events, m.Subscribers, w.fanOut); err != nil {
		return err
	}
	if w.prepare != nil {
		if err := w.prepare(ctx, n, tag, m); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	if m.Disk, err = host.Syncs(r.dir.Path, diskProbe, 0); err != nil {
		return err
	}
	profiled := r.profile(ctx, n, w, round)
	if err := spent(ctx, n, w, tag, m); err != nil {
		return err
	}
	if err := profiled(); err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	m.compare()
	if w.finish != nil {
		return w.finish(ctx, n, tag, m)
	}
	return nil
}

// spent runs the measured step between two looks at the node.
func spent(ctx context.Context, n *node, w workload, tag string, m *Measure) error {
	look := n.settled
	if w.busy {
		look = n.moment
	}
	before, err := look(ctx)
	if err != nil {
		return err
	}
	if err := host.ResetPeak(n.proc.PID()); err != nil {
		return err
	}
	if err := w.run(ctx, n, tag, m); err != nil {
		return err
	}
	after, err := look(ctx)
	if err != nil {
		return err
	}
	m.spend(before, after)
	return nil
}

// diskProbe is how long the disk's syncs are timed before each round.
const diskProbe = 250 * time.Millisecond

func (r *engineRun) keep(m Measure) {
	r.measures = append(r.measures, m)
	text := fmt.Sprintf("round %d: %-12s %8.0f/s", m.Round, m.Workload, m.Rate)
	if m.Ratio > 0 {
		text += fmt.Sprintf(" = %.2f of the floor's %.0f/s", m.Ratio, m.Floor.Rate)
	}
	if m.Beside > 0 {
		text += fmt.Sprintf(" = %.2f of the %.0f/s without one that hangs", m.Rate/m.Beside, m.Beside)
	}
	if m.Ratio > 0 {
		text += fmt.Sprintf(", %.1f ms CPU per 1,000", m.NodeCPU)
	}
	r.progress.say("%s", text)
}

// publish fills in what is the same for all and keeps the books.
func (r *engineRun) publish(ctx context.Context, n *node, p load.Publish, m *Measure) (load.Published, error) {
	p.URL, p.Token, p.Tenant = n.url, n.token, tenant
	p.Body, p.Seed = r.c.Body, r.c.Run.Seed
	if p.Connections == 0 {
		p.Connections = r.c.Connections
	}
	var got load.Published
	if err := r.load.Call(ctx, "publish", p, &got); err != nil {
		return got, err
	}
	if got.Refused > 0 {
		return got, fmt.Errorf("%d of %d events were refused: %s", got.Refused, p.Events, got.Error)
	}
	m.AcceptRate, m.Ack, m.AckCDF = got.Rate(), got.Ack, got.CDF
	return got, nil
}

// arrived waits for all deliveries and checks that each came once and signed.
func (r *engineRun) arrived(ctx context.Context, m *Measure) error {
	if err := r.receiver.Call(ctx, "wait", load.Wait{Arrived: m.Deliveries, Quiet: quiet}, nil); err != nil {
		return err
	}
	if err := r.receiver.Call(ctx, "seen", nil, &m.Seen); err != nil {
		return err
	}
	s := m.Seen
	if s.Arrived != s.Expected {
		r.fail("%s, round %d: %d of %d deliveries did not arrive", m.Workload, m.Round, s.Expected-s.Arrived, s.Expected)
	}
	if s.BadSignatures > 0 || s.Verified == 0 {
		r.fail("%s, round %d: %d signatures were bad, %d good", m.Workload, m.Round, s.BadSignatures, s.Verified)
	}
	if s.Duplicates > 0 && m.Kill == nil {
		// Allowed, but it should not happen: an attempt timed out, or its answer was
		// lost.
		r.doubts = append(r.doubts, fmt.Sprintf("%s, round %d: %d deliveries came twice", m.Workload, m.Round, s.Duplicates))
	}
	return nil
}

// preload queues events for paused subscribers.
func (r *engineRun) preload(events int) step {
	return func(ctx context.Context, n *node, tag string, _ *Measure) error {
		if err := n.act(ctx, r.c.Subscribers, "pause"); err != nil {
			return err
		}
		const large = 1000
		var unused Measure
		_, err := r.publish(ctx, n, load.Publish{Tag: tag, Subscribers: r.c.Subscribers, Events: events, Batch: large, Connections: 4}, &unused)
		return err
	}
}

func (r *engineRun) drain(ctx context.Context, n *node, _ string, m *Measure) error {
	start := host.Now()
	if err := n.act(ctx, r.c.Subscribers, "resume"); err != nil {
		return err
	}
	if err := r.arrived(ctx, m); err != nil {
		return err
	}
	m.timed((m.Seen.Last - start).Seconds(), m.Seen.Arrived)
	return nil
}

func (r *engineRun) publishAndDeliver(p load.Publish) step {
	return func(ctx context.Context, n *node, tag string, m *Measure) error {
		p := p
		p.Tag, p.Subscribers = tag, m.Subscribers
		got, err := r.publish(ctx, n, p, m)
		if err != nil {
			return err
		}
		if err := r.arrived(ctx, m); err != nil {
			return err
		}
		m.timed((m.Seen.Last - got.Start).Seconds(), m.Seen.Arrived)
		return nil
	}
}

func (r *engineRun) accept(p load.Publish) step {
	return func(ctx context.Context, n *node, tag string, m *Measure) error {
		p := p
		p.Tag = tag
		got, err := r.publish(ctx, n, p, m)
		if err != nil {
			return err
		}
		m.timed((got.End - got.Start).Seconds(), got.Accepted)
		return nil
	}
}

// latency publishes at a rate far below what the node can do.
func (r *engineRun) latency() workload {
	events := max(1, int(r.c.Rate*r.c.LatencyFor.Seconds()))
	return workload{
		name: "latency", events: events, deliveries: events, noFloor: true,
		about:  fmt.Sprintf("%v events a second for %s, each for one of %d subscribers: from publish to receiver", r.c.Rate, r.c.LatencyFor, r.c.Subscribers),
		run:    r.publishAndDeliver(load.Publish{Events: events, Batch: 1, Rate: r.c.Rate}),
		finish: r.probeAgain,
	}
}

// probeAgain times the disk after a workload as well and keeps the worse: the
// disk of that moment is one that was at least as bad once. Then it is timed at
// the rate of the events: what is idle in between takes longer to answer.
func (r *engineRun) probeAgain(_ context.Context, _ *node, _ string, m *Measure) error {
	after, err := host.Syncs(r.dir.Path, 4*diskProbe, 0)
	if err != nil {
		return err
	}
	if after.P99 > m.Disk.P99 {
		m.Disk = after
	}
	m.PacedDisk, err = host.Syncs(r.dir.Path, 8*diskProbe, time.Duration(float64(time.Second)/r.c.Rate))
	return err
}

// hang measures the healthy subscribers while another one, with a backlog of
// its own, answers nothing.
func (r *engineRun) hang() workload {
	return workload{
		name: "hang", events: r.c.Hang, deliveries: r.c.Hang, noFloor: true,
		about: fmt.Sprintf("%d events in batches of %d for %d healthy subscribers while another one, with %d deliveries queued, never answers; then %v events a second for %s",
			r.c.Hang, r.c.BatchSize, r.c.Subscribers, hangBacklog, r.c.Rate, r.c.HangFor),
		busy:    true,
		prepare: r.besideNobody,
		run:     r.publishAndDeliver(load.Publish{Events: r.c.Hang, Batch: r.c.BatchSize}),
		finish:  r.pacedBesideHanging,
	}
}

const hangBacklog = 1000

// besideNobody measures the same load without a subscriber that hangs, and then
// makes one hang.
func (r *engineRun) besideNobody(ctx context.Context, n *node, tag string, m *Measure) error {
	alone := Measure{Workload: m.Workload, Round: m.Round, Subscribers: m.Subscribers, Events: m.Events, Deliveries: m.Deliveries}
	if err := r.begin(ctx, tag+"-alone", m.Events, m.Subscribers, false); err != nil {
		return err
	}
	if err := r.publishAndDeliver(load.Publish{Events: m.Events, Batch: r.c.BatchSize})(ctx, n, tag+"-alone", &alone); err != nil {
		return err
	}
	m.Beside = alone.Rate
	return r.startHanging(ctx, n, tag, m)
}

// pacedBesideHanging measures latency while the subscriber hangs, and removes
// it.
func (r *engineRun) pacedBesideHanging(ctx context.Context, n *node, tag string, m *Measure) error {
	if events := int(r.c.Rate * r.c.HangFor.Seconds()); events > 0 {
		tag += "-paced"
		paced := Measure{Workload: m.Workload, Round: m.Round, Subscribers: m.Subscribers, Events: events, Deliveries: events}
		if err := r.hangPhase(ctx, tag, events, m.Subscribers); err != nil {
			return err
		}
		if err := r.publishAndDeliver(load.Publish{Events: events, Batch: 1, Rate: r.c.Rate})(ctx, n, tag, &paced); err != nil {
			return err
		}
		m.Seen.Latency, m.Seen.CDF = paced.Seen.Latency, paced.Seen.CDF
	}
	if err := n.call(ctx, http.MethodDelete, subscribersPath+"/"+subscriberID(m.Subscribers), nil, nil); err != nil {
		return err
	}
	// A new phase answers what hangs: the node's stop need not wait for it.
	return r.begin(ctx, tag+"-over", 0, m.Subscribers, false)
}

func (r *engineRun) hangPhase(ctx context.Context, tag string, events, subscribers int) error {
	return r.receiver.Call(ctx, "begin", load.Phase{
		Tag: tag, Events: events, Subscribers: subscribers, Secret: r.secret, Hang: subscribers,
	}, nil)
}

// startHanging registers the subscriber, queues events for it and waits until
// its first request hangs.
func (r *engineRun) startHanging(ctx context.Context, n *node, tag string, m *Measure) error {
	err := n.call(ctx, http.MethodPost, subscribersPath, subscriber{
		ID: subscriberID(m.Subscribers), URL: r.hangs + load.Path(m.Subscribers), Secret: r.secret, Topics: []string{load.TopicHang}, Protocol: "h1",
	}, nil)
	if err != nil {
		return err
	}
	if err := r.hangPhase(ctx, tag, m.Events, m.Subscribers); err != nil {
		return err
	}
	var unused Measure
	backlog := load.Publish{Tag: tag + "-hang", Topic: load.TopicHang, Events: hangBacklog, Batch: hangBacklog, Connections: 1}
	if _, err := r.publish(ctx, n, backlog, &unused); err != nil {
		return err
	}
	return r.receiver.Call(ctx, "wait", load.Wait{Hanging: 1, Quiet: quiet}, nil)
}

// scale measures publishing and delivering at once on a node with so many
// subscribers.
func (r *engineRun) scale(ctx context.Context, subscribers int) error {
	w := workload{
		name: "scale", events: r.c.ScaleEvents, deliveries: r.c.ScaleEvents,
		run: r.publishAndDeliver(load.Publish{Events: r.c.ScaleEvents, Batch: r.c.BatchSize}),
	}
	return r.withNode(ctx, r.plain(subscribers), func(n *node) error {
		for round := range r.c.Rounds {
			m := Measure{Workload: w.name, Round: round + 1, Subscribers: subscribers, Events: w.events, Deliveries: w.deliveries}
			if err := r.measured(ctx, n, w, &m, round); err != nil {
				return err
			}
			r.keep(m)
		}
		return nil
	})
}
