package cli

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dispatcher-engine/dispatcher/bench"
	"github.com/dispatcher-engine/dispatcher/bench/load"
	"github.com/dispatcher-engine/dispatcher/bench/report"
)

func (a *app) bench() *cobra.Command {
	c := group("bench", "Measure: the node, the store, the scheduler, the transports",
		a.benchEngine(), a.benchIsolation(), a.benchIdle(), a.benchStorage(), a.benchSched(), a.benchTransports(), a.benchRender(), a.benchWorker())
	c.Long = `bench measures on this machine and says how far the figures can be trusted. It
prints a Markdown report and, unless --out is empty, writes it as JSON, Markdown
and one HTML file with plots. Progress goes to stderr. The exit status is 1 when
a promise did not hold during the run (a lost event, a bad signature).

Run it on a quiet machine: what else runs there is measured, too.`
	return c
}

// benchRun binds the flags that all benchmarks share.
func benchRun(f *pflag.FlagSet, run *bench.Run) {
	f.StringVar(&run.Data, "data", "", "make the run's directory here (default: the first of $TMPDIR and /var/tmp that is on a disk)")
	f.Uint64Var(&run.Seed, "seed", 0, "seed of everything drawn by chance (default: made and printed)")
	f.StringVar(&run.Out, "out", "bench-reports", `directory for the reports ("" = none)`)
	f.StringVar(&run.JSON, "json", "", "write the JSON report to this file, too")
}

// prepareRun completes what the flags said.
func (a *app) prepareRun(c *cobra.Command, run *bench.Run) {
	for run.Seed == 0 {
		run.Seed = uint64(rand.Uint32()) // short enough to be typed again
	}
	run.Progress = a.Err
	run.Command = repeatable(c, run.Seed)
	a.note("seed %d", run.Seed)
}

// repeatable is the command line that repeats a run: the flags that were given,
// in the order of their names, and the seed.
func repeatable(c *cobra.Command, seed uint64) string {
	line := []string{c.CommandPath()}
	c.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
			if f.Value.Type() != "stringArray" { // which takes one value at a time
				values = []string{strings.Join(values, ",")}
			}
		}
		for _, value := range values {
			switch {
			case f.Name == "seed":
			case f.Value.Type() == "bool" && value == "true":
				line = append(line, "--"+f.Name)
			case value == "" || strings.ContainsAny(value, " '\"$\\"):
				line = append(line, "--"+f.Name+"="+strconv.Quote(value))
			default:
				line = append(line, "--"+f.Name+"="+value)
			}
		}
	})
	return strings.Join(append(line, fmt.Sprintf("--seed=%d", seed)), " ")
}

// finishRun prints and writes a report.
func (a *app) finishRun(run bench.Run, name string, rep *report.Report, err error) error {
	if err != nil {
		return err
	}
	return run.Write(name, rep, a.Out)
}

func (a *app) benchEngine() *cobra.Command {
	var quick bool
	var given bench.EngineConfig
	c := &cobra.Command{
		Use: "engine", Short: "Durable publish to signed delivery, beside a bare HTTP client", Args: noArgs,
		Long: `engine runs a node ("dispatcher serve"), a load generator and a receiver as three
processes and measures them against the floor: a bare keep-alive http.Client, at
the best of several concurrencies, that posts the same bodies to the same
receiver with no queue, no signature and no log. The same is done with one
http.Transport.NewClientConn per connection.

Bodies have 1 KiB, the store syncs every publish to a real disk (a directory in
memory is refused), every delivery is signed and every transition is on its
timeline. Traffic is plain HTTP/1.1 on loopback, except where said.

drain-h2 and drain-h3 drain to one origin with TLS, beside bare clients of that
protocol on connections that are up, at the best of several concurrencies and
numbers of connections. cores repeats drain and single with different GOMAXPROCS.
in-flight lets deliveries hang and says what memory each holds; what a node holds
that does nothing is "bench idle".

Workloads: ` + strings.Join(bench.EngineWorkloads(), ", ") + `.

Settings for the node come from --node-config, or from DISPATCHER_… in the
environment; the report names them. Profiles are fetched from the node's
/debug/pprof, which every node has behind its API token.`,
		Example: `  dispatcher bench engine --quick
  dispatcher bench engine --workloads drain,fan-out --rounds 5
  dispatcher bench engine --workloads scale --scale 1,100,10000
  dispatcher bench engine --workloads drain-h2,drain-h3,cores,in-flight
  dispatcher bench engine --workloads drain --cpuprofile cpu.pprof --memprofile heap.pprof`,
	}
	bindEngine(c.Flags(), &given)
	c.Flags().BoolVar(&quick, "quick", false, "sizes that take less than a minute; flags given beside it win")
	c.RunE = func(c *cobra.Command, _ []string) error {
		config := bench.EngineConfig{}
		if quick {
			config = bench.EngineQuick()
		}
		overlay(c.Flags(), func(f *pflag.FlagSet) { bindEngine(f, &config) })
		config = config.WithDefaults()
		if err := config.Validate(); err != nil {
			return usageError(err)
		}
		a.prepareRun(c, &config.Run)
		rep, err := bench.Engine(c.Context(), config)
		return a.finishRun(config.Run, "engine", rep, err)
	}
	return c
}

