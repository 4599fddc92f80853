package storage

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Kinds of fact on the wire. A recorded run is a list of facts; folding it into
// an empty store gives the same rows.
const (
	factPublished byte = iota + 1
	factLeased
	factMoved
	factReplayed
	factPurged
	factExpunged
	factDropped
	factHealth
)

// AppendFact encodes a fact without loss.
func AppendFact(b []byte, fact delivery.Fact) ([]byte, error) {
	b = append(b, codecVersion)
	switch f := fact.(type) {
	case *delivery.Published:
		return appendPublishedFact(append(b, factPublished), f), nil
	case *delivery.Leased:
		b = appendLease(append(b, factLeased), f.Lease)
		b = binary.AppendUvarint(b, uint64(f.Subscriber))
		b = append(b, byte(f.Place), byte(f.Lane))
		b = binary.AppendUvarint(b, uint64(f.Key))
		b = appendNano(b, f.Due)
		return binary.AppendUvarint(b, uint64(f.UpTo)), nil
	case *delivery.Moved:
		return appendMovedFact(append(b, factMoved), f), nil
	case *delivery.Replayed:
		b = appendFactHead(append(b, factReplayed), f.Lease, f.Event, f.Subscriber)
		b = append(appendNano(b, f.At), byte(f.Lane))
		b = binary.AppendUvarint(b, uint64(f.Key))
		b = appendEventCopy(appendInt(b, f.Attempts), f.Copy)
		return appendMaybeDead(b, f.Dead), nil
	case *delivery.Purged:
		b = appendFactHead(append(b, factPurged), f.Lease, f.Event, f.Subscriber)
		return appendMaybeDead(appendNano(b, f.At), f.Dead), nil
	case *delivery.Expunged:
		b = appendFactHead(append(b, factExpunged), f.Lease, f.Event, 0)
		b = append(appendNano(b, f.At), byte(f.Reason))
		b = binary.AppendUvarint(b, uint64(len(f.Targets)))
		for _, sub := range f.Targets {
			b = binary.AppendUvarint(b, uint64(sub))
		}
		return appendFactDead(b, f.Dead), nil
	case *delivery.Dropped:
		b = appendLease(append(b, factDropped), f.Lease)
		b = binary.AppendUvarint(b, uint64(f.Subscriber))
		b = appendBool(append(appendNano(b, f.At), byte(f.Reason)), f.Last)
		b = binary.AppendUvarint(b, uint64(len(f.Rows)))
		for i := range f.Rows {
			b = appendFactRow(b, &f.Rows[i])
		}
		return appendFactDead(b, f.Dead), nil
	case *delivery.HealthChanged:
		b = appendLease(append(b, factHealth), f.Lease)
		return appendHealth(binary.AppendUvarint(b, uint64(f.Subscriber)), &f.Health), nil
	}
	return nil, fmt.Errorf("encode fact: unknown type %T", fact)
}

// DecodeFact reads what [AppendFact] wrote.
func DecodeFact(b []byte) (delivery.Fact, error) {
	d := decoder{b: b}
	d.version("fact")
	kind := d.byte()
	var fact delivery.Fact
	switch kind {
	case factPublished:
		fact = d.publishedFact()
	case factLeased:
		fact = &delivery.Leased{
			Lease: d.lease(), Subscriber: d.subscriber(), Place: delivery.Place(d.byte()),
			Lane: delivery.Priority(d.byte()), Key: delivery.KeyHash(d.uvarint()),
			Due: d.nano(), UpTo: delivery.Seq(d.uvarint()),
		}
	case factMoved:
		fact = d.movedFact()
	case factReplayed:
		f := &delivery.Replayed{Lease: d.lease(), Event: d.eventKey(), Subscriber: d.subscriber(), At: d.nano()}
		f.Lane, f.Key = delivery.Priority(d.byte()), delivery.KeyHash(d.uvarint())
		f.Attempts, f.Copy, f.Dead = d.int(), d.eventCopy(), d.maybeDead()
		fact = f
	case factPurged:
		fact = &delivery.Purged{Lease: d.lease(), Event: d.eventKey(), Subscriber: d.subscriber(), At: d.nano(), Dead: d.maybeDead()}
	case factExpunged:
		fact = d.expungedFact()
	case factDropped:
		fact = d.droppedFact()
	case factHealth:
		fact = &delivery.HealthChanged{Lease: d.lease(), Subscriber: d.subscriber(), Health: d.health()}
	default:
		d.fail(fmt.Sprintf("kind of fact %d", kind))
	}
	if err := d.end("fact"); err != nil {
		return nil, err
	}
	return fact, nil
}

