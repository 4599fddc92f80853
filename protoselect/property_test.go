package protoselect

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestHandlerRunsAtMostOnce drives random deliveries through random faults of
// handshakes and requests. Whatever happens, the receiver's handler runs at most
// once per delivery; exactly once when the delivery succeeded; never when its
// error says so.
func TestHandlerRunsAtMostOnce(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runChaos(t, seed) })
		})
	}
}

// chaos is a net whose every step is drawn from a seeded source.
type chaos struct {
	t    *testing.T
	mu   sync.Mutex
	rng  *rand.Rand
	runs map[string]int // handler runs by delivery
	seen map[string]int // writes by delivery
}

func (c *chaos) n(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(n)
}

func (c *chaos) pause(ctx context.Context, most time.Duration) error {
	return wait(ctx, time.Duration(c.n(int(most/time.Millisecond)+1))*time.Millisecond)
}

func (c *chaos) dial(ctx context.Context, alt delivery.Alternative) error {
	switch c.n(8) {
	case 0:
		return blackHole(ctx, alt)
	case 1:
		if err := c.pause(ctx, time.Second); err != nil {
			return err
		}
		return dialFailure(delivery.Broken(c.n(4))) //nolint:gosec // four classes
	default:
		return c.pause(ctx, 600*time.Millisecond)
	}
}

func (c *chaos) dialTCP(ctx context.Context, _ TCPOptions) error {
	if c.n(10) == 0 {
		return neverErr(delivery.CauseConnect)
	}
	return c.pause(ctx, 300*time.Millisecond)
}

func (c *chaos) serve(ctx context.Context, conn *fakeConn, req *delivery.Request) (*delivery.Response, error) {
	c.mu.Lock()
	c.seen[req.Path]++
	c.mu.Unlock()
	_ = c.pause(ctx, 400*time.Millisecond)
	if ctx.Err() != nil {
		if c.n(2) == 0 {
			c.handle(req)
		}
		return nil, &delivery.SendError{Sent: delivery.SentAmbiguous, Cause: delivery.CauseTimeout, Detail: "deadline"}
	}
	resp := ok200()
	switch c.n(14) {
	case 0:
		return nil, neverErr(delivery.CauseReset)
	case 1:
		return nil, refusedErr()
	case 2: // processed, and the answer was lost
		c.handle(req)
		conn.kill()
		return nil, ambiguousErr(delivery.BrokenAfterDeath)
	case 3: // lost on the way
		return nil, ambiguousErr(delivery.Broken(c.n(5))) //nolint:gosec // five classes
	case 4:
		resp.Status = http.StatusMisdirectedRequest
		if conn.proto != delivery.ProtocolHTTP3 {
			c.handle(req) // an answer like any other
		}
		return resp, nil
	case 5:
		resp.Status = http.StatusTooEarly
		return resp, nil
	case 6:
		resp.Header["Alt-Svc"] = []string{"clear"}
	case 7, 8:
		resp.Header["Alt-Svc"] = []string{`h3=":443", h3=":8443"; ma=60`}
	}
	c.handle(req)
	return resp, nil
}

func (c *chaos) handle(req *delivery.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[req.Path]++
}

func runChaos(t *testing.T, seed uint64) {
	c := &chaos{t: t, rng: rand.New(rand.NewPCG(seed, 1)), runs: map[string]int{}, seen: map[string]int{}}
	s, n := setup(t, Config{Alternatives: AltPolicy{Ports: []uint16{8443}}, MaxDials: 4, Random: func() float64 { return float64(c.n(100)) / 100 }})
	n.streams = 2
	n.quic, n.tcp, n.serve = c.dial, c.dialTCP, c.serve
	hosts := []string{"a.example", "b.example", "c.example"}
	for _, h := range hosts {
		advertise(s, endpoint(h).Route, `h3=":443"`)
	}
	var wg sync.WaitGroup
	for i := range 150 {
		ep := endpoint(hosts[c.n(len(hosts))])
		c.meddle(s, n, ep)
		policy := delivery.ProtocolPolicy(0)
		if c.n(5) == 0 {
			policy = delivery.ProtocolPolicy(c.n(5)) //nolint:gosec // five policies
		}
		wg.Go(func() { c.deliver(s, ep, policy, fmt.Sprintf("/%d", i)) })
		time.Sleep(time.Duration(c.n(800)) * time.Millisecond)
	}
	wg.Wait()
}

// meddle is an operator and a network with bad nerves.
func (c *chaos) meddle(s *Selector, n *fakeNet, ep delivery.Endpoint) {
	switch c.n(25) {
	case 0:
		n.cool()
	case 1:
		s.Stalled(ep.Route, delivery.Alternative{Port: 443})
	case 2:
		_ = s.Pin(ep.Route.Origin, PinProtocol(1+c.n(3)), 5*time.Second) //nolint:gosec // three pins
	case 3:
		s.Forget(ep.Route.Origin)
	case 4:
		_ = s.SetMode(Mode{Kind: ModeKind(c.n(3)), Percent: c.n(101)}) //nolint:gosec // three modes
	case 5:
		time.Sleep(40 * time.Second)
	}
}

func (c *chaos) deliver(s *Selector, ep delivery.Endpoint, policy delivery.ProtocolPolicy, path string) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	req := request()
	req.Path = path
	resp, tr, err := s.Do(ctx, ep, policy, req)
	c.mu.Lock()
	defer c.mu.Unlock()
	runs, writes := c.runs[path], c.seen[path]
	if runs > 1 || writes > 2 || writes != tr.Writes {
		c.t.Errorf("%s: handler ran %d times, %d writes, trace %+v", path, runs, writes, tr)
	}
	if err == nil {
		if resp.Status == http.StatusOK && runs != 1 {
			c.t.Errorf("%s: succeeded, handler ran %d times", path, runs)
		}
		return
	}
	se, ok := err.(*delivery.SendError) //nolint:errorlint // Do's contract is this very type
	if !ok || se.Sent.Resendable() && runs != 0 {
		c.t.Errorf("%s: handler ran %d times, but: %v", path, runs, err)
	}
}