// overlay binds a second set of flags to values that a preset filled in, and
// sets those that were given on the command line.
func overlay(given *pflag.FlagSet, bind func(*pflag.FlagSet)) {
	kept := pflag.NewFlagSet("preset", pflag.ContinueOnError)
	kept.SetNormalizeFunc(given.GetNormalizeFunc())
	bind(kept)
	given.Visit(func(f *pflag.Flag) {
		to := kept.Lookup(f.Name)
		if to == nil {
			return
		}
		from, isList := f.Value.(pflag.SliceValue)
		if list, ok := to.Value.(pflag.SliceValue); ok && isList {
			_ = list.Replace(from.GetSlice()) // parsed before
			return
		}
		_ = to.Value.Set(f.Value.String()) // parsed before
	})
}

// bindEngine binds flags to a config; what it holds are their defaults.
func bindEngine(f *pflag.FlagSet, c *bench.EngineConfig) {
	d := c.WithDefaults()
	benchRun(f, &c.Run)
	f.IntVar(&c.Run.Cores, "cores", orInt(c.Run.Cores, 2), "cores that node, load and receiver share; 0 = all")
	f.StringSliceVar(&c.Workloads, "workloads", d.Workloads, "what to run")
	f.IntVar(&c.Rounds, "rounds", d.Rounds, "rounds of each workload")
	f.IntVar(&c.Subscribers, "subscribers", d.Subscribers, "subscribers, except in scale")
	f.IntVar(&c.Origins, "origins", d.Origins, "ports of the receiver that the subscribers are spread over")
	f.IntVar(&c.Concurrency, "concurrency", d.Concurrency, "attempts in flight of one subscriber; 0 = the node's default")
	f.IntVar(&c.Body, "body", d.Body, "bytes of a payload")
	f.IntVar(&c.Connections, "connections", d.Connections, "connections that publish")
	f.IntVar(&c.BatchSize, "batch-size", d.BatchSize, "events of an NDJSON batch")
	f.IntVar(&c.Backlog, "backlog", d.Backlog, "drain: deliveries queued")
	f.IntVar(&c.FanOut, "fan-out", d.FanOut, "fan-out: deliveries")
	f.IntVar(&c.Single, "single", d.Single, "single: events")
	f.IntVar(&c.Batch, "batch", d.Batch, "batch: events")
	f.IntVar(&c.Accept, "accept", d.Accept, "accept, accept-batch: events")
	f.Float64Var(&c.Rate, "rate", d.Rate, "latency: events a second")
	f.DurationVar(&c.LatencyFor, "latency-for", d.LatencyFor, "latency: for how long")
	f.IntVar(&c.Hang, "hang", d.Hang, "hang: events for the healthy subscribers")
	f.DurationVar(&c.HangFor, "hang-for", d.HangFor, "hang: for how long latency is measured")
	f.IntVar(&c.Kill, "kill", d.Kill, "kill: deliveries queued")
	f.IntSliceVar(&c.Scale, "scale", d.Scale, "scale: numbers of subscribers")
	f.IntVar(&c.ScaleEvents, "scale-events", d.ScaleEvents, "scale: events")
	f.IntSliceVar(&c.Procs, "procs", d.Procs, "cores: GOMAXPROCS of the node")
	f.IntVar(&c.InFlight, "in-flight", d.InFlight, "in-flight: deliveries that hang")
	f.IntVar(&c.FloorPosts, "floor-posts", d.FloorPosts, "posts of one floor")
	f.IntSliceVar(&c.FloorConcurrency, "floor-concurrency", d.FloorConcurrency, "connections that the floor is tried with")
	f.IntSliceVar(&c.FloorConns, "floor-conns", d.FloorConns, "connections that a floor over HTTP/2 or HTTP/3 shares")
	f.IntVar(&c.FloorKeep, "floor-keep", d.FloorKeep, "how many of those are repeated beside each workload")
	f.StringVar(&c.NodeConfig, "node-config", "", "configuration file for the node")
	f.StringVar(&c.CPUProfile, "cpuprofile", "", "write a CPU profile of the node to this file")
	f.StringVar(&c.MemProfile, "memprofile", "", "write a heap profile of the node to this file")
	f.StringVar(&c.ProfileOf, "profile-of", d.ProfileOf, "workload that is profiled, in its first round")
	f.DurationVar(&c.ProfileFor, "profile-for", d.ProfileFor, "duration of the CPU profile")
}

