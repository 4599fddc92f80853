package storage

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Consumed rows leave tombstones behind, and whoever reads a queue from its head
// wades through them until a compaction comes by. The sweeper counts what is
// consumed in each queue. Every lookAfter rows it looks for the first live one and
// tells [heads], where readers begin; now and then it also covers the dead part
// with one range delete, for readers after a restart and so that
// compactions drop it as a whole.
//
// It changes no visible row, so it is no fact: a store rebuilt from its facts has
// the same rows without it. It looks at the database before anything is added to
// a batch, and its deletes come first in that batch, so rows written later, in
// the same batch too, are out of its reach.
type sweeper struct {
	partitions int
	lookAfter  int
	heads      *heads
	counts     map[queueRef]int
	due        []dueSweep
	key        []byte
}

type dueSweep struct {
	ref   queueRef
	cover bool
}

// lookAfter bounds how many consumed rows a reader meets before a queue's head. A
// range delete covers those of coverLooks looks. maxCounted bounds the memory
// (counting starts afresh when it is reached).
const (
	lookAfter  = 512
	coverLooks = 8
	maxCounted = 1 << 16
)

// queueRef names a run of rows that is read in order from its head.
type queueRef struct {
	prefix byte
	part   delivery.Partition
	sub    delivery.SubscriberNum
	which  uint64 // lane of Q, key of K
}

// appendPrefix appends what the keys of all rows of the run begin with.
func (ref queueRef) appendPrefix(b []byte) []byte {
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

// refOf is the run that a row stands in.
func refOf(p delivery.Partition, r *delivery.Row) queueRef {
	switch r.Place {
	case delivery.PlaceReady:
		return queueRef{prefixReady, p, r.Subscriber, uint64(r.Lane)}
	case delivery.PlaceRetry:
		return queueRef{prefixRetry, p, r.Subscriber, 0}
	default:
		return queueRef{prefixParked, p, r.Subscriber, uint64(r.Key)}
	}
}

// applied hears of every fact that goes into a batch, at its position.
func (s *sweeper) applied(pos delivery.Position, fact delivery.Fact) {
	switch f := fact.(type) {
	case *delivery.Published:
		for i := range f.Targets {
			if t := &f.Targets[i]; !t.Due.IsZero() {
				s.waits(t.Subscriber, headAt{milliOf(t.Due), uint64(pos)})
			}
		}
	case *delivery.Moved:
		s.consumed(&f.Row)
		if f.Next == delivery.NextRetry {
			s.waits(f.Row.Subscriber, headAt{milliOf(f.Due), uint64(pos)})
		}
	case *delivery.Dropped:
		for i := range f.Rows {
			s.consumed(&f.Rows[i])
		}
	}
}

// waits hears of a row that will wait for a due time: the only kind that can
// come to stand before others.
func (s *sweeper) waits(sub delivery.SubscriberNum, at headAt) {
	s.heads.lower(queueRef{prefixRetry, delivery.PartitionOf(sub, s.partitions), sub, 0}, at)
}

func (s *sweeper) consumed(r *delivery.Row) {
	p := delivery.PartitionOf(r.Subscriber, s.partitions)
	s.bump(refOf(p, r))
	if r.Place == delivery.PlaceRetry {
		s.bump(queueRef{prefix: prefixWake, part: p})
	}
}

func (s *sweeper) bump(ref queueRef) {
	if s.counts == nil || len(s.counts) >= maxCounted {
		s.counts = map[queueRef]int{}
	}
	n := s.counts[ref] + 1
	cover := n == coverLooks*s.lookAfter
	if cover {
		delete(s.counts, ref)
	} else {
		s.counts[ref] = n
	}
	if !cover && (n%s.lookAfter != 0 || ref.prefix == prefixWake) {
		return
	}
	if last := len(s.due) - 1; last >= 0 && s.due[last].ref == ref {
		s.due[last].cover = s.due[last].cover || cover
		return
	}
	s.due = append(s.due, dueSweep{ref, cover})
}

// run does what is due, into a batch that is still empty. Everything below the
// position next has been applied.
func (s *sweeper) run(db *pebble.DB, b *pebble.Batch, next delivery.Position) error {
	for _, d := range s.due {
		if err := s.sweep(db, b, d, next); err != nil {
			return err
		}
	}
	s.due = s.due[:0]
	return nil
}

// sweep finds the first live row of a run and deletes what lies before it.
func (s *sweeper) sweep(db *pebble.DB, b *pebble.Batch, d dueSweep, next delivery.Position) error {
	from, end := s.heads.span(d.ref, headAt{})
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: end})
	if err != nil {
		return err
	}
	if it.First() {
		end = append([]byte(nil), it.Key()...)
		s.heads.raise(d.ref, headOf(d.ref, end))
	} else if it.Error() == nil {
		s.heads.raise(d.ref, headOfEmpty(d.ref, next))
	}
	if err := it.Close(); err != nil || !d.cover {
		return err
	}
	s.key = d.ref.appendPrefix(s.key[:0])
	return b.DeleteRange(s.key, end, nil)
}
