package storage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// deadAt publishes an event of a tenant and lets it die at a time.
func (b *bench) deadAt(tenant delivery.TenantNum, n uint64, accepted, at time.Time, sub delivery.SubscriberNum) DeliveryRef {
	b.tb.Helper()
	x := eventAt(accepted, n, fmt.Sprint("e", n), sub)
	x.Event.Tenant = tenant
	r := b.publish(x)
	m := b.died(b.ready(sub)[0])
	m.At = at
	b.mustCommit(m)
	return DeliveryRef{r.Event, sub}
}

func refsOf(items []Summary) (refs []DeliveryRef) {
	for _, item := range items {
		refs = append(refs, DeliveryRef{item.Event, item.Subscriber})
	}
	return refs
}

// allDead reads a list in pages of a size.
func (b *bench) allDead(f Filter, size int) (refs []DeliveryRef) {
	b.tb.Helper()
	for cursor, first := "", true; first || cursor != ""; first = false {
		page, err := b.DeadLetters(b.tb.Context(), f, cursor, size)
		noErr(b.tb, err)
		if len(page.Items) > size {
			b.tb.Fatalf("a page of %d, asked for %d", len(page.Items), size)
		}
		refs, cursor = append(refs, refsOf(page.Items)...), page.Next
	}
	return refs
}

func TestWhatDiedLastIsListedFirstOverAWholeTenant(t *testing.T) {
	b := openBench(t, nil)
	base := time.UnixMilli(1_700_000_000_000).UTC()
	at := func(minute int) time.Time { return base.Add(time.Duration(minute) * time.Minute) }
	// Accepted in one order, dead in another one, by turns at three subscribers.
	var mine []DeliveryRef
	for i := range 30 {
		mine = append(mine, b.deadAt(7, uint64(i), at(i), at(100-i), simSubs[i%3]))
	}
	b.deadAt(8, 99, at(1), at(50), simSubs[0]) // another tenant's
	for _, size := range []int{1, 7, 1000} {
		if got := b.allDead(Filter{Tenant: 7}, size); !slices.Equal(got, mine) {
			t.Errorf("pages of %d: %v\nwant %v", size, got, mine)
		}
	}
	only := slices.DeleteFunc(slices.Clone(mine), func(d DeliveryRef) bool { return d.Subscriber != simSubs[1] })
	if got := b.allDead(Filter{Tenant: 7, Subscriber: simSubs[1]}, 3); !slices.Equal(got, only) {
		t.Errorf("of a subscriber: %v\nwant %v", got, only)
	}
	// Of those accepted in [5, 20) the ones that died before 90.
	f := Filter{Tenant: 7, Since: at(5), Until: at(20), DiedBefore: at(90)}
	if got := b.allDead(f, 4); !slices.Equal(got, mine[11:20]) {
		t.Errorf("of a time: %v\nwant %v", got, mine[11:20])
	}
	if _, err := b.DeadLetters(t.Context(), Filter{}, "", 1); !errors.Is(err, ErrBadFilter) {
		t.Errorf("without tenant and subscriber: %v", err)
	}
	// What is replayed and dies again is the newest, and a listing that is under way
	// does not meet it.
	page, err := b.DeadLetters(t.Context(), Filter{Tenant: 7}, "", 10)
	noErr(t, err)
	last := mine[29]
	noErr(t, b.Replay(t.Context(), at(200), []Replay{{Event: last.Event, Subscriber: &delivery.Subscriber{Num: last.Subscriber}}})[0])
	m := b.died(b.ready(last.Subscriber)[0])
	m.At = at(201)
	b.mustCommit(m)
	rest, err := b.DeadLetters(t.Context(), Filter{Tenant: 7}, page.Next, 100)
	noErr(t, err)
	if got := refsOf(rest.Items); !slices.Equal(got, mine[10:29]) {
		t.Errorf("the listing goes on with %v\nwant %v", got, mine[10:29])
	}
	if got := b.allDead(Filter{Tenant: 7}, 100); got[0] != last || len(got) != 30 {
		t.Errorf("died again: %v", got)
	}
	b.checkClean()
}

// checkClean fails the test if Check finds a fault.
func (b *bench) checkClean() {
	b.tb.Helper()
	report, err := b.Check(b.tb.Context(), nil)
	noErr(b.tb, err)
	if report.Bad != 0 {
		b.tb.Errorf("check found %d faults: %v", report.Bad, report.Faults)
	}
}

// A clock that is set back must not hide a dead letter from a filter by time.
func TestADeadLetterOfAClockThatWasSetBackIsListed(t *testing.T) {
	b := openBench(t, nil)
	accepted := time.Now().Truncate(time.Millisecond)
	ref := b.deadAt(7, 1, accepted, accepted.Add(-30*24*time.Hour), 1)
	for _, f := range []Filter{{Tenant: 7, Since: accepted}, {Subscriber: 1, Since: accepted, Until: accepted.Add(time.Second)}} {
		if got := b.allDead(f, 10); !slices.Equal(got, []DeliveryRef{ref}) {
			t.Errorf("%+v: %v", f, got)
		}
	}
	info, err := b.Retain(t.Context())
	noErr(t, err)
	if info.Dead != 0 {
		t.Error("it went with its first retention run")
	}
	b.checkClean()
}

