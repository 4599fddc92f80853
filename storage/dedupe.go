package storage

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func bucketOf(t time.Time) uint16 { return uint16(milliOf(t) / dedupeBucketMilli) } //nolint:gosec // 48 bits of time give 20; wraps after seven centuries

// Kinds of thing that a dedupe key can be about.
const (
	dedupeByID   byte = 1
	dedupeByBody byte = 2
)

func dedupeIDKey(bucket uint16, tenant delivery.TenantNum, source, id string) dedupeKey {
	var buf [512]byte
	b := appendString(append(buf[:0], dedupeByID), source)
	return dedupeKeyOf(bucket, tenant, sha256.Sum256(append(b, id...)))
}

func dedupeBodyKey(bucket uint16, tenant delivery.TenantNum, source string, content [16]byte) dedupeKey {
	var buf [256]byte
	b := appendString(append(buf[:0], dedupeByBody), source)
	return dedupeKeyOf(bucket, tenant, sha256.Sum256(append(b, content[:]...)))
}

// inBucket returns the key for another bucket.
func (k dedupeKey) inBucket(bucket uint16) dedupeKey {
	binary.BigEndian.PutUint16(k[1:], bucket)
	return k
}

func (k dedupeKey) bucket() uint16 { return binary.BigEndian.Uint16(k[1:]) }

// dedupe answers whether an event was accepted before. It belongs to the
// committer: the database shows every batch that was applied, pending what the
// batch under construction adds.
type dedupe struct {
	window  time.Duration
	filter  *dedupeFilter
	pending map[dedupeKey]dedupeRow
	newest  uint16 // bucket that was last added to
}

func newDedupe(cfg *Config) dedupe {
	buckets := int(cfg.DedupeWindow/dedupeBucket) + 2
	return dedupe{
		window: cfg.DedupeWindow, pending: map[dedupeKey]dedupeRow{},
		filter: newDedupeFilter(cfg.DedupeMemory, buckets),
	}
}

// find looks for an earlier event with the same id, or with the same body if the
// source asked for that. key is its key in the bucket of now.
func (d *dedupe) find(db pebble.Reader, key dedupeKey, now time.Time) (dedupeRow, bool, error) {
	if row, ok := d.pending[key]; ok {
		return row, true, nil
	}
	oldest := now.Add(-d.window)
	for bucket := bucketOf(now); ; bucket-- {
		if k := key.inBucket(bucket); d.filter.maybe(k) {
			row, ok, err := readDedupe(db, k)
			if err != nil {
				return dedupeRow{}, false, err
			}
			if ok {
				return row, !row.event.Time().Before(oldest), nil
			}
		}
		if bucket == bucketOf(oldest) {
			return dedupeRow{}, false, nil
		}
	}
}

func readDedupe(db pebble.Reader, key dedupeKey) (dedupeRow, bool, error) {
	v, closer, err := db.Get(key[:])
	if errors.Is(err, pebble.ErrNotFound) {
		return dedupeRow{}, false, nil
	}
	if err != nil {
		return dedupeRow{}, false, fmt.Errorf("read dedupe row: %w", err)
	}
	row, err := decodeDedupe(v)
	return row, err == nil, errors.Join(err, closer.Close())
}

// check returns the receipt of the first event if x repeats it, or the error if
// x only has its id. With a nil receipt and error, x is new.
func (d *dedupe) check(db pebble.Reader, x *delivery.Published) (*delivery.Receipt, error) {
	if x.Dedupe == nil {
		return nil, nil //nolint:nilnil // "new" is the common answer
	}
	now := x.Event.Key.Time()
	bucket := bucketOf(now)
	if x.Dedupe.ID != "" {
		key := dedupeIDKey(bucket, x.Event.Tenant, x.Dedupe.Source, x.Dedupe.ID)
		row, ok, err := d.find(db, key, now)
		switch {
		case err != nil:
			return nil, err
		// The hash is trusted to be unique; the id is compared all the same.
		case ok && row.source == x.Dedupe.Source && row.id == x.Dedupe.ID:
			if row.content != x.Dedupe.Content {
				return nil, &delivery.ConflictError{ID: x.Dedupe.ID, Existing: row.event}
			}
			return row.receipt(), nil
		}
	}
	if x.Dedupe.Body {
		key := dedupeBodyKey(bucket, x.Event.Tenant, x.Dedupe.Source, x.Dedupe.Content)
		row, ok, err := d.find(db, key, now)
		if err != nil {
			return nil, err
		}
		if ok && row.source == x.Dedupe.Source && row.content == x.Dedupe.Content {
			return row.receipt(), nil
		}
	}
	return nil, nil //nolint:nilnil // new
}

func (r *dedupeRow) receipt() *delivery.Receipt {
	return &delivery.Receipt{
		Event: r.event, ID: cmp.Or(r.public, r.id), Deliveries: r.deliveries, Deduplicated: true,
	}
}

// add remembers an event that goes into the batch under construction.
func (d *dedupe) add(x *delivery.Published) {
	if x.Dedupe == nil {
		return
	}
	row := dedupeOf(x)
	bucket := bucketOf(x.Event.Key.Time())
	if bucket > d.newest {
		d.newest = bucket
		d.filter.forget(bucketOf(x.Event.Key.Time().Add(-d.window - day)))
	}
	if x.Dedupe.ID != "" {
		d.put(dedupeIDKey(bucket, x.Event.Tenant, x.Dedupe.Source, x.Dedupe.ID), row)
	}
	if x.Dedupe.Body {
		d.put(dedupeBodyKey(bucket, x.Event.Tenant, x.Dedupe.Source, x.Dedupe.Content), row)
	}
}

func (d *dedupe) put(k dedupeKey, row dedupeRow) {
	d.pending[k] = row
	d.filter.add(k)
}

// dedupeOf is what is stored about an event for its dedupe keys.
func dedupeOf(x *delivery.Published) dedupeRow {
	row := dedupeRow{
		event: x.Event.Key, content: x.Dedupe.Content, deliveries: len(x.Targets),
		source: x.Dedupe.Source, id: x.Dedupe.ID,
	}
	if x.Event.ID != x.Dedupe.ID {
		row.public = x.Event.ID
	}
	return row
}
