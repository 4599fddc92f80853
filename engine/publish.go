package engine

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"mime"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

const (
	maxExplicit   = 10_000              // subscribers named by one event
	maxAhead      = 30 * 24 * time.Hour // deliver_at
	maxOrderBytes = 256
)

// Publish returns when the event is durable, or an error when it is not.
func (e *Engine) Publish(ctx context.Context, tenant string, in EventInput) (Receipt, error) {
	t, err := e.tenant(tenant)
	if err != nil {
		return Receipt{}, err
	}
	now := time.Now()
	p, err := e.published(t, &in, now, nil)
	if err != nil {
		return Receipt{}, err
	}
	out := e.publishResult(e.store.Publish(ctx, []*delivery.Published{p})[0])
	e.config.Tracing.published(now, p.Event, in.TraceParent, out)
	return out.Receipt, out.Err
}

// PublishBatch publishes many with one sync. Results line up with the input;
// an entry with a nil Err is durable.
func (e *Engine) PublishBatch(ctx context.Context, tenant string, in []EventInput) []PublishResult {
	out := make([]PublishResult, len(in))
	t, err := e.tenant(tenant)
	if err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	now := time.Now()
	facts := make([]*delivery.Published, 0, len(in))
	index := make([]int, 0, len(in))
	matches := map[string][]delivery.SubscriberNum{}
	for i := range in {
		p, err := e.published(t, &in[i], now, matches)
		if err != nil {
			out[i].Err = err
			continue
		}
		facts, index = append(facts, p), append(index, i)
	}
	if len(facts) == 0 {
		return out
	}
	for i, r := range e.store.Publish(ctx, facts) {
		out[index[i]] = e.publishResult(r)
		e.config.Tracing.published(now, facts[i].Event, in[index[i]].TraceParent, out[index[i]])
	}
	return out
}

func (e *Engine) publishResult(r delivery.Receipt) PublishResult {
	if r.Err == nil {
		return PublishResult{Receipt: Receipt{ID: r.ID, Key: r.Event, Deliveries: r.Deliveries, Deduplicated: r.Deduplicated}}
	}
	if conflict, ok := errors.AsType[*delivery.ConflictError](r.Err); ok {
		return PublishResult{Err: &ConflictError{
			Field: "id", Value: conflict.ID, Rule: "the same id was published with other content",
			Hint: "use a new id for a new event; publish an old one exactly as it was",
		}}
	}
	return PublishResult{Err: e.storeFault(r.Err)}
}

// published turns an input into the fact to store. matches caches topic matches
// within one batch; nil = there is only one event.
func (e *Engine) published(t *delivery.Tenant, in *EventInput, now time.Time, matches map[string][]delivery.SubscriberNum) (*delivery.Published, error) {
	event, err := e.event(t, in, now)
	if err != nil {
		return nil, err
	}
	nums, err := e.recipients(t, in, matches)
	if err != nil {
		return nil, err
	}
	targets, err := e.targets(event, nums)
	if err != nil {
		return nil, err
	}
	p := &delivery.Published{Lease: e.store.Lease(), Event: event, Targets: targets, Urgent: in.urgent}
	if in.ID != "" {
		p.Dedupe = &delivery.Dedupe{ID: in.ID, Content: contentHash(event, in.Subscribers)}
	}
	return p, nil
}

// targets says where an event's row stands with each subscriber.
func (e *Engine) targets(event *delivery.Event, nums []delivery.SubscriberNum) ([]delivery.Target, error) {
	targets := make([]delivery.Target, 0, len(nums))
	for _, num := range nums {
		sub, err := e.directory.Subscriber(num)
		if errors.Is(err, delivery.ErrNoSubscriber) {
			continue // deleted since it matched
		}
		if err != nil {
			return nil, fmt.Errorf("publish: read subscriber: %w", err)
		}
		targets = append(targets, delivery.Target{
			Subscriber: num, Lane: sub.Lane(event), Key: sub.KeyFor(event.OrderingKey), Due: event.DeliverAt,
		})
	}
	return targets, nil
}