func (a *app) benchIsolation() *cobra.Command {
	var quick bool
	var given bench.IsolationConfig
	c := &cobra.Command{
		Use: "isolation", Short: "What healthy subscribers notice of those that hang, of a noisy tenant, of a backlog", Args: noArgs,
		Long: `isolation runs a node ("dispatcher serve"), a load generator and a receiver as three
processes and measures, from publish to receiver, the latency of healthy
subscribers with and without what disturbs them: pairs of sides in turns, each
pair printed, and the median of the pairs' p99 ratios.

Parts: hanging (many subscribers that never answer), noisy (a tenant that
publishes many times what each other one does) and lanes (high priority beside a
backlog of low priority, on a node with few slots).`,
		Example: `  dispatcher bench isolation --quick
  dispatcher bench isolation --parts hanging --hanging 1000 --hang-for 30s
  dispatcher bench isolation --parts noisy --noise 50 --rate 200`,
	}
	bindIsolation(c.Flags(), &given)
	c.Flags().BoolVar(&quick, "quick", false, "sizes that take about a minute; flags given beside it win")
	c.RunE = func(c *cobra.Command, _ []string) error {
		config := bench.IsolationConfig{}
		if quick {
			config = bench.IsolationQuick()
		}
		overlay(c.Flags(), func(f *pflag.FlagSet) { bindIsolation(f, &config) })
		config = config.WithDefaults()
		if err := config.Validate(); err != nil {
			return usageError(err)
		}
		a.prepareRun(c, &config.Run)
		rep, err := bench.Isolation(c.Context(), config)
		return a.finishRun(config.Run, "isolation", rep, err)
	}
	return c
}

func bindIsolation(f *pflag.FlagSet, c *bench.IsolationConfig) {
	d := c.WithDefaults()
	benchRun(f, &c.Run)
	f.IntVar(&c.Run.Cores, "cores", orInt(c.Run.Cores, 2), "cores that node, load and receiver share; 0 = all")
	f.StringSliceVar(&c.Parts, "parts", d.Parts, "what to measure")
	f.IntVar(&c.Pairs, "pairs", d.Pairs, "pairs of each part")
	f.IntVar(&c.Healthy, "healthy", d.Healthy, "healthy subscribers")
	f.Float64Var(&c.Rate, "rate", d.Rate, "events a second for all healthy ones together; lanes: half of it")
	f.DurationVar(&c.For, "for", d.For, "noisy, lanes: how long a side is measured")
	f.IntVar(&c.Body, "body", d.Body, "bytes of a payload")
	f.IntVar(&c.Connections, "connections", d.Connections, "connections that publish")
	f.IntVar(&c.Hanging, "hanging", d.Hanging, "hanging: subscribers that hang")
	f.DurationVar(&c.HangFor, "hang-for", d.HangFor, "hanging: their timeout")
	f.IntVar(&c.HangBacklog, "hang-backlog", d.HangBacklog, "hanging: deliveries that each has queued")
	f.DurationVar(&c.HangWindow, "hang-window", c.HangWindow, "hanging: how long a side is measured (default hang-for and a sixth of it more)")
	f.IntVar(&c.Tenants, "tenants", d.Tenants, "noisy: tenants of the healthy ones")
	f.Float64Var(&c.Noise, "noise", d.Noise, "noisy: its rate over that of each other tenant")
	f.IntVar(&c.NoiseBatch, "noise-batch", d.NoiseBatch, "noisy: events in one of its publishes")
	f.IntVar(&c.Slots, "slots", d.Slots, "lanes: attempts in flight")
	f.DurationVar(&c.Delay, "delay", d.Delay, "lanes: how long receivers take")
	f.StringVar(&c.NodeConfig, "node-config", "", "configuration file for the node")
}

