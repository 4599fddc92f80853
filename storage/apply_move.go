package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// moved folds what became of a row: it leaves its place, its timeline grows,
// and it stands elsewhere, or is a dead letter, or is finished.
func (f *fold) moved(b *pebble.Batch, pos delivery.Position, x *delivery.Moved) error {
	if x.Next == delivery.NextDelivered || x.Next == delivery.NextDead || x.Next == delivery.NextCanceled {
		f.count(x.Row.Event, -1)
	}
	if x.Next == delivery.NextDead {
		if x.Copy == nil {
			return fmt.Errorf("dead letter of subscriber %d without its event: %w", x.Row.Subscriber, errBadFact)
		}
		if err := f.listDead(b, &delivery.DeadLetter{
			Tenant: x.Copy.Tenant, Subscriber: x.Row.Subscriber, Event: x.Row.Event, At: diedAt(x.At, x.Row.Event),
		}); err != nil {
			return err
		}
	}
	p, ok := f.owns(x.Row.Subscriber)
	if !ok {
		return nil
	}
	if err := f.removeRow(b, p, &x.Row); err != nil {
		return err
	}
	// A row that only steps behind its key says nothing about its delivery, unless
	// somebody will want to know what it waits for.
	if x.Next != delivery.NextParked || x.Attempt != nil || x.Prior != nil || x.Note != "" {
		f.val = appendMoved(f.val[:0], x)
		if err := f.timeline(b, p, x.Row.Subscriber, x.Row.Event); err != nil {
			return err
		}
	}
	if err := f.movedTo(b, p, pos, x); err != nil {
		return err
	}
	return f.block(b, p, x)
}

func (f *fold) movedTo(b *pebble.Batch, p delivery.Partition, pos delivery.Position, x *delivery.Moved) error {
	row := x.Row
	row.Seq, row.LeasedBy, row.Attempts = pos, 0, attemptsAfter(x)
	switch x.Next {
	case delivery.NextDelivered, delivery.NextCanceled:
		return nil
	case delivery.NextRetry:
		row.Place, row.Due = delivery.PlaceRetry, milliTime(milliOf(x.Due))
		return f.putRow(b, p, &row)
	case delivery.NextParked:
		row.Place, row.Due = delivery.PlaceParked, milliTime(0)
		return f.putRow(b, p, &row)
	case delivery.NextDead:
		return f.putDead(b, p, x)
	default:
		return fmt.Errorf("row of subscriber %d: unknown next %d", row.Subscriber, x.Next)
	}
}

func (f *fold) putDead(b *pebble.Batch, p delivery.Partition, x *delivery.Moved) error {
	f.key = appendDeadRow(f.key[:0], p, x.Row.Subscriber, x.Row.Event)
	f.val = appendDead(f.val[:0], x)
	op := b.SetDeferred(len(f.key), len(f.val)+len(x.Copy.Payload))
	copy(op.Key, f.key)
	copy(op.Value[copy(op.Value, f.val):], x.Copy.Payload)
	return op.Finish()
}

// block keeps B and the watermark of the key's parked rows.
func (f *fold) block(b *pebble.Batch, p delivery.Partition, x *delivery.Moved) error {
	sub, key := x.Row.Subscriber, x.Row.Key
	if x.Block {
		f.key = appendBlockedRow(f.key[:0], p, sub, key)
		f.val = binary.AppendUvarint(append(f.val[:0], codecVersion), uint64(x.Row.First))
		return b.Set(f.key, f.val, nil)
	}
	if !x.Unblock {
		return nil
	}
	f.key = appendBlockedRow(f.key[:0], p, sub, key)
	if err := b.Delete(f.key, nil); err != nil {
		return err
	}
	f.key = appendLeaseRow(f.key[:0], p, sub, delivery.PlaceParked, uint64(key))
	return b.Delete(f.key, nil)
}

