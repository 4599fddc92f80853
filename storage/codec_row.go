package storage

import (
	"encoding/binary"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Flags of a row value. What a key or the event key says already is left out.
const (
	rowReplayed byte = 1 << iota
	rowHasAttempts
	rowHasKey
	rowHasFirst   // it is not the row's own sequence
	rowHasEntered // it is not the time in the event key
	rowHasLeased
	rowHasLane // a lane other than normal that the key does not say (R, K)
	rowHasBase
)

// appendRow encodes what a row's key does not say:
//
//	version, flags, event, [attempts], [key], [first], [entered], [epoch], [lane],
//	[base]
func appendRow(b []byte, r *delivery.Row) []byte {
	var flags byte
	if r.Replayed {
		flags |= rowReplayed
	}
	if r.Attempts != 0 {
		flags |= rowHasAttempts
	}
	if r.Key != 0 && r.Place != delivery.PlaceParked {
		flags |= rowHasKey
	}
	if r.First != r.Seq {
		flags |= rowHasFirst
	}
	if milliOf(r.EnteredAt) != milliOf(r.Event.Time()) {
		flags |= rowHasEntered
	}
	if r.LeasedBy != 0 {
		flags |= rowHasLeased
	}
	if r.Place != delivery.PlaceReady && r.Lane != delivery.PriorityNormal {
		flags |= rowHasLane
	}
	if r.Base != 0 {
		flags |= rowHasBase
	}
	b = append(b, codecVersion, flags)
	b = append(b, r.Event[:]...)
	if flags&rowHasAttempts != 0 {
		b = appendInt(b, r.Attempts)
	}
	if flags&rowHasKey != 0 {
		b = binary.BigEndian.AppendUint64(b, uint64(r.Key))
	}
	if flags&rowHasFirst != 0 {
		b = binary.AppendUvarint(b, uint64(r.First))
	}
	if flags&rowHasEntered != 0 {
		b = appendMilli(b, r.EnteredAt)
	}
	if flags&rowHasLeased != 0 {
		b = binary.AppendUvarint(b, uint64(r.LeasedBy))
	}
	if flags&rowHasLane != 0 {
		b = append(b, byte(r.Lane))
	}
	if flags&rowHasBase != 0 {
		b = appendInt(b, r.Base)
	}
	return b
}

// decodeRow reads a queue row from its key and value.
func decodeRow(key, value []byte) (delivery.Row, error) {
	var r delivery.Row
	if err := parsePlace(key, &r); err != nil {
		return delivery.Row{}, err
	}
	d := decoder{b: value}
	d.version("row")
	flags := d.byte()
	r.Event = d.eventKey()
	r.Replayed = flags&rowReplayed != 0
	if flags&rowHasAttempts != 0 {
		r.Attempts = d.int()
	}
	if flags&rowHasKey != 0 {
		r.Key = delivery.KeyHash(d.uint64())
	}
	r.First = r.Seq
	if flags&rowHasFirst != 0 {
		r.First = delivery.Seq(d.uvarint())
	}
	r.EnteredAt = r.Event.Time()
	if flags&rowHasEntered != 0 {
		r.EnteredAt = d.milli()
	}
	if flags&rowHasLeased != 0 {
		r.LeasedBy = delivery.Epoch(d.uvarint())
	}
	if flags&rowHasLane != 0 && r.Place != delivery.PlaceReady {
		r.Lane = delivery.Priority(d.byte())
	}
	if flags&rowHasBase != 0 {
		r.Base = d.int()
	}
	if r.Lane >= delivery.Lanes {
		d.fail("lane")
	}
	if err := d.end("row"); err != nil {
		return delivery.Row{}, err
	}
	return r, nil
}

// watermark says that the rows at or before a point were handed out in an
// epoch. Of R, only those that stood there when it was written: a retry may
// come in at a due time that was passed already. A watermark before all rows
// takes back what its epoch has handed out.
type watermark struct {
	epoch delivery.Epoch
	due   time.Time // R only
	upTo  delivery.Seq
	pos   delivery.Position // of the fact that wrote it
}

// covers reports whether the watermark stands at or after (due, seq).
func (w watermark) covers(due time.Time, seq delivery.Seq) bool {
	if !w.due.Equal(due) {
		return w.due.After(due)
	}
	return seq <= w.upTo
}

// retracts reports whether the watermark takes back its epoch's earlier ones.
func (w watermark) retracts() bool { return w.upTo == 0 && w.due.IsZero() }

// replaces reports whether an older watermark says nothing that this one does
// not.
func (w watermark) replaces(older watermark) bool {
	if w.epoch != older.epoch {
		return false
	}
	return w.retracts() || !older.retracts() && w.covers(older.due, older.upTo)
}

// leased reports whether the watermark says that a row was handed out.
func (w watermark) leased(r *delivery.Row) bool {
	return w.covers(r.Due, r.Seq) && (r.Place != delivery.PlaceRetry || r.Seq < w.pos)
}

func appendWatermark(b []byte, w watermark) []byte {
	b = binary.AppendUvarint(b, uint64(w.epoch))
	b = appendMilli(b, w.due)
	b = binary.AppendUvarint(b, uint64(w.upTo))
	return binary.AppendUvarint(b, uint64(w.pos))
}

// decodeWatermarks appends the watermarks of one place to list, oldest first.
func decodeWatermarks(list []watermark, value []byte) ([]watermark, error) {
	d := decoder{b: value}
	d.version("watermarks")
	for d.err == nil && len(d.b) > 0 {
		list = append(list, watermark{
			epoch: delivery.Epoch(d.uvarint()), due: d.milli(),
			upTo: delivery.Seq(d.uvarint()), pos: delivery.Position(d.uvarint()),
		})
	}
	return list, d.end("watermarks")
}

// leasedBy returns the epoch a row was last handed out in, 0 = never.
func leasedBy(r *delivery.Row, marks []watermark) delivery.Epoch {
	epoch := r.LeasedBy
	for _, w := range marks {
		if w.leased(r) {
			epoch = max(epoch, w.epoch)
		}
	}
	return epoch
}
