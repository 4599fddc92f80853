package storage

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// failingReads fails one read of a file, the k-th one since it was armed.
type failingReads struct {
	from  atomic.Int64 // 0 = none
	n     atomic.Int64
	fired atomic.Bool
}

func (f *failingReads) MaybeError(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileRead, errorfs.OpFileReadAt, errorfs.OpOpen:
	default:
		return nil
	}
	if k := f.from.Load(); k == 0 || f.n.Add(1) != k {
		return nil
	}
	f.fired.Store(true)
	return errInjected
}

// String implements errorfs.Injector.
func (f *failingReads) String() string { return "failing reads" }

// TestEveryFailedReadReachesTheCallerOrChangesNothing fails each single read of
// a cold store in turn. Every question is answered with that error or as if
// nothing had happened, never with less; and once more, it is answered in full.
func TestEveryFailedReadReachesTheCallerOrChangesNothing(t *testing.T) {
	inj := &failingReads{}
	fs := errorfs.Wrap(InMemory(), inj)
	spooled := func(c *Config) { c.SpoolOver = 5000 }
	b := openBench(t, fs, spooled)
	key := fillForReads(b)
	b.close()
	b = openBench(t, fs, spooled)
	want := answers(t, b, key)
	b.close()
	seen := 0
	for k := int64(1); ; k++ {
		b, err := tryBench(t, fs, spooled)
		noErr(t, err)
		inj.n.Store(0)
		inj.fired.Store(false)
		inj.from.Store(k)
		got := answers(t, b, key)
		inj.from.Store(0)
		for i := range got {
			switch {
			case got[i].err == nil && got[i].text != want[i].text:
				t.Fatalf("read %d failed: %q is %s\nwant %s", k, got[i].what, got[i].text, want[i].text)
			case got[i].err != nil && !errors.Is(got[i].err, errInjected):
				t.Fatalf("read %d failed: %q: %v", k, got[i].what, got[i].err)
			case got[i].err != nil:
				seen++
			}
		}
		for i, again := range answers(t, b, key) {
			if again.err != nil || again.text != want[i].text {
				t.Fatalf("after read %d had failed: %q is %s, %v", k, again.what, again.text, again.err)
			}
		}
		b.close()
		if !inj.fired.Load() {
			t.Logf("%d reads, %d of them told to the caller", k-1, seen)
			if seen < 5 {
				t.Fatal("too few to mean anything")
			}
			return
		}
	}
}

// fillForReads stores something of each kind, in tables.
func fillForReads(b *bench) delivery.EventKey {
	b.tb.Helper()
	var key delivery.EventKey
	for i := range 60 { // more than the blocks that opening reads
		x := b.event(fmt.Sprint("e", i), 1, 2)
		x.Event.Payload = fmt.Appendf(nil, "%03000d", i)
		if i%3 == 0 {
			x.Event.Payload = fmt.Appendf(nil, "%06000d", i) // a file
		}
		key = b.publish(x).Event
	}
	rows := b.ready(1)
	b.mustCommit(b.died(rows[59]), b.delivered(rows[0]), b.retried(rows[1], rows[1].Event.Time().Add(time.Hour)))
	noErr(b.tb, b.view(func(db *pebble.DB) error {
		return errors.Join(db.Flush(), db.Compact(b.tb.Context(), []byte{0}, []byte{0xFF}, false))
	}))
	return key
}

// answer is what a question to the store came to.
type answer struct {
	what, text string
	err        error
}

// answers asks everything that a scheduler and a user ask.
func answers(t *testing.T, b *bench, key delivery.EventKey) (list []answer) {
	t.Helper()
	add := func(what string, err error, v any) { list = append(list, answer{what, fmt.Sprintf("%+v", v), err}) }
	rows, err := b.Ready(1, delivery.PriorityNormal, 0, 100)
	add("ready", err, rows)
	rows, err = b.Retrying(1, time.Time{}, 0, 100)
	add("retrying", err, rows)
	event, err := b.Event(t.Context(), key)
	if err == nil {
		add("event", nil, *event)
	} else {
		add("event", err, "")
	}
	info, err := b.Delivery(t.Context(), key, 1)
	add("delivery", err, fmt.Sprint(info.State, info.Reason))
	page, err := b.Deliveries(t.Context(), Filter{Tenant: 7}, "", 100)
	keys := eventsOf(page.Items)
	for _, item := range page.Items {
		err = errors.Join(err, item.Err)
	}
	add("deliveries", err, keys)
	page, err = b.DeadLetters(t.Context(), Filter{Tenant: 7}, "", 100)
	for _, item := range page.Items {
		err = errors.Join(err, item.Err)
	}
	add("dead letters", err, eventsOf(page.Items))
	var subs []delivery.SubscriberNum
	for sub, e := range b.Backlogs(t.Context()) {
		if err = e; err != nil {
			break
		}
		subs = append(subs, sub)
	}
	add("backlogs", err, subs)
	return list
}

// TestEveryFailedSyncAndEveryFullDiskReachesTheCaller is the k-th-write loop for
// syncs alone, and for a disk without room.
func TestEveryFailedSyncAndEveryFullDiskReachesTheCaller(t *testing.T) {
	for _, c := range []struct {
		name  string
		syncs bool
		err   error
		few   int64
	}{
		{"sync", true, nil, 8},
		{"no space", false, syscall.ENOSPC, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			for k := int64(1); ; k++ {
				if !failFrom(t, &injected{from: k, syncs: c.syncs, err: c.err}) {
					t.Logf("%d times", k-1)
					if k < c.few {
						t.Fatal("the script is too short to mean anything")
					}
					return
				}
			}
		})
	}
}

// TestOnePartitionIsDroppedAndBuiltAgainWithoutTouchingAnother: its rows are a
// range of each partitioned kind, and the facts bring back exactly those.
func TestOnePartitionIsDroppedAndBuiltAgainWithoutTouchingAnother(t *testing.T) {
	rec := &recorder{}
	b := openBench(t, nil, rec.config)
	s := newSim(b, rec, 3)
	for range 300 {
		s.step()
		noErr(t, s.err)
	}
	facts := rec.list()
	db := foldInto(t, facts, b.Partitions(), false)
	defer func() { noErr(t, db.Close()) }()
	before := dump(t, db)
	for _, sub := range simSubs[:4] {
		p := b.partition(sub)
		drop := db.NewBatch()
		mine := map[string]bool{}
		for _, kind := range []byte{prefixReady, prefixRetry, prefixParked, prefixBlocked, prefixWake, prefixLease, prefixHealth, prefixTime, prefixDead, prefixDied} {
			from := appendPart(nil, kind, p)
			noErr(t, drop.DeleteRange(from, keyAfter(from), nil))
			mine[fmt.Sprintf("%c %x", kind, from[1:])] = true
		}
		noErr(t, db.Apply(drop, pebble.NoSync))
		width := 2 * len(appendPart(nil, prefixReady, p)) // letter, space, hexadecimal
		others := slices.DeleteFunc(slices.Clone(before), func(row string) bool { return len(row) >= width && mine[row[:width]] })
		if len(others) == len(before) {
			t.Fatalf("partition %d has no rows: nothing to test", p)
		}
		sameRows(t, "the other partitions", dump(t, db), others)
		again := db.NewBatch()
		for _, f := range facts {
			fact, err := DecodeFact(f.bytes)
			noErr(t, err)
			noErr(t, Apply(again, b.Partitions(), p, f.pos, fact))
		}
		noErr(t, db.Apply(again, pebble.NoSync))
		sameRows(t, "built again", dump(t, db), before)
	}
}
