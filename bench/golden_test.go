package bench

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/link"
	"github.com/dispatcher-engine/dispatcher/bench/load"
	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// rewrite regenerates the goldens; read the diff as a change of the reports.
var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

// golden compares sections, as Markdown, with a file, and draws their plots.
func golden(t *testing.T, name string, sections ...report.Section) {
	t.Helper()
	rep := &report.Report{Title: "golden", Command: "test", Seed: 1, Started: time.Unix(0, 0), Sections: sections}
	var b, html bytes.Buffer
	if err := rep.WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	if err := rep.WriteHTML(&html); err != nil {
		t.Errorf("plots: %v", err)
	}
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.Bytes(), want) {
		t.Errorf("%s differs; run with -rewrite and read the diff. Got:\n%s", name, b.Bytes())
	}
}

func latency(p50 float64) stats.Latency {
	return stats.Latency{N: 2000, Mean: p50, P50: p50, P90: 2 * p50, P99: 3 * p50, Max: 4 * p50}
}

// measure is a round with figures that follow from its rate.
func measure(workload string, round, subscribers int, rate float64) Measure {
	m := Measure{
		Workload: workload, Round: round, Subscribers: subscribers, Events: 1000, Deliveries: 1000,
		Floor: FloorRate{Rate: 20_000, Concurrency: 32, CPU: 40}, FloorConn: FloorRate{Rate: 25_000, Concurrency: 16, CPU: 30},
		Disk: latency(0.4), PacedDisk: latency(0.6), Ack: latency(1), AcceptRate: rate * 2,
		Seen: load.Seen{Expected: 1000, Arrived: 1000, Latency: latency(2), CDF: []stats.Point{{X: 1, Y: 0.5}, {X: 8, Y: 1}}, Timeline: []stats.Point{{X: 0, Y: rate}}},
	}
	m.timed(1000/rate, 1000)
	m.compare()
	m.spend(moment{}, moment{syncs: 20, syncTime: 0.01})
	m.NodeCPU, m.NodeShare, m.RSS, m.File, m.Peak = 100, 0.8, 80<<20, 30<<20, 90<<20
	return m
}

func TestEngineReportLooksLikeItsGolden(t *testing.T) {
	c := EngineQuick()
	c.Scale = []int{1, 100, 7} // nothing was measured for the last
	r := &engineRun{c: c.WithDefaults(), stage: stage{fs: "ext4"}}
	for round := 1; round <= 3; round++ {
		for i, w := range []string{"drain", "fan-out", "single", "batch", "accept", "latency", "hang"} {
			m := measure(w, round, 100, float64(10_000+1000*i+100*round))
			if w == "drain" {
				m.AcceptRate = 0
			}
			if w == "hang" {
				m.Beside = m.Rate * 1.1
			}
			r.measures = append(r.measures, m)
		}
		k := measure("kill", round, 100, 1)
		k.Kill = &Kill{Queued: 2000, Before: 400, Duplicates: round, Ready: 0.2, Back: 0.25, Done: 0.6}
		r.measures = append(r.measures, k, measure("scale", round, 1, 5000), measure("scale", round, 100, 9000))
		for i, name := range []string{"drain-h2", "drain-h3"} {
			m := measure(name, round, 100, float64(15_000-1000*i))
			m.AcceptRate, m.RatioConn, m.FloorConn, m.Floor.Conns = 0, 0, FloorRate{}, 1+i
			r.measures = append(r.measures, m)
		}
		for _, procs := range r.c.Procs {
			m := measure(coresWorkload("drain"), round, 100, float64(6000*procs))
			m.Procs, m.Ratio = procs, 0
			r.measures = append(r.measures, m)
		}
		r.inFlight = append(r.inFlight, InFlight{
			Protocol: "h2", Round: round, Deliveries: 100, Connections: 2,
			Cold: Held{Heap: 900 << 10, Stacks: 1600 << 10, RSS: 3 << 20, Goroutines: 204}, Warm: Held{Heap: 200 << 10, Stacks: 1500 << 10, Goroutines: 200},
		})
	}
	golden(t, "engine.md", r.sections()...)
}

