package storage

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// A dead letter has three rows, written and removed together: X with its content,
// found by the delivery's name, and two that only order it by the time of its
// death, one among those of its subscriber and one among those of its tenant. So
// lists are newest first whoever is asked for, what died before a time is a seek
// away, and retention looks at nothing that it keeps.

// diedAt is the time of death as the lists have it. A clock that was set back does
// not make a delivery die before its event was accepted.
func diedAt(at time.Time, k delivery.EventKey) time.Time {
	return milliTime(max(milliOf(at), milliOf(k.Time())))
}

func appendDiedRow(b []byte, p delivery.Partition, l *delivery.DeadLetter) []byte {
	return append(appendMilli48(appendPartSub(b, prefixDied, p, l.Subscriber), l.At), l.Event[:]...)
}

func appendTenantDeadRow(b []byte, l *delivery.DeadLetter) []byte {
	b = binary.BigEndian.AppendUint64(appendMilli48(appendTenantDead(b, l.Tenant), l.At), uint64(l.Subscriber))
	return append(b, l.Event[:]...)
}

func appendTenantDead(b []byte, t delivery.TenantNum) []byte {
	return binary.BigEndian.AppendUint32(append(b, prefixIndex, indexTenantDead), uint32(t))
}

// parseDied reads a row of a subscriber's or a tenant's list. The tenant of a
// subscriber's row is its value.
func parseDied(key, value []byte) (l delivery.DeadLetter, err error) {
	switch {
	case len(key) == diedRowLen && key[0] == prefixDied:
		l.Subscriber = delivery.SubscriberNum(binary.BigEndian.Uint64(key[3:]))
		l.At, l.Event = milli48(key[partSubLen:]), delivery.EventKey(key[partSubLen+6:])
		d := decoder{b: value}
		d.version("dead letter's index row")
		l.Tenant = delivery.TenantNum(d.uint32())
		return l, d.end("dead letter's index row")
	case len(key) == tenantDead && key[0] == prefixIndex && key[1] == indexTenantDead:
		l.Tenant = delivery.TenantNum(binary.BigEndian.Uint32(key[2:]))
		l.At, l.Subscriber = milli48(key[6:]), delivery.SubscriberNum(binary.BigEndian.Uint64(key[12:]))
		l.Event = delivery.EventKey(key[20:])
		return l, nil
	}
	return l, fmt.Errorf("dead letter's index key of %d bytes: %w", len(key), errCorrupt)
}

// name is what the lists know a dead letter by; nil if it has no copy of its event,
// which only a format before 2 wrote.
func (r *deadRow) name(key delivery.EventKey, sub delivery.SubscriberNum) *delivery.DeadLetter {
	if r.event == nil {
		return nil
	}
	return &delivery.DeadLetter{Tenant: r.event.Tenant, Subscriber: sub, Event: key, At: diedAt(r.at, key)}
}

// listDead adds a dead letter to the lists.
func (f *fold) listDead(b *pebble.Batch, l *delivery.DeadLetter) error {
	if p, ok := f.owns(l.Subscriber); ok {
		f.key = appendDiedRow(f.key[:0], p, l)
		f.val = binary.BigEndian.AppendUint32(append(f.val[:0], codecVersion), uint32(l.Tenant))
		if err := b.Set(f.key, f.val, nil); err != nil {
			return err
		}
	}
	if !f.shared() {
		return nil
	}
	f.key = appendTenantDeadRow(f.key[:0], l)
	return b.Set(f.key, nil, nil)
}

// removeDead removes a dead letter and its places in the lists; nil = there is
// none.
func (f *fold) removeDead(b *pebble.Batch, l *delivery.DeadLetter) error {
	if l == nil {
		return nil
	}
	if p, ok := f.owns(l.Subscriber); ok {
		f.key = appendDeadRow(f.key[:0], p, l.Subscriber, l.Event)
		if err := b.Delete(f.key, nil); err != nil {
			return err
		}
	}
	return f.unlistDead(b, l)
}

// unlistDead removes a dead letter from the lists.
func (f *fold) unlistDead(b *pebble.Batch, l *delivery.DeadLetter) error {
	if p, ok := f.owns(l.Subscriber); ok {
		f.key = appendDiedRow(f.key[:0], p, l)
		if err := b.Delete(f.key, nil); err != nil {
			return err
		}
	}
	if !f.shared() {
		return nil
	}
	f.key = appendTenantDeadRow(f.key[:0], l)
	return b.Delete(f.key, nil)
}

// deadOf reads up to limit dead letters of a subscriber, the oldest first.
func (c *committer) deadOf(sub delivery.SubscriberNum, limit int) (list []delivery.DeadLetter, err error) {
	prefix := appendPartSub(nil, prefixDied, delivery.PartitionOf(sub, c.meta.partitions), sub)
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keyAfter(prefix)})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for ok := it.First(); ok && len(list) < limit; ok = it.Next() {
		l, err := parseDied(it.Key(), it.Value())
		if err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, it.Error()
}