func (a *app) benchIdle() *cobra.Command {
	var config bench.IdleConfig
	c := &cobra.Command{
		Use: "idle", Short: "What a node costs that has many subscribers and nothing to do", Args: noArgs,
		Long: `idle makes a store with many registered subscribers and deliveries that are due
hours from now, runs a node ("dispatcher serve") on it and measures the CPU time
and memory of its process while nobody asks it anything; an empty node does the
same in turns.`,
		Example: `  dispatcher bench idle
  dispatcher bench idle --subscribers 10000 --waiting 1000 --rounds 1`,
	}
	f, d := c.Flags(), config.WithDefaults()
	benchRun(f, &config.Run)
	f.IntVar(&config.Run.Cores, "cores", 0, "cores that the node may use; 0 = all")
	f.IntVar(&config.Subscribers, "subscribers", d.Subscribers, "registered subscribers")
	f.IntVar(&config.Waiting, "waiting", d.Waiting, "deliveries that are due hours from now")
	f.IntVar(&config.Rounds, "rounds", d.Rounds, "rounds of both nodes")
	f.DurationVar(&config.Settle, "settle", d.Settle, "how long a node is left alone first")
	f.DurationVar(&config.For, "for", d.For, "how long it is measured")
	f.StringVar(&config.NodeConfig, "node-config", "", "configuration file for the node")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := config.Validate(); err != nil {
			return usageError(err)
		}
		a.prepareRun(c, &config.Run)
		rep, err := bench.Idle(c.Context(), config)
		return a.finishRun(config.Run, "idle", rep, err)
	}
	return c
}

func (a *app) benchStorage() *cobra.Command {
	var quick bool
	var given bench.StorageConfig
	c := &cobra.Command{
		Use: "storage", Short: "The store alone: publishers, backlog, opening, reads", Args: noArgs,
		Long: `storage measures the store in processes of its own: how fast publishers side by
side make events durable, with how many fsyncs, beside as many writers on a bare
database; and a large backlog: how fast it fills, how soon after opening the
first row is there, how much memory that takes, how long a read of a queue's
head takes right after many rows were consumed, and how soon and in how much
memory a whole node delivers what is left.

Parts: ` + strings.Join(bench.StorageParts(), ", ") + `.`,
		Example: `  dispatcher bench storage --quick
  dispatcher bench storage --parts publish --publishers 1,16,256
  dispatcher bench storage --parts backlog --rows 10000000 --subscribers 100000 --consume 1000000`,
	}
	bindStorage(c.Flags(), &given)
	c.Flags().BoolVar(&quick, "quick", false, "sizes that take less than a minute; flags given beside it win")
	c.RunE = func(c *cobra.Command, _ []string) error {
		config := bench.StorageConfig{}
		if quick {
			config = bench.StorageQuick()
		}
		overlay(c.Flags(), func(f *pflag.FlagSet) { bindStorage(f, &config) })
		config = config.WithDefaults()
		if err := config.Validate(); err != nil {
			return usageError(err)
		}
		a.prepareRun(c, &config.Run)
		rep, err := bench.Storage(c.Context(), config)
		return a.finishRun(config.Run, "storage", rep, err)
	}
	return c
}