func TestCheckNamesWhatTheListsOfDeadLettersLack(t *testing.T) {
	b := openBench(t, nil)
	now := time.Now()
	refs := []DeliveryRef{b.deadAt(7, 1, now, now, 1), b.deadAt(7, 2, now, now, 1), b.deadAt(7, 3, now, now, 2)}
	b.checkClean()
	name := func(i int) *delivery.DeadLetter {
		return &delivery.DeadLetter{Tenant: 7, Subscriber: refs[i].Subscriber, Event: refs[i].Event, At: diedAt(now, refs[i].Event)}
	}
	noErr(t, b.view(func(db *pebble.DB) error {
		return errors.Join(
			db.Delete(appendDiedRow(nil, b.partition(1), name(0)), pebble.Sync),
			db.Delete(appendTenantDeadRow(nil, name(1)), pebble.Sync),
			db.Delete(appendDeadRow(nil, b.partition(2), 2, refs[2].Event), pebble.Sync))
	}))
	report, err := b.Check(t.Context(), nil)
	noErr(t, err)
	all := strings.Join(report.Faults, "\n")
	for _, want := range []string{"missing in the list of its subscriber", "missing in the list of its tenant", "which is missing"} {
		if !strings.Contains(all, want) {
			t.Errorf("no fault says %q", want)
		}
	}
	if report.Bad != 4 { // the last one is listed twice
		t.Errorf("%d faults:\n%s", report.Bad, all)
	}
}

// TestAStoreOfFormatOneIsBroughtToThisOne: format 1 had no lists of dead letters,
// and dead letters of events that had been deleted.
func TestAStoreOfFormatOneIsBroughtToThisOne(t *testing.T) {
	b := openBench(t, nil)
	now := time.Now().Truncate(time.Millisecond)
	var want []DeliveryRef
	for i := range 2*migrateStep + 10 {
		want = append(want, b.deadAt(delivery.TenantNum(7+i%2), uint64(i), now, now.Add(time.Duration(i)*time.Second), simSubs[i%6]))
	}
	slices.Reverse(want)
	rows := b.dump()
	empty := appendDeadRow(nil, b.partition(1), 1, eventKey(now, 1<<40))
	noErr(t, b.view(func(db *pebble.DB) error {
		old := db.NewBatch()
		for _, prefix := range [][]byte{{prefixDied}, {prefixIndex, indexTenantDead}} {
			noErr(t, old.DeleteRange(prefix, keyAfter(prefix), nil))
		}
		// What a migration that was killed and a format 1 after it may leave.
		stray := &delivery.DeadLetter{Tenant: 7, Subscriber: 1, Event: eventKey(now, 1), At: now}
		noErr(t, old.Set(appendTenantDeadRow(nil, stray), nil, nil))
		noErr(t, old.Set(empty, appendDead(nil, &delivery.Moved{At: now}), nil))
		noErr(t, setMeta(old, metaFormat, 1))
		return db.Apply(old, pebble.Sync)
	}))
	b.close()
	b = openBench(t, b.fs)
	sameRows(t, "after the migration", b.dump(), rows)
	b.checkClean()
	var got []DeliveryRef
	for _, tenant := range []delivery.TenantNum{7, 8} {
		got = append(got, b.allDead(Filter{Tenant: tenant}, 1000)...)
	}
	if len(got) != len(want) || got[0] != want[1] {
		t.Errorf("%d dead letters are listed, want %d", len(got), len(want))
	}
	noErr(t, b.view(func(db *pebble.DB) error {
		if format, _, err := readMeta(db, metaFormat); err != nil || format != FormatVersion {
			t.Errorf("format %d, %v", format, err)
		}
		return nil
	}))
	b.close()
	sameRows(t, "opened again", openBench(t, b.fs).dump(), rows)
}

// BenchmarkDeadLettersOfATenant reads the first page of lists of different lengths:
// what a page costs does not depend on what lies behind it.
func BenchmarkDeadLettersOfATenant(bb *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		bb.Run(fmt.Sprintf("%d over 1000 subscribers", n), func(bb *testing.B) {
			b := openBench(bb, nil, func(c *Config) { c.MemTable, c.Cache = 32<<20, 64<<20 })
			now := time.Now()
			f := fold{partitions: b.Partitions(), all: true}
			noErr(bb, b.view(func(db *pebble.DB) error {
				for from := 0; from < n; from += 1000 {
					batch := db.NewBatch()
					for i := from; i < from+1000; i++ {
						sub := delivery.SubscriberNum(1 + i%1000)
						x := eventAt(now, uint64(i), "e", sub)
						m := &delivery.Moved{
							Row: delivery.Row{Subscriber: sub, Event: x.Event.Key}, At: now.Add(time.Duration(i) * time.Millisecond),
							Reason: delivery.ReasonExhausted, Copy: x.Event,
						}
						noErr(bb, f.putDead(batch, b.partition(sub), m))
					}
					noErr(bb, db.Apply(batch, pebble.NoSync))
				}
				return db.Flush()
			}))
			for bb.Loop() {
				page, err := b.DeadLetters(bb.Context(), Filter{Tenant: 7}, "", 100)
				if err != nil || len(page.Items) != 100 {
					bb.Fatalf("%d items, %v", len(page.Items), err)
				}
			}
		})
	}
}
