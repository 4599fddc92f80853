package bench

import (
	"context"
	"fmt"
	"strings"

	"github.com/dispatcher-engine/dispatcher/bench/load"
	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// tlsTarget is the share of its floor that a drain over HTTP/2 or HTTP/3 is to
// reach: TLS and QUIC cost both sides the same, and more than the queue does.
const tlsTarget = 0.75

// tlsWorkload drains over one protocol, fixed, to one origin with TLS.
type tlsWorkload struct {
	workload
	protocol string // as a subscriber names it
	floored  string // what its floor is
}

func (r *engineRun) secured() []tlsWorkload {
	drain := func(name, protocol string, floor load.Stack, floored string) tlsWorkload {
		return tlsWorkload{
			workload: workload{
				name: name, events: r.c.Backlog, deliveries: r.c.Backlog, floor: floor,
				prepare: r.preload(r.c.Backlog), run: r.drain,
			},
			protocol: protocol, floored: floored,
		}
	}
	return []tlsWorkload{
		drain("drain-h2", "h2", load.HTTP2, "bare http.ClientConns"),
		drain("drain-h3", "h3", load.HTTP3, "quic-go's bare http3.ClientConns"),
	}
}

// over are subscribers of the origin with TLS.
func (r *engineRun) over(protocol string, subscribers int) setup {
	s := r.plain(subscribers)
	s.protocol, s.origins, s.ca = protocol, []string{r.secure.Origin}, r.secure.CAPEM
	return s
}

// overTLS measures a workload on a node of its own.
func (r *engineRun) overTLS(ctx context.Context, w tlsWorkload) error {
	return r.withNode(ctx, r.over(w.protocol, r.c.Subscribers), func(n *node) error {
		for round := range r.c.Rounds {
			if err := r.turn(ctx, n, w.workload, round); err != nil {
				return fmt.Errorf("round %d: %w", round+1, err)
			}
		}
		return nil
	})
}

func (r *engineRun) protocols() report.Section {
	table := report.Table{Columns: []string{
		"workload", "per second", "floor/s", "ratio to floor", "node CPU ms/1,000", "floor CPU ms/1,000", "node cores", "RSS max MiB",
	}}
	bars := report.Plot{Title: "Drain over the floor's rate", Y: "ratio", Kind: report.Bars, Series: []report.Line{{Name: "to the protocol's bare client"}}}
	var floors []string
	for _, w := range r.secured() {
		m := r.of(w.name)
		if len(m) == 0 {
			continue
		}
		table.Rows = append(table.Rows, []string{
			w.name, text(m, rateOf), text(m, floorOf), text(m, ratioOf), text(m, cpuOf), text(m, floorCPUOf),
			report.Number(spread(m, func(m Measure) float64 { return m.NodeShare }).Median),
			megabytes(m, func(m Measure) int64 { return m.Peak }),
		})
		bars.Labels = append(bars.Labels, w.name)
		bars.Series[0].Points = append(bars.Series[0].Points, stats.Point{Y: spread(m, ratioOf).Median})
		floors = append(floors, fmt.Sprintf("%s: %s, best with %s", w.name, w.floored, settingsOf(m)))
	}
	if len(table.Rows) == 0 {
		return report.Section{}
	}
	table.Note = "Floors: " + strings.Join(floors, "; ") + "."
	return report.Section{
		Title: "Drain over HTTP/2 and HTTP/3",
		Text: fmt.Sprintf("%d queued deliveries over %d paused subscribers of one origin with TLS 1.3, each protocol fixed, on a node of its own. "+
			"The floor is that protocol's bare client on connections that are up, at the best of several concurrencies and numbers of connections. Aimed at: %v of it.",
			r.c.Backlog, r.c.Subscribers, tlsTarget),
		Tables: []report.Table{table}, Plots: []report.Plot{bars},
	}
}

// settingsOf names the settings at which the floors were best.
func settingsOf(measures []Measure) string {
	var seen []string
	for _, m := range measures {
		s := fmt.Sprintf("%d at a time on %d connection(s)", m.Floor.Concurrency, m.Floor.Conns)
		if len(seen) == 0 || seen[len(seen)-1] != s {
			seen = append(seen, s)
		}
	}
	return strings.Join(seen, ", ")
}

func floorOf(m Measure) float64    { return m.Floor.Rate }
func floorCPUOf(m Measure) float64 { return m.Floor.CPU }
