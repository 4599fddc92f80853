package storage

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Counted is how many rows of one kind a subscriber has, or a part of them.
type Counted struct {
	Subscriber delivery.SubscriberNum
	// Place is where they wait; dead letters have none.
	Place delivery.Place
	Dead  bool
	Rows  int64
	// Oldest is when the oldest of them was accepted; zero for dead letters.
	Oldest time.Time
}

// censusChunk is how many rows are read with one look at the database.
const censusChunk = 4096

// Census counts everything that waits and every dead letter, subscriber by
// subscriber. It costs a step per row, so it is for a background that may take its
// time: between looks at the database it calls pace, which may wait, and it holds
// nothing meanwhile. What moves while it counts is counted once, twice or not at
// all. A subscriber with many rows comes in several parts.
func (s *Store) Census(ctx context.Context, pace func(ctx context.Context) error, each func(Counted)) error {
	for _, prefix := range [...]byte{prefixReady, prefixRetry, prefixParked, prefixDead} {
		for from := []byte{prefix}; from != nil; {
			err := s.view(func(db *pebble.DB) (err error) {
				from, err = census(db, from, prefix, each)
				return err
			})
			if err == nil && from != nil {
				err = pace(ctx)
			}
			if err != nil {
				return fmt.Errorf("census: %w", err)
			}
		}
	}
	return nil
}

// census counts the next rows of a kind and returns where to go on, nil at the
// end.
func census(db *pebble.DB, from []byte, prefix byte, each func(Counted)) ([]byte, error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: []byte{prefix + 1}})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	var c Counted
	flush := func() {
		if c.Rows > 0 {
			each(c)
		}
	}
	rows := 0
	for ok := it.First(); ok; ok = it.Next() {
		key := it.Key()
		if len(key) < partSubLen {
			return nil, fmt.Errorf("key of %d bytes: %w", len(key), errCorrupt)
		}
		if rows++; rows > censusChunk {
			flush()
			return append([]byte(nil), key...), nil
		}
		sub := delivery.SubscriberNum(binary.BigEndian.Uint64(key[3:]))
		if sub != c.Subscriber {
			flush()
			c = Counted{Subscriber: sub, Place: places[prefix], Dead: prefix == prefixDead}
		}
		c.Rows++
		if at, ok := acceptedAt(it, prefix); ok && (c.Oldest.IsZero() || at.Before(c.Oldest)) {
			c.Oldest = at
		}
	}
	flush()
	return nil, it.Error()
}

var places = map[byte]delivery.Place{
	prefixReady: delivery.PlaceReady, prefixRetry: delivery.PlaceRetry, prefixParked: delivery.PlaceParked,
}

// acceptedAt reads the time out of the event key in a waiting row's value, behind
// version and flags. A damaged value counts as a row without a time.
func acceptedAt(it *pebble.Iterator, prefix byte) (time.Time, bool) {
	const before = 2
	var k delivery.EventKey
	if prefix == prefixDead {
		return time.Time{}, false // how long the dead are dead is not in the row
	}
	value, err := it.ValueAndErr()
	if err != nil || len(value) < before+len(k) || value[0] != codecVersion {
		return time.Time{}, false
	}
	copy(k[:], value[before:])
	return k.Time(), true
}
