package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// span is a run of hours, the end excluded.
type span struct{ from, to hour }

// keyRange is a range of keys, the end excluded.
type keyRange struct{ start, end []byte }

// Retain enforces the retention once: what is finished and older than
// Config.Retention goes, as ranges of whole hours.
//
// An hour in which anything is still pending stays, with all of its events and
// timelines; the hours around it go. So one delivery that waits for a year keeps
// one hour and not a year. What comes late for an hour that is gone (a purge's
// entry on a timeline) makes a row that goes with the next run.
func (s *Store) Retain(ctx context.Context) (RetainInfo, error) {
	begin := time.Now()
	info := RetainInfo{Horizon: s.horizon(begin).start()}
	var deleted []keyRange
	for _, part := range [...]struct {
		what string
		run  func() error
	}{
		{"events", func() (err error) { deleted, err = s.retainEvents(ctx, begin, &info); return err }},
		{"dead letters", func() error { return s.retainDead(ctx, begin.Add(-s.keep.Load().Dead), &info) }},
		{"spool files", func() error { return s.collectSpool(ctx, begin, &info) }},
		{"compaction", func() error { return s.compact(ctx, deleted) }},
	} {
		if err := part.run(); err != nil {
			info.Err = errors.Join(info.Err, fmt.Errorf("retain %s: %w", part.what, err))
		}
	}
	info.Took = time.Since(begin)
	s.cfg.Observer.Retained(info)
	return info, info.Err
}

// horizon is the first hour that is kept. It moves in steps, since every run
// writes a range delete per partition.
func (s *Store) horizon(now time.Time) hour {
	step := max(1, hour(s.keep.Load().Events/(28*time.Hour)))
	return hourOf(now.Add(-s.keep.Load().Events)) / step * step
}

// retainEvents deletes events, timelines, indexes and dedupe rows. Which ranges
// hold anything is found out beforehand; that their hours are still closed is
// checked in the step that deletes them.
func (s *Store) retainEvents(ctx context.Context, now time.Time, info *RetainInfo) ([]keyRange, error) {
	horizon := s.horizon(now)
	ranges := map[span][]keyRange{}
	var ids []keyRange
	err := s.view(func(db *pebble.DB) error {
		closed, open, err := closedSpans(db, horizon)
		if err != nil {
			return err
		}
		info.OpenHours = len(open)
		f, err := newRangeFinder(db, s.partitions)
		if err != nil {
			return err
		}
		defer f.it.Close()
		for _, sp := range closed {
			if list := f.span(ctx, sp); len(list) > 0 {
				ranges[sp] = list
			}
		}
		ids = f.ids(bucketOf(now.Add(-max(s.cfg.DedupeWindow, s.keep.Load().Events))))
		return errors.Join(f.it.Error(), ctx.Err())
	})
	if err != nil || len(ranges)+len(ids) == 0 {
		return nil, err
	}
	var deleted []keyRange
	err = s.step(ctx, &step{alone: true, run: func(db *pebble.DB, b *building) error {
		closed, _, err := closedSpans(db, horizon)
		if err != nil {
			return err
		}
		list := ids
		for sp, found := range ranges {
			// Not where something was replayed meanwhile.
			if slices.ContainsFunc(closed, func(c span) bool { return c.from <= sp.from && sp.to <= c.to }) {
				list = append(list, found...)
			}
		}
		for _, r := range list {
			if err := b.b.DeleteRange(r.start, r.end, nil); err != nil {
				return err
			}
		}
		deleted = list
		return nil
	}})
	if err != nil {
		return nil, err // the step may still be running: deleted is its own
	}
	return deleted, nil
}

// closedSpans returns the runs of hours before the horizon in which nothing is
// pending, and the hours in which something is.
func closedSpans(db *pebble.DB, horizon hour) (closed []span, open []hour, err error) {
	it, err := db.NewIter(&pebble.IterOptions{
		LowerBound: []byte{prefixOpen}, UpperBound: appendOpenRow(nil, horizon),
	})
	if err != nil {
		return nil, nil, err
	}
	defer it.Close()
	var from hour
	for ok := it.First(); ok; ok = it.Next() {
		if len(it.Key()) != openRowLen {
			return nil, nil, errCorrupt
		}
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, nil, err
		}
		if n, err := decodeCounter(v); err != nil || n <= 0 {
			continue // merger: a damaged counter counts as nothing
		}
		h := hour(binary.BigEndian.Uint32(it.Key()[1:]))
		open = append(open, h)
		if from < h {
			closed = append(closed, span{from, h})
		}
		from = h + 1
	}
	if from < horizon {
		closed = append(closed, span{from, horizon})
	}
	return closed, open, it.Error()
}

