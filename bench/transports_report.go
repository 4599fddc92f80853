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
	rep.Failures, rep.Data = r.failures, r.data
	if len(r.data.Checks) > 0 {
		rep.Sections = append(rep.Sections, r.checkSection())
	}
	rep.Sections = append(rep.Sections, r.overview())
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
	table := report.Table{Columns: []string{"network", "asked for", "RTT p50 ms", "p99 ms", "lost", "Mbit/s", "emulator late p50 / p99 ms", "verdict"}}
	for _, c := range r.data.Checks {
		verdict, rate := "as asked for", "-"
		if len(c.Faults) > 0 {
			verdict = strings.Join(c.Faults, "; ")
		}
		if c.Bits > 0 {
			rate = report.Number(c.Bits / 1e6)
		}
		table.Rows = append(table.Rows, []string{
			c.Network.Name, c.Network.String(), report.Number(c.RTT.P50), report.Number(c.RTT.P99), report.Percent(c.Loss), rate,
			report.Number(c.Late.P50) + " / " + report.Number(c.Late.P99), verdict,
		})
	}
	return report.Section{
		Title:  "The link, checked",
		Text:   fmt.Sprintf("Before anything is measured with a network, UDP echoes, %d paced datagrams and a burst at twice the rate say whether the link does what it was asked for.", probeDatagrams),
		Tables: []report.Table{table},
	}
}

var scenarioTexts = map[string]string{
	"sporadic": "Many endpoints, each visited so seldom that its connections are closed, but what was learned about it is remembered: every request is on a cold connection.",
	"burst":    "An origin without a connection gets many requests at once; the time of each counts from the start of its burst.",
	"steady":   "A constant rate to a few origins whose connections are up.",
	"large":    "Large bodies on cold connections, two at a time.",
	"mixed":    "An estate of which nothing is known at first: some endpoints have HTTP/3, some advertise it although UDP is blocked, with some it dies after the handshake, most have none. Every request is on a cold connection. HTTP/3 alone is not compared: it cannot reach most of them.",
}

// overview is one line for each scenario and network: who was best, and what
// auto cost against that.
func (r *transportsRun) overview() report.Section {
	table := report.Table{Columns: []string{"scenario", "network", "best fixed at p50", "p50 ms", "auto p50 ms", "regret p50", "regret p90", "regret p99"}}
	for _, s := range r.data.Scenarios {
		row := []string{s.Scenario, s.Network, "-", "-", "-", "-", "-", "-"}
		for i, g := range s.Regrets[:min(3, len(s.Regrets))] {
			if g.N == 0 {
				continue
			}
			if i == 0 {
				row[2] = g.Best
				for _, v := range s.Variants {
					switch v.Variant.Name {
					case g.Best:
						row[3] = report.Number(v.Latency.P50)
					case g.Variant:
						row[4] = report.Number(v.Latency.P50)
					}
				}
			}
			row[5+i] = regretText(g)
		}
		table.Rows = append(table.Rows, row)
	}
	table.Note = fmt.Sprintf("Regret is the quantile of auto over that of the fixed protocol that was best at it, with the 95 %% interval of %d bootstrap draws over paired samples: 1 = as good as if it had been known before. It is claimed from %d samples on.", r.c.Draws, fewSamples)
	return report.Section{Title: "What the choice costs", Tables: []report.Table{table}}
}

func regretText(g RegretResult) string {
	if g.N < fewSamples {
		return fmt.Sprintf("(%d samples)", g.N)
	}
	return fmt.Sprintf("%.3f [%.3f … %.3f]", g.Ratio.Value, g.Ratio.Low, g.Ratio.High)
}

func (r *transportsRun) section(s ScenarioResult) report.Section {
	latency := report.Table{Title: "Time to the answer", Columns: []string{
		"protocol", "requests", "p50 ms", "p50 of the blocks", "p90 ms", "p99 ms", "max ms", "failed", "retries", "duplicates", "answered over",
	}}
	cost := report.Table{Title: "What it cost, per request", Columns: []string{
		"protocol", "handshakes", "failed handshakes", "bytes on the wire", "packets lost", "client CPU ms", "TCP ports opened", "UDP ports used",
	}}
	plot := report.Plot{Title: fmt.Sprintf("%s, %s", s.Scenario, s.Network), X: "ms to the answer", Y: "share", Kind: report.Steps, LogX: true}
	for _, v := range s.Variants {
		latency.Rows = append(latency.Rows, []string{
			v.Variant.Name, fmt.Sprint(v.Latency.N), report.Number(v.Latency.P50), report.Range(v.Blocks), report.Number(v.Latency.P90), claimed(v.Latency),
			report.Number(v.Latency.Max), fmt.Sprint(v.Failed), fmt.Sprint(v.Retries), fmt.Sprint(v.Duplicates), mix(v.Protocols),
		})
		cost.Rows = append(cost.Rows, v.costs())
		const points = 200
		plot.Series = append(plot.Series, report.Line{Name: v.Variant.Name, Points: stats.CDF(stats.Sorted(v.Samples), points)})
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
	return report.Section{Title: s.Scenario + " on " + s.Network, Text: text, Tables: []report.Table{latency, cost}, Plots: []report.Plot{plot}}
}

// claimed prints a p99 only where there are enough samples for one.
func claimed(l stats.Latency) string {
	if l.N < fewSamples {
		return "(few samples)"
	}
	return report.Number(l.P99)
}

// costs is a variant's row of costs.
func (v *VariantResult) costs() []string {
	n := float64(max(1, v.Latency.N))
	wire := v.Wire
	lost := wire.TCPUp.Lost + wire.TCPDown.Lost + wire.UDPUp.Lost + wire.UDPDown.Lost +
		wire.TCPUp.Overflowed + wire.TCPDown.Overflowed + wire.UDPUp.Overflowed + wire.UDPDown.Overflowed
	row := []string{v.Variant.Name, mixPer(v.Handshakes, n), mixPer(v.Broken, n), "-", "-", report.Number(v.CPU / n), "-", "-"}
	if wire.Bytes() > 0 {
		row[3], row[4] = report.Number(float64(wire.Bytes())/n), report.Number(float64(lost)/n)
		row[6], row[7] = fmt.Sprint(v.TCPPorts), fmt.Sprint(v.UDPPorts)
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
