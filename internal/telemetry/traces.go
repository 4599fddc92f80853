package telemetry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/sched"
)

// TraceConfig says where spans go.
type TraceConfig struct {
	// Endpoint is the URL of an OTLP receiver, http/protobuf, such as
	// http://collector:4318; a path in it replaces /v1/traces.
	Endpoint string
	// Headers go with every export, for a receiver that wants a key.
	Headers map[string]string
	// Ratio is the part of the traces begun here that is recorded, 0 to 1. Traces
	// that a publisher began follow the publisher's own decision.
	Ratio float64
	// Node and Version describe this process.
	Node, Version string
	// Logger is told when spans cannot be exported; nil = nobody.
	Logger *slog.Logger
}

// Traces makes spans of what the engine reports:
//
//	publish ──► queue ──► attempt 1 (events: dns, connect, tls, quic, first byte)
//	   │
//	   ├──────► queue ──► attempt 2 …
//
// They are made after the fact, from what the timeline records as well, so that a
// delivery waits for no exporter; and their ids are computed from what they are
// about, so that the traceparent which an attempt sends names the attempt's span
// although that does not exist yet.
//
// No attribute holds a URL, a path, a header, a secret or a payload.
type Traces struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	sampler  atomic.Pointer[sdktrace.Sampler]
}

// NewTraces starts an exporter; it connects when there is something to send.
func NewTraces(ctx context.Context, c TraceConfig) (*Traces, error) {
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(c.Endpoint), otlptracehttp.WithHeaders(c.Headers))
	if err != nil {
		return nil, fmt.Errorf("start trace exporter: %w", err)
	}
	if c.Logger != nil {
		// The library has one handler for the process; the last node's counts.
		otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { c.Logger.Warn("traces_not_exported", "error", err.Error()) }))
	}
	about := resource.NewSchemaless(
		attribute.String("service.name", "dispatcher"), attribute.String("service.version", c.Version), attribute.String("service.instance.id", c.Node))
	t := &Traces{}
	t.SetRatio(c.Ratio)
	// What was not chosen is never begun, so the provider records all.
	t.provider = sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about),
		sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithIDGenerator(chosenIDs{}))
	t.tracer = t.provider.Tracer("github.com/dispatcher-engine/dispatcher")
	return t, nil
}

// SetRatio says what part of the traces that begin here is recorded from now on.
func (t *Traces) SetRatio(ratio float64) {
	sampler := sdktrace.TraceIDRatioBased(ratio)
	t.sampler.Store(&sampler)
}

// Stop sends what is left and ends the exporter.
func (t *Traces) Stop(ctx context.Context) error {
	if err := errors.Join(t.provider.ForceFlush(ctx), t.provider.Shutdown(ctx)); err != nil {
		return fmt.Errorf("stop traces: %w", err)
	}
	return nil
}

// Observe makes an engine that is yet to be built report here, beside what its
// observers do already.
func (t *Traces) Observe(config *engine.Config) {
	config.Tracing = &engine.Tracing{Begin: t.begin, Published: t.published}
	before := config.Sched.Observer.AttemptFinished
	config.Sched.Observer.AttemptFinished = func(e sched.AttemptFinished) {
		if before != nil {
			before(e)
		}
		t.attempted(e)
	}
}

// begin returns the traceparent of the publish's own span: in the publisher's
// trace, or in a new one.
func (t *Traces) begin(incoming string) string {
	parent, ok := parse(incoming)
	var id trace.TraceID
	flags := parent.TraceFlags()
	if ok {
		id = parent.TraceID()
	} else {
		_, _ = rand.Read(id[:]) // never fails: crypto/rand ends the process instead
		chosen := (*t.sampler.Load()).ShouldSample(sdktrace.SamplingParameters{TraceID: id}).Decision == sdktrace.RecordAndSample
		flags = flags.WithSampled(chosen)
	}
	var span trace.SpanID
	_, _ = rand.Read(span[:])
	return fmt.Sprintf("00-%s-%s-%s", id, span, flags)
}

// parse reads a traceparent of version 00.
func parse(text string) (trace.SpanContext, bool) {
	if len(text) != delivery.TraceLen {
		return trace.SpanContext{}, false
	}
	id, err := trace.TraceIDFromHex(text[3:35])
	span, err2 := trace.SpanIDFromHex(text[36:52])
	if err != nil || err2 != nil {
		return trace.SpanContext{}, false
	}
	flags := trace.TraceFlags(0)
	if text[len(text)-1]&1 == 1 {
		flags = trace.FlagsSampled
	}
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: flags, Remote: true}), true
}

