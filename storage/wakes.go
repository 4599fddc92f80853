package storage

import (
	"cmp"
	"container/heap"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// wakeChunk is how many wakes are read from a partition at a time while
// partitions are merged.
const wakeChunk = 32

// Wakes returns up to limit wakes that stand after a cursor and are due at or
// before until, by due time and subscriber, each pair once; and the cursor to go
// on with. One iterator visits the partitions one after the other, so a call
// costs a seek per partition that has any.
func (s *Store) Wakes(after delivery.WakeCursor, until time.Time, limit int) (wakes []delivery.Wake, next delivery.WakeCursor, err error) {
	next = after
	if limit <= 0 {
		return nil, next, nil
	}
	err = s.view(func(db *pebble.DB) error {
		m, err := newWakeMerge(db, s.partitions, after, until)
		if err != nil {
			return err
		}
		defer m.it.Close()
		for len(m.runs) > 0 && len(wakes) < limit {
			w := m.runs[0].wakes[0]
			wakes = append(wakes, w)
			next = delivery.WakeCursor(w)
			if err := m.pop(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, after, fmt.Errorf("wakes: %w", err)
	}
	return wakes, next, nil
}

// NextWake returns the earliest due time that is not before after, and whether
// there is one.
func (s *Store) NextWake(after time.Time) (due time.Time, ok bool, err error) {
	err = s.view(func(db *pebble.DB) error {
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixWake}, UpperBound: []byte{prefixWake + 1}})
		if err != nil {
			return err
		}
		defer it.Close()
		var key []byte
		for p := 0; p < s.partitions; p++ {
			key = appendMilli48(appendPart(key[:0], prefixWake, delivery.Partition(p)), after) //nolint:gosec // below 65535
			if !it.SeekGE(key) {
				break
			}
			if len(it.Key()) != wakeRowLen {
				return errCorrupt
			}
			if found := int(binary.BigEndian.Uint16(it.Key()[1:])); found != p {
				p = found - 1 // those between have nothing
			} else if at := milli48(it.Key()[3:]); !ok || at.Before(due) {
				due, ok = at, true
			}
		}
		return it.Error()
	})
	if err != nil {
		return time.Time{}, false, fmt.Errorf("next wake: %w", err)
	}
	return due, ok, nil
}

// wakeMerge merges the partitions' wakes.
type wakeMerge struct {
	it    *pebble.Iterator
	until time.Time
	runs  wakeRuns
	key   []byte
}

// wakeRun is what has been read of one partition and not taken yet.
type wakeRun struct {
	part  delivery.Partition
	wakes []delivery.Wake
	last  bool // nothing follows these
}

func newWakeMerge(db *pebble.DB, partitions int, after delivery.WakeCursor, until time.Time) (*wakeMerge, error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixWake}, UpperBound: []byte{prefixWake + 1}})
	if err != nil {
		return nil, err
	}
	m := &wakeMerge{it: it, until: until}
	for p := 0; p < partitions; p++ {
		run := &wakeRun{part: delivery.Partition(p)} //nolint:gosec // below 65535
		if err := m.read(run, after); err != nil {
			_ = it.Close()
			return nil, err
		}
		if len(run.wakes) > 0 {
			m.runs = append(m.runs, run)
		} else if !it.Valid() {
			break
		} else if found := int(binary.BigEndian.Uint16(it.Key()[1:])); found > p {
			p = found - 1 // those between have nothing
		}
	}
	heap.Init(&m.runs)
	return m, nil
}

// read fills a run with what stands after a cursor.
func (m *wakeMerge) read(run *wakeRun, after delivery.WakeCursor) error {
	m.key = appendWakeRow(m.key[:0], run.part, after.Due, after.Subscriber+1, 0)
	if after == (delivery.WakeCursor{}) {
		m.key = appendPart(m.key[:0], prefixWake, run.part)
	}
	run.wakes, run.last = run.wakes[:0], true
	seen := after
	for ok := m.it.SeekGE(m.key); ok; ok = m.it.Next() {
		k := m.it.Key()
		if len(k) != wakeRowLen {
			return errCorrupt
		}
		if delivery.Partition(binary.BigEndian.Uint16(k[1:])) != run.part {
			break
		}
		at := delivery.WakeCursor{Due: milli48(k[3:]), Subscriber: delivery.SubscriberNum(binary.BigEndian.Uint64(k[9:]))}
		if at.Due.After(m.until) {
			break
		}
		if at == seen {
			continue
		}
		if len(run.wakes) == wakeChunk {
			run.last = false
			break
		}
		seen = at
		run.wakes = append(run.wakes, delivery.Wake(at))
	}
	return m.it.Error()
}

// pop takes the first wake of all runs, and of other runs that repeat it.
func (m *wakeMerge) pop() error {
	run := m.runs[0]
	taken := delivery.WakeCursor(run.wakes[0])
	run.wakes = run.wakes[1:]
	if len(run.wakes) == 0 && !run.last {
		if err := m.read(run, taken); err != nil {
			return err
		}
	}
	if len(run.wakes) == 0 {
		heap.Pop(&m.runs)
	} else {
		heap.Fix(&m.runs, 0)
	}
	return nil
}

// wakeRuns is a heap by the first wake of each run.
type wakeRuns []*wakeRun

func (r wakeRuns) Len() int { return len(r) }

func (r wakeRuns) Less(i, j int) bool {
	a, b := r[i].wakes[0], r[j].wakes[0]
	return cmp.Or(a.Due.Compare(b.Due), cmp.Compare(a.Subscriber, b.Subscriber)) < 0
}

func (r wakeRuns) Swap(i, j int) { r[i], r[j] = r[j], r[i] }

// Push implements heap.Interface.
func (r *wakeRuns) Push(x any) { *r = append(*r, x.(*wakeRun)) }

// Pop implements heap.Interface.
func (r *wakeRuns) Pop() any {
	old := *r
	x := old[len(old)-1]
	*r = old[:len(old)-1]
	return x
}
