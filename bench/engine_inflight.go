package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/load"
	"github.com/dispatcher-engine/dispatcher/bench/report"
)

// InFlight is what deliveries hold while their receiver does not answer. Each is of
// a subscriber of its own: one subscriber gets one attempt at first.
type InFlight struct {
	Protocol   string `json:"protocol"`
	Round      int    `json:"round"`
	Deliveries int    `json:"deliveries"`
	// Connections are live ones while everything hangs.
	Connections int `json:"connections"`
	// Cold is with a connection that had to be opened, Warm on one that was idle.
	// Before, the same events are queued already.
	Cold Held `json:"cold"`
	Warm Held `json:"warm"`
}

// Held is how much more a node holds with the deliveries in flight, in all.
type Held struct {
	Heap       int64 `json:"heap"`   // bytes of live objects, after a collection
	Stacks     int64 `json:"stacks"` // bytes of goroutines' stacks
	RSS        int64 `json:"rss"`    // bytes resident
	Goroutines int64 `json:"goroutines"`
}

func (h Held) minus(before Held) Held {
	return Held{h.Heap - before.Heap, h.Stacks - before.Stacks, h.RSS - before.RSS, h.Goroutines - before.Goroutines}
}

// held collects garbage in the node and looks at what is left.
func (n *node) held(ctx context.Context, protocol string) (Held, int, error) {
	const collections = 2 // what lies in pools survives one
	for range collections {
		resp, err := n.send(ctx, http.MethodGet, "/debug/pprof/heap?gc=1", nil)
		if err != nil {
			return Held{}, 0, err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return Held{}, 0, err
		}
	}
	resp, err := n.send(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return Held{}, 0, err
	}
	defer resp.Body.Close()
	v, err := parseMetrics(resp.Body, "go_memstats_heap_alloc_bytes", "go_memstats_stack_inuse_bytes", "go_goroutines",
		fmt.Sprintf("dispatcher_connections{protocol=%q}", protocol))
	if err != nil {
		return Held{}, 0, fmt.Errorf("node: metrics: %w", err)
	}
	usage, err := host.UsageOf(n.proc.PID())
	return Held{Heap: int64(v[0]), Stacks: int64(v[1]), RSS: usage.RSS, Goroutines: int64(v[2])}, int(v[3]), err
}

// hanging lets deliveries hang over each protocol, on a node of its own for each
// round.
func (r *engineRun) hanging(ctx context.Context) error {
	for round := range r.c.Rounds {
		for _, protocol := range []string{"h1", "h2", "h3"} {
			s := r.plain(r.c.InFlight)
			if protocol != "h1" {
				s = r.over(protocol, r.c.InFlight)
			}
			many := strconv.Itoa(r.c.InFlight)
			s.timeout = "5m"
			s.env = []string{
				// Receivers of which nothing is known yet share a part of this.
				"DISPATCHER_LIMITS_IN_FLIGHT=1000000",
				// What the store caches comes and goes: it is to be small beside the rest.
				"DISPATCHER_STORAGE_CACHE=1MiB", "DISPATCHER_STORAGE_MEMTABLE=1MiB",
				"DISPATCHER_CONNECTIONS_TCP_PER_ORIGIN=" + many, "DISPATCHER_CONNECTIONS_QUIC_PER_ORIGIN=1000",
				"DISPATCHER_CONNECTIONS_IDLE_TCP=" + many, "DISPATCHER_CONNECTIONS_IDLE_QUIC=" + many,
				"DISPATCHER_TIMEOUTS_IDLE_TCP=10m", "DISPATCHER_TIMEOUTS_IDLE_QUIC=10m",
			}
			f := InFlight{Protocol: protocol, Round: round + 1, Deliveries: r.c.InFlight}
			if err := r.withNode(ctx, s, func(n *node) error { return r.hangTwice(ctx, n, &f) }); err != nil {
				return fmt.Errorf("%s: %w", protocol, err)
			}
			r.inFlight = append(r.inFlight, f)
			r.progress.say("round %d: %d in flight over %s on %d connection(s): %s of heap and stacks each, %s on warm connections",
				f.Round, f.Deliveries, f.Protocol, f.Connections, f.each(f.Cold.Heap+f.Cold.Stacks), f.each(f.Warm.Heap+f.Warm.Stacks))
		}
	}
	return nil
}

