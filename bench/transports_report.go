package bench

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

func (r *transportsRun) fill(rep *report.Report) {
	rep.Facts = append(rep.Facts, r.facts()...)
	rep.Warnings = append(rep.Warnings, r.warnings...)
	rep.Warnings = append(rep.Warnings, r.doubtful()...)
	rep.Failures, rep.Data = r.failures, r.data
	rep.Sections = append(rep.Sections, r.answers(), r.overview(), r.regretSection())
	if len(r.data.Checks) > 0 {
		rep.Sections = append(rep.Sections, r.checkSection())
	}
	for _, s := range r.data.Scenarios {
		rep.Sections = append(rep.Sections, r.section(s))
	}
}

func (r *transportsRun) facts() []report.Fact {
	how := "two TUN devices in two network namespaces of the run's own; TCP and UDP are the kernel's"
	if r.session.rootless {
		how += "; inside user namespaces"
	}
	if r.c.Link == linkLoopback {
		how = "loopback: nothing is emulated, no loss, no delay"
	}
	tcp := strings.Join(r.congestion, ", ")
	if tcp == "" {
		tcp = "the kernel's default"
	}
	return []report.Fact{
		{Name: "Link", Value: how},
		{Name: "Congestion control", Value: fmt.Sprintf("TCP: %s, set on each socket of the client; HTTP/3: Reno (%s)", tcp, moduleVersion("github.com/quic-go/quic-go"))},
		{Name: "Client", Value: "selector and transport of the node, each protocol with a memory and pools of its own; TLS 1.3, no DNS records, no 0-RTT"},
		{Name: "What the seed repeats", Value: "requests, endpoints and their order, and the chance of the link packet by packet; not the machine's timing, so that which packet is lost can differ"},
	}
}

// moduleVersion names a module and its version in this build.
func moduleVersion(path string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == path {
				return "quic-go " + d.Version
			}
		}
	}
	return "quic-go"
}

func (r *transportsRun) checkSection() report.Section {
	table := report.Table{Columns: []string{"network", "asked for", "RTT p50 ms", "p99 ms", "lost", "of packets", "Mbit/s", "queue", "emulator late p50 / p99 ms", "verdict"}}
	for _, c := range r.data.Checks {
		verdict, rate, queue := "as asked for", "-", "-"
		if len(c.Faults) > 0 {
			verdict = strings.Join(c.Faults, "; ")
		}
		if c.Tries > 1 {
			verdict += fmt.Sprintf(" (check %d)", c.Tries)
		}
		if c.Bits > 0 {
			rate, queue = report.Number(c.Bits/1e6), report.Bytes(int64(c.Queue))
		}
		table.Rows = append(table.Rows, []string{
			c.Network.Name, c.Network.String(), report.Number(c.RTT.P50), report.Number(c.RTT.P99), report.Percent(c.Loss), fmt.Sprint(c.Sent), rate, queue,
			report.Number(c.Late.P50) + " / " + report.Number(c.Late.P99), verdict,
		})
	}
	return report.Section{
		Title:  "The link, checked",
		Brief:  true,
		Text:   "Before anything is measured with a network, UDP echoes, paced datagrams and a burst at twice the rate say whether the link does what it was asked for: the round trip within 2 % (and 0.3 ms for waking two processes), the rate within 3 %, the loss within 0.3 points, the queue within a tenth.",
		Tables: []report.Table{table},
	}
}

var scenarioTexts = map[string]string{
	"sporadic": "Many endpoints, each visited so seldom that its connections are closed, but what was learned about it is remembered: every request is on a cold connection.",
	"burst":    "An origin without a connection gets many requests at once; the time of each counts from the start of its burst. One burst is one observation in the intervals.",
	"steady":   "A constant rate to a few origins whose connections are up.",
	"large":    "Large bodies on cold connections, a few at a time. TCP has each congestion control in turn, set on the client's sockets; that of HTTP/3 is Reno.",
	"blocked":  "Every endpoint advertises HTTP/3 and no UDP passes. Nothing is known at first; the first visit learns the advert, the second finds out, the later ones remember. Every request is on a cold connection.",
	"mixed":    "An estate of which nothing is known at first: some endpoints have HTTP/3, some advertise it although UDP is blocked or nobody listens, with some it dies after the handshake, the others have none. Every request is on a cold connection. HTTP/3 alone is not compared: it cannot reach most of them.",
}