func TestAnEngineReportOfNothingHasNoSections(t *testing.T) {
	r := &engineRun{c: EngineConfig{}.WithDefaults()}
	rep := &report.Report{}
	r.fill(rep)
	if len(rep.Sections) != 0 {
		t.Errorf("%+v", rep.Sections)
	}
}

func TestIsolationReportLooksLikeItsGolden(t *testing.T) {
	r := &isolationRun{c: IsolationConfig{Pairs: 2}.WithDefaults()}
	side := func(p50, others float64) IsolationSide {
		return IsolationSide{Seen: load.Seen{Latency: latency(p50), CDF: []stats.Point{{X: 1, Y: 0.5}, {X: 8, Y: 1}}}, Others: others, NodeShare: 0.3}
	}
	for _, part := range IsolationParts() {
		for round := 1; round <= 2; round++ {
			with := side(2.5, 1000)
			if part == "noisy" {
				with = side(5, 1000)
			}
			r.pairs = append(r.pairs, IsolationPair{Part: part, Round: round, Without: side(float64(1+round), 0), With: with})
		}
	}
	rep := &report.Report{}
	r.fill(rep)
	golden(t, "isolation.md", rep.Sections...)
}

func TestStorageReportLooksLikeItsGolden(t *testing.T) {
	r := &storageRun{c: StorageConfig{Publishers: []int{1, 64}}.WithDefaults(), fs: "ext4"}
	for _, n := range []int{1, 64} {
		for round := 1; round <= 2; round++ {
			rate := float64(n*500 + round)
			r.data.Publish = append(r.data.Publish, PublishMeasure{
				Round: round, Publishers: n, Events: 1000, Rate: rate, Raw: 2 * rate, Ratio: 0.5, Syncs: 1 / float64(n), Bytes: 1290, CPU: 50,
				Latency: latency(2), RawLatency: latency(1), Disk: latency(0.4),
			})
		}
	}
	m := &BacklogMeasure{
		Rows: 50_000, Subscribers: 500, FillRate: 40_000, FillPeak: 100 << 20, Cold: OpenMeasure{Open: 2, FirstRow: 2.1, All: 2.2, Found: 500, RSS: 60 << 20},
		Warm: OpenMeasure{Open: 0.4, FirstRow: 0.41, All: 0.5, Found: 500, RSS: 50 << 20}, Consumed: 20_000, ConsumeRate: 100_000, ConsumePeak: 70 << 20,
		Killed: OpenMeasure{Open: 3, FirstRow: 3.1, All: 3.2, Found: 500, RSS: 61 << 20},
		Before: latency(0.02), After: latency(0.03), FloorBefore: latency(0.01), FloorAfter: latency(0.015), Disk: latency(0.4),
		Node: &NodeMeasure{Rows: 30_000, Ready: 0.5, First: 0.6, Delivered: 9000, Served: 400, Seconds: 5, RSS: 90 << 20},
	}
	golden(t, "storage.md", r.publishSection(), r.backlogSection(m))
}

func TestSchedReportLooksLikeItsGolden(t *testing.T) {
	r := &schedRun{c: SchedConfig{}.WithDefaults()}
	z := &ZipfMeasure{
		Published: 100_000, Seconds: 10, Offered: 10_000, Attempts: 9900, SettledS: 0.5, PeakFlight: 1000, PeakSlow: 50, PeakActors: 3000, RSS: 300 << 20, CPU: 30,
		Natures: []NatureMeasure{
			{Nature: "healthy", Subscribers: 16_000, Offered: 90_000, Delivered: 89_000, Attempts: 89_000, Lateness: latency(1), Jain: 0.999},
			{Nature: "failing", Subscribers: 300, Offered: 1000, Attempts: 1300, Lateness: latency(1), Jain: 1},
			{Nature: "slow"},
		},
	}
	c := &ContentionMeasure{Slots: 64, Seconds: 3, Rate: 10_000, JainTenant: 0.9999, JainSubscriber: 0.998, Tenants: []RivalTenant{
		{Subscribers: 3, Backlog: 20_000, Delivered: 15_000, Jain: 1}, {Subscribers: 64, Backlog: 20_000, Delivered: 15_010, Jain: 0.998},
	}}
	golden(t, "sched.md", r.zipfSection(z), r.contentionSection(c))
	z.SettledS = -1
	if s := r.zipfSection(z); s.Tables[0].Note == "" {
		t.Error("it does not say that the rest was not delivered")
	}
}