// rangeFinder finds which ranges hold anything, so that no range delete is
// written for nothing.
type rangeFinder struct {
	it         *pebble.Iterator
	partitions int
	ranges     []keyRange
}

func newRangeFinder(db *pebble.DB, partitions int) (*rangeFinder, error) {
	it, err := db.NewIter(nil)
	return &rangeFinder{it: it, partitions: partitions}, err
}

// span returns the ranges of the rows of a span of hours.
func (f *rangeFinder) span(ctx context.Context, sp span) []keyRange {
	f.ranges = nil
	from, to := firstEventKey(sp.from.start()), firstEventKey(sp.to.start())
	f.add(appendEventRow(nil, from), appendEventRow(nil, to))
	f.add(appendOpenRow(nil, sp.from), appendOpenRow(nil, sp.to))
	for p := range f.partitions {
		prefix := appendPart(nil, prefixTime, delivery.Partition(p)) //nolint:gosec // below 65535
		f.add(binary.BigEndian.AppendUint32(prefix[:3:3], uint32(sp.from)), binary.BigEndian.AppendUint32(prefix[:3:3], uint32(sp.to)))
	}
	// Tenants, from one to the next.
	next := []byte{prefixIndex, indexTenantEvents}
	for ctx.Err() == nil && f.it.SeekGE(next) && len(f.it.Key()) == tenantRowLen && f.it.Key()[1] == indexTenantEvents && f.it.Key()[0] == prefixIndex {
		prefix := append([]byte(nil), f.it.Key()[:6]...)
		f.add(append(prefix[:6:6], from[:]...), append(prefix[:6:6], to[:]...))
		next = keyAfter(prefix)
	}
	return f.ranges
}

// ids returns the range of the dedupe rows before a bucket.
func (f *rangeFinder) ids(before uint16) []keyRange {
	f.ranges = nil
	f.add([]byte{prefixDedupe}, binary.BigEndian.AppendUint16([]byte{prefixDedupe}, before))
	return f.ranges
}

func (f *rangeFinder) add(start, end []byte) {
	if f.it.SeekGE(start) && string(f.it.Key()) < string(end) {
		f.ranges = append(f.ranges, keyRange{start, end})
	}
}

// compact asks Pebble to give the space of deleted ranges back. Index rows are
// small and left to its own compactions.
func (s *Store) compact(ctx context.Context, deleted []keyRange) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.session.Load().ctx, cancel)()
	for _, r := range deleted {
		if r.start[0] != prefixEvent && r.start[0] != prefixTime {
			continue
		}
		if err := s.view(func(db *pebble.DB) error { return db.Compact(ctx, r.start, r.end, false) }); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// retainDead deletes dead letters that died before a time. The lists of the tenants
// begin with them, so nothing that stays is looked at.
func (s *Store) retainDead(ctx context.Context, before time.Time, info *RetainInfo) error {
	next := []byte{prefixIndex, indexTenantDead}
	for next != nil && ctx.Err() == nil {
		var list []delivery.DeadLetter
		err := s.view(func(db *pebble.DB) (err error) {
			list, next, err = oldDead(db, next, before)
			return err
		})
		if err != nil {
			return err
		}
		if len(list) == 0 {
			continue
		}
		removed := make([]bool, len(list))
		if err := s.step(ctx, &step{run: func(db *pebble.DB, b *building) error {
			for i := range list {
				ok, err := b.forgetDead(db, &list[i])
				if err != nil {
					return err
				}
				removed[i] = ok
			}
			return nil
		}}); err != nil {
			return err
		}
		for i := range list {
			if removed[i] {
				info.Dead++
				s.discard([]string{spoolName(list[i].Event, list[i].Subscriber)})
			}
		}
	}
	return ctx.Err()
}

// oldDead reads the next dead letters, from a key on, that died before a time; and
// the key to go on with, nil = none.
func oldDead(db *pebble.DB, from []byte, before time.Time) (list []delivery.DeadLetter, next []byte, err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: []byte{prefixIndex, indexTenantDead + 1}})
	if err != nil {
		return nil, nil, err
	}
	defer it.Close()
	for ok := it.First(); ok; {
		l, err := parseDied(it.Key(), nil)
		if err != nil {
			return nil, nil, err
		}
		if !l.At.Before(before) {
			// What follows of this tenant died later.
			ok = it.SeekGE(keyAfter(it.Key()[:6]))
			continue
		}
		if len(list) == stepSize {
			return list, append([]byte(nil), it.Key()...), nil
		}
		list = append(list, l)
		ok = it.Next()
	}
	return list, nil, it.Error()
}

