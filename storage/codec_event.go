package storage

import (
	"encoding/binary"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Flags of an event value.
const (
	eventPrioritySet byte = 1 << iota
	eventOwnID            // the public id is the key in its canonical form
	eventHasOrdering
	eventHasDeliverAt
	eventHasTrace
	eventSpooled
	eventHasHeaders
)

// keyTextLen is the length of a key in its canonical form.
const keyTextLen = 36

// appendEventHead encodes an event up to its targets:
//
//	version, flags, tenant, [id], topic, content type, priority, [ordering key],
//	[deliver at], [trace parent], size, [spool], [headers]
//
// The key is not in it.
func appendEventHead(b []byte, e *delivery.Event) []byte {
	var flags byte
	if e.PrioritySet {
		flags |= eventPrioritySet
	}
	own := len(e.ID) == keyTextLen && e.ID == e.Key.String()
	if own {
		flags |= eventOwnID
	}
	if e.OrderingKey != "" {
		flags |= eventHasOrdering
	}
	if !e.DeliverAt.IsZero() {
		flags |= eventHasDeliverAt
	}
	if e.TraceParent != "" {
		flags |= eventHasTrace
	}
	if e.Spool != "" {
		flags |= eventSpooled
	}
	if len(e.Headers) > 0 {
		flags |= eventHasHeaders
	}
	b = append(b, codecVersion, flags)
	b = binary.AppendUvarint(b, uint64(e.Tenant))
	if !own {
		b = appendString(b, e.ID)
	}
	b = appendString(b, e.Topic)
	b = appendString(b, e.ContentType)
	b = append(b, byte(e.Priority))
	if e.OrderingKey != "" {
		b = appendString(b, e.OrderingKey)
	}
	if !e.DeliverAt.IsZero() {
		b = appendNano(b, e.DeliverAt)
	}
	if e.TraceParent != "" {
		b = appendString(b, e.TraceParent)
	}
	b = binary.AppendUvarint(b, uint64(e.Size)) //nolint:gosec // a size
	if e.Spool != "" {
		b = appendString(b, e.Spool)
	}
	if len(e.Headers) > 0 {
		b = binary.AppendUvarint(b, uint64(len(e.Headers)))
		for _, h := range e.Headers {
			b = appendString(appendString(b, h.Name), h.Value)
		}
	}
	return b
}

// eventHead reads what appendEventHead wrote.
func (d *decoder) eventHead(key delivery.EventKey) *delivery.Event {
	return d.eventHeadLike(key, &delivery.Event{})
}

// eventHeadLike is eventHead, for an event that shares its topic and content type
// with another one where they are equal.
func (d *decoder) eventHeadLike(key delivery.EventKey, like *delivery.Event) *delivery.Event {
	d.version("event")
	flags := d.byte()
	e := &delivery.Event{Key: key, PrioritySet: flags&eventPrioritySet != 0}
	tenant := d.uvarint()
	if tenant > 1<<32-1 {
		d.fail("tenant number")
	}
	e.Tenant = delivery.TenantNum(tenant) //nolint:gosec // checked
	if flags&eventOwnID != 0 {
		e.ID = key.String()
	} else {
		e.ID = d.string()
	}
	e.Topic = d.stringLike(like.Topic)
	e.ContentType = d.stringLike(like.ContentType)
	e.Priority = delivery.Priority(d.byte())
	if flags&eventHasOrdering != 0 {
		e.OrderingKey = d.string()
	}
	if flags&eventHasDeliverAt != 0 {
		e.DeliverAt = d.nano()
	}
	if flags&eventHasTrace != 0 {
		e.TraceParent = d.string()
	}
	size := d.uvarint()
	if size > 1<<62 {
		d.fail("size")
	}
	e.Size = int64(size) //nolint:gosec // checked
	if flags&eventSpooled != 0 {
		e.Spool = d.string()
		if e.Spool == "" {
			d.fail("spool name")
		}
	}
	if flags&eventHasHeaders != 0 {
		e.Headers = d.headers()
	}
	return e
}

// headers reads at least one header: none at all has no flag.
func (d *decoder) headers() []delivery.Header {
	n := d.count(2)
	if n == 0 || n > delivery.MaxEventHeaders {
		d.fail("headers")
		return nil
	}
	list := make([]delivery.Header, n)
	for i := range list {
		list[i] = delivery.Header{Name: d.string(), Value: d.string()}
	}
	return list
}

// appendTargets encodes whom an event is for.
func appendTargets(b []byte, targets []delivery.Target) []byte {
	b = binary.AppendUvarint(b, uint64(len(targets)))
	for i := range targets {
		b = appendTarget(b, &targets[i])
	}
	return b
}

const (
	targetLaneMask byte = 0x0F
	targetLeased   byte = 1 << 4
	targetHasKey   byte = 1 << 5
	targetHasDue   byte = 1 << 6
)

func appendTarget(b []byte, t *delivery.Target) []byte {
	flags := byte(t.Lane) & targetLaneMask
	if t.Leased {
		flags |= targetLeased
	}
	if t.Key != 0 {
		flags |= targetHasKey
	}
	if !t.Due.IsZero() {
		flags |= targetHasDue
	}
	b = append(binary.AppendUvarint(b, uint64(t.Subscriber)), flags)
	if t.Key != 0 {
		b = binary.BigEndian.AppendUint64(b, uint64(t.Key))
	}
	if !t.Due.IsZero() {
		b = appendNano(b, t.Due)
	}
	return b
}

func (d *decoder) target() delivery.Target {
	t := delivery.Target{Subscriber: delivery.SubscriberNum(d.uvarint())}
	flags := d.byte()
	t.Lane = delivery.Priority(flags & targetLaneMask)
	t.Leased = flags&targetLeased != 0
	if flags&targetHasKey != 0 {
		t.Key = delivery.KeyHash(d.uint64())
	}
	if flags&targetHasDue != 0 {
		t.Due = d.nano()
	}
	return t
}

func (d *decoder) targets() []delivery.Target {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	list := make([]delivery.Target, 0, n)
	for range n {
		list = append(list, d.target())
	}
	return list
}

// decodeEvent reads an event row: head, targets, payload. The payload is a copy;
// without payload it is left out.
func decodeEvent(key delivery.EventKey, value []byte, payload bool) (*delivery.Event, []delivery.Target, error) {
	d := decoder{b: value}
	e := d.eventHead(key)
	targets := d.targets()
	d.payload(e, payload)
	if err := d.end("event"); err != nil {
		return nil, nil, err
	}
	return e, targets, nil
}

// decodeEventLike is decodeEvent with the payload and without the targets; see
// [decoder.eventHeadLike].
func decodeEventLike(key delivery.EventKey, value []byte, like *delivery.Event) (*delivery.Event, error) {
	d := decoder{b: value}
	e := d.eventHeadLike(key, like)
	for range d.count(2) {
		d.target()
	}
	d.payload(e, true)
	if err := d.end("event"); err != nil {
		return nil, err
	}
	return e, nil
}

// payload takes the rest of the value as the payload of e.
func (d *decoder) payload(e *delivery.Event, keep bool) {
	switch {
	case d.err != nil:
		return
	case e.Spool != "":
		return // nothing may be left; end checks
	case int64(len(d.b)) != e.Size:
		d.fail("payload length")
		return
	}
	if keep {
		e.Payload = append(make([]byte, 0, len(d.b)), d.b...)
	}
	d.b = nil
}
