package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/link"
	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// ScenarioResult is one scenario on one network.
type ScenarioResult struct {
	Scenario string          `json:"scenario"`
	Network  string          `json:"network"`
	Variants []VariantResult `json:"variants"`
	Regrets  []RegretResult  `json:"regrets,omitempty"`
	// Cluster is how many consecutive samples count as one observation in the
	// intervals of the regret.
	Cluster int `json:"cluster,omitempty"`
	// Groups splits an estate by kind and visit.
	Groups []GroupResult `json:"groups,omitempty"`
}

// GroupResult is what one visit of the endpoints of one kind took.
type GroupResult struct {
	Kind    string        `json:"kind"`
	Visit   int           `json:"visit"` // from 1
	Variant string        `json:"variant"`
	Latency stats.Latency `json:"latency"`
	Vain    int           `json:"raced_in_vain"`
}

// VariantResult is what one variant did in a scenario.
type VariantResult struct {
	Variant Variant       `json:"variant"`
	Latency stats.Latency `json:"latency"`
	// Blocks is the median of each block's median, with the extremes, in ms: how
	// much the turns differ.
	Blocks stats.Spread `json:"block_p50_ms"`
	// Samples are the times to the answer in ms, failed tries included; the same
	// index of two variants is the same request.
	Samples    []float64      `json:"samples_ms"`
	Failed     int            `json:"failed"`
	Retries    int            `json:"retries"`
	Reused     int            `json:"reused"`
	Protocols  map[string]int `json:"protocols"`
	Handshakes map[string]int `json:"handshakes"`
	Broken     map[string]int `json:"broken_handshakes,omitempty"`
	Causes     map[string]int `json:"causes,omitempty"`
	Duplicates int64          `json:"duplicates"` // requests that servers answered twice
	Resent     int64          `json:"resent"`     // POSTs of one try beyond the first
	CPU        float64        `json:"cpu_ms"`     // of the client
	Wire       link.Counts    `json:"wire"`
	TCPPorts   int            `json:"tcp_ports"` // local ports that connections were opened from
	UDPPorts   int            `json:"udp_ports"` // the most that QUIC connections began on in one block
	TimeWait   int            `json:"time_wait"` // of the TCP ports: closed by the client first
	// Vain are the indices of samples for which HTTP/3 was raced against TCP and
	// did not come up in time: those that had to find out.
	Vain []int `json:"raced_in_vain,omitempty"`
}

// RegretResult is what a choice cost against the best fixed protocol.
type RegretResult struct {
	Variant string `json:"variant"`
	stats.Regret
}

// TransportsData are the raw figures of a run, in its JSON report.
type TransportsData struct {
	Config    TransportsConfig `json:"config"`
	Checks    []NetworkCheck   `json:"checks,omitempty"`
	Scenarios []ScenarioResult `json:"scenarios"`
}

// Transports compares protocols over an emulated link: the node's selector and
// transport on one side, real servers on the other.
func Transports(ctx context.Context, c TransportsConfig) (rep *report.Report, err error) {
	c = c.WithDefaults()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("bench transports: %w", err)
	}
	rep, _ = c.Run.begin("dispatcher bench transports")
	r := &transportsRun{c: c, progress: newProgress(c.Run.Progress), data: TransportsData{Config: c}, repeat: repetition{seed: c.Run.Seed}}
	if err := r.all(ctx); err != nil {
		return nil, fmt.Errorf("bench transports: %w", err)
	}
	rep.Took = time.Since(rep.Started)
	r.fill(rep)
	return rep, nil
}

type transportsRun struct {
	c          TransportsConfig
	progress   *progress
	dir        *host.RunDir
	session    *session
	congestion []string
	parallel   int           // cold requests at once
	settle     time.Duration // between two blocks
	repeat     repetition
	data       TransportsData
	warnings   []string
	failures   []string
	measured   int // variants of scenarios
	late       int // of those, with a late emulator
	latest     lateness
}

// repetition gives every scenario a generator of its own, so that leaving one
// out does not change the others.
type repetition struct{ seed uint64 }