// event validates an input and makes the event.
func (e *Engine) event(t *delivery.Tenant, in *EventInput, now time.Time) (*delivery.Event, error) {
	var f faults
	event := &delivery.Event{
		Key: e.keys.next(now), ID: in.ID, Tenant: t.Num, Topic: in.Topic, ContentType: in.ContentType,
		Payload: in.Payload, Size: int64(len(in.Payload)), OrderingKey: in.OrderingKey, Priority: delivery.PriorityNormal,
	}
	if in.ID == "" {
		event.ID = event.Key.String()
	} else if err := delivery.CheckEventID(in.ID); err != nil {
		f.add("id", in.ID, "1 to 256 of A-Z a-z 0-9 _ ~ : -", "choose an id of those characters, or leave it out")
	}
	if !ValidTopic(in.Topic) {
		f.add("topic", in.Topic, "dot-separated segments of A-Z a-z 0-9 _ -, 256 bytes at most", `write "order.created"`)
	} else if delivery.IsOperational(in.Topic) && !in.operational {
		f.add("topic", in.Topic, `topics that begin with "dispatcher." are the dispatcher's own`, "choose another topic")
	}
	if int64(len(in.Payload)) > e.config.MaxPayload {
		f.add("payload", strconv.Itoa(len(in.Payload))+" bytes", fmt.Sprintf("at most %d bytes", e.config.MaxPayload), "send a reference instead, or raise the node's limit")
	}
	if event.ContentType == "" {
		event.ContentType = typeJSON
	} else if !mediaType(event.ContentType) {
		f.add("content_type", in.ContentType, "a media type", `write "text/plain; charset=utf-8"`)
	}
	if len(in.OrderingKey) > maxOrderBytes {
		f.add("ordering_key", in.OrderingKey, "at most 256 bytes", "use a shorter key, or a hash of it")
	}
	if in.Priority != "" {
		priority, ok := delivery.ParsePriority(in.Priority)
		if !ok {
			f.add("priority", in.Priority, "one of high, normal, low", "leave it out for the subscriber's own")
		}
		event.Priority, event.PrioritySet = priority, true
	}
	f.schedule(event, in, now)
	event.TraceParent = e.config.Tracing.begin(traceParent(in.TraceParent))
	return event, f.err()
}

const typeJSON = "application/json"

// mediaType reports whether a content type is well-formed (RFC 2045 §5.1).
func mediaType(s string) bool {
	if s == typeJSON {
		return true // nearly always; parsing makes a map
	}
	_, _, err := mime.ParseMediaType(s)
	return err == nil && !strings.ContainsAny(s, "\r\n\x00")
}

func (f *faults) schedule(event *delivery.Event, in *EventInput, now time.Time) {
	if in.DeliverAt.IsZero() || !in.DeliverAt.After(now) {
		return
	}
	if in.DeliverAt.Sub(now) > maxAhead {
		f.add("deliver_at", in.DeliverAt.Format(time.RFC3339), "at most 30 days ahead", "publish it later")
	}
	event.DeliverAt = in.DeliverAt.UTC().Truncate(time.Millisecond)
}

// noTraceID is what the W3C rules out as an id of a trace, and its half as a span's.
const noTraceID = "00000000000000000000000000000000"

// traceParent keeps a well-formed W3C traceparent of version 00 and drops
// anything else: tracing must never fail a publish.
func traceParent(s string) string {
	if len(s) != delivery.TraceLen || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return ""
	}
	if s[3:35] == noTraceID || s[36:52] == noTraceID[:16] {
		return ""
	}
	for i := range len(s) {
		if c := s[i]; c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return ""
		}
	}
	return s
}

// recipients returns the subscribers an event is for, each once.
func (e *Engine) recipients(t *delivery.Tenant, in *EventInput, matches map[string][]delivery.SubscriberNum) ([]delivery.SubscriberNum, error) {
	if len(in.Subscribers) > 0 {
		return e.named(t, in.Subscribers)
	}
	if nums, ok := matches[in.Topic]; ok {
		return nums, nil
	}
	nums, err := e.registry.Match(t.Num, in.Topic, nil)
	if err != nil {
		return nil, e.storeFault(fmt.Errorf("publish: match topic: %w", err))
	}
	if matches != nil {
		matches[in.Topic] = nums
	}
	return nums, nil
}

func (e *Engine) named(t *delivery.Tenant, ids []string) ([]delivery.SubscriberNum, error) {
	var f faults
	if len(ids) > maxExplicit {
		f.add("subscribers", strconv.Itoa(len(ids)), fmt.Sprintf("at most %d", maxExplicit), "use topics, or several events")
		return nil, f.err()
	}
	seen := make(map[delivery.SubscriberNum]bool, len(ids))
	var nums []delivery.SubscriberNum
	for i, id := range ids {
		s, err := e.registry.GetSubscriber(t.Num, id)
		switch {
		case errors.Is(err, delivery.ErrNoSubscriber):
			f.add(fmt.Sprintf("subscribers[%d]", i), id, "no such subscriber of this tenant", "check the id; GET …/subscribers lists them")
		case err != nil:
			return nil, e.registryFault("subscribers", id, err)
		case !seen[s.Num]:
			seen[s.Num] = true
			nums = append(nums, s.Num)
		}
	}
	return nums, f.err()
}

// contentHash is over everything that makes two publishes "the same event".
func contentHash(e *delivery.Event, subscribers []string) [16]byte {
	h := sha256.New()
	field := func(b []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	field([]byte(e.Topic))
	field([]byte(e.ContentType))
	field([]byte(e.OrderingKey))
	field([]byte(strings.Join(subscribers, ",")))
	field(e.Payload)
	var sum [sha256.Size]byte
	return [16]byte(h.Sum(sum[:0]))
}
