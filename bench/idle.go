package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/load"
	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// IdleConfig says what `bench idle` measures. Zero fields take the default.
type IdleConfig struct {
	// Run is what all benchmarks are told.
	Run Run
	// Subscribers that are registered. Default 1,000,000.
	Subscribers int
	// Waiting is how many deliveries wait for a time that is hours away, each of
	// another subscriber as far as there are enough. Default 100,000.
	Waiting int
	// Rounds, each of an empty node and of one with all that, in turns. Default 3.
	Rounds int
	// Settle is how long a node is left alone after its start. Default 10 s.
	Settle time.Duration
	// For is how long its CPU time is measured. Default 30 s.
	For time.Duration
	// NodeConfig is a configuration file for the node; "" = none.
	NodeConfig string
}

// WithDefaults returns a copy with every zero field filled in.
func (c IdleConfig) WithDefaults() IdleConfig {
	orDefault(&c.Subscribers, 1_000_000)
	orDefault(&c.Waiting, 100_000)
	orDefault(&c.Rounds, 3)
	orDefault(&c.Settle, 10*time.Second)
	orDefault(&c.For, 30*time.Second)
	return c
}

// Validate reports every field that cannot be used.
func (c IdleConfig) Validate() error {
	var errs []error
	check := func(ok bool, name, rule string, v any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %v: %s", name, v, rule))
		}
	}
	check(c.Subscribers >= 1 && c.Subscribers <= 10_000_000, "subscribers", "1 to 10,000,000", c.Subscribers)
	check(c.Waiting >= 1 && c.Waiting <= 10_000_000, "waiting", "1 to 10,000,000", c.Waiting)
	check(c.Rounds >= 1 && c.Rounds <= 100, "rounds", "1 to 100", c.Rounds)
	check(c.Settle >= 0 && c.Settle <= time.Hour, "settle", "0 to 1 h", c.Settle)
	check(c.For >= 100*time.Millisecond && c.For <= time.Hour, "for", "100 ms to 1 h", c.For)
	return errors.Join(errs...)
}

// IdleMeasure is one node that has nothing to do.
type IdleMeasure struct {
	Round int `json:"round"`
	// Full says that it has the subscribers and what waits; the other one is empty.
	Full bool `json:"full"`
	// Share is its CPU time over the wall clock: 1 = one core.
	Share float64 `json:"cores"`
	RSS   int64   `json:"rss"`
	// Ready is from its start to the first yes of /readyz; seconds.
	Ready float64 `json:"ready_s"`
}

// IdleData are the raw figures of a run, in its JSON report.
type IdleData struct {
	Config   IdleConfig    `json:"config"`
	FillS    float64       `json:"fill_s"`
	Measures []IdleMeasure `json:"measures"`
}

// idleAim is the share of a core that an idle node may take.
const idleAim = 0.005

// Idle measures what a node costs that has many subscribers and deliveries, and
// nothing to do for hours, beside an empty one.
func Idle(ctx context.Context, c IdleConfig) (*report.Report, error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("bench idle: %w", err)
	}
	r := &idleRun{c: c, progress: newProgress(c.Run.Progress), data: IdleData{Config: c}}
	rep, _ := c.Run.begin("dispatcher bench idle")
	var err error
	if r.dir, err = c.Run.open(r.progress); err == nil {
		err = errors.Join(r.measure(ctx), r.dir.Remove())
	}
	if err != nil {
		return nil, fmt.Errorf("bench idle: %w", err)
	}
	rep.Took = time.Since(rep.Started)
	r.fill(rep)
	return rep, nil
}

type idleRun struct {
	c        IdleConfig
	progress *progress
	dir      *host.RunDir
	fs       string
	data     IdleData
}

func (r *idleRun) measure(ctx context.Context) error {
	var err error
	if r.fs, err = host.Disk(r.dir.Path); err != nil {
		return err
	}
	begin := time.Now()
	if err := r.stock(ctx, r.dir.Join("full")); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	r.data.FillS = time.Since(begin).Seconds()
	r.progress.say("%d subscribers and %d waiting deliveries are on disk", r.c.Subscribers, r.c.Waiting)
	for round := range r.c.Rounds {
		for _, full := range []bool{false, true} {
			m := IdleMeasure{Round: round + 1, Full: full}
			if err := r.node(ctx, &m); err != nil {
				return err
			}
			r.data.Measures = append(r.data.Measures, m)
			r.progress.say("round %d: %-5s %.3f %% of a core, RSS %s, ready after %.2f s", m.Round, r.name(full), 100*m.Share, report.Bytes(m.RSS), m.Ready)
		}
	}
	return nil
}

func (r *idleRun) name(full bool) string {
	if full {
		return "full"
	}
	return "empty"
}

