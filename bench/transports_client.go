package bench

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/link"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
	"github.com/dispatcher-engine/dispatcher/bench/worker"
	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Variant is one way of sending: a protocol policy and, for TCP, a congestion
// control.
type Variant struct {
	Name       string `json:"name"`
	Protocol   string `json:"protocol"`   // h1, h2, h3, auto
	Congestion string `json:"congestion"` // of TCP sockets; "" = the kernel's default
	Cold       bool   `json:"cold"`       // no connection is kept
}

// block is a series of requests that one variant sends.
type block struct {
	Variant   int           `json:"variant"` // index into the last open
	Tag       string        `json:"tag"`     // begins the requests' ids
	Endpoints []endpoint    `json:"endpoints"`
	Group     int           `json:"group"`    // so many at once, then the next; 0 = no groups
	Parallel  int           `json:"parallel"` // without groups and pace: on their way at most
	Every     time.Duration `json:"every"`    // pace: one is started so often
	Body      int           `json:"body"`
	Tries     int           `json:"tries"`
	Timeout   time.Duration `json:"timeout"`
}

// blockResult is what came of it; Took lines up with Endpoints.
type blockResult struct {
	Took       []float64      `json:"took"` // ms to the answer, failed tries included
	Failed     int            `json:"failed"`
	Retries    int            `json:"retries"`   // tries beyond the first
	Protocols  map[string]int `json:"protocols"` // of the answers
	Reused     int            `json:"reused"`    // answers on a connection that was up
	Handshakes map[string]int `json:"handshakes"`
	Broken     map[string]int `json:"broken"` // handshakes that failed
	Causes     map[string]int `json:"causes"` // of failed tries
	CPU        float64        `json:"cpu"`    // ms of this process
	Vain       []int          `json:"vain"`   // requests that raced HTTP/3 against TCP, and HTTP/3 did not come up in time
}

// add counts another block of the same variant.
func (r *blockResult) add(o blockResult) {
	for _, at := range o.Vain {
		r.Vain = append(r.Vain, len(r.Took)+at)
	}
	r.Took = append(r.Took, o.Took...)
	r.Failed += o.Failed
	r.Retries += o.Retries
	r.Reused += o.Reused
	r.CPU += o.CPU
	for _, pair := range []struct {
		to   *map[string]int
		from map[string]int
	}{{&r.Protocols, o.Protocols}, {&r.Handshakes, o.Handshakes}, {&r.Broken, o.Broken}, {&r.Causes, o.Causes}} {
		if *pair.to == nil {
			*pair.to = map[string]int{}
		}
		for name, n := range pair.from {
			(*pair.to)[name] += n
		}
	}
}

// estateClient is the process in front of the link.
type estateClient struct {
	servers servers
	allow   netip.Prefix
	stacks  []*stack
}

// ServeClient is the client's process of `bench transports`: it answers calls
// until in ends. With joined it makes the link's device first.
func ServeClient(ctx context.Context, joined bool, in io.Reader, out io.Writer) error {
	c := &estateClient{allow: loopPrefix}
	if joined {
		if err := link.Join(inheritedSocket, []netip.Addr{clientAddr}); err != nil {
			return err
		}
		c.allow = linkPrefix
	}
	err := worker.Serve(ctx, in, out, map[string]worker.Method{
		"servers":    worker.Handle(func(_ context.Context, s servers) (bool, error) { c.servers = s; return true, nil }),
		"open":       worker.Handle(c.open),
		"block":      worker.Handle(c.block),
		"shut":       func(ctx context.Context, _ json.RawMessage) (any, error) { return nil, c.shut(ctx) },
		"congestion": func(context.Context, json.RawMessage) (any, error) { return link.Congestion(), nil },
		"echo":       worker.Handle(c.echo),
		"blast":      worker.Handle(c.blast),
	})
	return errors.Join(err, c.shut(context.WithoutCancel(ctx)))
}

// open makes a stack for each variant, with a memory and pools of its own.
func (c *estateClient) open(ctx context.Context, variants []Variant) (bool, error) {
	if err := c.shut(ctx); err != nil {
		return false, err
	}
	for _, v := range variants {
		s, err := newStack(ctx, v, &c.servers, c.allow)
		if err != nil {
			return false, errors.Join(err, c.shut(ctx))
		}
		c.stacks = append(c.stacks, s)
	}
	return true, nil
}

func (c *estateClient) shut(ctx context.Context) error {
	var errs []error
	for _, s := range c.stacks {
		errs = append(errs, s.close(ctx))
	}
	c.stacks = nil
	return errors.Join(errs...)
}

