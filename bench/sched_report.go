package bench

import (
	"fmt"

	"github.com/dispatcher-engine/dispatcher/bench/report"
)

func (r *schedRun) fill(rep *report.Report) {
	rep.Facts = append(rep.Facts, report.Fact{Name: "Setting", Value: "the real scheduler on the real store, whose files are in memory; receivers are simulated in this process; real time"})
	rep.Failures, rep.Data = r.failures, r.data
	if m := r.data.Zipf; m != nil {
		rep.Sections = append(rep.Sections, r.zipfSection(m))
	}
	if m := r.data.Contention; m != nil {
		rep.Sections = append(rep.Sections, r.contentionSection(m))
	}
}

func (r *schedRun) zipfSection(m *ZipfMeasure) report.Section {
	table := report.Table{Columns: []string{"subscribers that are", "offered to", "events", "delivered", "attempts", "late p50 ms", "p90 ms", "p99 ms", "max ms", "Jain"}}
	late := report.Plot{Title: "Lateness", X: "ms", Y: "share", Kind: report.Steps, LogX: true}
	for _, n := range m.Natures {
		if n.Subscribers == 0 {
			continue
		}
		jain := "-" // nothing was delivered to anybody
		if n.Delivered > 0 {
			jain = fmt.Sprintf("%.4f", n.Jain)
		}
		table.Rows = append(table.Rows, []string{
			n.Nature, fmt.Sprint(n.Subscribers), fmt.Sprint(n.Offered), fmt.Sprint(n.Delivered), fmt.Sprint(n.Attempts),
			report.Number(n.Lateness.P50), report.Number(n.Lateness.P90), report.Number(n.Lateness.P99), report.Number(n.Lateness.Max), jain,
		})
		late.Series = append(late.Series, report.Line{Name: n.Nature, Points: n.CDF})
	}
	settled := "not within " + r.c.Settle.String()
	if m.SettledS >= 0 {
		settled = report.Number(m.SettledS) + " s after it"
	}
	table.Note = "Late is the time from when a delivery could be sent to when it was. Jain's index is over the share of what each subscriber was offered that had been delivered when the last event was published; all healthy subscribers had everything " + settled + "."
	figures := report.Table{Columns: []string{"", ""}, Rows: [][]string{
		{"events published a second", report.Number(m.Offered)}, {"attempts a second", report.Number(m.Attempts)},
		{"CPU ms per 1,000 attempts, store and simulation included", report.Number(m.CPU)},
		{"most attempts in flight", fmt.Sprint(m.PeakFlight)}, {"most of them slow", fmt.Sprint(m.PeakSlow)},
		{"most subscribers in memory", fmt.Sprint(m.PeakActors)}, {"RSS max", report.Bytes(m.RSS)},
	}}
	return report.Section{
		Title: "Zipf traffic with faults",
		Text: fmt.Sprintf("%d subscribers of %d tenants; %v events a second for %s, their subscribers drawn with exponent %v; %s answer 503, %s take one to three seconds, %s never answer.",
			r.c.Subscribers, r.c.Tenants, r.c.Rate, r.c.For, r.c.Zipf, report.Percent(max(0, r.c.Failing)), report.Percent(max(0, r.c.Slow)), report.Percent(max(0, r.c.Hanging))),
		Tables: []report.Table{table, figures},
		Plots: []report.Plot{late, {Title: "Attempts in flight", X: "s", Y: "attempts", Kind: report.Lines, Series: []report.Line{
			{Name: "all", Points: m.InFlight}, {Name: "slow", Points: m.Slow},
		}}},
	}
}

func (r *schedRun) contentionSection(m *ContentionMeasure) report.Section {
	table := report.Table{Columns: []string{"tenant", "subscribers", "queued", "delivered in the window", "share", "Jain over its subscribers"}}
	total := int64(0)
	for _, t := range m.Tenants {
		total += t.Delivered
	}
	for i, t := range m.Tenants {
		table.Rows = append(table.Rows, []string{
			fmt.Sprint(i + 1), fmt.Sprint(t.Subscribers), fmt.Sprint(t.Backlog), fmt.Sprint(t.Delivered),
			report.Percent(quotient(float64(t.Delivered), float64(total))), fmt.Sprintf("%.4f", t.Jain),
		})
	}
	table.Note = fmt.Sprintf("Jain's index over tenants: %.4f; the least over the subscribers of one tenant: %.4f. A fair share is %s.",
		m.JainTenant, m.JainSubscriber, report.Percent(1/float64(len(m.Tenants))))
	return report.Section{
		Title:  "Contention",
		Text:   fmt.Sprintf("Tenants of equal weight, with more and more subscribers each, all have more queued than %d slots can deliver; %s attempts a second in a window of %s s.", m.Slots, report.Number(m.Rate), report.Number(m.Seconds)),
		Tables: []report.Table{table},
	}
}
