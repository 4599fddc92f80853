package bench

import (
	"fmt"

	"github.com/dispatcher-engine/dispatcher/bench/load"
	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// aim is what a part is held against: the median of the pairs' ratios, or of
// their differences.
type aim struct {
	ratio float64
	more  float64 // ms; 0 = only the ratio counts
}

// Aims of the parts. Nothing fails when one is missed: a machine that is busy
// misses them all.
var aims = map[string]aim{"hanging": {1.2, 2}, "noisy": {1.5, 0}}

func (a aim) text() string {
	if a.more > 0 {
		return fmt.Sprintf("at most %s times, or %s ms more", report.Number(a.ratio), report.Number(a.more))
	}
	return fmt.Sprintf("at most %s times", report.Number(a.ratio))
}

func (a aim) met(ratio, more float64) bool {
	return ratio <= a.ratio || a.more > 0 && more <= a.more
}

// judge notes what must not happen to the healthy ones, however late they are.
func (r *isolationRun) judge(tag string, s load.Seen) {
	if s.Arrived != s.Expected {
		r.fail("%s: %d of %d deliveries did not arrive", tag, s.Expected-s.Arrived, s.Expected)
	}
	if s.BadSignatures > 0 || s.Verified == 0 {
		r.fail("%s: %d signatures were bad, %d good", tag, s.BadSignatures, s.Verified)
	}
	if s.Duplicates > 0 {
		r.doubts = append(r.doubts, fmt.Sprintf("%s: %d deliveries came twice", tag, s.Duplicates))
	}
}

// of returns a part's pairs.
func (r *isolationRun) of(part string) []IsolationPair {
	var out []IsolationPair
	for _, p := range r.pairs {
		if p.Part == part {
			out = append(out, p)
		}
	}
	return out
}

// fill writes the report.
func (r *isolationRun) fill(rep *report.Report) {
	cores := "all"
	if r.c.Run.Cores > 0 {
		cores = fmt.Sprint(r.c.Run.Cores)
	}
	rep.Facts = append(rep.Facts,
		report.Fact{Name: "Cores shared by node, load and receiver", Value: cores},
		report.Fact{Name: "Setting", Value: fmt.Sprintf("bodies of %s, HTTP/1.1 on loopback, one origin for each subscriber, every delivery signed, store synced, timelines on", report.Bytes(int64(r.c.Body)))},
		report.Fact{Name: "Data directory", Value: fmt.Sprintf("on %s; a sync of 4 KiB takes p50 %s ms, p99 %s ms (before each pair)",
			r.fs, report.Range(spread(r.disk, func(l stats.Latency) float64 { return l.P50 })), report.Range(spread(r.disk, func(l stats.Latency) float64 { return l.P99 })))},
	)
	if r.c.NodeConfig != "" {
		rep.Facts = append(rep.Facts, report.Fact{Name: "Configuration of the node", Value: r.c.NodeConfig})
	}
	rep.Warnings = append(rep.Warnings, r.doubts...)
	if r.c.Pairs < 3 {
		rep.Warnings = append(rep.Warnings, "fewer than three pairs: the medians say little")
	}
	rep.Failures = r.failures
	rep.Data = IsolationData{Config: r.c, Pairs: r.pairs}
	for _, part := range IsolationParts() {
		if pairs := r.of(part); len(pairs) > 0 {
			rep.Sections = append(rep.Sections, r.section(part, pairs))
		}
	}
}

// about says what a part measured.
func (r *isolationRun) about(part string) (title, text string) {
	c := r.c
	const healthy = "%s events a second for %d healthy subscribers, published one by one for %s a side"
	switch part {
	case "hanging":
		return "Subscribers that hang", fmt.Sprintf(healthy+". Beside them %d others, new to the node and with %d deliveries queued each, never answer: an attempt hangs for %s. They are made anew for each pair.",
			report.Number(c.Rate), c.Healthy, report.Duration(c.HangWindow), c.Hanging, c.HangBacklog, report.Duration(c.HangFor))
	case "noisy":
		return "A noisy tenant", fmt.Sprintf(healthy+", spread over %d tenants. Beside them one tenant publishes %s times what each of them does, in batches of %d.",
			report.Number(c.Rate), c.Healthy, report.Duration(c.For), c.Tenants, report.Number(c.Noise), c.NoiseBatch)
	default:
		return "Priority under overload", fmt.Sprintf(healthy+", with high priority. Beside them the same subscribers have a backlog of low priority, half as much again as the node's %d slots can do in that time with receivers that take %s to answer: first come, first served would let a high one wait for all of it.",
			report.Number(c.Rate/2), c.Healthy, report.Duration(c.For), c.Slots, report.Duration(c.Delay))
	}
}

func (r *isolationRun) section(part string, pairs []IsolationPair) report.Section {
	table := report.Table{Columns: []string{
		"pair", "without p50 ms", "without p99 ms", "with p50 ms", "with p99 ms", "p99 ratio", "p99 ms more", "the others' deliveries/s", "node cores without / with",
	}}
	for _, p := range pairs {
		a, b := p.Without, p.With
		table.Rows = append(table.Rows, []string{
			fmt.Sprint(p.Round), report.Number(a.Seen.Latency.P50), report.Number(a.Seen.Latency.P99),
			report.Number(b.Seen.Latency.P50), report.Number(b.Seen.Latency.P99),
			report.Number(p.Ratio()), report.Number(p.More()), report.Number(b.Others), report.Number(a.NodeShare) + " / " + report.Number(b.NodeShare),
		})
	}
	ratio, more := spread(pairs, IsolationPair.Ratio), spread(pairs, IsolationPair.More)
	table.Note = fmt.Sprintf("Latency is from publish to receiver. Median of the pairs' p99 ratios %s, of their differences %s ms.", report.Range(ratio), report.Range(more))
	if a, ok := aims[part]; ok {
		verdict := "missed"
		if a.met(ratio.Median, more.Median) {
			verdict = "met"
		}
		table.Note += fmt.Sprintf(" Aim: %s: %s.", a.text(), verdict)
	}
	if part == "lanes" {
		table.Note += fmt.Sprintf(" Low priority moved all the while: %s deliveries a second.", report.Range(spread(pairs, func(p IsolationPair) float64 { return p.With.Others })))
	}
	last := pairs[len(pairs)-1]
	title, text := r.about(part)
	return report.Section{Title: title, Text: text, Tables: []report.Table{table}, Plots: []report.Plot{{
		Title: "Publish to receiver (last pair)", X: "ms", Y: "share", Kind: report.Steps, LogX: true,
		Series: []report.Line{{Name: "without", Points: last.Without.Seen.CDF}, {Name: "with", Points: last.With.Seen.CDF}},
	}}}
}

// spread summarises one figure of some values.
func spread[T any](of []T, figure func(T) float64) stats.Spread {
	values := make([]float64, len(of))
	for i, v := range of {
		values[i] = figure(v)
	}
	return stats.SpreadOf(values)
}
