package storage

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Apply folds what one fact means for one partition of a store with the given
// number of partitions into a batch. It is pure and deterministic: it reads
// neither the store, nor a clock, nor configuration, so the same facts at the
// same positions always give the same rows. [delivery.PartitionShared] has the
// events, dedupe rows, tenant indexes and open counters; every other partition
// has what belongs to its subscribers.
func Apply(b *pebble.Batch, partitions int, partition delivery.Partition, pos delivery.Position, fact delivery.Fact) error {
	f := fold{partitions: partitions, part: partition}
	if err := f.add(b, pos, fact); err != nil {
		return err
	}
	return f.flush(b)
}

// fold turns facts into rows. It keeps its buffers and the open counters' sums
// from fact to fact; flush writes the sums.
type fold struct {
	partitions int
	all        bool               // every partition and the shared one, else …
	part       delivery.Partition // … only this one
	key, val   []byte
	open       []openDelta
}

// openDelta is how many deliveries of an hour were opened, less those closed.
type openDelta struct {
	hour hour
	n    int64
}

func (f *fold) shared() bool { return f.all || f.part == delivery.PartitionShared }

// owns returns the partition of a subscriber, and whether it is folded.
func (f *fold) owns(sub delivery.SubscriberNum) (delivery.Partition, bool) {
	p := delivery.PartitionOf(sub, f.partitions)
	return p, f.all || p == f.part
}

// add folds one fact, except for the open counters, which flush writes.
func (f *fold) add(b *pebble.Batch, pos delivery.Position, fact delivery.Fact) error {
	switch x := fact.(type) {
	case *delivery.Published:
		return f.published(b, pos, x)
	case *delivery.Leased:
		return f.leased(b, pos, x)
	case *delivery.Moved:
		return f.moved(b, pos, x)
	case *delivery.Replayed:
		return f.replayed(b, pos, x)
	case *delivery.Purged:
		return f.purged(b, x)
	case *delivery.Expunged:
		return f.expunged(b, x)
	case *delivery.Dropped:
		return f.dropped(b, x)
	case *delivery.HealthChanged:
		p, ok := f.owns(x.Subscriber)
		if !ok {
			return nil
		}
		f.key = appendPartSub(f.key[:0], prefixHealth, p, x.Subscriber)
		f.val = appendHealth(f.val[:0], &x.Health)
		return b.Set(f.key, f.val, nil)
	}
	return fmt.Errorf("apply fact: unknown type %T", fact)
}

// flush writes the open counters' sums.
func (f *fold) flush(b *pebble.Batch) error {
	for _, d := range f.open {
		// A sum of zero is written too: the rows must not depend on what shared a
		// batch.
		f.key = appendOpenRow(f.key[:0], d.hour)
		f.val = appendCounter(f.val[:0], d.n)
		if err := b.Merge(f.key, f.val, nil); err != nil {
			return err
		}
	}
	f.open = f.open[:0]
	return nil
}

// count adds n open deliveries to the hour of an event.
func (f *fold) count(k delivery.EventKey, n int64) {
	if !f.shared() {
		return
	}
	h := hourOfEvent(k)
	for i := range f.open {
		if f.open[i].hour == h {
			f.open[i].n += n
			return
		}
	}
	f.open = append(f.open, openDelta{h, n})
}

func (f *fold) published(b *pebble.Batch, pos delivery.Position, x *delivery.Published) error {
	if f.shared() {
		if err := f.putEvent(b, x.Event, x.Targets); err != nil {
			return err
		}
		if err := f.putDedupe(b, x); err != nil {
			return err
		}
		if len(x.Targets) > 0 {
			f.count(x.Event.Key, int64(len(x.Targets)))
		}
	}
	for i := range x.Targets {
		if err := f.target(b, pos, x, &x.Targets[i]); err != nil {
			return err
		}
	}
	return nil
}

// putEvent writes the event and its entry in its tenant's index.
func (f *fold) putEvent(b *pebble.Batch, e *delivery.Event, targets []delivery.Target) error {
	f.val = appendTargets(appendEventHead(f.val[:0], e), targets)
	op := b.SetDeferred(1+len(e.Key), len(f.val)+len(e.Payload))
	appendEventRow(op.Key[:0], e.Key)
	copy(op.Value[copy(op.Value, f.val):], e.Payload)
	if err := op.Finish(); err != nil {
		return err
	}
	f.key = appendTenantEventRow(f.key[:0], e.Tenant, e.Key)
	return b.Set(f.key, nil, nil)
}

func (f *fold) putDedupe(b *pebble.Batch, x *delivery.Published) error {
	if x.Dedupe == nil {
		return nil
	}
	row := dedupeOf(x)
	f.val = appendDedupe(f.val[:0], &row)
	bucket := bucketOf(x.Event.Key.Time())
	if x.Dedupe.ID != "" {
		key := dedupeIDKey(bucket, x.Event.Tenant, x.Dedupe.Source, x.Dedupe.ID)
		if err := b.Set(key[:], f.val, nil); err != nil {
			return err
		}
	}
	if x.Dedupe.Body {
		key := dedupeBodyKey(bucket, x.Event.Tenant, x.Dedupe.Source, x.Dedupe.Content)
		return b.Set(key[:], f.val, nil)
	}
	return nil
}