// replayed folds a finished delivery's return to the tail of the queue.
func (f *fold) replayed(b *pebble.Batch, pos delivery.Position, x *delivery.Replayed) error {
	f.count(x.Event, 1)
	if x.Copy != nil && f.shared() {
		// Whom else the event was for went with its row; the list starts again.
		targets := [1]delivery.Target{{Subscriber: x.Subscriber, Lane: x.Lane, Key: x.Key}}
		if err := f.putEvent(b, x.Copy, targets[:]); err != nil {
			return err
		}
	}
	if err := f.removeDead(b, x.Dead); err != nil {
		return err
	}
	p, ok := f.owns(x.Subscriber)
	if !ok {
		return nil
	}
	row := delivery.Row{
		Subscriber: x.Subscriber, Event: x.Event, Lane: x.Lane, Seq: pos, Key: x.Key,
		Attempts: x.Attempts, Replayed: true, Base: x.Attempts, First: pos, EnteredAt: x.At,
	}
	if err := f.putRow(b, p, &row); err != nil {
		return err
	}
	f.val = appendReplayed(f.val[:0], x)
	return f.timeline(b, p, x.Subscriber, x.Event)
}

func (f *fold) purged(b *pebble.Batch, x *delivery.Purged) error {
	if err := f.removeDead(b, x.Dead); err != nil {
		return err
	}
	p, ok := f.owns(x.Subscriber)
	if !ok {
		return nil
	}
	f.val = appendPurged(f.val[:0], x)
	return f.timeline(b, p, x.Subscriber, x.Event)
}

// expunged removes an event's payload everywhere and says so on the timelines.
// Pending rows stay: whoever takes one finds the event gone and cancels the
// delivery.
func (f *fold) expunged(b *pebble.Batch, x *delivery.Expunged) error {
	if f.shared() {
		f.key = appendEventRow(f.key[:0], x.Event)
		if err := b.Delete(f.key, nil); err != nil {
			return err
		}
	}
	for _, sub := range x.Targets {
		p, ok := f.owns(sub)
		if !ok {
			continue
		}
		f.key = appendDeadRow(f.key[:0], p, sub, x.Event)
		if err := b.Delete(f.key, nil); err != nil {
			return err
		}
		if x.Reason == delivery.ReasonTenantDeleted {
			continue // nobody will ask, and its subscribers' timelines say it
		}
		f.val = appendExpunged(f.val[:0], x)
		if err := f.timeline(b, p, sub, x.Event); err != nil {
			return err
		}
	}
	return f.removeDeads(b, x.Dead)
}

func (f *fold) removeDeads(b *pebble.Batch, list []delivery.DeadLetter) error {
	for i := range list {
		if err := f.removeDead(b, &list[i]); err != nil {
			return err
		}
	}
	return nil
}

// dropped cancels the rows of a deleted subscriber; the last fact also removes
// what is not a row.
func (f *fold) dropped(b *pebble.Batch, x *delivery.Dropped) error {
	for i := range x.Rows {
		f.count(x.Rows[i].Event, -1)
	}
	if err := f.removeDeads(b, x.Dead); err != nil {
		return err
	}
	p, ok := f.owns(x.Subscriber)
	if !ok {
		return nil
	}
	for i := range x.Rows {
		row := x.Rows[i]
		row.Subscriber = x.Subscriber
		if err := f.removeRow(b, p, &row); err != nil {
			return err
		}
		f.val = appendDropped(f.val[:0], x)
		if err := f.timeline(b, p, x.Subscriber, row.Event); err != nil {
			return err
		}
	}
	if !x.Last {
		return nil
	}
	for _, prefix := range [...]byte{prefixBlocked, prefixLease, prefixHealth, prefixDead, prefixDied} {
		f.key = appendPartSub(f.key[:0], prefix, p, x.Subscriber)
		if err := b.DeleteRange(f.key, keyAfter(f.key), nil); err != nil {
			return err
		}
	}
	return nil
}