// overview is one line for each scenario and network, p50 and p99 of each
// protocol with the first congestion control.
func (r *transportsRun) overview() report.Section {
	table := report.Table{Columns: append([]string{"scenario", "network"}, r.c.Protocols...)}
	for _, s := range r.data.Scenarios {
		row := []string{s.Scenario, s.Network}
		for _, p := range r.c.Protocols {
			cell := "-"
			if v := s.of(p); v != nil {
				cell = report.Number(v.Latency.P50) + " / " + claimed(v.Latency)
			}
			row = append(row, cell)
		}
		table.Rows = append(table.Rows, row)
	}
	table.Note = "A p99 is printed from 2,000 requests on."
	return report.Section{
		Title: "Time to the answer: p50 / p99 in ms", Brief: true, Tables: []report.Table{table},
		Plots: append(r.bars("sporadic", "Cold endpoints: p50", 0.5), r.bars("sporadic", "Cold endpoints: p99, the tail", 0.99)...),
	}
}

// of returns the result of a variant by its name, nil if there is none.
func (s *ScenarioResult) of(name string) *VariantResult {
	for i := range s.Variants {
		if s.Variants[i].Variant.Name == name {
			return &s.Variants[i]
		}
	}
	return nil
}

// hue gives a protocol its colour in all plots.
func hue(v Variant) int { return 1 + slices.Index([]string{"h1", "h2", "h3", "auto"}, v.Protocol) }

// bars draws a quantile of a scenario by network; nothing where only one network
// was measured.
func (r *transportsRun) bars(scenario, title string, q float64) []report.Plot {
	plot := report.Plot{Title: title, Y: "ms", Kind: report.Bars}
	lines := map[string]*report.Line{}
	for _, s := range r.data.Scenarios {
		if s.Scenario != scenario {
			continue
		}
		plot.Labels = append(plot.Labels, s.Network)
		for _, v := range s.Variants {
			l := lines[v.Variant.Name]
			if l == nil {
				l = &report.Line{Name: v.Variant.Name, Hue: hue(v.Variant)}
				lines[v.Variant.Name] = l
			}
			l.Points = append(l.Points, stats.Point{Y: stats.Quantile(stats.Sorted(v.Samples), q)})
		}
	}
	for _, p := range r.c.Protocols {
		if l := lines[p]; l != nil {
			plot.Series = append(plot.Series, *l)
		}
	}
	if len(plot.Labels) < 2 {
		return nil
	}
	return []report.Plot{plot}
}

// regretSection is one line for each scenario and network: who was best, and
// what auto cost against that.
func (r *transportsRun) regretSection() report.Section {
	table := report.Table{Columns: []string{"scenario", "network", "pairs", "best at p50", "regret p50", "regret p90", "best at p99", "regret p99"}}
	for _, s := range r.data.Scenarios {
		row := []string{s.Scenario, s.Network, "-", "-", "-", "-", "-", "-"}
		for i, g := range s.Regrets[:min(len(regretQuantiles), len(s.Regrets))] {
			if g.N == 0 {
				continue
			}
			row[2] = fmt.Sprint(g.N)
			row[[]int{4, 5, 7}[i]] = regretText(g)
			if i == 0 {
				row[3] = g.Best
			}
			row[6] = g.Best
		}
		table.Rows = append(table.Rows, row)
	}
	table.Note = fmt.Sprintf("1 = as good as if the best protocol had been known before, below 1 = better than every fixed one; in brackets the 95 %% interval of %d bootstrap draws over paired samples. Below %s pairs it is in round brackets: not claimed.", r.c.Draws, counted(fewSamples))
	return report.Section{
		Title: "Regret: what choosing automatically costs", Brief: true, Tables: []report.Table{table},
		Text: "A quantile of auto over the same quantile of the fixed protocol that was best at it. The best is known only afterwards, and may be another one at each quantile.",
	}
}

func regretText(g RegretResult) string {
	if g.N < fewSamples {
		return fmt.Sprintf("(%.2f)", g.Ratio.Value)
	}
	return fmt.Sprintf("%.3f [%.3f … %.3f]", g.Ratio.Value, g.Ratio.Low, g.Ratio.High)
}

