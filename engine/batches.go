package engine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/ingress/origin"
)

// Bounds of a batch for an origin.
const (
	batchEvents = 50
	batchBytes  = 8 << 20
	batchWait   = 2 * time.Second
	// batchInline is up to what size a batch is encoded in memory; a larger one is
	// encoded while it is sent.
	batchInline = 1 << 20
)

// batches sends the events of an origin in batches. The scheduler hands out each
// delivery by itself; calls of Send that meet here share one request, and each
// returns the result of its own event.
//
//	Send ─┐
//	Send ─┼─► gathering ──(50 events, 8 MiB or 2 s)──► search ─► POST …
//	Send ─┘       first caller leads, the others wait     │
//	  ▲                                                   │
//	  └────────────── each one's own result ──────────────┘
//
// It has no goroutine: the first caller of a gathering waits, sends and answers
// the others.
//
// Invariant: a gathering that is in open takes calls; its leader removes it
// before it reads them. Nobody waits under mu.
type batches struct {
	post func(ctx context.Context, p *prepared, calls []*call) delivery.Result

	mu   sync.Mutex
	open map[batchKey]*gathering
}

// batchKey keeps the versions of a subscriber apart: each has its own URL.
type batchKey struct {
	subscriber delivery.SubscriberNum
	version    uint64
}

// call is one delivery that waits for its result.
type call struct {
	event   origin.Event
	attempt int
	size    int64
	result  delivery.Result
	done    chan struct{} // closed when result is there
}

// gathering is a batch that still takes events.
type gathering struct {
	calls []*call
	bytes int64
	full  chan struct{} // closed when it takes no more
}

func newBatches(post func(context.Context, *prepared, []*call) delivery.Result) *batches {
	return &batches{post: post, open: map[batchKey]*gathering{}}
}

// send delivers one event of an origin, together with others.
func (b *batches) send(ctx context.Context, p *prepared, c *call) delivery.Result {
	key := batchKey{p.sub.Num, p.sub.Version}
	g, leads := b.join(key, c)
	if !leads {
		<-c.done // the leader ends soon after ctx does
		return c.result
	}
	wait := time.NewTimer(batchWait)
	defer wait.Stop()
	select {
	case <-g.full:
	case <-wait.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	if b.open[key] == g {
		delete(b.open, key)
	}
	b.mu.Unlock()
	defer func() {
		for _, c := range g.calls {
			close(c.done)
		}
	}()
	newSearch(b.post, p, g.calls).run(ctx)
	return c.result
}

// join adds a call to the gathering that is open, or opens one, which the caller
// then leads.
func (b *batches) join(key batchKey, c *call) (g *gathering, leads bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g = b.open[key]
	if g != nil && g.bytes+c.size > batchBytes {
		b.closeLocked(key, g)
		g = nil
	}
	if leads = g == nil; leads {
		g = &gathering{full: make(chan struct{})}
		b.open[key] = g
	}
	g.calls, g.bytes = append(g.calls, c), g.bytes+c.size
	if len(g.calls) == batchEvents || g.bytes >= batchBytes {
		b.closeLocked(key, g)
	}
	return g, leads
}

func (b *batches) closeLocked(key batchKey, g *gathering) {
	delete(b.open, key)
	close(g.full)
}

// sendOrigin makes one attempt to deliver to the origin of a source.
func (s *sender) sendOrigin(ctx context.Context, p *prepared, event *delivery.Event, attempt int) delivery.Result {
	start := time.Now()
	c := &call{attempt: attempt, event: s.originEvent(event), done: make(chan struct{})}
	// A payload that cannot be read must not take a batch along.
	body, err := c.event.Open()
	if err != nil {
		return local(err, start)
	}
	_ = body.Close()
	c.size = origin.EncodedSize(&c.event, event.Size)
	r := s.batches.send(ctx, p, c)
	r.Phases.Total = time.Since(start)
	return r
}

func (s *sender) originEvent(event *delivery.Event) origin.Event {
	out := origin.Event{ID: event.ID, ReceivedAt: event.AcceptedAt(), ContentType: event.ContentType}
	if event.Spool != "" {
		out.Open = func() (io.ReadCloser, error) { return s.payloads.OpenPayload(event.Spool) }
	} else {
		out.Open = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(event.Payload)), nil }
	}
	if len(event.Headers) > 0 {
		out.Headers = make(map[string]string, len(event.Headers))
	}
	for _, h := range event.Headers {
		if before, ok := out.Headers[h.Name]; ok {
			h.Value = before + ", " + h.Value // RFC 9110 section 5.3
		}
		out.Headers[h.Name] = h.Value
	}
	return out
}

// post sends a batch in one request.
func (s *sender) post(ctx context.Context, p *prepared, calls []*call) delivery.Result {
	start := time.Now()
	events := make([]origin.Event, len(calls))
	size := int64(0)
	for i, c := range calls {
		events[i] = c.event
		size += c.size
	}
	h := headerList(slices.Clone(p.extra))
	h.set("Content-Type", origin.ContentType)
	h.set("User-Agent", s.userAgent)
	req := &delivery.Request{Path: p.path, Host: p.host, Headers: h, Valid: s.leaseHeld}
	if err := fillBatch(req, events, size); err != nil {
		return local(err, start)
	}
	return s.do(ctx, p, req, start)
}

// fillBatch sets the body. A large one is written twice, once to learn its
// length: it is never in memory as a whole.
func fillBatch(req *delivery.Request, events []origin.Event, size int64) error {
	if size <= batchInline {
		var body bytes.Buffer
		if err := origin.Write(&body, events); err != nil {
			return err
		}
		req.Body, req.Length = body.Bytes(), int64(body.Len())
		return nil
	}
	var length counter
	if err := origin.Write(&length, events); err != nil {
		return err
	}
	req.Length = int64(length)
	req.Open = func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { _ = w.CloseWithError(origin.Write(w, events)) }() // ends when r is closed
		return r, nil
	}
	return nil
}

// counter counts bytes.
type counter int64

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

// errBatchTimeout is the cause of the deadline of a whole search.
var errBatchTimeout = fmt.Errorf("search for the event at fault: %w", errTimeout)