// node runs one node and leaves it alone.
func (r *idleRun) node(ctx context.Context, m *IdleMeasure) (err error) {
	name := r.name(m.Full)
	n, err := startNode(ctx, nodeSpec{data: r.dir.Join(name), log: r.dir.Join(name + ".log"), config: r.c.NodeConfig, cores: r.c.Run.Cores})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	m.Ready = n.ready.Seconds()
	n.http.CloseIdleConnections()
	if !sleepUntil(ctx, time.Now().Add(r.c.Settle)) {
		return ctx.Err()
	}
	before, err := host.UsageOf(n.proc.PID())
	if err != nil {
		return err
	}
	start := host.Now()
	if !sleepUntil(ctx, time.Now().Add(r.c.For)) {
		return ctx.Err()
	}
	after, err := host.UsageOf(n.proc.PID())
	if err != nil {
		return err
	}
	m.Share = (after.CPU - before.CPU).Seconds() / (host.Now() - start).Seconds()
	m.RSS = after.RSS
	return nil
}

// stock makes a data directory with subscribers and deliveries that wait.
func (r *idleRun) stock(ctx context.Context, data string) (err error) {
	store, err := storage.Open(storage.Config{Dir: data})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	t, err := store.Registry().PutTenant(delivery.Tenant{ID: tenant}, storage.MustNotExist)
	if err != nil {
		return err
	}
	nums, err := r.subscribers(ctx, store.Registry(), t.Num)
	if err != nil {
		return err
	}
	return r.waiting(ctx, store, nums)
}

// subscribers registers all of them and returns the numbers of those that
// deliveries wait for.
func (r *idleRun) subscribers(ctx context.Context, registry *storage.Registry, of delivery.TenantNum) ([]delivery.SubscriberNum, error) {
	const part = 2000
	var nums []delivery.SubscriberNum
	for from := 0; from < r.c.Subscribers; from += part {
		var batch []*delivery.Subscriber
		for i := from; i < min(from+part, r.c.Subscribers); i++ {
			batch = append(batch, &delivery.Subscriber{
				Tenant: of, ID: subscriberID(i), URL: "https://receiver.test" + load.Path(i), Topics: []string{load.TopicOf(i % 1000)},
				Signing:     []delivery.SigningScheme{{Scheme: "standard", Secrets: []delivery.Secret{{Value: "whsec_of_" + subscriberID(i)}}}},
				Concurrency: delivery.DefaultConcurrency, Timeout: hangFor,
			})
		}
		made, err := registry.CreateSubscribers(batch)
		if err != nil || ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
		for _, s := range made {
			if len(nums) < r.c.Waiting {
				nums = append(nums, s.Num)
			}
		}
	}
	return nums, nil
}

// waiting queues deliveries that are due hours from now.
func (r *idleRun) waiting(ctx context.Context, store *storage.Store, nums []delivery.SubscriberNum) error {
	const part, soonest, spread = 1000, 6 * time.Hour, 24 * time.Hour
	events, err := newEventMaker("idle", 256, r.c.Run.Seed)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(fillers)
	begin := time.Now()
	for from := 0; from < r.c.Waiting && gctx.Err() == nil; from += part {
		var batch []*delivery.Published
		for i := from; i < min(from+part, r.c.Waiting); i++ {
			p := events.event(i, nums[i%len(nums)])
			p.Targets[0].Due = begin.Add(soonest + spread*time.Duration(i)/time.Duration(r.c.Waiting))
			batch = append(batch, p)
		}
		g.Go(func() error { return publishAll(gctx, store, batch...) })
	}
	return errors.Join(g.Wait(), ctx.Err())
}

// fill writes the report.
func (r *idleRun) fill(rep *report.Report) {
	rep.Facts = append(rep.Facts, report.Fact{Name: "Data directory", Value: fmt.Sprintf("on %s; filled in %s s", r.fs, report.Number(r.data.FillS))})
	rep.Data = r.data
	table := report.Table{Columns: []string{"node", "CPU, % of a core", "RSS MiB", "ready after s"}}
	cpu := func(m IdleMeasure) float64 { return 100 * m.Share }
	bars := report.Plot{Title: "CPU of an idle node", Y: "% of a core", Kind: report.Bars, Series: []report.Line{{Name: "median"}}}
	var full stats.Spread
	for _, which := range []bool{false, true} {
		var of []IdleMeasure
		for _, m := range r.data.Measures {
			if m.Full == which {
				of = append(of, m)
			}
		}
		full = spread(of, cpu)
		table.Rows = append(table.Rows, []string{
			r.name(which), report.Range(full),
			report.Range(spread(of, func(m IdleMeasure) float64 { return float64(m.RSS) / (1 << 20) })),
			report.Range(spread(of, func(m IdleMeasure) float64 { return m.Ready })),
		})
		bars.Labels = append(bars.Labels, r.name(which))
		bars.Series[0].Points = append(bars.Series[0].Points, stats.Point{Y: full.Median})
	}
	verdict := "missed"
	if full.Median < 100*idleAim {
		verdict = "met"
	}
	table.Note = fmt.Sprintf("Aim for the full node: less than %s of a core: %s.", report.Percent(idleAim), verdict)
	rep.Sections = append(rep.Sections, report.Section{
		Title: "Idle nodes",
		Text: fmt.Sprintf("A node (\"dispatcher serve\") with %d registered subscribers and %d deliveries that are due in 6 to 30 hours, beside one with neither. Its CPU time is measured for %s, %s after its start; nobody asks it anything meanwhile.",
			r.c.Subscribers, r.c.Waiting, report.Duration(r.c.For), report.Duration(r.c.Settle)),
		Tables: []report.Table{table}, Plots: []report.Plot{bars},
	})
}