// chosenIDs gives a span the ids that its context carries.
type chosenIDs struct{}

type chosenKey struct{}

func (chosenIDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if c, ok := ctx.Value(chosenKey{}).(trace.SpanContext); ok {
		return c.TraceID(), c.SpanID()
	}
	var id trace.TraceID
	_, _ = rand.Read(id[:])
	return id, chosenIDs{}.NewSpanID(ctx, id)
}

func (chosenIDs) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	if c, ok := ctx.Value(chosenKey{}).(trace.SpanContext); ok {
		return c.SpanID()
	}
	var span trace.SpanID
	_, _ = rand.Read(span[:])
	return span
}

// span begins one under a parent, with ids of its own if it has to have those.
func (t *Traces) span(name string, parent, own trace.SpanContext, at time.Time, kind trace.SpanKind, attributes ...attribute.KeyValue) trace.Span {
	ctx := context.Background()
	if parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	if own.IsValid() {
		ctx = context.WithValue(ctx, chosenKey{}, own)
	}
	_, s := t.tracer.Start(ctx, name, trace.WithTimestamp(at), trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
	return s
}

func (t *Traces) published(p engine.PublishedSpan) {
	own, ok := parse(p.Event.TraceParent)
	if !ok || !own.IsSampled() {
		return
	}
	parent, _ := parse(p.Parent)
	s := t.span("publish", parent, own, p.Start, trace.SpanKindProducer,
		attribute.String("webhook.id", p.Event.ID), attribute.String("webhook.topic", p.Event.Topic),
		attribute.Int64("webhook.payload.size", p.Event.Size), attribute.Int("webhook.deliveries", p.Deliveries))
	if p.Err != nil {
		s.SetStatus(codes.Error, "not stored")
	}
	s.End(trace.WithTimestamp(p.End))
}

func (t *Traces) attempted(e sched.AttemptFinished) {
	publish, ok := parse(e.Event.TraceParent)
	if !ok || !publish.IsSampled() {
		return
	}
	a := e.Attempt
	own, _ := parse(delivery.AttemptTrace(e.Event.TraceParent, e.Event.Key, e.Subscriber.Num, a.Number))
	about := []attribute.KeyValue{
		attribute.String("webhook.id", e.Event.ID), attribute.String("webhook.subscriber", e.Subscriber.ID), attribute.Int("webhook.attempt", a.Number),
	}
	queue := t.span("queue", publish, trace.SpanContext{}, a.StartedAt.Add(-max(0, e.Lateness)), trace.SpanKindInternal, about...)
	queue.End(trace.WithTimestamp(a.StartedAt))
	s := t.span("attempt", publish, own, a.StartedAt, trace.SpanKindClient, append(about,
		attribute.String("webhook.topic", e.Event.Topic), attribute.String("webhook.outcome", a.Outcome.Class.String()),
		attribute.String("webhook.reason", e.Reason.String()), attribute.String("webhook.next", nextName(e.Next)),
		attribute.String("network.protocol.name", a.Result.Protocol.String()),
		attribute.Int("http.response.status_code", a.Result.Status), attribute.Bool("webhook.connection.reused", a.Result.Reused))...)
	phases(s, a)
	if e.Next != delivery.NextDelivered {
		s.SetStatus(codes.Error, e.Reason.String())
	}
	s.End(trace.WithTimestamp(a.StartedAt.Add(a.Result.Phases.Total)))
}

// phases adds an event at the end of every phase that happened, in their order.
func phases(s trace.Span, a *delivery.Attempt) {
	at, p := a.StartedAt, &a.Result.Phases
	for _, phase := range []struct {
		name string
		took time.Duration
	}{{"dns", p.DNS}, {"connect", p.Connect}, {"tls", p.TLS}, {"quic", p.QUIC}, {"first_byte", p.FirstByte}} {
		if phase.took == 0 {
			continue
		}
		at = at.Add(phase.took)
		s.AddEvent(phase.name, trace.WithTimestamp(at), trace.WithAttributes(attribute.Float64("seconds", phase.took.Seconds())))
	}
}