// target writes one delivery: its queue row and the start of its timeline.
func (f *fold) target(b *pebble.Batch, pos delivery.Position, x *delivery.Published, t *delivery.Target) error {
	p, ok := f.owns(t.Subscriber)
	if !ok {
		return nil
	}
	row := delivery.Row{
		Subscriber: t.Subscriber, Event: x.Event.Key, Lane: t.Lane, Seq: pos, Key: t.Key,
		First: pos, EnteredAt: x.Event.Key.Time(),
	}
	if t.Leased {
		row.LeasedBy = x.Lease.Epoch
	}
	if !t.Due.IsZero() {
		row.Place, row.Due = delivery.PlaceRetry, t.Due
	}
	if err := f.putRow(b, p, &row); err != nil {
		return err
	}
	// Set, since an event's key is new: a timeline that has its beginning costs a
	// flush nothing, and what is merged into it later makes one value at once.
	f.val = appendReceived(f.val[:0], t.Leased, x.Lease)
	f.key = appendTimeRow(f.key[:0], p, t.Subscriber, x.Event.Key)
	return b.Set(f.key, f.val, nil)
}

// timeline appends f.val to a delivery's timeline.
func (f *fold) timeline(b *pebble.Batch, p delivery.Partition, sub delivery.SubscriberNum, k delivery.EventKey) error {
	f.key = appendTimeRow(f.key[:0], p, sub, k)
	return b.Merge(f.key, f.val, nil)
}

// rowKey puts the key of a row into f.key.
func (f *fold) rowKey(p delivery.Partition, r *delivery.Row) error {
	switch r.Place {
	case delivery.PlaceReady:
		f.key = appendReadyRow(f.key[:0], p, r.Subscriber, r.Lane, r.Seq)
	case delivery.PlaceRetry:
		f.key = appendRetryRow(f.key[:0], p, r.Subscriber, r.Due, r.Seq)
	case delivery.PlaceParked:
		f.key = appendParkedRow(f.key[:0], p, r.Subscriber, r.Key, r.Seq)
	default:
		return fmt.Errorf("row of subscriber %d: unknown place %d", r.Subscriber, r.Place)
	}
	return nil
}

// putRow writes a row where it says it stands. Its sequence must be fresh: no
// key of Q, R, K and W is ever written twice.
func (f *fold) putRow(b *pebble.Batch, p delivery.Partition, r *delivery.Row) error {
	if err := f.rowKey(p, r); err != nil {
		return err
	}
	f.val = appendRow(f.val[:0], r)
	if err := b.Set(f.key, f.val, nil); err != nil {
		return err
	}
	if r.Place != delivery.PlaceRetry {
		return nil
	}
	f.key = appendWakeRow(f.key[:0], p, r.Due, r.Subscriber, r.Seq)
	return b.Set(f.key, nil, nil)
}

// removeRow removes a row. SingleDelete is legal because its key was written
// exactly once.
func (f *fold) removeRow(b *pebble.Batch, p delivery.Partition, r *delivery.Row) error {
	if err := f.rowKey(p, r); err != nil {
		return err
	}
	if err := b.SingleDelete(f.key, nil); err != nil {
		return err
	}
	if r.Place != delivery.PlaceRetry {
		return nil
	}
	f.key = appendWakeRow(f.key[:0], p, r.Due, r.Subscriber, r.Seq)
	return b.SingleDelete(f.key, nil)
}

func (f *fold) leased(b *pebble.Batch, pos delivery.Position, x *delivery.Leased) error {
	p, ok := f.owns(x.Subscriber)
	if !ok {
		return nil
	}
	mark := watermark{epoch: x.Lease.Epoch, due: milliTime(milliOf(x.Due)), upTo: x.UpTo, pos: pos}
	f.key = appendLeaseRow(f.key[:0], p, x.Subscriber, x.Place, leaseSpan(x.Place, x.Lane, x.Key))
	f.val = appendWatermark(append(f.val[:0], codecVersion), mark)
	return b.Merge(f.key, f.val, nil)
}

// leaseSpan names which rows of a place a watermark is about.
func leaseSpan(place delivery.Place, lane delivery.Priority, key delivery.KeyHash) uint64 {
	switch place {
	case delivery.PlaceReady:
		return uint64(lane)
	case delivery.PlaceParked:
		return uint64(key)
	default:
		return 0
	}
}

// Dedupe rows lie in buckets of this length, so that a window of the same length
// is answered by two of them, and the past is dropped as a range.
const (
	dedupeBucket      = 4 * day
	dedupeBucketMilli = uint64(dedupeBucket / time.Millisecond)
)

// dedupeKey is bucket, tenant and a hash. The hash is cryptographic, since ids
// come from outside: with one that can be made to collide, a stranger could hide
// an event behind another.
type dedupeKey [1 + 2 + 4 + 16]byte

func dedupeKeyOf(bucket uint16, tenant delivery.TenantNum, hash [32]byte) (k dedupeKey) {
	k[0] = prefixDedupe
	binary.BigEndian.PutUint16(k[1:], bucket)
	binary.BigEndian.PutUint32(k[3:], uint32(tenant))
	copy(k[7:], hash[:])
	return k
}
