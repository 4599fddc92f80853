package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// CheckReport is what [Store.Check] found.
type CheckReport struct {
	Rows map[string]int64 `json:"rows"` // by kind
	Bad  int64            `json:"bad"`
	// Faults are the first of the bad ones, in words.
	Faults []string `json:"faults"`
}

// maxFaults is how many faults a report names.
const maxFaults = 100

// kindNames are the kinds of rows that Check counts, by their prefix.
var kindNames = map[byte]string{
	prefixConfig: "config", prefixIndex: "index", prefixMeta: "meta", prefixEvent: "event", prefixDedupe: "dedupe",
	prefixOpen: "open_counter", prefixReady: "ready", prefixRetry: "retrying", prefixParked: "parked", prefixBlocked: "blocked_key",
	prefixWake: "wake", prefixLease: "lease", prefixHealth: "health", prefixTime: "timeline", prefixDead: "dead_letter",
	prefixDied: "dead_letter_index",
}

// Check reads every row of the store and holds it against the others: values
// decode, every pending row has its event and every waiting one its wake-up, and
// the counters of open deliveries add up to the pending rows. progress is called
// now and then with the number of rows read; nil = nobody asks.
//
// Run it on a store that nobody publishes to: rows that move while it reads look
// like faults.
func (s *Store) Check(ctx context.Context, progress func(rows int64)) (CheckReport, error) {
	c := checker{ctx: ctx, s: s, progress: progress, report: CheckReport{Rows: map[string]int64{}, Faults: []string{}}}
	if err := s.view(c.run); err != nil {
		return c.report, fmt.Errorf("check store: %w", err)
	}
	return c.report, nil
}

type checker struct {
	ctx      context.Context //nolint:containedctx // it lives as long as the call of Check
	s        *Store
	db       *pebble.DB
	progress func(int64)
	report   CheckReport
	rows     int64
	pending  int64
}

func (c *checker) run(db *pebble.DB) error {
	c.db = db
	it, err := db.NewIter(nil)
	if err != nil {
		return err
	}
	defer it.Close()
	const every = 1 << 14
	for ok := it.First(); ok; ok = it.Next() {
		if c.rows++; c.rows%every == 0 {
			if err := c.ctx.Err(); err != nil {
				return err
			}
			if c.progress != nil {
				c.progress(c.rows)
			}
		}
		if err := c.row(it.Key(), it.Value()); err != nil {
			c.fault(fmt.Sprintf("key %x: %v", it.Key(), err))
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	open, err := openDeliveries(db)
	if err != nil {
		return err
	}
	if open != c.pending {
		c.fault(fmt.Sprintf("%d deliveries are counted as open, %d are pending", open, c.pending))
	}
	return nil
}

func (c *checker) fault(text string) {
	if c.report.Bad++; len(c.report.Faults) < maxFaults {
		c.report.Faults = append(c.report.Faults, text)
	}
}

var errUnknownKind = errors.New("key of an unknown kind")

// row checks one row by itself and against the rows that it refers to.
func (c *checker) row(key, value []byte) error {
	if len(key) == 0 {
		return errUnknownKind
	}
	name, ok := kindNames[key[0]]
	if !ok {
		return errUnknownKind
	}
	c.report.Rows[name]++
	switch key[0] {
	case prefixEvent:
		return c.event(key, value)
	case prefixReady, prefixRetry, prefixParked:
		return c.queued(key, value)
	case prefixTime:
		return c.history(key, value)
	case prefixDead:
		return c.deadLetter(key, value)
	case prefixDied:
		return c.listedDead(key, value)
	case prefixIndex:
		if len(key) > 1 && key[1] == indexTenantDead {
			return c.listedDead(key, value)
		}
		return nil
	case prefixDedupe:
		_, err := decodeDedupe(value)
		return err
	case prefixHealth:
		_, err := decodeHealth(value)
		return err
	case prefixOpen:
		_, err := decodeCounter(value)
		return err
	case prefixLease:
		_, err := decodeWatermarks(nil, value)
		return err
	}
	return nil
}

func eventKeyAt(key []byte, what string, length int) (k delivery.EventKey, err error) {
	tail, err := keyTail(key, what, length, length-len(k))
	if err != nil {
		return k, err
	}
	copy(k[:], tail)
	return k, nil
}

func (c *checker) event(key, value []byte) error {
	k, err := eventKeyAt(key, "event", 1+16)
	if err != nil {
		return err
	}
	e, _, err := decodeEvent(k, value, false)
	if err != nil || e.Spool == "" {
		return err
	}
	return c.spooled(e.Spool)
}

// spooled checks that a spool file is there.
func (c *checker) spooled(name string) error {
	f, err := c.s.spool.open(name)
	if err != nil {
		return err
	}
	return f.Close()
}

func (c *checker) queued(key, value []byte) error {
	c.pending++
	row, err := decodeRow(key, value)
	if err != nil {
		return err
	}
	if _, ok, err := getFrom(c.db, appendEventRow(nil, row.Event)); err != nil || !ok {
		return fmt.Errorf("pending for subscriber %d, but event %s is missing: %w", row.Subscriber, row.Event, errors.Join(err, errCorrupt))
	}
	if row.Place != delivery.PlaceRetry {
		return nil
	}
	wake := appendWakeRow(nil, c.s.partition(row.Subscriber), row.Due, row.Subscriber, row.Seq)
	if _, ok, err := getFrom(c.db, wake); err != nil || !ok {
		return fmt.Errorf("waits until %v, but nothing wakes it: %w", row.Due, errors.Join(err, errCorrupt))
	}
	return nil
}

func (c *checker) history(key, value []byte) error {
	k, err := eventKeyAt(key, "timeline", timeRowLen)
	if err != nil {
		return err
	}
	t := timeline{key: k}
	return t.read(value, true)
}

func (c *checker) deadLetter(key, value []byte) error {
	k, err := eventKeyAt(key, "dead letter", deadRowLen)
	if err != nil {
		return err
	}
	row, err := decodeDead(k, value, false)
	if err != nil {
		return err
	}
	name := row.name(k, delivery.SubscriberNum(binary.BigEndian.Uint64(key[3:])))
	if name == nil {
		return fmt.Errorf("dead letter without its event: %w", errCorrupt)
	}
	for list, key := range map[string][]byte{
		"subscriber": appendDiedRow(nil, c.s.partition(name.Subscriber), name),
		"tenant":     appendTenantDeadRow(nil, name),
	} {
		if _, ok, err := getFrom(c.db, key); err != nil || !ok {
			return fmt.Errorf("dead letter is missing in the list of its %s: %w", list, errors.Join(err, errCorrupt))
		}
	}
	if row.event.Spool == "" {
		return nil
	}
	return c.spooled(row.event.Spool)
}

// listedDead checks that what a list of dead letters names is there and died then.
func (c *checker) listedDead(key, value []byte) error {
	l, err := parseDied(key, value)
	if err != nil {
		return err
	}
	row, ok, err := readDead(c.db, c.s.partition(l.Subscriber), l.Event, l.Subscriber, false)
	if err != nil || !ok {
		return fmt.Errorf("lists the dead letter %s of subscriber %d, which is missing: %w", l.Event, l.Subscriber, errors.Join(err, errCorrupt))
	}
	if name := row.name(l.Event, l.Subscriber); name == nil || *name != l {
		return fmt.Errorf("lists the dead letter %s of subscriber %d as of %v: %w", l.Event, l.Subscriber, l.At, errCorrupt)
	}
	return nil
}
