package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// FormatVersion is the version of keys and values that this code writes. A store
// of an older one is brought to it when it is opened; see [migrate].
const FormatVersion = 2

// FormatError: the store was written by a newer version of the program.
type FormatError struct {
	Found     uint64 // the store's format; 0 = the one of the database below it
	Supported uint64 // the newest this program knows
	Err       error  // what the database said, if it was that
}

// Error implements error.
func (e *FormatError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("store was written by a newer version of the program: %v", e.Err)
	}
	return fmt.Sprintf("store has format %d, this program knows formats up to %d: start the version that wrote it, or a newer one",
		e.Found, e.Supported)
}

// Unwrap returns the database's error.
func (e *FormatError) Unwrap() error { return e.Err }

// Second bytes of meta keys.
const (
	metaFormat     byte = 'f'
	metaPartitions byte = 'p'
	metaEpoch      byte = 'e'
	metaReserved   byte = 'r'
	metaReplayJob  byte = 'j' // then its id; see replayjobs.go
)

// positionStep is how many positions are reserved at once. The next step is
// reserved when half of the last is used, in the batch that uses them; since
// batches reach the disk in order and none holds half a step, a position is
// only given out when its reservation is durable. A crash skips what was
// reserved, so no position is ever used twice.
const positionStep = 1 << 16

// meta is what the store knows about itself.
type meta struct {
	partitions int
	epoch      delivery.Epoch
	next       delivery.Position // the next position to give out
	reserved   delivery.Position // positions below are reserved on disk
}

func metaKey(kind byte) []byte { return []byte{prefixMeta, kind} }

func metaValue(v uint64) []byte { return binary.AppendUvarint([]byte{codecVersion}, v) }

func setMeta(b *pebble.Batch, kind byte, v uint64) error {
	return b.Set(metaKey(kind), metaValue(v), nil)
}

func readMeta(db *pebble.DB, kind byte) (v uint64, ok bool, err error) {
	value, ok, err := getFrom(db, metaKey(kind))
	if err != nil || !ok {
		return 0, false, err
	}
	d := decoder{b: value}
	d.version("meta")
	v = d.uvarint()
	if err := d.end("meta"); err != nil {
		return 0, false, fmt.Errorf("meta record %q: %w", kind, err)
	}
	return v, true, nil
}

// loadMeta reads what a store knows about itself, or fills a new one, raises the
// epoch and reserves positions in batch b.
func loadMeta(db *pebble.DB, b *pebble.Batch, partitions int) (meta, error) {
	format, ok, err := readMeta(db, metaFormat)
	if err != nil {
		return meta{}, err
	}
	if ok && format > FormatVersion {
		return meta{}, &FormatError{Found: format, Supported: FormatVersion}
	}
	if !ok {
		if err := checkEmpty(db); err != nil {
			return meta{}, err
		}
		if partitions == 0 {
			partitions = delivery.DefaultPartitions
		}
		if err := setMeta(b, metaFormat, FormatVersion); err != nil {
			return meta{}, err
		}
		if err := setMeta(b, metaPartitions, uint64(partitions)); err != nil { //nolint:gosec // validated
			return meta{}, err
		}
		return raise(db, b, partitions)
	}
	if format < FormatVersion {
		if err := setMeta(b, metaFormat, FormatVersion); err != nil {
			return meta{}, err
		}
	}
	stored, ok, err := readMeta(db, metaPartitions)
	if err != nil {
		return meta{}, err
	}
	if !ok || stored == 0 || stored >= uint64(delivery.PartitionShared) {
		return meta{}, fmt.Errorf("number of partitions: %w", errCorrupt)
	}
	if partitions != 0 && uint64(partitions) != stored { //nolint:gosec // validated
		return meta{}, fmt.Errorf("store has %d partitions, not %d: the number is fixed when it is created", stored, partitions)
	}
	return raise(db, b, int(stored))
}

// raise raises the epoch and reserves the first positions of this opening.
func raise(db *pebble.DB, b *pebble.Batch, partitions int) (meta, error) {
	epoch, _, err := readMeta(db, metaEpoch)
	if err != nil {
		return meta{}, err
	}
	reserved, ok, err := readMeta(db, metaReserved)
	if err != nil {
		return meta{}, err
	}
	if !ok {
		reserved = 1 // zero is "no position"
	}
	m := meta{
		partitions: partitions, epoch: delivery.Epoch(epoch + 1),
		next: delivery.Position(reserved), reserved: delivery.Position(reserved + positionStep),
	}
	if err := setMeta(b, metaEpoch, uint64(m.epoch)); err != nil {
		return meta{}, err
	}
	return m, setMeta(b, metaReserved, uint64(m.reserved))
}

// checkEmpty refuses a database that is not one of ours.
func checkEmpty(db *pebble.DB) error {
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	found := it.First()
	if err := it.Close(); err != nil {
		return err
	}
	if found {
		return fmt.Errorf("directory holds a database without a format record: %w", errCorrupt)
	}
	return nil
}

// take gives out the next position. Every positionStep/2 positions it adds a
// reservation to the batch.
func (m *meta) take(b *pebble.Batch) (delivery.Position, error) {
	if m.reserved-m.next <= positionStep/2 {
		m.reserved += positionStep
		if err := setMeta(b, metaReserved, uint64(m.reserved)); err != nil {
			return 0, err
		}
	}
	p := m.next
	m.next++
	return p, nil
}