func (d *decoder) subscriber() delivery.SubscriberNum { return delivery.SubscriberNum(d.uvarint()) }

func appendFactHead(b []byte, l delivery.Lease, k delivery.EventKey, sub delivery.SubscriberNum) []byte {
	b = append(appendLease(b, l), k[:]...)
	return binary.AppendUvarint(b, uint64(sub))
}

func appendPublishedFact(b []byte, f *delivery.Published) []byte {
	b = appendEventCopy(appendLease(b, f.Lease), f.Event)
	b = appendBool(b, f.Dedupe != nil)
	if f.Dedupe != nil {
		b = appendString(appendString(b, f.Dedupe.Source), f.Dedupe.ID)
		b = appendBool(append(b, f.Dedupe.Content[:]...), f.Dedupe.Body)
	}
	return appendTargets(b, f.Targets)
}

func (d *decoder) publishedFact() *delivery.Published {
	f := &delivery.Published{Lease: d.lease(), Event: d.eventCopy()}
	if f.Event == nil {
		d.fail("published without an event")
	}
	if d.bool() {
		f.Dedupe = &delivery.Dedupe{Source: d.string(), ID: d.string()}
		copy(f.Dedupe.Content[:], d.fixed(len(f.Dedupe.Content)))
		f.Dedupe.Body = d.bool()
	}
	f.Targets = d.targets()
	return f
}

// appendEventCopy encodes an event with its key and payload, nil included.
func appendEventCopy(b []byte, e *delivery.Event) []byte {
	b = appendBool(b, e != nil)
	if e == nil {
		return b
	}
	b = appendEventHead(append(b, e.Key[:]...), e)
	return appendString(b, e.Payload)
}

func (d *decoder) eventCopy() *delivery.Event {
	if !d.bool() {
		return nil
	}
	e := d.eventHead(d.eventKey())
	if p := d.bytes(); len(p) > 0 {
		e.Payload = append([]byte(nil), p...)
	}
	if e.Spool == "" && int64(len(e.Payload)) != e.Size {
		d.fail("payload length")
	}
	return e
}

func appendMovedFact(b []byte, f *delivery.Moved) []byte {
	b = appendNano(appendLease(b, f.Lease), f.At)
	b = appendFactRow(b, &f.Row)
	b = append(b, byte(f.Next), byte(f.Reason))
	b = appendNano(b, f.Due)
	b = appendString(appendString(b, f.Note), f.Signature)
	b = appendBool(appendBool(b, f.Block), f.Unblock)
	for _, a := range [...]*delivery.Attempt{f.Attempt, f.Prior} {
		b = appendBool(b, a != nil)
		if a != nil {
			b = appendAttempt(b, a, f.Lease, math.MaxInt)
		}
	}
	return appendEventCopy(b, f.Copy)
}

func (d *decoder) movedFact() *delivery.Moved {
	f := &delivery.Moved{Lease: d.lease(), At: d.nano(), Row: d.factRow()}
	f.Next, f.Reason = delivery.Next(d.byte()), delivery.Reason(d.byte())
	f.Due, f.Note, f.Signature = d.nano(), d.string(), d.string()
	f.Block, f.Unblock = d.bool(), d.bool()
	for _, to := range [...]**delivery.Attempt{&f.Attempt, &f.Prior} {
		if d.bool() {
			*to = d.attempt(f.Lease)
		}
	}
	f.Copy = d.eventCopy()
	return f
}

