package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Event returns an event with its payload, inline or spooled (see
// [Store.OpenPayload]). Callers must not modify it. An event that was deleted,
// or whose retention has passed, is [delivery.ErrEventGone].
func (s *Store) Event(_ context.Context, key delivery.EventKey) (*delivery.Event, error) {
	e, _, err := s.event(key, true)
	return e, err
}

// EventTargets returns an event without its payload, and whom it was for. After
// a replay restored an event that retention had removed, it names that
// delivery's subscriber only.
func (s *Store) EventTargets(_ context.Context, key delivery.EventKey) (*delivery.Event, []delivery.Target, error) {
	return s.event(key, false)
}

func (s *Store) event(key delivery.EventKey, payload bool) (e *delivery.Event, targets []delivery.Target, err error) {
	err = s.view(func(db *pebble.DB) error {
		e, targets, err = readEvent(db, key, payload)
		return err
	})
	return e, targets, err
}

func readEvent(r pebble.Reader, key delivery.EventKey, payload bool) (*delivery.Event, []delivery.Target, error) {
	var buf [17]byte
	v, closer, err := r.Get(appendEventRow(buf[:0], key))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil, fmt.Errorf("event %s: %w", key, delivery.ErrEventGone)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("event %s: %w", key, err)
	}
	e, targets, err := decodeEvent(key, v, payload)
	if err = errors.Join(err, closer.Close()); err != nil {
		return nil, nil, fmt.Errorf("event %s: %w", key, err)
	}
	return e, targets, nil
}

// EventPage reads what a page of rows needs in one pass over the database: the events
// of keys, with their payloads. out[i] is nil where there is none, and from where the
// payloads exceed most bytes on; [Store.Event] says which. Keys in order are the
// quickest. Callers must not modify them.
func (s *Store) EventPage(keys []delivery.EventKey, most int64) (out []*delivery.Event, err error) {
	out = make([]*delivery.Event, len(keys))
	err = s.view(func(db *pebble.DB) error {
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixEvent}, UpperBound: []byte{prefixEvent + 1}})
		if err != nil {
			return err
		}
		defer it.Close()
		var buf [17]byte
		last := &delivery.Event{}
		for i, key := range keys {
			row := appendEventRow(buf[:0], key)
			if i > 0 && keys[i-1] == key {
				out[i] = out[i-1]
				continue
			}
			if !it.SeekGE(row) || !bytes.Equal(it.Key(), row) {
				if err := it.Error(); err != nil {
					return err
				}
				continue
			}
			v, err := it.ValueAndErr()
			if err != nil {
				return err
			}
			if most -= int64(len(v)); most < 0 {
				return nil
			}
			if last, err = decodeEventLike(key, v, last); err != nil {
				return fmt.Errorf("event %s: %w", key, err)
			}
			out[i] = last
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return out, nil
}

// copyForDead gives a dead letter its own copy of the event, and of its spool
// file. Where the event was deleted meanwhile nothing is left that could be sent
// again, so the delivery is canceled. A spool file that is missing is missing in
// the dead letter as well, which names it.
func (c *committer) copyForDead(m *delivery.Moved) error {
	e, _, err := readEvent(c.db, m.Row.Event, true)
	if errors.Is(err, delivery.ErrEventGone) {
		m.Next, m.Reason, m.Signature = delivery.NextCanceled, delivery.ReasonEventDeleted, ""
		return nil
	}
	if err != nil {
		return err
	}
	if e.Spool != "" {
		name, err := c.spool.keep(e.Spool, m.Row.Event, m.Row.Subscriber)
		if errors.Is(err, fs.ErrNotExist) {
			name, err = spoolName(m.Row.Event, m.Row.Subscriber), nil
		}
		if err != nil {
			return err
		}
		e.Spool = name
	}
	m.Copy = e
	return nil
}

// EventByID finds an event by the id it was published with; source is "" for
// the publish API, else the ingress source. An id that was made by us is the
// event's key. Ids are known as long as events are kept.
func (s *Store) EventByID(_ context.Context, tenant delivery.TenantNum, source, id string) (delivery.EventKey, error) {
	if key, err := delivery.ParseEventKey(id); err == nil && source == "" {
		if e, _, err := s.event(key, false); err == nil && e.Tenant == tenant {
			return key, nil
		}
	}
	var found delivery.EventKey
	err := s.view(func(db *pebble.DB) error {
		// Buckets lie in the order of time: look from the newest back.
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixDedupe}, UpperBound: []byte{prefixDedupe + 1}})
		if err != nil {
			return err
		}
		defer it.Close()
		for ok := it.Last(); ok; {
			bucket := binary.BigEndian.Uint16(it.Key()[1:])
			key := dedupeIDKey(bucket, tenant, source, id)
			v, has, err := getFrom(db, key[:])
			if err != nil {
				return err
			}
			if has {
				row, err := decodeDedupe(v)
				if err != nil {
					return err
				}
				if row.source == source && row.id == id {
					found = row.event
					return nil
				}
			}
			ok = it.SeekLT([]byte{prefixDedupe, byte(bucket >> 8), byte(bucket)})
		}
		return it.Error()
	})
	if err == nil && found.IsZero() {
		err = delivery.ErrEventGone
	}
	if err != nil {
		return delivery.EventKey{}, fmt.Errorf("event by id: %w", err)
	}
	return found, nil
}