func (r repetition) rng(parts ...string) *rand.Rand {
	h := r.seed
	for _, c := range strings.Join(parts, "/") {
		h = (h ^ uint64(c)) * 0x100000001b3 //nolint:gosec // FNV-1a over code points
	}
	return rand.New(rand.NewPCG(r.seed, h)) //nolint:gosec // repeatable, not secret
}

func (r *transportsRun) all(ctx context.Context) (err error) {
	if r.dir, err = r.c.Run.open(r.progress); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.dir.Remove()) }()
	if r.session, err = openSession(ctx, r.dir, r.c.Link == linkTUN); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.session.close()) }()
	if err := r.chooseCongestion(ctx); err != nil {
		return err
	}
	for _, n := range r.c.Networks {
		if err := r.network(ctx, n); err != nil {
			return fmt.Errorf("network %s: %w", n.Name, err)
		}
	}
	return nil
}

// chooseCongestion finds out what TCP sockets may use.
func (r *transportsRun) chooseCongestion(ctx context.Context) error {
	var available []string
	if err := r.session.client.Call(ctx, "congestion", nil, &available); err != nil {
		return err
	}
	wanted := r.c.Congestion
	if len(wanted) == 0 {
		wanted = []string{"cubic", "bbr"}
	}
	for _, name := range wanted {
		if slices.Contains(available, name) {
			r.congestion = append(r.congestion, name)
		} else if len(r.c.Congestion) > 0 {
			return fmt.Errorf("congestion control %q: the kernel offers %s", name, strings.Join(available, ", "))
		}
	}
	if len(r.congestion) == 0 {
		r.congestion = []string{""}
	}
	return nil
}

func (r *transportsRun) network(ctx context.Context, n Network) error {
	if err := r.session.set(n, r.c.Run.Seed); err != nil {
		return err
	}
	if r.session.link != nil {
		check, err := r.checked(ctx, n)
		if err != nil {
			return fmt.Errorf("check: %w", err)
		}
		r.data.Checks = append(r.data.Checks, check)
		r.progress.say("%s: %s; found RTT p50 %s ms, loss %s", n.Name, n, report.Number(check.RTT.P50), report.Percent(check.Loss))
		for _, fault := range check.Faults {
			r.warnings = append(r.warnings, "network "+n.Name+": "+fault)
			r.progress.say("doubtful: %s", fault)
		}
	}
	for _, at := range r.c.casesOf(n) {
		// The same losses for every scenario, whichever were run before.
		if err := r.session.set(n, r.repeat.rng(n.Name, at.Scenario).Uint64()); err != nil {
			return err
		}
		sized := *r
		if at.Samples > 0 {
			sized.c.Samples, sized.c.LargeSamples = at.Samples, at.Samples
		}
		s, err := sized.scenario(ctx, n, at.Scenario)
		if err != nil {
			return fmt.Errorf("%s: %w", at.Scenario, err)
		}
		r.data.Scenarios = append(r.data.Scenarios, s)
		r.judge(s)
	}
	return nil
}

// checkTries bounds how often a network is checked until it is what was asked
// for: other work on the machine spoils a check in a moment.
const checkTries = 3

func (r *transportsRun) checked(ctx context.Context, n Network) (c NetworkCheck, err error) {
	for try := 1; try <= checkTries; try++ {
		if c, err = r.session.check(ctx, n); err != nil {
			return c, err
		}
		c.Tries = try
		if len(c.Faults) == 0 {
			break
		}
	}
	return c, nil
}

// scenario runs all variants in turns and returns their results.
func (r *transportsRun) scenario(ctx context.Context, n Network, name string) (ScenarioResult, error) {
	r.parallel = r.c.parallel(n)
	r.settle = n.RTT + 2*n.Jitter + 20*time.Millisecond
	p := r.plan(name, r.repeat.rng(n.Name, name))
	s := ScenarioResult{Scenario: name, Network: n.Name, Cluster: p.cluster}
	if err := r.session.client.Call(ctx, "open", p.variants, nil); err != nil {
		return s, err
	}
	tag := n.Name + "-" + name
	for i, b := range p.learn {
		for v := range p.variants {
			var unused VariantResult
			if _, err := r.send(ctx, v, fmt.Sprintf("%s-learn%d", tag, i), b, &unused); err != nil {
				return s, err
			}
		}
	}
	series, err := r.blocks(ctx, &p, tag, n.Name+", "+name)
	if err != nil {
		return s, err
	}
	for i := range series {
		s.Variants = append(s.Variants, series[i].result(p.variants[i]))
	}
	if p.visits {
		s.Groups = groupsOf(&p, s.Variants)
	}
	s.Regrets = r.regrets(s)
	return s, r.session.client.Call(ctx, "shut", nil, nil)
}

