package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// Stack is what posts the floor.
type Stack string

// Stacks.
const (
	// Client is a bare http.Client with keep-alive: what everybody would write.
	Client Stack = "client"
	// ClientConn is one http.ClientConn for each goroutine, from
	// http.Transport.NewClientConn: no pool in between.
	ClientConn Stack = "clientconn"
	// HTTP2 is one http.ClientConn over TLS, or several, each shared by many
	// goroutines.
	HTTP2 Stack = "http2"
	// HTTP3 is the same with quic-go's http3.ClientConn.
	HTTP3 Stack = "http3"
)

// Multiplexed reports whether goroutines share connections.
func (s Stack) Multiplexed() bool { return s == HTTP2 || s == HTTP3 }

// Floor says how to post the same bodies straight to the receiver: without a
// queue, a signature or a log.
type Floor struct {
	Stack       Stack    `json:"stack"`
	Origins     []string `json:"origins"`
	Tag         string   `json:"tag"`
	Posts       int      `json:"posts"`
	Subscribers int      `json:"subscribers"`
	Concurrency int      `json:"concurrency"`
	Conns       int      `json:"conns,omitempty"`  // that a multiplexed stack shares; at least 1
	CA          string   `json:"ca_pem,omitempty"` // verifies an https origin
	Body        int      `json:"body"`
	Seed        uint64   `json:"seed"`
}

// Posted is what a floor gave.
type Posted struct {
	Start   time.Duration `json:"start"` // machine clock
	End     time.Duration `json:"end"`
	Failed  int           `json:"failed"`
	Error   string        `json:"error,omitempty"` // the first one
	Latency stats.Latency `json:"latency"`
}

// Rate is posts a second.
func (p Posted) Rate(posts int) float64 { return rate(posts-p.Failed, p.End-p.Start) }

func rate(n int, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// Run posts everything and returns when the last answer is there.
func (f Floor) Run(ctx context.Context) (Posted, error) {
	bodies, err := NewBodies(f.Body, f.Seed)
	if err != nil {
		return Posted{}, err
	}
	if len(f.Origins) == 0 || f.Subscribers < 1 || f.Concurrency < 1 {
		return Posted{}, errors.New("floor: origins, subscribers and concurrency must be given")
	}
	trip, done, err := f.sender(ctx)
	if err != nil {
		return Posted{}, err
	}
	defer done()
	var next atomic.Int64
	workers := make([]poster, f.Concurrency)
	var wg sync.WaitGroup
	start := host.Now()
	for i := range workers {
		w := &workers[i]
		w.floor, w.bodies, w.next = &f, bodies, &next
		w.trip = trip(i)
		wg.Go(func() { w.run(ctx) })
	}
	wg.Wait()
	out := Posted{Start: start, End: host.Now()}
	var took []time.Duration
	for i := range workers {
		out.Failed += workers[i].failed
		took = append(took, workers[i].took...)
		if out.Error == "" && workers[i].err != nil {
			out.Error = workers[i].err.Error()
		}
	}
	out.Latency = stats.LatencyOf(took)
	return out, ctx.Err()
}

// poster is one goroutine of a floor.
type poster struct {
	floor  *Floor
	bodies *Bodies
	next   *atomic.Int64
	trip   func(*http.Request) (*http.Response, error)
	body   []byte
	took   []time.Duration
	failed int
	err    error
}

// sender returns how goroutine i of the stack sends a request, and what ends all
// connections.
func (f *Floor) sender(ctx context.Context) (trip func(i int) func(*http.Request) (*http.Response, error), done func(), err error) {
	if f.Stack.Multiplexed() {
		m, err := f.dial(ctx)
		if err != nil {
			return nil, nil, err
		}
		return m.trip, func() { _ = m.close() }, nil
	}
	t := &http.Transport{MaxIdleConnsPerHost: f.Concurrency, MaxIdleConns: 0, DisableCompression: true}
	if f.Stack != ClientConn {
		client := &http.Client{Transport: t}
		return func(int) func(*http.Request) (*http.Response, error) { return client.Do }, t.CloseIdleConnections, nil
	}
	own := make([]ownConns, f.Concurrency)
	closeAll := func() {
		for i := range own {
			own[i].close()
		}
	}
	return func(i int) func(*http.Request) (*http.Response, error) {
		own[i] = ownConns{transport: t, conns: map[string]*http.ClientConn{}}
		return own[i].roundTrip
	}, closeAll, nil
}

// ownConns are the connections of one goroutine, by authority.
type ownConns struct {
	transport *http.Transport
	conns     map[string]*http.ClientConn
}

func (o *ownConns) roundTrip(req *http.Request) (*http.Response, error) {
	for {
		conn, err := o.conn(req.Context(), req.URL)
		if err != nil {
			return nil, err
		}
		resp, err := conn.RoundTrip(req)
		if unwritten(err) && req.Context().Err() == nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
			continue
		}
		return resp, err
	}
}

// unwritten recognises a connection that net/http had given up by itself before
// the request was written: it does so when its writing goroutine gets no processor
// for 50 ms. It has no other name than its text.
func unwritten(err error) bool {
	return err != nil && err.Error() == "http: persistConn.readLoop exiting"
}

func (o *ownConns) conn(ctx context.Context, u *url.URL) (*http.ClientConn, error) {
	if c := o.conns[u.Host]; c != nil && c.Err() == nil {
		return c, nil
	}
	c, err := o.transport.NewClientConn(ctx, u.Scheme, u.Host)
	if err != nil {
		return nil, err
	}
	o.conns[u.Host] = c
	return c, nil
}

func (o *ownConns) close() {
	for _, c := range o.conns {
		_ = c.Close()
	}
}

func (p *poster) run(ctx context.Context) {
	for ctx.Err() == nil {
		n := int(p.next.Add(1)) - 1
		if n >= p.floor.Posts {
			return
		}
		start := time.Now()
		if err := p.post(ctx, n); err != nil {
			p.failed++
			p.err = err
			continue
		}
		p.took = append(p.took, time.Since(start))
	}
}

func (p *poster) post(ctx context.Context, n int) error {
	sub := n % p.floor.Subscribers
	p.body = p.bodies.Append(p.body[:0], n, host.Now())
	target := p.floor.Origins[sub%len(p.floor.Origins)] + Path(sub)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(p.body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", EventID(p.floor.Tag, n))
	resp, err := p.trip(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the receiver answered %s", resp.Status)
	}
	return err
}

// authority returns host and port of a base URL.
func authority(base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	if _, _, err := net.SplitHostPort(u.Host); err != nil {
		return "", fmt.Errorf("%q: %w", base, err)
	}
	return u.Host, nil
}
