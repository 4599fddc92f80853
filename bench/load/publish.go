package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// Publish says what to publish over the node's API.
type Publish struct {
	URL    string `json:"url"`
	Token  string `json:"token"`
	Tenant string `json:"tenant"`
	// Tenants spreads the subscribers over several: subscriber n is of number n
	// modulo their count. Empty = all are of Tenant. A batch has one tenant, so this
	// needs single events.
	Tenants []string `json:"tenants,omitempty"`
	Tag     string   `json:"tag"`
	// Priority of all events; "" = their subscribers'.
	Priority string `json:"priority,omitempty"`
	// Topic of all events; "" = the own topic of subscriber n modulo Subscribers.
	Topic       string `json:"topic,omitempty"`
	Subscribers int    `json:"subscribers"`
	Events      int    `json:"events"`
	// Batch is how many events one request carries, as NDJSON; 1 = single events.
	Batch int `json:"batch"`
	// Connections that publish side by side.
	Connections int `json:"connections"`
	// Rate in events a second makes the load open-loop; 0 = as fast as the answers
	// come.
	Rate float64 `json:"rate,omitempty"`
	Body int     `json:"body"`
	Seed uint64  `json:"seed"`
}

// Published is what publishing gave.
type Published struct {
	Start    time.Duration `json:"start"` // machine clock
	End      time.Duration `json:"end"`   // of the last answer
	Accepted int           `json:"accepted"`
	Refused  int           `json:"refused"`
	Error    string        `json:"error,omitempty"` // the first one
	Ack      stats.Latency `json:"ack"`             // request to answer
	CDF      []stats.Point `json:"cdf"`             // of Ack: ms, share
}

// Rate is events acknowledged a second.
func (p Published) Rate() float64 { return rate(p.Accepted, p.End-p.Start) }

// Run publishes everything and returns when the last answer is there.
func (p Publish) Run(ctx context.Context) (Published, error) {
	bodies, err := NewBodies(p.Body, p.Seed)
	if err != nil {
		return Published{}, err
	}
	if p.Events < 1 || p.Batch < 1 || p.Connections < 1 || p.Topic == "" && p.Subscribers < 1 {
		return Published{}, errors.New("publish: events, batch, connections and subscribers must be given")
	}
	if len(p.Tenants) > 0 && (p.Batch > 1 || p.Subscribers < 1) {
		return Published{}, errors.New("publish: several tenants need subscribers and single events")
	}
	address, err := authority(p.URL)
	if err != nil {
		return Published{}, fmt.Errorf("publish: %w", err)
	}
	transport := &http.Transport{DisableCompression: true}
	publishers := make([]publisher, p.Connections)
	for i := range publishers {
		publishers[i] = publisher{task: &p, bodies: bodies, transport: transport, address: address}
	}
	out := Published{Start: host.Now()}
	if p.Rate > 0 {
		p.pace(ctx, publishers)
	} else {
		p.rush(ctx, publishers)
	}
	out.End = host.Now()
	var took []time.Duration
	for i := range publishers {
		one := &publishers[i]
		one.close()
		out.Accepted += one.accepted
		out.Refused += one.refused
		took = append(took, one.took...)
		if out.Error == "" && one.err != nil {
			out.Error = one.err.Error()
		}
	}
	out.Ack, out.CDF = describe(took)
	return out, ctx.Err()
}

// rush lets every connection publish as fast as it is answered.
func (p Publish) rush(ctx context.Context, publishers []publisher) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			for ctx.Err() == nil {
				from := int(next.Add(int64(p.Batch))) - p.Batch
				if from >= p.Events {
					return
				}
				publishers[i].publish(ctx, from, min(from+p.Batch, p.Events), host.Now())
			}
		})
	}
	wg.Wait()
}

// pace publishes at a rate. An event that finds no free connection waits, and
// the wait counts: its time begins when it was to be published.
func (p Publish) pace(ctx context.Context, publishers []publisher) {
	free := make(chan int, len(publishers))
	for i := range publishers {
		free <- i
	}
	every := time.Duration(float64(time.Second) * float64(p.Batch) / p.Rate)
	begin := time.Now()
	var wg sync.WaitGroup
	for from := 0; from < p.Events && sleepUntil(ctx, begin.Add(time.Duration(from/p.Batch)*every)); from += p.Batch {
		sent := host.Now()
		wg.Go(func() {
			select {
			case i := <-free:
				publishers[i].publish(ctx, from, min(from+p.Batch, p.Events), sent)
				free <- i
			case <-ctx.Done():
			}
		})
	}
	wg.Wait()
}

func sleepUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// publisher is one connection. It is used by one goroutine at a time.
type publisher struct {
	task      *Publish
	bodies    *Bodies
	transport *http.Transport
	address   string
	conn      *http.ClientConn
	buffer    []byte
	answer    bytes.Buffer
	took      []time.Duration
	accepted  int
	refused   int
	err       error
}

func (p *publisher) close() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
}

// publish sends the events from one number up to another in one request.
func (p *publisher) publish(ctx context.Context, from, to int, sent time.Duration) {
	start := time.Now()
	accepted, err := p.request(ctx, from, to, sent)
	p.accepted += accepted
	p.refused += to - from - accepted
	if err != nil && p.err == nil {
		p.err = err
	}
	p.took = append(p.took, time.Since(start))
}

func (p *publisher) request(ctx context.Context, from, to int, sent time.Duration) (accepted int, err error) {
	path, contentType := "/events", "application/json"
	if p.task.Batch > 1 {
		path, contentType = "/events/batch", "application/x-ndjson"
	}
	p.buffer = p.buffer[:0]
	for n := from; n < to; n++ {
		p.buffer = p.envelope(p.buffer, n, sent)
	}
	target := p.task.URL + "/v1/tenants/" + p.task.tenantOf(from) + path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(p.buffer))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+p.task.Token)
	req.Header.Set("Content-Type", contentType)
	resp, err := p.send(req)
	if err != nil {
		return 0, err
	}
	p.answer.Reset()
	_, err = io.Copy(&p.answer, resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return 0, err
	}
	return p.count(resp, to-from)
}

// send writes the request on the worker's connection, or on a new one.
func (p *publisher) send(req *http.Request) (resp *http.Response, err error) {
	for {
		if p.conn == nil || p.conn.Err() != nil {
			if p.conn, err = p.transport.NewClientConn(req.Context(), "http", p.address); err != nil {
				return nil, err
			}
		}
		if resp, err = p.conn.RoundTrip(req); !unwritten(err) || req.Context().Err() != nil {
			return resp, err
		}
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
}

// tenantOf is the tenant that event n is published for.
func (p *Publish) tenantOf(n int) string {
	if len(p.Tenants) == 0 {
		return p.Tenant
	}
	return p.Tenants[n%p.Subscribers%len(p.Tenants)]
}

// envelope appends one event as a line.
func (p *publisher) envelope(dst []byte, n int, sent time.Duration) []byte {
	topic := p.task.Topic
	if topic == "" {
		topic = TopicOf(n % p.task.Subscribers)
	}
	dst = append(dst, `{"id":"`...)
	dst = append(dst, p.task.Tag...)
	dst = append(dst, '-')
	dst = strconv.AppendInt(dst, int64(n), 10)
	dst = append(dst, `","topic":"`...)
	dst = append(dst, topic...)
	if p.task.Priority != "" {
		dst = append(dst, `","priority":"`...)
		dst = append(dst, p.task.Priority...)
	}
	dst = append(dst, `","payload":`...)
	dst = p.bodies.Append(dst, n, sent)
	return append(dst, "}\n"...)
}

// accepted marks a line of a batch's answer that says 202.
var accepted = []byte(`"status":202`)

// count returns how many events were accepted as new.
func (p *publisher) count(resp *http.Response, events int) (int, error) {
	if p.task.Batch == 1 {
		if resp.StatusCode == http.StatusAccepted {
			return 1, nil
		}
	} else if n := bytes.Count(p.answer.Bytes(), accepted); resp.StatusCode == http.StatusOK && n == events {
		return n, nil
	} else if resp.StatusCode == http.StatusOK {
		return n, fmt.Errorf("the node accepted %d of %d events: %.300s", n, events, p.answer.Bytes())
	}
	return 0, fmt.Errorf("the node answered %s: %.300s", resp.Status, p.answer.Bytes())
}