func bindStorage(f *pflag.FlagSet, c *bench.StorageConfig) {
	d := c.WithDefaults()
	benchRun(f, &c.Run)
	f.IntVar(&c.Run.Cores, "cores", c.Run.Cores, "cores that the process may use; 0 = all")
	f.StringSliceVar(&c.Parts, "parts", d.Parts, "what to measure")
	f.IntVar(&c.Rounds, "rounds", d.Rounds, "publish: rounds")
	f.IntSliceVar(&c.Publishers, "publishers", d.Publishers, "publish: numbers of publishers")
	f.IntVar(&c.Events, "events", d.Events, "publish: events; at most 500 per publisher")
	f.IntVar(&c.Body, "body", d.Body, "publish: bytes of a payload")
	f.IntVar(&c.Rows, "rows", d.Rows, "backlog: queued deliveries")
	f.IntVar(&c.Subscribers, "subscribers", d.Subscribers, "backlog: subscribers")
	f.IntVar(&c.FanOut, "fan-out", d.FanOut, "backlog: deliveries of one event")
	f.IntVar(&c.RowBody, "row-body", d.RowBody, "backlog: bytes of a payload")
	f.IntVar(&c.Consume, "consume", c.Consume, "backlog: rows delivered before heads are read (default 100000, or all)")
	f.IntVar(&c.Reads, "reads", d.Reads, "backlog: reads of heads")
	f.IntVar(&c.Writers, "writers", d.Writers, "backlog: writers beside them")
	f.DurationVar(&c.NodeFor, "node-for", d.NodeFor, "backlog: for how long a node delivers what is left")
	f.StringVar(&c.NodeHeap, "node-heap", d.NodeHeap, "backlog: `FILE` for a heap profile of that node, taken half way")
}

func (a *app) benchSched() *cobra.Command {
	var quick bool
	var given bench.SchedConfig
	c := &cobra.Command{
		Use: "sched", Short: "The scheduler alone: lateness and fairness with simulated receivers", Args: noArgs,
		Long: `sched runs the real scheduler on the real store, with its files in memory, and
simulated receivers in the same process, in real time.

Parts: zipf (many subscribers, skewed traffic, some of them failing, slow or
hanging: how late deliveries are, and whether anybody is served worse) and
contention (tenants of different sizes that all have more queued than there are
slots: who gets how much).`,
		Example: `  dispatcher bench sched --quick
  dispatcher bench sched --subscribers 100000 --rate 20000 --zipf 1.2
  dispatcher bench sched --parts contention --rivals 20 --slots 256`,
	}
	bindSched(c.Flags(), &given)
	c.Flags().BoolVar(&quick, "quick", false, "sizes that take a few seconds; flags given beside it win")
	c.RunE = func(c *cobra.Command, _ []string) error {
		config := bench.SchedConfig{}
		if quick {
			config = bench.SchedQuick()
		}
		overlay(c.Flags(), func(f *pflag.FlagSet) { bindSched(f, &config) })
		config = config.WithDefaults()
		if err := config.Validate(); err != nil {
			return usageError(err)
		}
		a.prepareRun(c, &config.Run)
		rep, err := bench.Sched(c.Context(), config)
		return a.finishRun(config.Run, "sched", rep, err)
	}
	return c
}

func bindSched(f *pflag.FlagSet, c *bench.SchedConfig) {
	d := c.WithDefaults()
	benchRun(f, &c.Run)
	f.StringSliceVar(&c.Parts, "parts", d.Parts, "what to measure")
	f.IntVar(&c.Subscribers, "subscribers", d.Subscribers, "zipf: subscribers")
	f.IntVar(&c.Tenants, "tenants", d.Tenants, "zipf: tenants")
	f.Float64Var(&c.Zipf, "zipf", d.Zipf, "zipf: exponent of the skew, above 1")
	f.Float64Var(&c.Rate, "rate", d.Rate, "zipf: events a second")
	f.DurationVar(&c.For, "for", d.For, "zipf: how long events are published")
	f.DurationVar(&c.Settle, "settle", d.Settle, "zipf: how long the healthy ones' rest may take")
	f.Float64Var(&c.Failing, "failing", d.Failing, "zipf: share of subscribers that answer 503 (negative = none)")
	f.Float64Var(&c.Slow, "slow", d.Slow, "zipf: share that takes one to three seconds")
	f.Float64Var(&c.Hanging, "hanging", d.Hanging, "zipf: share that never answers")
	f.IntVar(&c.Body, "body", d.Body, "bytes of a payload")
	f.IntVar(&c.Rivals, "rivals", d.Rivals, "contention: tenants")
	f.IntVar(&c.Slots, "slots", d.Slots, "contention: attempts in flight")
	f.DurationVar(&c.Window, "window", d.Window, "contention: how long shares are counted")
}