// series is what one variant did, block after block.
type series struct {
	counted VariantResult // what send counts
	merged  blockResult
	medians []float64
}

func (s *series) result(v Variant) VariantResult {
	out := s.counted
	out.Variant = v
	out.keep(s.merged)
	out.Blocks = stats.SpreadOf(s.medians)
	return out
}

// blocks runs the measured blocks of a plan.
func (r *transportsRun) blocks(ctx context.Context, p *plan, tag, title string) ([]series, error) {
	out := make([]series, len(p.variants))
	for i, b := range p.blocks {
		for k := range p.variants {
			v := (k + i) % len(p.variants) // nobody is always first
			if !p.takesPart(v, i) {
				continue
			}
			got, err := r.send(ctx, v, fmt.Sprintf("%s-%d", tag, i), b, &out[v].counted)
			if err != nil {
				return nil, err
			}
			out[v].merged.add(got)
			out[v].medians = append(out[v].medians, stats.Quantile(stats.Sorted(got.Took), 0.5))
		}
		// In an estate a visit comes long after the one before, and by then every
		// handshake has had its verdict.
		if p.visits && i+1 < len(p.blocks) && !sleepUntil(ctx, time.Now().Add(r.c.Pause)) {
			return nil, ctx.Err()
		}
		r.progress.say("%s: %d of %d blocks", title, i+1, len(p.blocks))
	}
	return out, nil
}

