package storage

import (
	"encoding/binary"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// deadRow is the value of a dead letter: why it died, and its own copy of the
// event, which outlives the event's row.
type deadRow struct {
	at        time.Time
	reason    delivery.Reason
	attempts  int
	signature string
	event     *delivery.Event // nil only in what a format before 2 left
}

// appendDead encodes
//
//	version, at, reason, attempts, signature, has event, [event head, payload]
//
// The payload is left to the caller, so that it is copied once.
func appendDead(b []byte, f *delivery.Moved) []byte {
	b = appendNano(append(b, codecVersion), f.At)
	b = appendInt(append(b, byte(f.Reason)), attemptsAfter(f))
	b = appendString(b, f.Signature)
	b = appendBool(b, f.Copy != nil)
	if f.Copy != nil {
		b = appendEventHead(b, f.Copy)
	}
	return b
}

// decodeDead reads a dead letter. The payload is a copy; without payload it is
// left out.
func decodeDead(key delivery.EventKey, value []byte, payload bool) (deadRow, error) {
	d := decoder{b: value}
	d.version("dead letter")
	r := deadRow{at: d.nano(), reason: delivery.Reason(d.byte()), attempts: d.int(), signature: d.string()}
	if d.bool() {
		r.event = d.eventHead(key)
		d.payload(r.event, payload)
	}
	return r, d.end("dead letter")
}

// dedupeRow is what is known about an id inside its bucket.
type dedupeRow struct {
	event      delivery.EventKey
	content    [16]byte
	deliveries int
	source     string
	id         string // as the publisher gave it
	public     string // the event's, "" = the same
}

// appendDedupe encodes
//
//	version, event, content, deliveries, source, id, public id
func appendDedupe(b []byte, r *dedupeRow) []byte {
	b = append(append(b, codecVersion), r.event[:]...)
	b = append(b, r.content[:]...)
	b = binary.AppendUvarint(b, uint64(r.deliveries)) //nolint:gosec // a length
	return appendString(appendString(appendString(b, r.source), r.id), r.public)
}

func decodeDedupe(value []byte) (dedupeRow, error) {
	d := decoder{b: value}
	d.version("dedupe row")
	r := dedupeRow{event: d.eventKey()}
	copy(r.content[:], d.fixed(len(r.content)))
	n := d.uvarint()
	if n > 1<<31 {
		d.fail("number of deliveries")
	}
	r.deliveries = int(n) //nolint:gosec // checked
	r.source, r.id, r.public = d.string(), d.string(), d.string()
	return r, d.end("dedupe row")
}

// appendHealth encodes
//
//	version, breaker, open until, opens, consecutive, failing since, last success
func appendHealth(b []byte, h *delivery.Health) []byte {
	b = append(b, codecVersion, byte(h.Breaker))
	b = appendNano(b, h.OpenUntil)
	b = appendInt(appendInt(b, h.Opens), h.Consecutive)
	return appendNano(appendNano(b, h.FailingSince), h.LastSuccess)
}

func (d *decoder) health() delivery.Health {
	d.version("health")
	return delivery.Health{
		Breaker: delivery.BreakerState(d.byte()), OpenUntil: d.nano(), Opens: d.int(),
		Consecutive: d.int(), FailingSince: d.nano(), LastSuccess: d.nano(),
	}
}

func decodeHealth(value []byte) (delivery.Health, error) {
	d := decoder{b: value}
	h := d.health()
	return h, d.end("health")
}

// appendCounter encodes a difference of an open counter, or a counter.
func appendCounter(b []byte, n int64) []byte {
	return binary.AppendVarint(append(b, codecVersion), n)
}

func decodeCounter(value []byte) (int64, error) {
	d := decoder{b: value}
	d.version("open counter")
	n := d.varint()
	return n, d.end("open counter")
}
