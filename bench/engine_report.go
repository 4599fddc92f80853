package bench

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// EngineData are the raw figures of a run, in its JSON report.
type EngineData struct {
	Config   EngineConfig `json:"config"`
	Measures []Measure    `json:"measures"`
	InFlight []InFlight   `json:"in_flight,omitempty"`
}

// fill writes the report.
func (r *engineRun) fill(rep *report.Report) {
	rep.Facts = append(rep.Facts, r.facts()...)
	rep.Warnings = append(rep.Warnings, r.warnings()...)
	rep.Failures = r.failures
	rep.Data = EngineData{Config: r.c, Measures: r.measures, InFlight: r.inFlight}
	for _, section := range r.sections() {
		if len(section.Tables) > 0 {
			rep.Sections = append(rep.Sections, section)
		}
	}
}

// sections are all parts of the report; one without tables was not measured.
func (r *engineRun) sections() []report.Section {
	return []report.Section{
		r.throughput(), r.protocols(), r.coreScaling(), r.latencies(), r.isolation(), r.crashes(), r.scaling(), r.inFlightMemory(),
	}
}

func (r *engineRun) facts() []report.Fact {
	cores := "all"
	if r.c.Run.Cores > 0 {
		cores = fmt.Sprint(r.c.Run.Cores)
	}
	concurrency := "the node's default"
	if r.c.Concurrency > 0 {
		concurrency = fmt.Sprint(r.c.Concurrency)
	}
	facts := []report.Fact{
		{Name: "Cores shared by node, load and receiver", Value: cores},
		{Name: "Setting", Value: fmt.Sprintf("bodies of %s, plain HTTP/1.1 on loopback unless a section says otherwise, every delivery signed, store synced, timelines on; %d origin(s), concurrency of a subscriber: %s",
			report.Bytes(int64(r.c.Body)), r.c.Origins, concurrency)},
		{Name: "Data directory", Value: fmt.Sprintf("on %s; a sync of 4 KiB takes %s", r.fs, r.diskText())},
	}
	var names []string
	for _, setting := range os.Environ() {
		if name, _, _ := strings.Cut(setting, "="); strings.HasPrefix(name, "DISPATCHER_") && name != "DISPATCHER_API_TOKEN" {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		facts = append(facts, report.Fact{Name: "Environment of the node", Value: strings.Join(names, ", ")})
	}
	if r.c.NodeConfig != "" {
		facts = append(facts, report.Fact{Name: "Configuration of the node", Value: r.c.NodeConfig})
	}
	return facts
}

func (r *engineRun) diskText() string {
	p50 := spread(r.measures, func(m Measure) float64 { return m.Disk.P50 })
	p99 := spread(r.measures, func(m Measure) float64 { return m.Disk.P99 })
	return fmt.Sprintf("p50 %s ms, p99 %s ms (over %d probes)", report.Range(p50), report.Range(p99), p50.N)
}

// warnings say what about the disk, the sizes or the run weakens the figures.
func (r *engineRun) warnings() []string {
	out := slices.Clone(r.doubts)
	const noDisk = 0.02 // ms; no medium is that fast
	if p50 := spread(r.measures, func(m Measure) float64 { return m.Disk.P50 }); p50.N > 0 && p50.Median < noDisk {
		out = append(out, fmt.Sprintf("a sync takes %s ms: something below answers before the data is safe", report.Number(p50.Median)))
	}
	if r.c.Rounds < 3 {
		out = append(out, "fewer than three rounds: the extremes say little")
	}
	return out
}

// of returns a workload's rounds.
func (r *engineRun) of(name string) []Measure {
	var out []Measure
	for _, m := range r.measures {
		if m.Workload == name {
			out = append(out, m)
		}
	}
	return out
}

func text(measures []Measure, figure func(Measure) float64) string {
	return report.Range(spread(measures, figure))
}

// acceptText is the rate of acknowledgements, if anything was published.
func acceptText(measures []Measure) string {
	s := spread(measures, func(m Measure) float64 { return m.AcceptRate })
	if s.Max == 0 {
		return "-"
	}
	return report.Range(s)
}

func rateOf(m Measure) float64      { return m.Rate }
func ratioOf(m Measure) float64     { return m.Ratio }
func ratioConnOf(m Measure) float64 { return m.RatioConn }
func cpuOf(m Measure) float64       { return m.NodeCPU }
func syncsOf(m Measure) float64     { return m.SyncsPerEvent }

// megabytes prints the median of a size.
func megabytes(measures []Measure, size func(Measure) int64) string {
	return report.Number(spread(measures, func(m Measure) float64 { return float64(size(m)) / (1 << 20) }).Median)
}

const floorText = "The floor is a bare keep-alive http.Client, at the best of several concurrencies, that posts the same bodies to the same receiver with no queue, no signature and no log; it is measured right before each round. "

func (r *engineRun) throughput() report.Section {
	table := report.Table{Columns: []string{
		"workload", "per second", "floor/s", "ratio to floor", "ratio to NewClientConn", "accepted/s",
		"node CPU ms/1,000", "node cores", "RSS max MiB", "fsyncs/event", "disk sync p50 / p99 ms",
	}}
	bars := report.Plot{Title: "Throughput over the floor's", Y: "ratio", Kind: report.Bars, Series: []report.Line{{Name: "to http.Client"}, {Name: "to NewClientConn"}}}
	about := &strings.Builder{}
	for _, w := range r.workloads() {
		m := r.of(w.name)
		if len(m) == 0 || w.noFloor {
			continue
		}
		fmt.Fprintf(about, "%s: %s. ", w.name, w.about)
		table.Rows = append(table.Rows, []string{
			w.name, text(m, rateOf), text(m, func(m Measure) float64 { return m.Floor.Rate }), text(m, ratioOf), text(m, ratioConnOf),
			acceptText(m), text(m, cpuOf),
			report.Number(spread(m, func(m Measure) float64 { return m.NodeShare }).Median),
			megabytes(m, func(m Measure) int64 { return m.Peak }), text(m, syncsOf), diskPair(m),
		})
		bars.Labels = append(bars.Labels, w.name)
		bars.Series[0].Points = append(bars.Series[0].Points, stats.Point{Y: spread(m, ratioOf).Median})
		bars.Series[1].Points = append(bars.Series[1].Points, stats.Point{Y: spread(m, ratioConnOf).Median})
	}
	if len(table.Rows) == 0 {
		return report.Section{}
	}
	table.Note = "Of the resident memory " + megabytes(r.measures, func(m Measure) int64 { return m.File }) +
		" MiB are pages of the program's file, which the system takes back when it needs them. Per second counts deliveries; with accept and accept-batch, events made durable. CPU and fsyncs are of the node's process, per 1,000 deliveries (events with accept) and per event. Medians of the rounds [min … max]; a ratio is of its round's own floor. Floors: " + r.floorNote()
	return report.Section{
		Title: "Throughput", Text: floorText + about.String(), Tables: []report.Table{table},
		Plots: append([]report.Plot{bars}, r.timelines()...),
	}
}

// floorNote says at which concurrencies the floors were best, and what they
// cost.
func (r *engineRun) floorNote() string {
	var withFloor []Measure
	for _, m := range r.measures {
		if m.FloorConn.Rate > 0 {
			withFloor = append(withFloor, m)
		}
	}
	conns := func(f func(Measure) int) string {
		var seen []string
		for _, m := range withFloor {
			if s := fmt.Sprint(f(m)); !slices.Contains(seen, s) {
				seen = append(seen, s)
			}
		}
		return strings.Join(seen, ", ")
	}
	return fmt.Sprintf("http.Client best on %s connections, %s ms CPU per 1,000 posts; NewClientConn best on %s, %s ms.",
		conns(func(m Measure) int { return m.Floor.Concurrency }), text(withFloor, func(m Measure) float64 { return m.Floor.CPU }),
		conns(func(m Measure) int { return m.FloorConn.Concurrency }), text(withFloor, func(m Measure) float64 { return m.FloorConn.CPU }))
}

func diskPair(m []Measure) string {
	return report.Number(spread(m, func(m Measure) float64 { return m.Disk.P50 }).Median) + " / " +
		report.Number(spread(m, func(m Measure) float64 { return m.Disk.P99 }).Median)
}

// timelines shows how deliveries arrived in the last round of each workload.
func (r *engineRun) timelines() []report.Plot {
	plot := report.Plot{Title: "Arrivals at the receiver (last round)", X: "seconds since the first arrival", Y: "deliveries/s", Kind: report.Lines}
	for _, name := range []string{"drain", "fan-out", "single", "batch"} {
		if m := r.of(name); len(m) > 0 {
			plot.Series = append(plot.Series, report.Line{Name: name, Points: fromZero(m[len(m)-1].Seen.Timeline)})
		}
	}
	if len(plot.Series) == 0 {
		return nil
	}
	return []report.Plot{plot}
}

// fromZero moves a curve to the left, so that curves can be compared.
func fromZero(points []stats.Point) []stats.Point {
	out := slices.Clone(points)
	for i := range out {
		out[i].X -= points[0].X
	}
	return out
}

func (r *engineRun) latencies() report.Section {
	m := r.of("latency")
	if len(m) == 0 {
		return report.Section{}
	}
	table := report.Table{Columns: []string{"", "p50 ms", "p90 ms", "p99 ms", "max ms"}, Rows: [][]string{
		latencyRow("publish to receiver", m, func(m Measure) stats.Latency { return m.Seen.Latency }),
		latencyRow("publish to 202", m, func(m Measure) stats.Latency { return m.Ack }),
		latencyRow("a sync of 4 KiB on that disk, one after the other, before or after, the worse", m, func(m Measure) stats.Latency { return m.Disk }),
		latencyRow("the same at the rate of the events, after", m, func(m Measure) stats.Latency { return m.PacedDisk }),
	}}
	last := m[len(m)-1]
	plot := report.Plot{Title: "Latency at a steady rate (last round)", X: "ms", Y: "share", Kind: report.Steps, LogX: true, Series: []report.Line{
		{Name: "publish to receiver", Points: last.Seen.CDF}, {Name: "publish to 202", Points: last.AckCDF},
	}}
	if h := r.of("hang"); len(h) > 0 {
		plot.Series = append(plot.Series, report.Line{Name: "to receiver, one subscriber hangs", Points: h[len(h)-1].Seen.CDF})
	}
	w := r.latency()
	return report.Section{Title: "Latency", Text: w.about + ". A publish waits for one sync at least.", Tables: []report.Table{table}, Plots: []report.Plot{plot}}
}

func latencyRow(name string, m []Measure, of func(Measure) stats.Latency) []string {
	row := []string{name}
	for _, figure := range []func(stats.Latency) float64{
		func(l stats.Latency) float64 { return l.P50 }, func(l stats.Latency) float64 { return l.P90 },
		func(l stats.Latency) float64 { return l.P99 }, func(l stats.Latency) float64 { return l.Max },
	} {
		row = append(row, text(m, func(m Measure) float64 { return figure(of(m)) }))
	}
	return row
}

func (r *engineRun) isolation() report.Section {
	m := r.of("hang")
	if len(m) == 0 {
		return report.Section{}
	}
	table := report.Table{Columns: []string{"", "healthy deliveries/s", "to receiver p50 ms", "p99 ms"}, Rows: [][]string{
		{"one subscriber hangs", text(m, rateOf), text(m, func(m Measure) float64 { return m.Seen.Latency.P50 }), text(m, func(m Measure) float64 { return m.Seen.Latency.P99 })},
		{"nobody hangs", text(m, func(m Measure) float64 { return m.Beside }), "-", "-"},
		{"ratio", text(m, func(m Measure) float64 { return quotient(m.Rate, m.Beside) }), "", ""},
	}}
	if l := r.of("latency"); len(l) > 0 {
		table.Rows[1][2] = text(l, func(m Measure) float64 { return m.Seen.Latency.P50 })
		table.Rows[1][3] = text(l, func(m Measure) float64 { return m.Seen.Latency.P99 })
	}
	w := r.hang()
	return report.Section{Title: "One subscriber hangs", Text: w.about + ".", Tables: []report.Table{table}}
}

func quotient(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func (r *engineRun) crashes() report.Section {
	m := r.of("kill")
	if len(m) == 0 {
		return report.Section{}
	}
	table := report.Table{Columns: []string{"round", "queued", "delivered before", "lost", "duplicates", "ready after s", "first new delivery after s", "all delivered after s"}}
	for _, one := range m {
		k := one.Kill
		table.Rows = append(table.Rows, []string{
			fmt.Sprint(one.Round), fmt.Sprint(k.Queued), fmt.Sprint(k.Before), fmt.Sprint(k.Lost), fmt.Sprint(k.Duplicates),
			report.Number(k.Ready), report.Number(k.Back), report.Number(k.Done),
		})
	}
	return report.Section{
		Title:  "kill -9",
		Text:   "The node is killed with SIGKILL in the middle of a drain and started again on the same data. Times count from the start of the second process. Duplicates are deliveries that had been answered, but whose outcome was not on disk yet.",
		Tables: []report.Table{table},
	}
}

func (r *engineRun) scaling() report.Section {
	all := r.of("scale")
	if len(all) == 0 {
		return report.Section{}
	}
	table := report.Table{Columns: []string{"subscribers", "deliveries/s", "ratio to floor", "node CPU ms/1,000", "RSS MiB", "RSS max MiB", "fsyncs/event"}}
	for _, n := range r.c.Scale {
		var m []Measure
		for _, one := range all {
			if one.Subscribers == n {
				m = append(m, one)
			}
		}
		if len(m) == 0 {
			continue
		}
		table.Rows = append(table.Rows, []string{
			fmt.Sprint(n), text(m, rateOf), text(m, ratioOf), text(m, cpuOf),
			megabytes(m, func(m Measure) int64 { return m.RSS }), megabytes(m, func(m Measure) int64 { return m.Peak }), text(m, syncsOf),
		})
	}
	return report.Section{
		Title:  "Numbers of subscribers",
		Text:   fmt.Sprintf("%d events in batches of %d, each for one subscriber, on a fresh node for each number.", r.c.ScaleEvents, r.c.BatchSize),
		Tables: []report.Table{table},
	}
}