// block sends a series of requests.
func (c *estateClient) block(ctx context.Context, b block) (blockResult, error) {
	if b.Variant < 0 || b.Variant >= len(c.stacks) {
		return blockResult{}, errors.New("no such variant is open")
	}
	s := c.stacks[b.Variant]
	s.begin()
	run := &blockRun{client: c, stack: s, block: b, body: make([]byte, b.Body), took: make([]float64, len(b.Endpoints))}
	before, err := selfCPU()
	if err != nil {
		return blockResult{}, err
	}
	switch {
	case b.Group > 0:
		run.groups(ctx)
	case b.Every > 0:
		run.paced(ctx)
	default:
		run.parallel(ctx)
	}
	after, err := selfCPU()
	if err != nil {
		return blockResult{}, err
	}
	r := run.result
	r.Took, r.CPU = run.took, stats.Millis(after-before)
	r.Handshakes, r.Broken = s.end()
	return r, ctx.Err()
}

// selfCPU is the process's CPU time, finer than /proc counts.
func selfCPU() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// blockRun is a block on its way.
type blockRun struct {
	client *estateClient
	stack  *stack
	block  block
	body   []byte
	took   []float64 // each entry is written by its request alone

	mu     sync.Mutex
	result blockResult
}

// groups sends a group at once, waits for all of it, and goes on.
func (r *blockRun) groups(ctx context.Context) {
	for from := 0; from < len(r.block.Endpoints) && ctx.Err() == nil; from += r.block.Group {
		var wg sync.WaitGroup
		for i := from; i < min(from+r.block.Group, len(r.block.Endpoints)); i++ {
			wg.Go(func() { r.one(ctx, i) })
		}
		wg.Wait()
	}
}

// paced starts requests at a rate, whether those before were answered or not.
func (r *blockRun) paced(ctx context.Context) {
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range r.block.Endpoints {
		if !sleepUntil(ctx, begin.Add(time.Duration(i)*r.block.Every)) {
			break
		}
		wg.Go(func() { r.one(ctx, i) })
	}
	wg.Wait()
}

// parallel keeps a number of requests on their way.
func (r *blockRun) parallel(ctx context.Context) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range max(1, r.block.Parallel) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(r.block.Endpoints) {
					return
				}
				r.one(ctx, i)
			}
		})
	}
	wg.Wait()
}

// one sends request i until it is answered with a 2xx, at most so many times. A
// node would wait between two tries (its retry ladder); here they follow each
// other, so that what a failed try cost is seen and not the ladder.
func (r *blockRun) one(ctx context.Context, i int) {
	start := time.Now()
	for try := 1; try <= r.block.Tries && ctx.Err() == nil; try++ {
		resp, trace, err := r.try(ctx, i, try)
		ok := err == nil && resp.Status >= 200 && resp.Status <= 299
		r.mu.Lock()
		if try > 1 {
			r.result.Retries++
		}
		if trace.LoserProtocol == "h3" {
			r.result.Vain = append(r.result.Vain, i)
		}
		if ok {
			count(&r.result.Protocols, trace.Protocol.String())
			if trace.Reused {
				r.result.Reused++
			}
		} else {
			count(&r.result.Causes, causeOf(resp, err))
		}
		last := try == r.block.Tries
		if !ok && last {
			r.result.Failed++
		}
		r.mu.Unlock()
		if ok {
			break
		}
	}
	r.took[i] = stats.Millis(time.Since(start))
}

func count(m *map[string]int, name string) {
	if *m == nil {
		*m = map[string]int{}
	}
	(*m)[name]++
}

// causeOf names why a try failed.
func causeOf(resp *delivery.Response, err error) string {
	if failed, ok := errors.AsType[*delivery.SendError](err); ok {
		return failed.Cause.String() + " (" + failed.Sent.String() + ")"
	}
	if err != nil {
		return "unknown"
	}
	return "status " + strconv.Itoa(resp.Status)
}

func (r *blockRun) try(ctx context.Context, i, try int) (*delivery.Response, trace, error) {
	ctx, cancel := context.WithTimeout(ctx, r.block.Timeout)
	defer cancel()
	ep := r.client.servers.route(r.block.Endpoints[i])
	return r.stack.do(ctx, ep, &delivery.Request{
		Path: "/hook", Host: ep.Route.Origin.Authority(), Body: r.body, Length: int64(len(r.body)),
		Headers: []delivery.Header{
			{Name: "Content-Type", Value: "application/json"}, {Name: "User-Agent", Value: "dispatcher-bench"},
			{Name: "Webhook-Id", Value: r.block.Tag + "-" + strconv.Itoa(i)}, {Name: "Webhook-Attempt", Value: strconv.Itoa(try)},
		},
	})
}
