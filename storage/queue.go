package storage

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func (s *Store) partition(sub delivery.SubscriberNum) delivery.Partition {
	return delivery.PartitionOf(sub, s.partitions)
}

// Ready returns up to limit rows of one lane of a subscriber's queue whose
// sequence is above after, in order.
func (s *Store) Ready(sub delivery.SubscriberNum, lane delivery.Priority, after delivery.Seq, limit int) (rows []delivery.Row, err error) {
	err = s.view(func(db *pebble.DB) error {
		p := s.partition(sub)
		from, end := s.heads.span(queueRef{prefixReady, p, sub, uint64(lane)}, headAt{seq: uint64(after + 1)})
		rows, err = readRows(db, from, end, limit, leaseKey(p, sub, delivery.PlaceReady, uint64(lane)))
		return err
	})
	return rows, wrapRead("ready rows", sub, err)
}

// Retrying returns up to limit rows of a subscriber that wait for a due time and
// stand after (afterDue, afterSeq), by due time and sequence.
func (s *Store) Retrying(sub delivery.SubscriberNum, afterDue time.Time, afterSeq delivery.Seq, limit int) (rows []delivery.Row, err error) {
	err = s.view(func(db *pebble.DB) error {
		p := s.partition(sub)
		from, end := s.heads.span(queueRef{prefixRetry, p, sub, 0}, headAt{milliOf(afterDue), uint64(afterSeq + 1)})
		rows, err = readRows(db, from, end, limit, leaseKey(p, sub, delivery.PlaceRetry, 0))
		return err
	})
	return rows, wrapRead("retrying rows", sub, err)
}

// Parked returns up to limit rows that wait behind their ordering key and whose
// sequence is above after, in order.
func (s *Store) Parked(sub delivery.SubscriberNum, key delivery.KeyHash, after delivery.Seq, limit int) (rows []delivery.Row, err error) {
	err = s.view(func(db *pebble.DB) error {
		p := s.partition(sub)
		from, end := s.heads.span(queueRef{prefixParked, p, sub, uint64(key)}, headAt{seq: uint64(after + 1)})
		rows, err = readRows(db, from, end, limit, leaseKey(p, sub, delivery.PlaceParked, uint64(key)))
		return err
	})
	return rows, wrapRead("parked rows", sub, err)
}

func wrapRead(what string, sub delivery.SubscriberNum, err error) error {
	if err != nil {
		return fmt.Errorf("%s of subscriber %d: %w", what, sub, err)
	}
	return nil
}

func leaseKey(p delivery.Partition, sub delivery.SubscriberNum, place delivery.Place, which uint64) []byte {
	return appendLeaseRow(make([]byte, 0, partSubLen+9), p, sub, place, which)
}

// readRows reads the rows in [from, end) and fills in which of them were handed
// out. It begins right at from, so what was consumed before it costs nothing; see
// [heads] for what was consumed since the caller began at the beginning.
func readRows(db *pebble.DB, from, end []byte, limit int, lease []byte) ([]delivery.Row, error) {
	if limit <= 0 {
		return nil, nil
	}
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: end})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	var rows []delivery.Row
	for ok := it.First(); ok && len(rows) < limit; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, err
		}
		row, err := decodeRow(it.Key(), v)
		if err != nil {
			return nil, err
		}
		if rows == nil {
			rows = make([]delivery.Row, 0, min(limit, 32))
		}
		rows = append(rows, row)
	}
	if err := it.Error(); err != nil || len(rows) == 0 || lease == nil {
		return rows, err
	}
	// Read after the rows: a watermark that is newer than they are covers no row
	// too many, since rows that came later have a higher sequence.
	v, ok, err := getFrom(db, lease)
	if err != nil || !ok {
		return rows, err
	}
	marks, err := decodeWatermarks(nil, v)
	if err != nil {
		return nil, err
	}
	for i := range rows {
		rows[i].LeasedBy = leasedBy(&rows[i], marks)
	}
	return rows, nil
}

// Blocked returns the head of a blocked ordering key: the First of the row that
// must finish before any other of the key.
func (s *Store) Blocked(sub delivery.SubscriberNum, key delivery.KeyHash) (head delivery.Seq, ok bool, err error) {
	err = s.view(func(db *pebble.DB) error {
		v, has, err := getFrom(db, appendBlockedRow(nil, s.partition(sub), sub, key))
		if err != nil || !has {
			return err
		}
		d := decoder{b: v}
		d.version("blocked key")
		head, ok = delivery.Seq(d.uvarint()), true
		return d.end("blocked key")
	})
	return head, ok, wrapRead("blocked key", sub, err)
}

