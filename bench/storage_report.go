package bench

import (
	"fmt"

	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

func (r *storageRun) fill(rep *report.Report) {
	rep.Facts = append(rep.Facts,
		report.Fact{Name: "Data directory", Value: "on " + r.fs},
		report.Fact{Name: "Setting", Value: "the store alone, in a process of its own; its own defaults"},
	)
	rep.Failures, rep.Data = r.failures, r.data
	if len(r.data.Publish) > 0 {
		rep.Sections = append(rep.Sections, r.publishSection())
	}
	if r.data.Backlog != nil {
		rep.Sections = append(rep.Sections, r.backlogSection(r.data.Backlog))
	}
}

func (r *storageRun) publishSection() report.Section {
	table := report.Table{Columns: []string{
		"publishers", "events/s", "bare commits/s", "ratio", "fsyncs/event", "log bytes/event", "CPU ms/1,000", "p50 ms", "p99 ms", "bare p99 ms", "disk sync p50 / p99 ms",
	}}
	rates := report.Line{Name: "store"}
	raws := report.Line{Name: "bare synced commits"}
	for _, n := range r.c.Publishers {
		var rounds []PublishMeasure
		for _, m := range r.data.Publish {
			if m.Publishers == n {
				rounds = append(rounds, m)
			}
		}
		of := func(figure func(PublishMeasure) float64) stats.Spread {
			values := make([]float64, len(rounds))
			for i, m := range rounds {
				values[i] = figure(m)
			}
			return stats.SpreadOf(values)
		}
		rate, raw := of(func(m PublishMeasure) float64 { return m.Rate }), of(func(m PublishMeasure) float64 { return m.Raw })
		table.Rows = append(table.Rows, []string{
			fmt.Sprint(n), report.Range(rate), report.Range(raw), report.Range(of(func(m PublishMeasure) float64 { return m.Ratio })),
			report.Range(of(func(m PublishMeasure) float64 { return m.Syncs })), report.Number(of(func(m PublishMeasure) float64 { return m.Bytes }).Median),
			report.Range(of(func(m PublishMeasure) float64 { return m.CPU })),
			report.Range(of(func(m PublishMeasure) float64 { return m.Latency.P50 })), report.Range(of(func(m PublishMeasure) float64 { return m.Latency.P99 })),
			report.Range(of(func(m PublishMeasure) float64 { return m.RawLatency.P99 })),
			report.Number(of(func(m PublishMeasure) float64 { return m.Disk.P50 }).Median) + " / " + report.Number(of(func(m PublishMeasure) float64 { return m.Disk.P99 }).Median),
		})
		rates.Points = append(rates.Points, stats.Point{X: float64(n), Y: rate.Median})
		raws.Points = append(raws.Points, stats.Point{X: float64(n), Y: raw.Median})
	}
	table.Note = "Medians of the rounds [min … max]; a ratio is of its round's own floor. CPU is of the whole process, opening and closing included."
	return report.Section{
		Title: "Publish rate by number of publishers",
		Text: fmt.Sprintf("Each publisher stores one event of %s for one subscriber after the other; every one is synced before it is acknowledged. "+
			"The floor, right before: as many writers, each committing one record of that size to a bare Pebble database, synced.", report.Bytes(int64(r.c.Body))),
		Tables: []report.Table{table},
		Plots:  []report.Plot{{Title: "Events made durable", X: "publishers", Y: "per second", Kind: report.Lines, LogX: true, Series: []report.Line{rates, raws}}},
	}
}

func (r *storageRun) backlogSection(m *BacklogMeasure) report.Section {
	open := report.Table{Title: "Opening", Columns: []string{"", "open s", "first row with its event s", "all backlogs found s", "subscribers found", "RSS MiB"}}
	for _, row := range []struct {
		name string
		o    OpenMeasure
	}{{"after a kill, files not cached", m.Killed}, {"after a stop, files not cached", m.Cold}, {"after a stop", m.Warm}} {
		open.Rows = append(open.Rows, []string{
			row.name, report.Number(row.o.Open), report.Number(row.o.FirstRow), report.Number(row.o.All), fmt.Sprint(row.o.Found), report.Number(float64(row.o.RSS) / (1 << 20)),
		})
	}
	heads := report.Table{Title: "Reading the head of a queue while writers publish", Columns: []string{"", "p50 ms", "p90 ms", "p99 ms", "max ms", "reads"}}
	for _, row := range []struct {
		name string
		l    stats.Latency
	}{
		{"full backlog", m.Before}, {"floor in turn with it: a queue of one row", m.FloorBefore},
		{fmt.Sprintf("right after %d rows were consumed", m.Consumed), m.After}, {"floor in turn with it: a queue of one row", m.FloorAfter},
	} {
		heads.Rows = append(heads.Rows, []string{
			row.name, report.Number(row.l.P50), report.Number(row.l.P90), report.Number(row.l.P99), report.Number(row.l.Max), fmt.Sprint(row.l.N),
		})
	}
	rates := report.Table{Title: "Filling and consuming", Columns: []string{"", "rows/s", "RSS max MiB"}, Rows: [][]string{
		{"queued", report.Number(m.FillRate), report.Number(float64(m.FillPeak) / (1 << 20))},
		{"delivered", report.Number(m.ConsumeRate), report.Number(float64(m.ConsumePeak) / (1 << 20))},
	}, Note: fmt.Sprintf("A sync of 4 KiB on that disk: p50 %s ms, p99 %s ms.", report.Number(m.Disk.P50), report.Number(m.Disk.P99))}
	tables := []report.Table{open, heads, rates}
	if n := m.Node; n != nil {
		tables = append(tables, report.Table{Title: "A whole node on what is left, after a kill",
			Columns: []string{"rows queued", "ready s", "first delivery s", "deliveries", "in s", "subscribers served", "RSS max MiB"},
			Rows: [][]string{{
				fmt.Sprint(n.Rows), report.Number(n.Ready), report.Number(n.First), fmt.Sprint(n.Delivered), report.Number(n.Seconds),
				fmt.Sprint(n.Served), report.Number(float64(n.RSS) / (1 << 20)),
			}},
			Note: fmt.Sprintf("Times are from the start of the process. When the node was ready, %d deliveries had arrived. The receiver runs beside it on the same machine.", n.AtReady),
		})
	}
	return report.Section{
		Title: "Backlog",
		Text: fmt.Sprintf("%d queued deliveries over %d subscribers, payloads of %s, %d deliveries an event; each step in a fresh process. "+
			"Heads are read from the very beginning of the queue, across whatever the consumed rows left behind, with %d writers.",
			m.Rows, m.Subscribers, report.Bytes(int64(r.c.RowBody)), r.c.FanOut, r.c.Writers),
		Tables: tables,
		Plots: []report.Plot{{Title: "Head of a queue", X: "ms", Y: "share", Kind: report.Steps, LogX: true, Series: []report.Line{
			{Name: "full backlog", Points: m.BeforeCDF}, {Name: "after consuming", Points: m.AfterCDF},
		}}},
	}
}
