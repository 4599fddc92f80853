package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/load"
	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// IsolationSide is one half of a pair: the healthy subscribers' traffic, with
// or without what disturbs it.
type IsolationSide struct {
	Seen load.Seen     `json:"seen"` // the healthy ones' deliveries
	Ack  stats.Latency `json:"ack"`  // publish to 202, of their events
	// Others is how many deliveries a second the disturbing ones got meanwhile.
	Others float64 `json:"others_rate"`
	// Hanging is how many requests hung when the measurement began.
	Hanging int `json:"hanging,omitempty"`
	// NodeShare is the node's CPU time over the wall clock: 1 = one core.
	NodeShare float64 `json:"node_cores"`
}

// IsolationPair is both sides, measured one right after the other.
type IsolationPair struct {
	Part    string        `json:"part"`
	Round   int           `json:"round"`
	Without IsolationSide `json:"without"`
	With    IsolationSide `json:"with"`
}

// Ratio is p99 with over p99 without.
func (p IsolationPair) Ratio() float64 {
	return quotient(p.With.Seen.Latency.P99, p.Without.Seen.Latency.P99)
}

// More is how many milliseconds more the p99 is.
func (p IsolationPair) More() float64 { return p.With.Seen.Latency.P99 - p.Without.Seen.Latency.P99 }

// IsolationData are the raw figures of a run, in its JSON report.
type IsolationData struct {
	Config IsolationConfig `json:"config"`
	Pairs  []IsolationPair `json:"pairs"`
}

// Isolation measures on a real node what healthy subscribers notice of others
// that hang, of a tenant that publishes far more, and of a backlog of a lower
// priority. It returns a report also when promises did not hold (its Failures
// say which).
func Isolation(ctx context.Context, c IsolationConfig) (*report.Report, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("bench isolation: %w", err)
	}
	r := &isolationRun{c: c, stage: newStage(c.Run, c.NodeConfig)}
	rep, _ := c.Run.begin("dispatcher bench isolation")
	_, err := r.open(c.Healthy + max(c.Hanging, c.Healthy))
	if err == nil {
		err = r.measure(ctx)
	}
	if err = errors.Join(err, r.close()); err != nil {
		return nil, fmt.Errorf("bench isolation: %w", err)
	}
	rep.Took = time.Since(rep.Started)
	r.fill(rep)
	return rep, nil
}

// isolationRun is one run of [Isolation].
type isolationRun struct {
	stage
	c     IsolationConfig
	disk  []stats.Latency // a probe before each pair
	pairs []IsolationPair
}

// trial is one part: what is set up once, and what disturbs a side.
type trial struct {
	name   string
	env    []string      // of the node
	during time.Duration // of a side
	rate   float64       // events a second for the healthy ones
	delay  time.Duration // of the receivers' answers
	// priority of the healthy ones' events; "" = their subscribers'.
	priority string
	// tenants of the healthy subscribers; subscriber i is of number i modulo their
	// count.
	tenants []string
	// moves says that those who disturb must get deliveries all the while.
	moves bool
	setup func(ctx context.Context, n *node) error // beside the healthy ones; nil = nothing
	// disturb begins what disturbs, in the phase that is being measured. The
	// returned function ends it.
	disturb func(ctx context.Context, n *node, tag string, side *IsolationSide) (calm func(context.Context) error, err error)
}

func (r *isolationRun) trials() []trial {
	return []trial{r.hanging(), r.noisy(), r.lanes()}
}