func (r *transportsRun) section(s ScenarioResult) report.Section {
	latency := report.Table{Title: "Time to the answer", Columns: []string{
		"protocol", "requests", "p50 ms", "p50 of the blocks", "p90 ms", "p99 ms", "max ms", "failed", "retries", "duplicates", "answered over",
	}}
	cost := report.Table{Title: "What it cost, per request (ports: in all)", Columns: []string{
		"protocol", "handshakes", "failed handshakes", "bytes on the wire", "packets lost", "client CPU ms", "TCP ports", "left in TIME_WAIT", "UDP ports",
	}}
	plot := report.Plot{Title: fmt.Sprintf("%s, %s", s.Scenario, s.Network), X: "ms to the answer", Y: "share", Kind: report.Steps, LogX: true}
	for _, v := range s.Variants {
		latency.Rows = append(latency.Rows, []string{
			v.Variant.Name, fmt.Sprint(v.Latency.N), report.Number(v.Latency.P50), report.Range(v.Blocks), report.Number(v.Latency.P90), claimed(v.Latency),
			report.Number(v.Latency.Max), fmt.Sprint(v.Failed), fmt.Sprint(v.Retries), fmt.Sprint(v.Duplicates), mix(v.Protocols),
		})
		cost.Rows = append(cost.Rows, v.costs())
		const points = 200
		plot.Series = append(plot.Series, report.Line{
			Name: v.Variant.Name, Hue: hue(v.Variant), Dashed: v.Variant.Name != v.Variant.Protocol, Points: stats.CDF(stats.Sorted(v.Samples), points),
		})
	}
	for _, v := range s.Variants {
		if len(v.Causes) > 0 {
			latency.Note += fmt.Sprintf("Failed tries of %s: %s. ", v.Variant.Name, mix(v.Causes))
		}
	}
	text := scenarioTexts[s.Scenario]
	all := append(slices.Clone(r.c.Networks), loopback)
	if at := slices.IndexFunc(all, func(n Network) bool { return n.Name == s.Network }); at >= 0 {
		text += " Network: " + all[at].String() + "."
	}
	return report.Section{Title: s.Scenario + " on " + s.Network, Text: text, Tables: append([]report.Table{latency, cost}, s.groupTables()...), Plots: []report.Plot{plot}}
}

// groupTables splits an estate: one line for each kind and visit.
func (s *ScenarioResult) groupTables() []report.Table {
	if len(s.Groups) == 0 {
		return nil
	}
	table := report.Table{
		Title:   "By kind of endpoint and visit",
		Columns: []string{"kind", "visit", "requests", "h2 p50 ms", "auto p50 ms", "h2 p90 ms", "auto p90 ms", "auto max ms", "raced in vain"},
		Note:    "h3: it works. tcp: there is none. blocked: advertised, no UDP passes. wrong: advertised, nobody listens. dying: it dies after the handshake. Raced in vain: HTTP/3 was raced against TCP and did not come up in time.",
	}
	for _, g := range s.Groups {
		if g.Variant != "auto" {
			continue
		}
		h2 := s.group(g.Kind, g.Visit, "h2")
		table.Rows = append(table.Rows, []string{
			g.Kind, fmt.Sprint(g.Visit), fmt.Sprint(g.Latency.N), report.Number(h2.Latency.P50), report.Number(g.Latency.P50),
			report.Number(h2.Latency.P90), report.Number(g.Latency.P90), report.Number(g.Latency.Max), fmt.Sprint(g.Vain),
		})
	}
	return []report.Table{table}
}

func (s *ScenarioResult) group(kind string, visit int, variant string) GroupResult {
	for _, g := range s.Groups {
		if g.Kind == kind && g.Visit == visit && g.Variant == variant {
			return g
		}
	}
	return GroupResult{}
}

// claimed prints a p99 only where there are enough samples for one.
func claimed(l stats.Latency) string {
	if l.N < fewSamples {
		return "–"
	}
	return report.Number(l.P99)
}

// costs is a variant's row of costs.
func (v *VariantResult) costs() []string {
	n := float64(max(1, v.Latency.N))
	wire := v.Wire
	lost := wire.TCPUp.Lost + wire.TCPDown.Lost + wire.UDPUp.Lost + wire.UDPDown.Lost +
		wire.TCPUp.Overflowed + wire.TCPDown.Overflowed + wire.UDPUp.Overflowed + wire.UDPDown.Overflowed
	row := []string{v.Variant.Name, mixPer(v.Handshakes, n), mixPer(v.Broken, n), "-", "-", report.Number(v.CPU / n), "-", "-", "-"}
	if wire.Bytes() > 0 {
		row[3], row[4] = report.Number(float64(wire.Bytes())/n), report.Number(float64(lost)/n)
		row[6], row[7], row[8] = fmt.Sprint(v.TCPPorts), fmt.Sprint(v.TimeWait), fmt.Sprint(v.UDPPorts)
	}
	return row
}

// mix prints counts by name, the largest first.
func mix(counts map[string]int) string {
	return joined(counts, func(n int) string { return fmt.Sprint(n) })
}

func mixPer(counts map[string]int, per float64) string {
	return joined(counts, func(n int) string { return report.Number(float64(n) / per) })
}

func joined(counts map[string]int, text func(int) string) string {
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = name + " " + text(counts[name])
	}
	if len(names) == 0 {
		return "-"
	}
	return strings.Join(names, ", ")
}
