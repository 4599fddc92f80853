package storage

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestBacklogsNamesEverySubscriberWithSomethingToDoOnce(t *testing.T) {
	b := openBench(t, nil, func(c *Config) { c.Partitions = 5 })
	rng := rand.New(rand.NewPCG(1, 2))
	want := map[delivery.SubscriberNum]bool{}
	var parked []delivery.Fact
	for i := range 600 {
		sub := delivery.SubscriberNum(rng.Uint64() >> rng.IntN(60))
		if sub == 0 || want[sub] {
			continue
		}
		x := b.event(fmt.Sprint(i), sub)
		x.Targets[0].Key = 5
		later := i%4 == 0
		if later {
			x.Targets[0].Due = time.Now() // R: somebody else's business
		}
		b.publish(x)
		if i%3 == 0 && !later {
			m := b.moved(b.ready(sub)[0], delivery.NextParked, delivery.ReasonOrder, 0)
			m.Attempt = nil
			parked = append(parked, m)
		}
		want[sub] = !later
	}
	b.mustCommit(parked...)
	got := map[delivery.SubscriberNum]int{}
	for sub, err := range b.Backlogs(t.Context()) {
		noErr(t, err)
		got[sub]++
	}
	for sub, has := range want {
		if n := got[sub]; has && n != 1 || !has && n != 0 {
			t.Errorf("subscriber %d came %d times, has a backlog: %v", sub, n, has)
		}
	}
	n := 0
	for range b.Backlogs(t.Context()) { // it can be left
		if n++; n == 3 {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range b.Backlogs(ctx) {
		wantErr(t, err, context.Canceled)
	}
}

func TestWakesOfAllPartitionsComeInOneOrder(t *testing.T) {
	b := openBench(t, nil, func(c *Config) { c.Partitions = 7 })
	rng := rand.New(rand.NewPCG(3, 4))
	base := time.UnixMilli(1_800_000_000_000).UTC()
	var want []delivery.Wake
	for i := range 900 {
		sub := delivery.SubscriberNum(1 + rng.IntN(40))
		due := base.Add(time.Duration(rng.IntN(200)) * time.Second)
		x := b.event(fmt.Sprint(i), sub)
		x.Targets[0].Due = due
		b.publish(x)
		want = append(want, delivery.Wake{Due: due, Subscriber: sub})
	}
	slices.SortFunc(want, func(x, y delivery.Wake) int {
		return cmp.Or(x.Due.Compare(y.Due), cmp.Compare(x.Subscriber, y.Subscriber))
	})
	want = slices.Compact(want)
	until := base.Add(150 * time.Second)
	for _, limit := range []int{1, 13, 5000} {
		var got []delivery.Wake
		for at := (delivery.WakeCursor{}); ; {
			wakes, next, err := b.Wakes(at, until, limit)
			noErr(t, err)
			got = append(got, wakes...)
			if len(wakes) < limit {
				break
			}
			at = next
		}
		due := want[:slices.IndexFunc(want, func(w delivery.Wake) bool { return w.Due.After(until) })]
		if !slices.Equal(got, due) {
			t.Errorf("limit %d: %d wakes, want %d", limit, len(got), len(due))
		}
	}
	for _, after := range []time.Time{{}, base.Add(77 * time.Second), want[len(want)-1].Due} {
		i := slices.IndexFunc(want, func(w delivery.Wake) bool { return !w.Due.Before(after) })
		if at, ok, err := b.NextWake(after); err != nil || !ok || !at.Equal(want[i].Due) {
			t.Errorf("next wake from %v: %v %v %v, want %v", after, at, ok, err, want[i].Due)
		}
	}
	if _, ok, err := b.NextWake(base.Add(time.Hour)); ok || err != nil {
		t.Errorf("a wake after the last one: %v", err)
	}
}

// consume delivers all of a subscriber's ready rows, in large batches.
func (b *bench) consume(sub delivery.SubscriberNum) {
	b.tb.Helper()
	for {
		rows, err := b.Ready(sub, delivery.PriorityNormal, 0, 2000)
		noErr(b.tb, err)
		if len(rows) == 0 {
			return
		}
		var facts []delivery.Fact
		for _, r := range rows {
			m := b.delivered(r)
			m.Attempt = nil
			facts = append(facts, m)
		}
		b.mustCommit(facts...)
	}
}

// fillQueue publishes n events for a subscriber.
func (b *bench) fillQueue(n int, sub delivery.SubscriberNum) {
	b.tb.Helper()
	for n > 0 {
		var list []*delivery.Published
		for range min(n, 1000) {
			x := b.event(fmt.Sprint("f", b.keys.Load()), sub)
			x.Dedupe = nil
			list = append(list, x)
		}
		n -= len(list)
		for _, r := range b.Publish(context.Background(), list) {
			noErr(b.tb, r.Err)
		}
	}
}

// TestAConsumedQueueIsReadFromItsHeadWithoutWadingThroughIt looks at how many
// dead rows an iterator meets on its way to the first live one.
func TestAConsumedQueueIsReadFromItsHeadWithoutWadingThroughIt(t *testing.T) {
	b := openBench(t, nil, func(c *Config) { c.MemTable = 16 << 20 })
	flush := func() { noErr(t, b.view(func(db *pebble.DB) error { return db.Flush() })) }
	b.fillQueue(5*sweepAfter, 9)
	flush()
	b.consume(9)
	flush()
	live := b.publish(b.event("live", 9))
	rows := b.ready(9)
	if len(rows) != 1 || rows[0].Event != live.Event {
		t.Fatalf("rows %+v", rows)
	}
	noErr(t, b.view(func(db *pebble.DB) error {
		prefix := append(appendPartSub(nil, prefixReady, b.partition(9), 9), byte(delivery.PriorityNormal))
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keyAfter(prefix)})
		if err != nil {
			return err
		}
		defer it.Close()
		if !it.First() {
			t.Error("no row")
		}
		n := it.Stats().InternalStats.PointCount
		t.Logf("the iterator met %d keys", n)
		if n > 2*sweepAfter {
			t.Errorf("the iterator met %d keys of %d dead rows", n, 5*sweepAfter)
		}
		return nil
	}))
	// What was swept is gone for good, what lives stays over a reopening.
	noErr(t, b.Reopen())
	if rows := b.ready(9); len(rows) != 1 || rows[0].Event != live.Event {
		t.Errorf("after reopening: %+v", rows)
	}
}