// BlockedKeys returns up to limit of a subscriber's blocked ordering keys.
func (s *Store) BlockedKeys(sub delivery.SubscriberNum, limit int) (keys []delivery.KeyHash, err error) {
	err = s.view(func(db *pebble.DB) error {
		prefix := appendPartSub(nil, prefixBlocked, s.partition(sub), sub)
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keyAfter(prefix)})
		if err != nil {
			return err
		}
		defer it.Close()
		for ok := it.First(); ok && len(keys) < limit; ok = it.Next() {
			if len(it.Key()) != partSubLen+8 {
				return errCorrupt
			}
			keys = append(keys, delivery.KeyHash(binary.BigEndian.Uint64(it.Key()[partSubLen:])))
		}
		return it.Error()
	})
	return keys, wrapRead("blocked keys", sub, err)
}

// Health returns what an actor must remember about a subscriber, and whether
// there is anything.
func (s *Store) Health(sub delivery.SubscriberNum) (h delivery.Health, ok bool, err error) {
	v, ok, err := s.get(appendPartSub(nil, prefixHealth, s.partition(sub), sub))
	if err == nil && ok {
		h, err = decodeHealth(v)
	}
	return h, ok, wrapRead("health", sub, err)
}

// backlogChunk is how many subscribers are read with one look at the database,
// so that a slow consumer holds no files.
const backlogChunk = 128

// Backlogs returns the subscribers that have rows in the queue or parked, each
// once. It seeks from one to the next, so it costs one step per subscriber and
// nothing per row, and it can be left at any time.
func (s *Store) Backlogs(ctx context.Context) iter.Seq2[delivery.SubscriberNum, error] {
	return func(yield func(delivery.SubscriberNum, error) bool) {
		var cursor [partSubLen - 1]byte // partition and subscriber to begin with
		for more := true; more; {
			var subs []delivery.SubscriberNum
			err := ctx.Err()
			if err == nil {
				err = s.view(func(db *pebble.DB) error {
					subs, more, err = backlogs(db, &cursor)
					return err
				})
			}
			if err != nil {
				yield(0, fmt.Errorf("backlogs: %w", err))
				return
			}
			for _, sub := range subs {
				if !yield(sub, nil) {
					return
				}
			}
		}
	}
}

// backlogs reads the next subscribers from the cursor on, out of two runs of
// keys in the same order, and moves it behind them.
func backlogs(db *pebble.DB, cursor *[partSubLen - 1]byte) (subs []delivery.SubscriberNum, more bool, err error) {
	var its [2]*pebble.Iterator
	for i, prefix := range [...]byte{prefixReady, prefixParked} {
		its[i], err = db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefix}, UpperBound: []byte{prefix + 1}})
		if err != nil {
			return nil, false, err
		}
		defer its[i].Close()
	}
	seek := func(i int, from []byte) []byte {
		key := append([]byte{[2]byte{prefixReady, prefixParked}[i]}, from...)
		if !its[i].SeekGE(key) || len(its[i].Key()) < partSubLen {
			return nil
		}
		return append([]byte(nil), its[i].Key()[1:partSubLen]...)
	}
	next := [2][]byte{seek(0, cursor[:]), seek(1, cursor[:])}
	for len(subs) < backlogChunk {
		head := next[0]
		if head == nil || next[1] != nil && string(next[1]) < string(head) {
			head = next[1]
		}
		if head == nil {
			break
		}
		subs = append(subs, delivery.SubscriberNum(binary.BigEndian.Uint64(head[2:])))
		after := keyAfter(head)
		if after == nil { // the last key there can be
			next = [2][]byte{}
			break
		}
		copy(cursor[:], append(after, make([]byte, len(head)-len(after))...))
		for i := range next {
			if string(next[i]) == string(head) {
				next[i] = seek(i, cursor[:])
			}
		}
	}
	for _, it := range its {
		if err := it.Error(); err != nil {
			return nil, false, err
		}
	}
	return subs, next[0] != nil || next[1] != nil, nil
}