func (a *app) benchTransports() *cobra.Command {
	var quick bool
	var given bench.TransportsConfig
	var networks []string
	c := &cobra.Command{
		Use: "transports", Short: "HTTP/1.1, HTTP/2, HTTP/3 and auto over an emulated link", Args: noArgs,
		Long: `transports compares protocols as the node would use them, through its selector and
transport, against real servers behind an emulated link: two TUN devices in two
network namespaces, made by the run and gone with it, so that the real kernel's
TCP and UDP cross one link with a delay, jitter, loss, rate and queue of one's
choice. Before each network the link is checked.

It needs Linux, and root (or user namespaces that may open /dev/net/tun).
Elsewhere --link loopback runs the same without emulation.

Scenarios: ` + strings.Join(bench.TransportsScenarios(), ", ") + `.
Networks: ` + strings.Join(networkNames(), ", ") + `, or NAME:rtt=50ms,jitter=5ms,loss=2%,burst=5,rate=100M,queue=256K
(loss, rate and queue count for each direction; burst is the mean number of
packets lost in a row), or "all".

Without --network each scenario runs where its question arises: half an hour in
all, about a minute with --quick. --scenarios picks some of them; with --network
the scenarios run on exactly those networks.`,
		Example: `  sudo dispatcher bench transports --quick
  sudo dispatcher bench transports --network wan --network lossy --scenarios sporadic,large
  sudo dispatcher bench transports --network 'mine:rtt=80ms,loss=1%,rate=20M' --scenarios large --congestion cubic,bbr
  dispatcher bench transports --link loopback`,
	}
	bindTransports(c.Flags(), &given)
	c.Flags().StringArrayVar(&networks, "network", nil, "network to emulate, repeatable (default: what the preset measures where)")
	c.Flags().BoolVar(&quick, "quick", false, "sizes that take about a minute; flags given beside it win")
	c.RunE = func(c *cobra.Command, _ []string) error {
		config := bench.TransportsConfig{}
		if quick {
			config = bench.TransportsQuick()
		}
		overlay(c.Flags(), func(f *pflag.FlagSet) { bindTransports(f, &config) })
		if len(networks) > 0 {
			config.Networks, config.Cases = nil, nil
		}
		for _, spec := range networks {
			if spec == "all" {
				config.Networks = append(config.Networks, bench.Networks()...)
				continue
			}
			n, err := bench.ParseNetwork(spec)
			if err != nil {
				return usageError(fmt.Errorf("--network: %w", err))
			}
			config.Networks = append(config.Networks, n)
		}
		config = config.WithDefaults()
		if err := config.Validate(); err != nil {
			return usageError(err)
		}
		if c.Flags().Changed("samples") || c.Flags().Changed("large-samples") {
			config.Cases = bench.WithoutSamples(config.Cases)
		}
		a.prepareRun(c, &config.Run)
		rep, err := bench.Transports(c.Context(), config)
		return a.finishRun(config.Run, "transports", rep, err)
	}
	return c
}

func networkNames() []string {
	var out []string
	for _, n := range bench.Networks() {
		out = append(out, n.Name)
	}
	return out
}