func TestASweepNeverReachesALiveRow(t *testing.T) {
	b := openBench(t, nil)
	stuck := b.publish(b.event("stuck", 9)) // a head that nobody takes
	b.fillQueue(2*sweepAfter+10, 9)
	rows := b.ready(9)[1:]
	for chunk := range slices.Chunk(rows[:2*sweepAfter], 1024) {
		var facts []delivery.Fact
		for _, r := range chunk {
			m := b.retried(r, time.Now().Add(time.Hour))
			m.Attempt = nil
			facts = append(facts, m)
		}
		b.mustCommit(facts...)
	}
	left := b.ready(9)
	if len(left) != 11 || left[0].Event != stuck.Event {
		t.Fatalf("%d rows are left, want 11", len(left))
	}
	waiting := b.retrying(9)
	if len(waiting) != 2*sweepAfter {
		t.Fatalf("%d rows wait, want %d", len(waiting), 2*sweepAfter)
	}
	for chunk := range slices.Chunk(waiting[:2*sweepAfter-1], 1024) {
		var facts []delivery.Fact
		for _, r := range chunk {
			m := b.delivered(r)
			m.Attempt = nil
			facts = append(facts, m)
		}
		b.mustCommit(facts...)
	}
	b.publish(b.event("next", 1)) // a batch after the last sweep fell due
	last := waiting[len(waiting)-1]
	if waiting = b.retrying(9); len(waiting) != 1 || waiting[0] != last {
		t.Errorf("waiting %+v, want %+v", waiting, last)
	}
	if at, ok, err := b.NextWake(time.Time{}); err != nil || !ok || !at.Equal(last.Due) {
		t.Errorf("next wake %v %v %v", at, ok, err)
	}
	if len(b.ready(9)) != 11 {
		t.Errorf("%d rows are left, want 11", len(b.ready(9)))
	}
}

func TestHealthIsRemembered(t *testing.T) {
	b := openBench(t, nil)
	if _, ok, err := b.Health(4); ok || err != nil {
		t.Errorf("health of an unknown subscriber: %v %v", ok, err)
	}
	want := delivery.Health{Breaker: delivery.BreakerOpen, OpenUntil: time.Unix(9, 5).UTC(), Opens: 3, Consecutive: 12}
	b.mustCommit(&delivery.HealthChanged{Lease: b.Lease(), Subscriber: 4, Health: want})
	noErr(t, b.Reopen())
	if got, ok, err := b.Health(4); err != nil || !ok || got != want {
		t.Errorf("health %+v %v %v", got, ok, err)
	}
}
