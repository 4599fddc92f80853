package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/report"
	"github.com/dispatcher-engine/dispatcher/bench/worker"
	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// NodeMeasure is a whole node (`dispatcher serve`) that is started on what is
// left of a backlog after a kill, delivering to a receiver beside it.
type NodeMeasure struct {
	Rows      int     `json:"rows"`             // queued at the start
	Ready     float64 `json:"ready_s"`          // from the process's start to its first yes of /readyz
	First     float64 `json:"first_delivery_s"` // from the process's start to the first delivery's arrival
	AtReady   int     `json:"arrived_at_ready"` // deliveries that had arrived by then
	Delivered int     `json:"delivered"`        // in the time that it was let run
	Served    int     `json:"served"`           // subscribers that they were for
	Seconds   float64 `json:"seconds"`          // of that time, from the first arrival on
	RSS       int64   `json:"rss_max"`
}

// arrivals is a receiver that counts. Its paths are numbers of subscribers.
type arrivals struct {
	url    string
	server http.Server
	served sync.WaitGroup

	mu    sync.Mutex
	first time.Duration // machine clock; 0 = nothing has arrived
	count int
	subs  map[string]struct{}
}

func startArrivals(ctx context.Context) (*arrivals, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("receiver: %w", err)
	}
	a := &arrivals{url: "http://" + l.Addr().String(), subs: map[string]struct{}{}}
	a.server = http.Server{Handler: a, ReadHeaderTimeout: stopMost}
	a.served.Go(func() { _ = a.server.Serve(l) }) // until it is closed
	return a, nil
}

// ServeHTTP implements http.Handler.
func (a *arrivals) ServeHTTP(_ http.ResponseWriter, req *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.first == 0 {
		a.first = host.Now()
	}
	a.count++
	a.subs[req.URL.Path] = struct{}{}
}

func (a *arrivals) seen() (first time.Duration, count, subs int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.first, a.count, len(a.subs)
}

func (a *arrivals) close() error {
	err := a.server.Close()
	a.served.Wait()
	return err
}

// wholeNode starts a node on the backlog and lets it deliver for a while.
func (r *storageRun) wholeNode(ctx context.Context, task storageTask, to *arrivals, rows int) (m *NodeMeasure, err error) {
	if err := host.Forget(task.Dir); err != nil {
		return nil, err
	}
	n, err := startNode(ctx, nodeSpec{data: task.Dir, log: r.dir.Join("node.log"), cores: r.c.Run.Cores})
	if err != nil {
		return nil, err
	}
	defer n.kill() // nothing needs it any more
	m = &NodeMeasure{Rows: rows, Ready: n.ready.Seconds()}
	_, m.AtReady, _ = to.seen()
	if m.First, err = r.firstArrival(ctx, n, to); err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := r.letRun(ctx, n); err != nil {
		return nil, err
	}
	_, m.Delivered, m.Served = to.seen()
	m.Seconds = time.Since(begin).Seconds()
	usage, err := host.UsageOf(n.proc.PID())
	m.RSS = usage.Peak
	r.progress.say("a node on %d rows: first delivery after %.3f s, %d deliveries for %d subscribers in %.1f s, RSS at most %s",
		rows, m.First, m.Delivered, m.Served, m.Seconds, report.Bytes(m.RSS))
	return m, err
}

// letRun waits while the node delivers, and takes its heap profile half way.
func (r *storageRun) letRun(ctx context.Context, n *node) error {
	for half := range 2 {
		select {
		case <-time.After(r.c.NodeFor / 2):
		case <-ctx.Done():
			return ctx.Err()
		}
		if half == 0 && r.c.NodeHeap != "" {
			if err := n.save(ctx, "/debug/pprof/heap", r.c.NodeHeap); err != nil {
				return fmt.Errorf("heap profile: %w", err)
			}
		}
	}
	return nil
}

func (r *storageRun) firstArrival(ctx context.Context, n *node, to *arrivals) (float64, error) {
	const poll = 10 * time.Millisecond
	for begin := time.Now(); time.Since(begin) < startMost; {
		if first, _, _ := to.seen(); first != 0 {
			return (first - n.started).Seconds(), nil
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return 0, fmt.Errorf("nothing was delivered within %s: %s", startMost, n.proc.LogTail())
}

// registerPart is how many subscribers are registered with one synced batch.
const registerPart = 1000

// register registers the subscribers of a backlog, so that a node delivers it.
func (s *storageProcess) register(ctx context.Context, t storageTask) (struct{}, error) {
	if err := s.open(t.Dir); err != nil {
		return struct{}{}, err
	}
	registry := s.store.Registry()
	tenant, err := registry.PutTenant(delivery.Tenant{ID: tenant}, storage.MustNotExist)
	if err != nil {
		return struct{}{}, err
	}
	for first := 1; first <= t.Subscribers && ctx.Err() == nil; first += registerPart {
		var part []*delivery.Subscriber
		for n := first; n < min(first+registerPart, t.Subscribers+1); n++ {
			part = append(part, &delivery.Subscriber{
				Tenant: tenant.Num, ID: subscriberID(n), URL: t.URL + "/" + strconv.Itoa(n), Topics: []string{"*"},
				Signing:     []delivery.SigningScheme{{Scheme: "standard", Secrets: []delivery.Secret{{Value: "whsec_" + strings.Repeat("YmVuY2hi", 4)}}}},
				Concurrency: delivery.DefaultConcurrency, Timeout: delivery.DefaultTimeout, DisableAfter: delivery.DefaultDisableAfter,
				Retry: delivery.Retry{Schedule: []time.Duration{time.Minute}}, Priority: delivery.PriorityNormal, Protocol: delivery.ProtocolTCP,
			})
		}
		made, err := registry.CreateSubscribers(part)
		if err != nil {
			return struct{}{}, err
		}
		if got := made[0].Num; got != delivery.SubscriberNum(first) { //nolint:gosec // positive
			return struct{}{}, fmt.Errorf("subscriber %d got number %d", first, got)
		}
	}
	return struct{}{}, errors.Join(ctx.Err(), s.close())
}

func (r *storageRun) register(ctx context.Context, task storageTask) error {
	r.progress.say("registering %d subscribers", task.Subscribers)
	return r.process(func(w *worker.Worker) error { return w.Call(ctx, "register", task, nil) })
}
