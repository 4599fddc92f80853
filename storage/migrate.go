package storage

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// migrateStep is how many dead letters are listed with one commit.
const migrateStep = 1000

// migrate brings a store of an older format to this one. It reads the format from
// the database, which the caller raises afterwards: a crash on the way leaves the
// old format, and the next opening begins again.
//
// Format 1 had no lists of dead letters by their death. It also had dead letters
// without an event, of deliveries that failed after their event had been deleted;
// there is nothing in them, and they go.
func (s *Store) migrate(db *pebble.DB, partitions int) error {
	format, ok, err := readMeta(db, metaFormat)
	if err != nil || !ok || format >= FormatVersion {
		return err
	}
	start := time.Now()
	listed, dropped, err := s.listAllDead(db, partitions)
	if err != nil {
		return fmt.Errorf("migrate from format %d to %d: %w", format, FormatVersion, err)
	}
	s.log.Info("store was brought to the format of this version", "from", format, "to", FormatVersion,
		"dead_letters", listed, "dropped_without_event", dropped, "took", time.Since(start))
	return nil
}

// listAllDead writes the lists of dead letters anew.
func (s *Store) listAllDead(db *pebble.DB, partitions int) (listed, dropped int, err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixDead}, UpperBound: []byte{prefixDead + 1}})
	if err != nil {
		return 0, 0, err
	}
	defer it.Close()
	f := fold{partitions: partitions, all: true}
	b := db.NewBatch()
	defer func() { _ = b.Close() }() // frees memory, nothing else; of the last one
	for _, prefix := range [][]byte{{prefixDied}, {prefixIndex, indexTenantDead}} {
		if err := b.DeleteRange(prefix, keyAfter(prefix), nil); err != nil {
			return 0, 0, err
		}
	}
	for ok := it.First(); ok; ok = it.Next() {
		done, err := f.relist(b, it)
		if err != nil {
			return 0, 0, err
		}
		if done {
			listed++
		} else {
			dropped++
		}
		if (listed+dropped)%migrateStep == 0 {
			if err := s.applySynced(db, b); err != nil {
				return 0, 0, err
			}
			_ = b.Close()
			b = db.NewBatch()
		}
	}
	if err := it.Error(); err != nil {
		return 0, 0, err
	}
	return listed, dropped, s.applySynced(db, b)
}

// relist lists the dead letter that the iterator stands at, or removes it if it has
// no event. One that cannot be read stays: check names it.
func (f *fold) relist(b *pebble.Batch, it *pebble.Iterator) (bool, error) {
	key := it.Key()
	if len(key) != deadRowLen {
		return false, fmt.Errorf("dead letter key of %d bytes: %w", len(key), errCorrupt)
	}
	v, err := it.ValueAndErr()
	if err != nil {
		return false, err
	}
	k := delivery.EventKey(key[partSubLen:])
	row, err := decodeDead(k, v, false)
	if err != nil {
		return true, nil //nolint:nilerr // as the comment says
	}
	name := row.name(k, delivery.SubscriberNum(binary.BigEndian.Uint64(key[3:])))
	if name == nil {
		return false, b.Delete(key, nil)
	}
	return true, f.listDead(b, name)
}