// groupsOf splits samples by the endpoint's kind and by visit.
func groupsOf(p *plan, variants []VariantResult) []GroupResult {
	var out []GroupResult
	for _, v := range variants {
		vain := map[int]bool{}
		for _, at := range v.Vain {
			vain[at] = true
		}
		at := 0
		for visit, b := range p.blocks {
			var took [kinds][]time.Duration
			var lost [kinds]int
			for i, e := range b.Endpoints {
				k := e.kind()
				took[k] = append(took[k], milliseconds(v.Samples[at+i]))
				if vain[at+i] {
					lost[k]++
				}
			}
			at += len(b.Endpoints)
			for k := range kinds {
				if len(took[k]) > 0 {
					out = append(out, GroupResult{Kind: kindNames[k], Visit: visit + 1, Variant: v.Variant.Name, Latency: stats.LatencyOf(took[k]), Vain: lost[k]})
				}
			}
		}
	}
	return out
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// send runs one block and counts what it did to the servers and on the wire.
func (r *transportsRun) send(ctx context.Context, variant int, tag string, b block, into *VariantResult) (blockResult, error) {
	b.Variant, b.Tag = variant, fmt.Sprintf("%s-v%d", tag, variant)
	b.Tries, b.Timeout = r.c.Tries, r.c.Timeout
	var before, after estateCounts
	var got blockResult
	if err := r.session.server.Call(ctx, "counts", nil, &before); err != nil {
		return got, err
	}
	r.session.take()
	if err := r.session.client.Call(ctx, "block", b, &got); err != nil {
		return got, err
	}
	// Acknowledgements and farewells belong to this block, too.
	if !sleepUntil(ctx, time.Now().Add(r.settle)) {
		return got, ctx.Err()
	}
	if err := r.session.server.Call(ctx, "counts", nil, &after); err != nil {
		return got, err
	}
	wire := r.session.take()
	into.Duplicates += after.Duplicates - before.Duplicates
	into.Resent += after.Resent - before.Resent
	into.Wire = sum(into.Wire, wire)
	into.TCPPorts += wire.TCPPorts
	into.UDPPorts = max(into.UDPPorts, wire.UDPPorts)
	into.TimeWait += wire.TimeWait
	return got, nil
}

// sum adds counts; of the emulator's lateness the worse remains.
func sum(a, b link.Counts) link.Counts {
	for _, pair := range []struct{ to, from *link.Count }{
		{&a.TCPUp, &b.TCPUp}, {&a.TCPDown, &b.TCPDown}, {&a.UDPUp, &b.UDPUp}, {&a.UDPDown, &b.UDPDown},
	} {
		pair.to.Packets += pair.from.Packets
		pair.to.Bytes += pair.from.Bytes
		pair.to.Lost += pair.from.Lost
		pair.to.Overflowed += pair.from.Overflowed
		pair.to.Filtered += pair.from.Filtered
	}
	a.TCPPorts, a.UDPPorts, a.TimeWait = 0, 0, 0 // counted by the caller
	if b.Late.P99 > a.Late.P99 {
		a.Late = b.Late
	}
	return a
}

func (v *VariantResult) keep(b blockResult) {
	v.Samples, v.Failed, v.Retries, v.Reused, v.CPU, v.Vain = b.Took, b.Failed, b.Retries, b.Reused, b.CPU, b.Vain
	v.Protocols, v.Handshakes, v.Broken, v.Causes = b.Protocols, b.Handshakes, b.Broken, b.Causes
	slices.Sort(v.Vain)
	v.Vain = slices.Compact(v.Vain) // a request may race at each try
	took := make([]time.Duration, len(b.Took))
	for i, ms := range b.Took {
		b.Took[i] = math.Round(ms*1000) / 1000 // µs: finer would be noise, and long
		took[i] = milliseconds(ms)
	}
	v.Latency = stats.LatencyOf(took)
}

// judge holds the run against what the transport promises.
func (r *transportsRun) judge(s ScenarioResult) {
	for _, v := range s.Variants {
		if v.Resent > 0 {
			r.failures = append(r.failures, fmt.Sprintf("%s, %s, %s: %d POSTs were written twice within one try, and the server processed both", s.Network, s.Scenario, v.Variant.Name, v.Resent))
		}
		r.measured++
		if v.Wire.Late.P99 > lateMost {
			r.late++
		}
		if v.Wire.Late.P99 > r.latest.p99 {
			r.latest = lateness{p99: v.Wire.Late.P99, at: s.Network + ", " + s.Scenario + ", " + v.Variant.Name}
		}
	}
}

// lateMost is how late the emulator may be at p99, in ms.
const lateMost = 2

// lateness is when the emulator was late most.
type lateness struct {
	p99 float64 // ms
	at  string
}

// doubtful says once how often the emulator was late.
func (r *transportsRun) doubtful() []string {
	if r.late == 0 {
		return nil
	}
	return []string{fmt.Sprintf("in %d of %d measurements the emulator handed packets over more than %d ms late at p99 (worst: %s ms in %s). It did not get the CPU time that it needs: run it on a quiet machine",
		r.late, r.measured, lateMost, report.Number(r.latest.p99), r.latest.at)}
}

// regretQuantiles are where a choice is compared with the best.
var regretQuantiles = []float64{0.5, 0.9, 0.99}

// regrets compares every auto with the fixed protocols of its congestion
// control that answered everything.
func (r *transportsRun) regrets(s ScenarioResult) []RegretResult {
	var out []RegretResult
	for _, auto := range s.Variants {
		if auto.Variant.Protocol != "auto" {
			continue
		}
		var fixed []stats.Series
		for _, v := range s.Variants {
			sameTCP := v.Variant.Congestion == auto.Variant.Congestion || v.Variant.Protocol == "h3"
			if v.Variant.Protocol != "auto" && v.Failed == 0 && sameTCP {
				fixed = append(fixed, stats.Series{Name: v.Variant.Name, Values: v.Samples})
			}
		}
		for _, q := range regretQuantiles {
			regret := stats.RegretOf(stats.Series{Name: auto.Variant.Name, Values: auto.Samples}, fixed, q, r.c.Draws, s.Cluster, r.repeat.rng("bootstrap", s.Network, s.Scenario))
			out = append(out, RegretResult{auto.Variant.Name, regret})
		}
	}
	return out
}
