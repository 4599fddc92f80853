package storage

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Consumed rows leave tombstones behind, and whoever reads a queue from its head
// wades through them until a compaction comes by. The sweeper counts what is
// consumed in each queue and covers the dead part in front of the first live row
// with one range delete, every sweepAfter rows.
//
// It changes no visible row, so it is no fact: a store rebuilt from its facts has
// the same rows without it. It looks at the database before anything is added to
// a batch, and its deletes come first in that batch, so rows written later, in
// the same batch too, are out of its reach.
type sweeper struct {
	partitions int
	counts     map[queueRef]int
	due        []queueRef
	key        []byte
}

// sweepAfter bounds how many tombstones stand before a queue's head; maxCounted
// bounds the memory (counting starts afresh when it is reached).
const (
	sweepAfter = 4096
	maxCounted = 1 << 16
)

// queueRef names a run of rows that is read in order from its head.
type queueRef struct {
	prefix byte
	part   delivery.Partition
	sub    delivery.SubscriberNum
	which  uint64 // lane of Q, key of K
}

// consumed counts the rows that a fact removes.
func (s *sweeper) consumed(fact delivery.Fact) {
	switch f := fact.(type) {
	case *delivery.Moved:
		s.count(&f.Row)
	case *delivery.Dropped:
		for i := range f.Rows {
			s.count(&f.Rows[i])
		}
	}
}

func (s *sweeper) count(r *delivery.Row) {
	p := delivery.PartitionOf(r.Subscriber, s.partitions)
	switch r.Place {
	case delivery.PlaceReady:
		s.bump(queueRef{prefixReady, p, r.Subscriber, uint64(r.Lane)})
	case delivery.PlaceRetry:
		s.bump(queueRef{prefixRetry, p, r.Subscriber, 0})
		s.bump(queueRef{prefix: prefixWake, part: p})
	case delivery.PlaceParked:
		s.bump(queueRef{prefixParked, p, r.Subscriber, uint64(r.Key)})
	}
}

func (s *sweeper) bump(ref queueRef) {
	if s.counts == nil || len(s.counts) >= maxCounted {
		s.counts = map[queueRef]int{}
	}
	s.counts[ref]++
	if s.counts[ref] == sweepAfter {
		delete(s.counts, ref)
		s.due = append(s.due, ref)
	}
}

func (s *sweeper) appendPrefix(b []byte, ref queueRef) []byte {
	switch ref.prefix {
	case prefixWake:
		return appendPart(b, prefixWake, ref.part)
	case prefixReady:
		return append(appendPartSub(b, prefixReady, ref.part, ref.sub), byte(ref.which))
	case prefixParked:
		return binary.BigEndian.AppendUint64(appendPartSub(b, prefixParked, ref.part, ref.sub), ref.which)
	default:
		return appendPartSub(b, ref.prefix, ref.part, ref.sub)
	}
}

// run puts the range deletes that are due into a batch that is still empty.
func (s *sweeper) run(db *pebble.DB, b *pebble.Batch) error {
	for _, ref := range s.due {
		s.key = s.appendPrefix(s.key[:0], ref)
		if err := coverDead(db, b, s.key); err != nil {
			return err
		}
	}
	s.due = s.due[:0]
	return nil
}

// coverDead deletes what lies under a prefix before its first live row.
func coverDead(db *pebble.DB, b *pebble.Batch, prefix []byte) error {
	end := keyAfter(prefix)
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: end})
	if err != nil {
		return err
	}
	if it.First() {
		end = append([]byte(nil), it.Key()...)
	}
	if err := it.Close(); err != nil {
		return err
	}
	return b.DeleteRange(prefix, end, nil)
}