func bindTransports(f *pflag.FlagSet, c *bench.TransportsConfig) {
	d := c.WithDefaults()
	benchRun(f, &c.Run)
	f.StringVar(&c.Link, "link", d.Link, "tun (emulated) or loopback (not emulated)")
	f.StringSliceVar(&c.Scenarios, "scenarios", nil, "what to run (default all of them)")
	f.StringSliceVar(&c.Protocols, "protocols", d.Protocols, "what to compare")
	f.StringSliceVar(&c.Congestion, "congestion", c.Congestion, "congestion controls of TCP; all of them in large, the first elsewhere (default cubic, and bbr where there is one)")
	f.IntVar(&c.Samples, "samples", d.Samples, "sporadic, burst, steady: requests of each protocol; no p99 below 2000")
	f.IntVar(&c.LargeSamples, "large-samples", d.LargeSamples, "large: requests")
	f.IntVar(&c.CongestionSamples, "congestion-samples", d.CongestionSamples, "large: of those, with the further congestion controls")
	f.IntVar(&c.Body, "body", d.Body, "bytes of a payload")
	f.IntVar(&c.LargeBody, "large-body", d.LargeBody, "large: bytes of a payload")
	f.IntVar(&c.Parallel, "parallel", d.Parallel, "cold requests on their way at once; 0 = by the round trip, about 100 a second")
	f.IntVar(&c.BurstSize, "burst-size", d.BurstSize, "burst: requests at once")
	f.Float64Var(&c.SteadyRate, "steady-rate", d.SteadyRate, "steady: requests a second")
	f.IntVar(&c.Estate.Endpoints, "endpoints", d.Estate.Endpoints, "mixed: endpoints")
	f.Float64Var(&c.Estate.H3, "share-h3", d.Estate.H3, "mixed: share whose HTTP/3 works")
	f.Float64Var(&c.Estate.Blocked, "share-blocked", d.Estate.Blocked, "mixed: share that advertises HTTP/3 with UDP blocked")
	f.Float64Var(&c.Estate.Dying, "share-dying", d.Estate.Dying, "mixed: share whose HTTP/3 dies after the handshake")
	f.Float64Var(&c.Estate.Wrong, "share-wrong", d.Estate.Wrong, "mixed: share that advertises HTTP/3 where nobody listens")
	f.IntVar(&c.BlockedEndpoints, "blocked-endpoints", d.BlockedEndpoints, "blocked: endpoints")
	f.IntVar(&c.Visits, "visits", d.Visits, "mixed, blocked: visits of each endpoint")
	f.DurationVar(&c.Pause, "pause", d.Pause, "mixed, blocked: between two visits of an endpoint")
	f.IntVar(&c.Tries, "tries", d.Tries, "tries of one request")
	f.DurationVar(&c.Timeout, "timeout", d.Timeout, "one try")
	f.IntVar(&c.Draws, "draws", d.Draws, "draws of the bootstrap")
}

func orInt(v, fallback int) int {
	if v == 0 {
		return fallback
	}
	return v
}

// benchWorker is what the benchmarks run themselves as. It is hidden: it speaks
// its own protocol on stdin and stdout.
func (a *app) benchWorker() *cobra.Command {
	kinds := map[string]func(ctx context.Context, args []string) error{
		"load": func(ctx context.Context, _ []string) error { return load.ServeGenerator(ctx, a.In, a.Out) },
		"link-server": func(ctx context.Context, args []string) error {
			return bench.ServeEstate(ctx, slices.Contains(args, "join"), a.In, a.Out)
		},
		"link-client": func(ctx context.Context, args []string) error {
			return bench.ServeClient(ctx, slices.Contains(args, "join"), a.In, a.Out)
		},
		"storage": func(ctx context.Context, _ []string) error { return bench.ServeStorage(ctx, a.In, a.Out) },
		"receiver": func(ctx context.Context, args []string) error {
			origins := 1
			if len(args) > 0 {
				var err error
				if origins, err = strconv.Atoi(args[0]); err != nil || origins < 1 {
					return usageError(fmt.Errorf("origins %q: want a number", args[0]))
				}
			}
			return load.ServeReceiver(ctx, origins, a.In, a.Out)
		},
	}
	return &cobra.Command{
		Use: "worker KIND", Short: "A process of a benchmark", Hidden: true,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 || kinds[args[0]] == nil {
				names := make([]string, 0, len(kinds))
				for name := range kinds {
					names = append(names, name)
				}
				slices.Sort(names)
				return usageError(errors.New("bench worker needs one of " + strings.Join(names, ", ")))
			}
			return kinds[args[0]](c.Context(), args[1:])
		},
	}
}
