package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/protoselect"
)

// selector is what the sender needs of protoselect.
type selector interface {
	Do(ctx context.Context, ep delivery.Endpoint, policy delivery.ProtocolPolicy, req *delivery.Request) (*delivery.Response, protoselect.Trace, error)
}

// payloads opens payloads that are too large to hold.
type payloads interface {
	OpenPayload(spool string) (io.ReadCloser, error)
}

// sender makes one attempt: it signs the event and has the selector write it.
// What is for an origin goes in batches. It implements sched's Sender.
type sender struct {
	directory *directory
	selector  selector
	payloads  payloads
	userAgent string
	traced    bool // attempts have spans of their own
	leaseHeld func() bool
	batches   *batches
}

// errTimeout is the cause of an attempt's own deadline, told apart from a stop.
var errTimeout = errors.New("attempt timed out")

// Send implements sched's Sender.
func (s *sender) Send(ctx context.Context, sub *delivery.Subscriber, event *delivery.Event, attempt int) delivery.Result {
	start := time.Now()
	p, err := s.prepared(sub)
	if err != nil {
		return local(err, start)
	}
	if isOrigin(sub.ID) {
		return s.sendOrigin(ctx, p, event, attempt)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, sub.Timeout, errTimeout)
	defer cancel()
	req, err := s.request(p, event, attempt, start)
	if err != nil {
		return local(err, start)
	}
	return s.do(ctx, p, req, start)
}

// do has a request written and reads what became of it.
func (s *sender) do(ctx context.Context, p *prepared, req *delivery.Request, start time.Time) delivery.Result {
	resp, trace, err := s.selector.Do(ctx, p.endpoint, p.sub.Protocol, req)
	var r delivery.Result
	trace.Fill(&r)
	if err != nil {
		fillFailure(&r, err, ctx)
	} else {
		fillAnswer(&r, resp)
	}
	r.Phases.Total = time.Since(start)
	return r
}

// prepared returns the sendable form of exactly this version of a subscriber:
// the actor decided by it.
func (s *sender) prepared(sub *delivery.Subscriber) (*prepared, error) {
	p, err := s.directory.prepared(sub.Num)
	if err == nil && p.sub.Version == sub.Version {
		return p, nil
	}
	return prepare(sub)
}

// local is a failure before anything could be sent.
func local(err error, start time.Time) delivery.Result {
	return delivery.Result{
		Sent: delivery.SentNever, Cause: delivery.CauseLocal, Detail: bounded(err.Error()),
		Phases: delivery.Phases{Total: time.Since(start)},
	}
}

// fixedHeaders is how many headers every request has.
const fixedHeaders = 10

func (s *sender) request(p *prepared, event *delivery.Event, attempt int, now time.Time) (*delivery.Request, error) {
	header := make(http.Header, fixedHeaders+len(p.extra))
	values := make([]string, 0, fixedHeaders+len(p.extra)) // one array for all of them
	set := func(name, value string) {
		values = append(values, value)
		header[name] = values[len(values)-1 : len(values) : len(values)]
	}
	for _, f := range p.extra {
		set(f.Name, f.Value)
	}
	set("Accept-Encoding", "identity") // else the transport adds it, to a copy
	set("Content-Type", event.ContentType)
	set("User-Agent", s.userAgent)
	set("Webhook-Topic", event.Topic)
	set("Webhook-Attempt", strconv.Itoa(attempt))
	if event.TraceParent != "" {
		set("Traceparent", s.traceParent(p.sub, event, attempt))
	}
	p.eventHeaders(header, event)
	req := &delivery.Request{Path: p.path, Host: p.host, Header: header, Body: event.Payload, Length: event.Size, Valid: s.leaseHeld}
	if event.Spool == "" {
		return req, p.signer.Headers(header, event.ID, now, event.Payload)
	}
	req.Body = nil
	req.Open = func() (io.ReadCloser, error) { return s.payloads.OpenPayload(event.Spool) }
	body, err := req.Open()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return req, p.signer.HeadersFrom(header, event.ID, now, body)
}

// traceParent names the attempt's span, or without spans the publisher's own.
func (s *sender) traceParent(sub *delivery.Subscriber, event *delivery.Event, attempt int) string {
	if !s.traced {
		return event.TraceParent
	}
	return delivery.AttemptTrace(event.TraceParent, event.Key, sub.Num, attempt)
}

func fillAnswer(r *delivery.Result, resp *delivery.Response) {
	r.Status, r.Sent = resp.Status, delivery.SentProcessed
	r.RetryAfter, r.Date = resp.Header.Get("Retry-After"), resp.Header.Get("Date")
	r.Location = bounded(resp.Header.Get("Location"))
	r.Body, r.Truncated = bytes.ToValidUTF8(resp.Body, []byte("\uFFFD")), resp.Truncated
	r.BytesSent, r.Phases.FirstByte = resp.BytesSent, resp.FirstByte
	if resp.BodyErr != nil {
		r.Detail = "the answer's body broke off"
	}
}

// fillFailure copies a failure without an answer. A stop of ours is told apart
// from the attempt's own deadline by the context's cause.
func fillFailure(r *delivery.Result, err error, ctx context.Context) { //nolint:revive // ctx is only asked for its cause
	r.Detail = bounded(err.Error())
	if failed, ok := errors.AsType[*delivery.SendError](err); ok {
		r.Sent, r.Cause, r.Detail = failed.Sent, failed.Cause, bounded(failed.Detail)
	} else {
		r.Sent, r.Cause = delivery.SentAmbiguous, delivery.CauseLocal
	}
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errTimeout) {
		r.Cause = delivery.CauseShutdown
	}
}

// bounded keeps a text for the timeline at most 512 bytes long.
func bounded(s string) string {
	const most = 512
	if len(s) <= most {
		return s
	}
	return s[:most-3] + "…"
}