// appendFactRow encodes all of a row, its place included.
func appendFactRow(b []byte, r *delivery.Row) []byte {
	b = binary.AppendUvarint(b, uint64(r.Subscriber))
	b = append(append(b, r.Event[:]...), byte(r.Place), byte(r.Lane))
	b = binary.AppendUvarint(b, uint64(r.Seq))
	b = appendNano(b, r.Due)
	b = binary.AppendUvarint(b, uint64(r.Key))
	b = appendInt(appendBool(appendInt(b, r.Attempts), r.Replayed), r.Base)
	b = binary.AppendUvarint(b, uint64(r.First))
	b = binary.AppendUvarint(b, uint64(r.LeasedBy))
	return appendNano(b, r.EnteredAt)
}

func (d *decoder) factRow() delivery.Row {
	return delivery.Row{
		Subscriber: d.subscriber(), Event: d.eventKey(), Place: delivery.Place(d.byte()),
		Lane: delivery.Priority(d.byte()), Seq: delivery.Seq(d.uvarint()), Due: d.nano(),
		Key: delivery.KeyHash(d.uvarint()), Attempts: d.int(), Replayed: d.bool(), Base: d.int(),
		First: delivery.Seq(d.uvarint()), LeasedBy: delivery.Epoch(d.uvarint()), EnteredAt: d.nano(),
	}
}

func (d *decoder) expungedFact() *delivery.Expunged {
	f := &delivery.Expunged{Lease: d.lease(), Event: d.eventKey()}
	if d.uvarint() != 0 {
		d.fail("expunged with a subscriber")
	}
	f.At, f.Reason = d.nano(), delivery.Reason(d.byte())
	for range d.count(1) {
		f.Targets = append(f.Targets, d.subscriber())
	}
	f.Dead = d.factDead()
	return f
}

func (d *decoder) droppedFact() *delivery.Dropped {
	f := &delivery.Dropped{Lease: d.lease(), Subscriber: d.subscriber(), At: d.nano()}
	f.Reason, f.Last = delivery.Reason(d.byte()), d.bool()
	for range d.count(16) {
		f.Rows = append(f.Rows, d.factRow())
	}
	f.Dead = d.factDead()
	return f
}

func appendDeadName(b []byte, l *delivery.DeadLetter) []byte {
	b = binary.AppendUvarint(b, uint64(l.Tenant))
	b = append(binary.AppendUvarint(b, uint64(l.Subscriber)), l.Event[:]...)
	return appendNano(b, l.At)
}

func appendMaybeDead(b []byte, l *delivery.DeadLetter) []byte {
	if l == nil {
		return appendBool(b, false)
	}
	return appendDeadName(appendBool(b, true), l)
}

func appendFactDead(b []byte, list []delivery.DeadLetter) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for i := range list {
		b = appendDeadName(b, &list[i])
	}
	return b
}

func (d *decoder) deadName() delivery.DeadLetter {
	tenant := d.uvarint()
	if tenant > math.MaxUint32 {
		d.fail("tenant of a dead letter")
	}
	return delivery.DeadLetter{
		Tenant:     delivery.TenantNum(tenant), //nolint:gosec // checked
		Subscriber: d.subscriber(), Event: d.eventKey(), At: d.nano(),
	}
}

func (d *decoder) maybeDead() *delivery.DeadLetter {
	if !d.bool() {
		return nil
	}
	l := d.deadName()
	return &l
}

func (d *decoder) factDead() (list []delivery.DeadLetter) {
	for range d.count(16) {
		list = append(list, d.deadName())
	}
	return list
}