func variantResult(name, protocol, congestion string, n int, ms float64) VariantResult {
	samples := make([]float64, n)
	for i := range samples {
		samples[i] = ms + float64(i%10)
	}
	v := VariantResult{Variant: Variant{Name: name, Protocol: protocol, Congestion: congestion}, Duplicates: 1, Wire: link.Counts{
		TCPUp: link.Count{Packets: 100, Bytes: int64(n) * 3000, Lost: 2}, UDPDown: link.Count{Packets: 50, Bytes: int64(n) * 1000, Overflowed: 1},
	}, TCPPorts: n, UDPPorts: 1}
	v.Blocks = stats.Spread{Median: ms, Min: ms - 1, Max: ms + 1, N: 3}
	v.keep(blockResult{
		Took: samples, Retries: 3, Protocols: map[string]int{"h2": n - 1, "h3": 1}, Handshakes: map[string]int{"h2": n},
		Broken: map[string]int{"h3": 1}, Causes: map[string]int{"timeout (ambiguous)": 3}, CPU: float64(n) * 1.5,
	})
	return v
}

func TestTransportsReportLooksLikeItsGolden(t *testing.T) {
	networks := Networks()
	r := &transportsRun{c: TransportsConfig{Networks: networks[:4], Draws: 20}.WithDefaults(), congestion: []string{"cubic", "bbr"}}
	r.data.Checks = []NetworkCheck{
		{Network: networks[1], RTT: latency(50), Sent: 10_000, Bits: 99e6, Queue: 625_000, Tries: 2, Late: latency(0.05)},
		{Network: networks[3], RTT: latency(90), Faults: []string{"a round trip takes 90.0 ms, 50.0 were asked for"}},
	}
	for _, of := range []struct {
		scenario, network string
		n                 int
	}{{"sporadic", "wan", fewSamples}, {"sporadic", "lossy", fewSamples}, {"steady", "lossy", 200}, {"burst", "wan", 200}, {"large", "wan", 20}, {"mixed", "wan", 40}, {"blocked", "wan", 40}} {
		s := ScenarioResult{Scenario: of.scenario, Network: of.network, Variants: []VariantResult{
			variantResult("h1", "h1", "cubic", of.n, 160), variantResult("h2", "h2", "cubic", of.n, 150), variantResult("h3", "h3", "", of.n, 100),
			variantResult("auto", "auto", "cubic", of.n, 115),
		}}
		if of.scenario == "large" {
			s.Variants = append(s.Variants, variantResult("h2/bbr", "h2", "bbr", of.n, 90))
		}
		if of.scenario == "mixed" || of.scenario == "blocked" {
			s.Variants[3].Vain = []int{3, 30}
			for visit := range 2 {
				s.Groups = append(s.Groups,
					GroupResult{Kind: "blocked", Visit: visit + 1, Variant: "h2", Latency: latency(100)},
					GroupResult{Kind: "blocked", Visit: visit + 1, Variant: "auto", Latency: latency(150), Vain: 1})
			}
		}
		s.Regrets = r.regrets(s)
		r.data.Scenarios = append(r.data.Scenarios, s)
	}
	golden(t, "transports.md", r.answers(), r.overview(), r.regretSection(), r.checkSection(), r.section(r.data.Scenarios[0]), r.section(r.data.Scenarios[5]))
}

func TestAReportOfOneScenarioAnswersThatAlone(t *testing.T) {
	r := &transportsRun{c: TransportsConfig{}.WithDefaults()}
	if s := r.answers(); len(s.Answers) != 2 { // the regret, and what was promised
		t.Errorf("%+v", s.Answers)
	}
	r.data.Scenarios = []ScenarioResult{{Scenario: "burst", Network: "wan", Variants: []VariantResult{variantResult("h3", "h3", "", 10, 5)}}}
	if s := r.answers(); len(s.Answers) != 3 || len(s.Answers[0].Points) != 1 || !strings.HasPrefix(s.Answers[0].Points[0], "wan: h3") {
		t.Errorf("%+v", s.Answers)
	}
}
