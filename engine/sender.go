package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/signing"
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

// fixedHeaders is how many headers of ours a request has, signatureHeaders how many
// of them are its signature's.
const (
	fixedHeaders     = 9
	signatureHeaders = 4
)

func (s *sender) request(p *prepared, event *delivery.Event, attempt int, now time.Time) (*delivery.Request, error) {
	h := make(headerList, 0, fixedHeaders+len(p.extra)+len(event.Headers))
	h = append(h, p.extra...)
	h.set("Content-Type", event.ContentType)
	h.set("User-Agent", s.userAgent)
	h.set("Webhook-Topic", event.Topic)
	h.set("Webhook-Attempt", strconv.Itoa(attempt))
	if event.TraceParent != "" {
		h.set("Traceparent", s.traceParent(p.sub, event, attempt))
	}
	h = p.eventHeaders(h, event)
	req := &delivery.Request{Path: p.path, Host: p.host, Body: event.Payload, Length: event.Size, Valid: s.leaseHeld}
	signed, err := s.sign(p, event, req, now)
	for _, f := range signed {
		h.set(f.Name, f.Value)
	}
	req.Headers = h
	return req, err
}

// sign returns the signature's headers. A payload that is too large to hold is
// read for it, and given to the request to be read again.
func (s *sender) sign(p *prepared, event *delivery.Event, req *delivery.Request, now time.Time) ([]signing.Field, error) {
	fields := make([]signing.Field, 0, signatureHeaders)
	if event.Spool == "" {
		return p.signer.Append(fields, event.ID, now, event.Payload)
	}
	req.Body = nil
	req.Open = func() (io.ReadCloser, error) { return s.payloads.OpenPayload(event.Spool) }
	body, err := req.Open()
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return p.signer.AppendFrom(fields, event.ID, now, body)
}

// headerList is a request's headers on their way.
type headerList []delivery.Header

// set gives a header one value, in its place if it is there already.
func (h *headerList) set(name, value string) {
	for i := range *h {
		if (*h)[i].Name == name {
			(*h)[i].Value = value
			return
		}
	}
	*h = append(*h, delivery.Header{Name: name, Value: value})
}

func (h headerList) has(name string) bool {
	return slices.ContainsFunc(h, func(f delivery.Header) bool { return f.Name == name })
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
