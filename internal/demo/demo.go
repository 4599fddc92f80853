package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dispatcher-engine/dispatcher/internal/payloads"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// Node is the running node that the demo talks to, over its HTTP API.
type Node struct {
	URL   string // http://host:port
	Token string
}

// Config says what to run.
type Config struct {
	Node     Node          // where to publish
	Events   int           // to publish; the payloads repeat beyond 120
	Deadline time.Duration // give up waiting after this; 0 = 90 s
	Progress io.Writer     // for people; nil = silent
}

// ErrIncomplete says that a delivery was lost, duplicated or badly signed.
var ErrIncomplete = errors.New("not every delivery arrived exactly once with a valid signature")

const (
	tenant          = "demo"
	defaultDeadline = 90 * time.Second
	tick            = 200 * time.Millisecond
)

// Demo is a demo whose receivers run. Close it.
type Demo struct {
	config    Config
	client    client
	ca        *testnet.CA
	receivers []*receiver

	mu        sync.Mutex
	published map[string]time.Time
}

// Start starts the receivers and registers them.
func Start(ctx context.Context, config Config) (*Demo, error) {
	if config.Deadline == 0 {
		config.Deadline = defaultDeadline
	}
	if config.Progress == nil {
		config.Progress = io.Discard
	}
	if config.Events < 1 {
		return nil, fmt.Errorf("demo: %d events, want at least 1", config.Events)
	}
	ca, err := testnet.NewCA()
	if err != nil {
		return nil, err
	}
	d := &Demo{config: config, client: client{node: config.Node, http: &http.Client{}}, ca: ca, published: map[string]time.Time{}}
	if d.receivers, err = startReceivers(ca); err != nil {
		return nil, err
	}
	if err := d.register(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Close stops the receivers.
func (d *Demo) Close() error { return closeAll(d.receivers) }

func (d *Demo) register(ctx context.Context) error {
	if err := d.client.call(ctx, "PUT", "/v1/tenants/"+tenant, map[string]any{"name": "Demo"}, nil); err != nil {
		return err
	}
	for _, r := range d.receivers {
		err := d.client.call(ctx, "POST", "/v1/tenants/"+tenant+"/subscribers", map[string]any{
			"id": r.name, "url": r.URL("", "/hooks/"+r.name), "secret": r.secret,
			"tls": map[string]string{"ca_pem": string(d.ca.PEM())},
		}, nil)
		if err != nil {
			return fmt.Errorf("register %s: %w", r.name, err)
		}
	}
	return nil
}

// Run publishes everything, waits until it arrived and reports.
func (d *Demo) Run(ctx context.Context) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, d.config.Deadline)
	defer cancel()
	begun := time.Now()
	if err := d.publish(ctx); err != nil {
		return Report{}, err
	}
	fmt.Fprintf(d.config.Progress, "published %d events in %v: each is on disk\n", d.config.Events, time.Since(begun).Round(time.Millisecond))
	d.wait(ctx)
	report := d.report(time.Since(begun))
	if report.Lost > 0 || report.Duplicates > 0 || report.SignatureFailures > 0 {
		return report, ErrIncomplete
	}
	return report, nil
}

// publishers is how many requests publish side by side; their events share
// syncs of the store.
const publishers = 16

// Publishing goes on for publishFor, or longer at eventsPerSecond: a person sees
// what happens, and HTTP/3 is known to work before the last event is out.
const (
	publishFor      = 1500 * time.Millisecond
	eventsPerSecond = 150
)

// publish sends every event with a request of its own, payload bytes unchanged.
func (d *Demo) publish(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan int)
	var wg sync.WaitGroup
	for range publishers {
		wg.Go(func() {
			for i := range work {
				if err := d.publishOne(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	pace := rate.NewLimiter(rate.Limit(min(eventsPerSecond, float64(d.config.Events)/publishFor.Seconds())), 1)
	for i := 0; i < d.config.Events && pace.Wait(ctx) == nil; i++ {
		work <- i
	}
	close(work)
	wg.Wait()
	return context.Cause(ctx)
}

func (d *Demo) publishOne(ctx context.Context, i int) error {
	bodies := payloads.GitHub()
	p := bodies[i%len(bodies)]
	id := fmt.Sprintf("demo-%04d", i+1)
	d.mu.Lock()
	d.published[id] = time.Now()
	d.mu.Unlock()
	// Written by hand: an encoder would compact the payload, and it is to arrive
	// byte for byte.
	var body bytes.Buffer
	fmt.Fprintf(&body, `{"id":%q,"topic":%q,"payload":`, id, "github."+p.Topic())
	body.Write(p.Body)
	body.WriteByte('}')
	resp, err := d.client.send(ctx, http.MethodPost, "/v1/tenants/"+tenant+"/events", "application/json", &body)
	if err != nil {
		return fmt.Errorf("publish %s: %w", id, err)
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// wait returns when everything arrived, or when ctx ends. After the last
// arrival it waits a moment for duplicates.
func (d *Demo) wait(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	p := newProgress(d.config.Progress)
	defer p.done()
	for settled := 0; settled < 3; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		arrived, attempts := 0, int64(0)
		for _, r := range d.receivers {
			c := r.Tally().Counts()
			arrived += int(c.Accepted)
			attempts += c.Requests
		}
		p.show(arrived, d.config.Events*len(d.receivers), attempts)
		if arrived >= d.config.Events*len(d.receivers) {
			settled++
		}
	}
}

// progress is one line that is rewritten on a terminal, and a line now and then
// elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
	last     time.Time
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		if info, err := f.Stat(); err == nil {
			p.terminal = info.Mode()&os.ModeCharDevice != 0
		}
	}
	return p
}

func (p *progress) show(arrived, all int, attempts int64) {
	const width = 30
	text := fmt.Sprintf("[%-*s] %d/%d delivered, %d requests seen", width, strings.Repeat("#", width*arrived/max(all, 1)), arrived, all, attempts)
	switch {
	case p.terminal:
		fmt.Fprintf(p.w, "\r%s", text)
	case time.Since(p.last) >= time.Second:
		fmt.Fprintln(p.w, text)
		p.last = time.Now()
	}
}

func (p *progress) done() {
	if p.terminal {
		fmt.Fprintln(p.w)
	}
}
