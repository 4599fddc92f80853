package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// intake is what the ingress needs of the engine: it makes messages durable and
// knows the node's sources.
type intake struct {
	engine *Engine
	inline atomic.Int64 // bytes of bodies that were read back from their files
	// remote: sources come from a control plane, so their origins are made when
	// the first event arrives.
	remote bool
}

const (
	// inlineBody is up to what size a body in a file is read back and stored with
	// its event. A larger one is copied to a file of the store.
	inlineBody = 1 << 20
	// inlineBodies bounds all of them; beyond it they are copied to files, too.
	inlineBodies = 64 << 20
)

// Ready implements [ingress.Enqueuer].
func (in *intake) Ready() error { return in.engine.store.Accepting() }

// Source implements [ingress.Sources].
func (in *intake) Source(_ context.Context, tenant, source string) (*ingress.Source, error) {
	t, err := in.engine.tenant(tenant)
	if err == nil {
		var s *Source
		if s, _, err = in.engine.readSource(t, source); err == nil {
			return s.Config, nil
		}
	}
	if errors.Is(err, ErrNotFound) {
		return nil, ingress.ErrUnknownSource
	}
	return nil, err
}

// Enqueue implements [ingress.Enqueuer]. The store's errors are those that the
// ingress tells apart.
func (in *intake) Enqueue(ctx context.Context, m *ingress.Message) (ingress.Receipt, error) {
	e := in.engine
	t, err := in.tenant(m.Tenant)
	if err != nil {
		return ingress.Receipt{}, fmt.Errorf("enqueue: tenant %q: %w", clipped(m.Tenant), err)
	}
	event := in.event(t, m)
	nums, err := in.recipients(t, m)
	if err != nil {
		return ingress.Receipt{}, fmt.Errorf("enqueue: %w", err)
	}
	targets, err := e.targets(event, nums)
	if err != nil {
		return ingress.Receipt{}, fmt.Errorf("enqueue: %w", err)
	}
	release, err := in.payload(ctx, event, m.Body)
	if err != nil {
		return ingress.Receipt{}, fmt.Errorf("enqueue: %w", err)
	}
	defer release()
	start := time.Now()
	r := e.store.Publish(ctx, []*delivery.Published{{
		Lease: e.store.Lease(), Event: event, Dedupe: m.Dedupe(), Targets: targets,
	}})[0]
	e.config.Tracing.published(start, event, m.TraceParent, PublishResult{
		Receipt: Receipt{Deduplicated: r.Deduplicated, Deliveries: len(targets)}, Err: r.Err,
	})
	return ingress.Receipt{ID: r.ID, Deduplicated: r.Deduplicated}, r.Err
}

// tenant returns the tenant of a message that was verified. One that the control
// plane knows and this node does not is made: the control plane decides whose
// events are taken.
func (in *intake) tenant(id string) (*delivery.Tenant, error) {
	e := in.engine
	t, err := e.registry.GetTenant(id)
	if !in.remote || !errors.Is(err, delivery.ErrNoTenant) {
		return t, err
	}
	made := delivery.Tenant{ID: id, Weight: 1, MaxShare: e.defaults.Load().MaxShare}
	if t, err = e.registry.PutTenant(made, storage.MustNotExist); errors.Is(err, storage.ErrExists) {
		return e.registry.GetTenant(id) // another event was first
	}
	return t, err
}

func (in *intake) event(t *delivery.Tenant, m *ingress.Message) *delivery.Event {
	event := &delivery.Event{
		Key: in.engine.keys.next(time.Now()), ID: m.ID, Tenant: t.Num, Topic: m.Topic, ContentType: m.ContentType,
		Priority: delivery.PriorityNormal,
	}
	event.TraceParent = in.engine.config.Tracing.begin(traceParent(m.TraceParent))
	if m.ID == "" {
		event.ID = event.Key.String()
	}
	if !m.NotBefore.IsZero() {
		event.DeliverAt = m.NotBefore.UTC().Truncate(time.Millisecond)
	}
	for _, h := range m.Headers[:min(len(m.Headers), delivery.MaxEventHeaders)] {
		event.Headers = append(event.Headers, delivery.Header(h))
	}
	return event
}

// recipients are the origin alone, or whoever wants the topic: none is fine, the
// event is kept.
func (in *intake) recipients(t *delivery.Tenant, m *ingress.Message) ([]delivery.SubscriberNum, error) {
	e := in.engine
	if m.Destination.Type != ingress.DestinationOrigin {
		return e.registry.Match(t.Num, m.Topic, nil)
	}
	if in.remote {
		e.sources.Lock()
		defer e.sources.Unlock()
		s, err := e.putOrigin(t, m.Source, &m.Destination)
		if err != nil {
			return nil, err
		}
		return []delivery.SubscriberNum{s.Num}, nil
	}
	s, err := e.registry.GetSubscriber(t.Num, originID(m.Source))
	if errors.Is(err, delivery.ErrNoSubscriber) {
		err = ingress.ErrUnknownSource // it went with its source
	}
	if err != nil {
		return nil, err
	}
	return []delivery.SubscriberNum{s.Num}, nil
}

// payload gives the event its body. Release is called when it is stored.
func (in *intake) payload(ctx context.Context, event *delivery.Event, body *ingress.Body) (release func(), err error) {
	release = func() {}
	if data, inMemory := body.Bytes(); inMemory {
		event.Payload, event.Size = data, body.Size()
		return release, nil
	}
	size := body.Size()
	if size <= inlineBody && in.take(size) {
		event.Payload, event.Size = make([]byte, size), size
		if _, err := io.ReadFull(body.Reader(), event.Payload); err != nil {
			in.inline.Add(-size)
			return nil, fmt.Errorf("read body: %w", err)
		}
		return func() { in.inline.Add(-size) }, nil
	}
	event.Spool, event.Size, err = in.engine.store.SpoolPayload(ctx, event.Key, body.Reader())
	return release, err
}

func (in *intake) take(size int64) bool {
	if in.inline.Add(size) > inlineBodies {
		in.inline.Add(-size)
		return false
	}
	return true
}