// measure runs each part on a node of its own.
func (r *isolationRun) measure(ctx context.Context) error {
	for _, t := range r.trials() {
		if !slices.Contains(r.c.Parts, t.name) {
			continue
		}
		if err := r.part(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
	}
	return nil
}

func (r *isolationRun) part(ctx context.Context, t trial) (err error) {
	spec := r.newData()
	spec.env = t.env
	n, err := startNode(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	r.progress.say("%s: a node with %d healthy subscribers of %d tenant(s)", t.name, r.c.Healthy, len(t.tenants))
	if err := r.prepare(ctx, n, t); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	for round := range r.c.Pairs {
		if err := r.pair(ctx, n, t, round); err != nil {
			return fmt.Errorf("pair %d: %w", round+1, err)
		}
	}
	return nil
}

// prepare registers the healthy subscribers and lets each of them become known
// as one that answers.
func (r *isolationRun) prepare(ctx context.Context, n *node, t trial) error {
	for _, name := range t.tenants {
		if err := n.call(ctx, http.MethodPut, "/v1/tenants/"+name, struct{}{}, nil); err != nil {
			return err
		}
	}
	err := n.each(ctx, r.c.Healthy, func(ctx context.Context, i int) error {
		return r.subscribe(ctx, n, t.tenants[i%len(t.tenants)], i, subscriber{ID: subscriberID(i), Topics: []string{load.TopicOf(i)}})
	})
	if err == nil && t.setup != nil {
		err = t.setup(ctx, n)
	}
	if err != nil {
		return err
	}
	const each = 20
	var unused IsolationSide
	warm := load.Publish{Tag: t.name + "-warm", Events: each * r.c.Healthy}
	if err := r.begin(ctx, warm.Tag, warm.Events, r.c.Healthy, false); err != nil {
		return err
	}
	return r.healthy(ctx, n, t, warm, &unused)
}

// subscribe registers a subscriber whose receiver is origin number at.
func (r *isolationRun) subscribe(ctx context.Context, n *node, tenant string, at int, s subscriber) error {
	s.URL, s.Secret, s.Protocol = cmp.Or(s.URL, r.origins[at]+load.Path(at)), r.secret, "h1"
	return n.call(ctx, http.MethodPost, "/v1/tenants/"+tenant+"/subscribers", s, nil)
}

// pair measures both sides, every other time the disturbed one first.
func (r *isolationRun) pair(ctx context.Context, n *node, t trial, round int) error {
	disk, err := host.Syncs(r.dir.Path, diskProbe, 0)
	if err != nil {
		return err
	}
	r.disk = append(r.disk, disk)
	p := IsolationPair{Part: t.name, Round: round + 1}
	for turn := range 2 {
		with := turn == round%2
		side := &p.Without
		if with {
			side = &p.With
		}
		tag := fmt.Sprintf("%s-%d-%d", t.name, round+1, turn)
		if err := r.side(ctx, n, t, tag, with, side); err != nil {
			return err
		}
	}
	if t.moves && p.With.Others == 0 {
		r.fail("%s, pair %d: the others did not move", t.name, p.Round)
	}
	r.pairs = append(r.pairs, p)
	r.progress.say("%s, pair %d: p99 %.2f ms without, %.2f ms with: %.2f times, %+.2f ms; the others got %.0f/s",
		t.name, p.Round, p.Without.Seen.Latency.P99, p.With.Seen.Latency.P99, p.Ratio(), p.More(), p.With.Others)
	return nil
}

// side measures the healthy subscribers' latency once.
func (r *isolationRun) side(ctx context.Context, n *node, t trial, tag string, with bool, side *IsolationSide) error {
	task := load.Publish{Tag: tag, Events: max(1, int(t.rate*t.during.Seconds())), Rate: t.rate}
	err := r.receiver.Call(ctx, "begin", load.Phase{
		Tag: tag, Events: task.Events, Subscribers: r.c.Healthy, Secret: r.secret, Hang: -1, HangFrom: r.c.Healthy, Delay: t.delay,
	}, nil)
	if err != nil {
		return err
	}
	calm := func(context.Context) error { return nil }
	if with {
		if calm, err = t.disturb(ctx, n, tag, side); err != nil {
			return fmt.Errorf("disturb: %w", err)
		}
	}
	if err := r.timed(ctx, n, t, task, side); err != nil {
		return err
	}
	if err := calm(ctx); err != nil {
		return fmt.Errorf("calm: %w", err)
	}
	// A new phase answers what hangs.
	if err := r.begin(ctx, tag+"-over", 0, r.c.Healthy, false); err != nil {
		return err
	}
	_, err = n.settled(ctx)
	return err
}

// timed publishes for the healthy ones between two looks at the node and at
// what the others got.
func (r *isolationRun) timed(ctx context.Context, n *node, t trial, task load.Publish, side *IsolationSide) error {
	var before load.Seen
	if err := r.receiver.Call(ctx, "seen", nil, &before); err != nil {
		return err
	}
	start := host.Now()
	from, err := n.moment(ctx)
	if err != nil {
		return err
	}
	if err := r.healthy(ctx, n, t, task, side); err != nil {
		return err
	}
	to, err := n.moment(ctx)
	if err != nil {
		return err
	}
	seconds := (host.Now() - start).Seconds()
	side.Others = float64(side.Seen.Stray-before.Stray) / seconds
	side.NodeShare = (to.usage.CPU - from.usage.CPU).Seconds() / seconds
	return nil
}

// healthy publishes a task to the healthy subscribers and waits until all of it
// has arrived.
func (r *isolationRun) healthy(ctx context.Context, n *node, t trial, task load.Publish, side *IsolationSide) error {
	task.Subscribers, task.Tenants, task.Batch, task.Priority = r.c.Healthy, t.tenants, 1, t.priority
	got, err := r.publish(ctx, n, task)
	if err != nil {
		return err
	}
	side.Ack = got.Ack
	if err := r.receiver.Call(ctx, "wait", load.Wait{Arrived: task.Events, Quiet: quiet}, nil); err != nil {
		return err
	}
	if err := r.receiver.Call(ctx, "seen", nil, &side.Seen); err != nil {
		return err
	}
	r.judge(task.Tag, side.Seen)
	return nil
}

// publish fills in what is the same for all; what is refused ends the run.
func (r *isolationRun) publish(ctx context.Context, n *node, p load.Publish) (load.Published, error) {
	p.URL, p.Token, p.Body, p.Seed = n.url, n.token, r.c.Body, r.c.Run.Seed
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
	return got, nil
}