// forgetDead deletes a dead letter that died early enough, if it is still listed,
// and its name only if it has died again since.
func (b *building) forgetDead(db *pebble.DB, l *delivery.DeadLetter) (bool, error) {
	if _, ok, err := getFrom(db, appendTenantDeadRow(nil, l)); err != nil || !ok {
		return false, err
	}
	p := delivery.PartitionOf(l.Subscriber, b.c.meta.partitions)
	row, ok, err := readDead(db, p, l.Event, l.Subscriber, false)
	if errors.Is(err, errCorrupt) {
		return true, b.c.fold.removeDead(b.b, l) // nothing can be done with it any more
	}
	if err != nil {
		return false, err
	}
	if ok && diedAt(row.at, l.Event).Equal(l.At) {
		return true, b.c.fold.removeDead(b.b, l)
	}
	return false, b.c.fold.unlistDead(b.b, l)
}

// spoolGrace is how old an event must be before a file that nothing refers to
// counts as an orphan: its batch may still be on its way.
const spoolGrace = time.Hour

// collectSpool removes spool files that nothing refers to: left by a crash, or
// by events and dead letters that are gone.
func (s *Store) collectSpool(ctx context.Context, now time.Time, info *RetainInfo) error {
	names, err := s.spool.dir.list()
	if err != nil {
		return err
	}
	for len(names) > 0 && ctx.Err() == nil {
		part := names[:min(stepSize, len(names))]
		names = names[len(part):]
		orphans := part[:0:0]
		err := s.view(func(db *pebble.DB) error {
			orphans, err = s.orphans(db, part, now)
			return err
		})
		if err != nil || len(orphans) == 0 {
			if err != nil {
				return err
			}
			continue
		}
		// A replay may be about to refer to one again: decide where replays are
		// decided.
		var gone []string
		if err := s.step(ctx, &step{alone: true, run: func(db *pebble.DB, _ *building) error {
			if gone, err = s.orphans(db, orphans, now); err == nil {
				s.discard(gone)
			}
			return err
		}}); err != nil {
			return err
		}
		info.Spooled += len(gone)
	}
	return ctx.Err()
}

func (s *Store) orphans(db *pebble.DB, names []string, now time.Time) ([]string, error) {
	var out []string
	for _, name := range names {
		ref, ok := parseSpoolName(name)
		if !ok || now.Sub(ref.Event.Time()) < spoolGrace {
			continue
		}
		key := appendEventRow(nil, ref.Event)
		if ref.Subscriber != 0 {
			key = appendDeadRow(nil, s.partition(ref.Subscriber), ref.Subscriber, ref.Event)
		}
		_, found, err := getFrom(db, key)
		if err != nil {
			return nil, err
		}
		if !found {
			out = append(out, name)
		}
	}
	return out, nil
}

// Start begins the background work: the free space is watched and the retention
// enforced until Close. Both go on over Reopen.
func (s *Store) Start(ctx context.Context) error {
	s.life.Lock()
	defer s.life.Unlock()
	if err := s.ready(); err != nil || s.cancel != nil {
		return err
	}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if s.cfg.Watermark.Bytes >= 0 {
		s.background.Go(func() { s.disk.watch(ctx, s) })
	}
	if s.cfg.Retention.Every > 0 {
		s.background.Go(func() { s.retainForever(ctx) })
	}
	return nil
}

// SetRetention has the next run of the retention task keep events and dead letters for
// as long as r says; zero is the default. How often it runs stays.
func (s *Store) SetRetention(r Retention) {
	orDefault(&r.Events, 7*24*time.Hour)
	orDefault(&r.Dead, 30*24*time.Hour)
	s.keep.Store(&r)
}

func (s *Store) retainForever(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Retention.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, err := s.Retain(ctx); err != nil && ctx.Err() == nil {
				s.log.Warn("retention is behind", "error", err)
			}
		}
	}
}
