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

// met is how many keys an iterator meets on its way to the first row of a run, as
// reads of it begin.
func (b *bench) met(ref queueRef) (n int) {
	b.tb.Helper()
	noErr(b.tb, b.view(func(db *pebble.DB) error {
		from, end := b.heads.span(ref, headAt{})
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: end})
		if err != nil {
			return err
		}
		defer it.Close()
		it.First()
		n = int(it.Stats().InternalStats.PointCount)
		return it.Error()
	}))
	return n
}

// TestAConsumedQueueIsReadFromItsHeadWithoutWadingThroughIt looks at how many dead
// rows are between the beginning of a read and the first live one.
func TestAConsumedQueueIsReadFromItsHeadWithoutWadingThroughIt(t *testing.T) {
	const look, rows = 64, 64*64 + 40
	for _, flushed := range []bool{false, true} {
		b := openBench(t, nil, func(c *Config) { c.MemTable, c.lookAfter = 16<<20, look })
		flush := func() {
			if flushed {
				noErr(t, b.view(func(db *pebble.DB) error { return db.Flush() }))
			}
		}
		lane := queueRef{prefixReady, b.partition(9), 9, uint64(delivery.PriorityNormal)}
		waiting := queueRef{prefixRetry, b.partition(9), 9, 0}
		b.fillQueue(rows, 9)
		flush()
		for _, r := range b.ready(9) {
			b.Commit([]delivery.Fact{b.retried(r, time.Now().Add(time.Duration(r.Seq)*time.Second))}, func(err error) { noErr(t, err) })
		}
		flush()
		live := b.publish(b.event("live", 9))
		for _, r := range b.retrying(9)[:rows-1] {
			b.Commit([]delivery.Fact{b.delivered(r)}, func(err error) { noErr(t, err) })
		}
		flush()
		b.publish(b.event("goes into a batch with those, or after them", 1))
		b.publish(b.event("goes into a batch after those", 1))
		// A row and its tombstone count as two.
		if n, m := b.met(lane), b.met(waiting); n > 2*look+2 || m > 2*look+2 {
			t.Errorf("flushed %v: reads met %d and %d keys of %d dead rows", flushed, n, m, rows)
		}
		// A row that will be due earlier is not overlooked.
		early := b.event("early", 9)
		early.Targets[0].Due = time.Now()
		b.publish(early)
		if got := b.retrying(9); len(got) != 2 || got[0].Event != early.Event.Key {
			t.Errorf("waiting: %+v", got)
		}
		// What was swept is gone for good, what lives stays over a reopening.
		for range 2 {
			if got := b.ready(9); len(got) != 1 || got[0].Event != live.Event {
				t.Errorf("flushed %v: rows %+v", flushed, got)
			}
			noErr(t, b.Reopen())
		}
		b.close()
	}
}

func TestASweepNeverReachesALiveRow(t *testing.T) {
	b := openBench(t, nil)
	covered := coverLooks * b.cfg.lookAfter
	stuck := b.publish(b.event("stuck", 9)) // a head that nobody takes
	b.fillQueue(2*covered+10, 9)
	rows := b.ready(9)[1:]
	for chunk := range slices.Chunk(rows[:2*covered], 1024) {
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
	if len(waiting) != 2*covered {
		t.Fatalf("%d rows wait, want %d", len(waiting), 2*covered)
	}
	for chunk := range slices.Chunk(waiting[:2*covered-1], 1024) {
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
