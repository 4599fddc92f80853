package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/dispatcher-engine/dispatcher/bench/report"
)

// scaledTo are the workloads that cores runs.
var scaledTo = []string{"drain", "single"}

// coresWorkload is the name under which cores keeps a workload's rounds.
func coresWorkload(name string) string { return "cores-" + name }

// cores measures a drain and single events on nodes that differ in GOMAXPROCS
// alone. Each round has a fresh node for each value, in turns.
func (r *engineRun) cores(ctx context.Context) error {
	var list []workload
	for _, w := range r.workloads() {
		if slices.Contains(scaledTo, w.name) {
			w.name, w.noFloor = coresWorkload(w.name), true
			list = append(list, w)
		}
	}
	for round := range r.c.Rounds {
		for i := range r.c.Procs {
			procs := r.c.Procs[(i+round)%len(r.c.Procs)] // another one begins each time
			s := r.plain(r.c.Subscribers)
			s.env = []string{"GOMAXPROCS=" + strconv.Itoa(procs)}
			err := r.withNode(ctx, s, func(n *node) error {
				for _, w := range list {
					m := Measure{Workload: w.name, Round: round + 1, Subscribers: r.c.Subscribers, Events: w.events, Deliveries: w.deliveries, Procs: procs}
					if err := r.measured(ctx, n, w, &m, round); err != nil {
						return fmt.Errorf("%s, round %d: %w", w.name, round+1, err)
					}
					r.keep(m)
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("GOMAXPROCS=%d: %w", procs, err)
			}
		}
	}
	return nil
}

func (r *engineRun) coreScaling() report.Section {
	first := strconv.Itoa(r.c.Procs[0])
	table := report.Table{Columns: []string{"workload", "GOMAXPROCS", "per second", "over that with " + first, "node CPU ms/1,000", "node cores", "RSS max MiB"}}
	for _, name := range scaledTo {
		all := r.of(coresWorkload(name))
		var base float64
		for _, procs := range r.c.Procs {
			m := slices.DeleteFunc(slices.Clone(all), func(m Measure) bool { return m.Procs != procs })
			if len(m) == 0 {
				continue
			}
			median := spread(m, rateOf).Median
			if base == 0 {
				base = median
			}
			table.Rows = append(table.Rows, []string{
				name, strconv.Itoa(procs), text(m, rateOf), report.Number(quotient(median, base)), text(m, cpuOf),
				report.Number(spread(m, func(m Measure) float64 { return m.NodeShare }).Median),
				megabytes(m, func(m Measure) int64 { return m.Peak }),
			})
		}
	}
	if len(table.Rows) == 0 {
		return report.Section{}
	}
	shared := "every core of the machine"
	if r.c.Run.Cores > 0 {
		shared = fmt.Sprintf("%d core(s)", r.c.Run.Cores)
	}
	return report.Section{
		Title: "What another core brings",
		Text: "The same on fresh nodes that differ in GOMAXPROCS alone. Load generator and receiver share " + shared +
			" with the node: where they need what the node could use, another core brings less than it would alone.",
		Tables: []report.Table{table},
	}
}
