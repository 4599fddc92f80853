package storage

import (
	"crypto/sha256"
	"encoding/binary"
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

// dedupe answers whether an event was accepted before. It belongs to the
// committer: the database shows every batch that was applied, pending what the
// batch under construction adds.
type dedupe struct {
	window  time.Duration
	pending map[dedupeKey]dedupeRow
}

// find looks for an earlier event with the same id, or with the same body if the
// source asked for that. key is its key in the bucket of now.
func (d *dedupe) find(db pebble.Reader, key dedupeKey, now time.Time) (dedupeRow, bool, error) {
	if row, ok := d.pending[key]; ok {
		return row, true, nil
	}
	oldest := now.Add(-d.window)
	for bucket := bucketOf(now); ; bucket-- {
		k := key.inBucket(bucket)
		v, closer, err := db.Get(k[:])
		switch {
		case err == nil:
			row, err := decodeDedupe(v)
			if cerr := closer.Close(); err == nil {
				err = cerr
			}
			if err != nil {
				return dedupeRow{}, false, err
			}
			if !row.event.Time().Before(oldest) {
				return row, true, nil
			}
			return dedupeRow{}, false, nil
		case err != pebble.ErrNotFound: //nolint:errorlint // Get returns the sentinel itself; this runs for every publish
			return dedupeRow{}, false, fmt.Errorf("read dedupe row: %w", err)
		}
		if bucket == bucketOf(oldest) {
			return dedupeRow{}, false, nil
		}
	}
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
		case ok && row.source == x.Dedupe.Source && row.id == x.Event.ID:
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
	return &delivery.Receipt{Event: r.event, ID: r.id, Deliveries: r.deliveries, Deduplicated: true}
}

// add remembers an event that goes into the batch under construction.
func (d *dedupe) add(x *delivery.Published) {
	if x.Dedupe == nil {
		return
	}
	row := dedupeRow{
		event: x.Event.Key, content: x.Dedupe.Content, deliveries: len(x.Targets),
		source: x.Dedupe.Source, id: x.Event.ID,
	}
	bucket := bucketOf(x.Event.Key.Time())
	if x.Dedupe.ID != "" {
		d.pending[dedupeIDKey(bucket, x.Event.Tenant, x.Dedupe.Source, x.Dedupe.ID)] = row
	}
	if x.Dedupe.Body {
		d.pending[dedupeBodyKey(bucket, x.Event.Tenant, x.Dedupe.Source, x.Dedupe.Content)] = row
	}
}