// hangTwice lets everything hang on new connections and then on those.
func (r *engineRun) hangTwice(ctx context.Context, n *node, f *InFlight) error {
	for i, to := range []*Held{&f.Cold, &f.Warm} {
		tag := fmt.Sprintf("in-flight-%d-%d", r.nodes, i)
		if err := r.hangOnce(ctx, n, tag, f, to); err != nil {
			return err
		}
	}
	return nil
}

func (r *engineRun) hangOnce(ctx context.Context, n *node, tag string, f *InFlight, to *Held) error {
	subscribers := f.Deliveries
	err := r.receiver.Call(ctx, "begin", load.Phase{Tag: tag, Events: f.Deliveries, Subscribers: subscribers, Hang: 0, HangFrom: 1}, nil)
	if err != nil {
		return err
	}
	if err := n.act(ctx, subscribers, "pause"); err != nil {
		return err
	}
	var unused Measure
	if _, err := r.publish(ctx, n, load.Publish{Tag: tag, Subscribers: subscribers, Events: f.Deliveries, Batch: r.c.BatchSize}, &unused); err != nil {
		return err
	}
	if _, err := n.settled(ctx); err != nil {
		return err
	}
	before, _, err := n.held(ctx, f.Protocol)
	if err != nil {
		return err
	}
	if err := n.act(ctx, subscribers, "resume"); err != nil {
		return err
	}
	var all bool
	if err := r.receiver.Call(ctx, "wait", load.Wait{Hanging: f.Deliveries, Quiet: quiet}, &all); err != nil {
		return err
	}
	var seen load.Seen
	if err := r.receiver.Call(ctx, "seen", nil, &seen); err != nil {
		return err
	}
	if !all {
		return fmt.Errorf("%d of %d deliveries came to hang", seen.Hanging, f.Deliveries)
	}
	after, connections, err := n.held(ctx, f.Protocol)
	if err != nil {
		return err
	}
	*to, f.Connections = after.minus(before), connections
	// A new phase answers what hangs.
	if err := r.begin(ctx, tag+"-over", 0, subscribers, false); err != nil {
		return err
	}
	_, err = n.settled(ctx)
	return err
}

// each is the share of one delivery.
func (f InFlight) each(bytes int64) string { return report.Bytes(bytes / int64(f.Deliveries)) }

func (r *engineRun) inFlightMemory() report.Section {
	table := report.Table{Columns: []string{
		"protocol", "in flight", "connections", "heap", "stacks", "resident", "goroutines", "heap, warm", "stacks, warm", "goroutines, warm",
	}}
	for _, protocol := range []string{"h1", "h2", "h3"} {
		var rounds []InFlight
		for _, f := range r.inFlight {
			if f.Protocol == protocol {
				rounds = append(rounds, f)
			}
		}
		if len(rounds) == 0 {
			continue
		}
		share := func(of func(InFlight) int64) float64 {
			return spread(rounds, func(f InFlight) float64 { return float64(of(f)) / float64(f.Deliveries) }).Median
		}
		size := func(of func(InFlight) int64) string { return report.Bytes(int64(share(of))) }
		table.Rows = append(table.Rows, []string{
			protocol, strconv.Itoa(rounds[0].Deliveries), strconv.Itoa(rounds[0].Connections),
			size(func(f InFlight) int64 { return f.Cold.Heap }), size(func(f InFlight) int64 { return f.Cold.Stacks }),
			size(func(f InFlight) int64 { return f.Cold.RSS }), report.Number(share(func(f InFlight) int64 { return f.Cold.Goroutines })),
			size(func(f InFlight) int64 { return f.Warm.Heap }), size(func(f InFlight) int64 { return f.Warm.Stacks }),
			report.Number(share(func(f InFlight) int64 { return f.Warm.Goroutines })),
		})
	}
	if len(table.Rows) == 0 {
		return report.Section{}
	}
	table.Note = "For each delivery: live objects after a collection, stacks, resident memory (which includes what the collector lets lie) and goroutines, with the connections that had to be opened; and on connections that were idle."
	return report.Section{
		Title: "What a delivery in flight holds",
		Text: fmt.Sprintf("Deliveries of %s, each of a subscriber of its own, that are queued, and then hang at the receiver: how much more the node holds. "+
			"Over HTTP/1.1 each has a connection of its own, over HTTP/2 and HTTP/3 they share some. What a node costs that does nothing says `dispatcher bench idle`.",
			report.Bytes(int64(r.c.Body))),
		Tables: []report.Table{table},
	}
}
