package storage

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestCases are the reported cases of the store; the others are where they
// belong.
func TestCases(t *testing.T) {
	t.Run("Q1", testAcceptedThenKilled)
	t.Run("Q2", testKilledAfterThePOST)
	t.Run("Q3", testLeftInFlight)
	t.Run("Q4", testSizeFallsToItsBound)
	t.Run("Q6", testStallAndReopening)
	t.Run("Q8", func(t *testing.T) {
		t.Run("registry", testOneRowUnderALostKey)
		t.Run("deliveries", testOneDamagedDelivery)
	})
	t.Run("Q11", testFullDisk)
}

// crashed opens what a crash of the machine would leave.
func (b *bench) crashed(t *testing.T) *bench {
	t.Helper()
	return openBench(t, b.fs.(*vfs.MemFS).CrashClone(vfs.CrashCloneCfg{}))
}

// Q1: accepted and killed before the first attempt: the delivery is found after
// the restart, without new traffic.
func testAcceptedThenKilled(t *testing.T) {
	b := openBench(t, nil)
	r := b.publish(b.event("a", 3))
	later := b.event("b", 4)
	later.Targets[0].Due = time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	b.publish(later)
	b = b.crashed(t)
	var found []delivery.SubscriberNum
	for sub, err := range b.Backlogs(t.Context()) {
		noErr(t, err)
		found = append(found, sub)
	}
	if len(found) != 1 || found[0] != 3 {
		t.Fatalf("backlogs of %v", found)
	}
	rows := b.ready(3)
	if len(rows) != 1 || rows[0].Event != r.Event || rows[0].LeasedBy != 0 {
		t.Errorf("rows %+v", rows)
	}
	if at, ok, err := b.NextWake(time.Time{}); err != nil || !ok || !at.Equal(later.Targets[0].Due) {
		t.Errorf("next wake %v %v %v", at, ok, err)
	}
}

// Q2: killed after the POST was written and before its outcome was stored: the
// row says that it was handed out by a dead epoch, the attempt that was lost goes
// on the timeline as one that may have been sent, and the id stays.
func testKilledAfterThePOST(t *testing.T) {
	b := openBench(t, nil)
	x := b.event("a", 1)
	x.Targets[0].Leased = true // the fast path
	r := b.publish(x)
	second := b.publish(b.event("b", 1)) // loaded from disk later
	b.mustCommit(&delivery.Leased{Lease: b.Lease(), Subscriber: 1, Lane: delivery.PriorityNormal, UpTo: second.Position})
	third := b.publish(b.event("c", 1)) // never handed out
	dead := b.Lease().Epoch

	b = b.crashed(t)
	rows := b.ready(1)
	if len(rows) != 3 || rows[0].LeasedBy != dead || rows[1].LeasedBy != dead || rows[2].LeasedBy != 0 || rows[2].Event != third.Event {
		t.Fatalf("rows %+v", rows)
	}
	m := b.delivered(rows[0])
	m.Prior = &delivery.Attempt{
		Number: 1, LeasedAt: m.At.Add(-time.Minute), Lease: delivery.Lease{Node: "n1", Epoch: dead},
		Result:  delivery.Result{Cause: delivery.CauseRecovered, Sent: delivery.SentAmbiguous},
		Outcome: delivery.Outcome{Class: delivery.ClassUnknown, Reason: delivery.ReasonRecovered},
	}
	m.Attempt.Number = 2
	b.mustCommit(m)
	d, err := b.Delivery(t.Context(), r.Event, 1)
	noErr(t, err)
	if d.Attempts != 2 || d.Header.ID != "a" || d.State != delivery.StateDelivered {
		t.Errorf("delivery %+v", d.Summary)
	}
	lost := d.Timeline[2]
	if lost.State != delivery.StateAttempted || lost.Reason != delivery.ReasonRecovered || lost.Attempt.Lease.Epoch != dead ||
		lost.Attempt.Result.Sent != delivery.SentAmbiguous {
		t.Errorf("the lost attempt: %+v", lost)
	}
}

// Q3: what was in flight is reclaimed once, and two instances never both have it.
func testLeftInFlight(t *testing.T) {
	b := openBench(t, nil)
	x := b.event("a", 1)
	x.Targets[0].Leased = true
	b.publish(x)
	if _, err := tryBench(t, b.fs); !errors.Is(err, ErrLocked) {
		t.Fatalf("a second instance: %v", err)
	}
	first := b.delivered(b.ready(1)[0]) // an answer that comes when the node is back already
	noErr(t, b.Reopen())
	rows := b.ready(1)
	if len(rows) != 1 || rows[0].LeasedBy == 0 || rows[0].LeasedBy == b.Lease().Epoch {
		t.Fatalf("rows %+v", rows)
	}
	b.mustCommit(b.delivered(rows[0]))
	wantErr(t, b.commitNow(first), ErrFenced)
	if rows := b.ready(1); len(rows) != 0 {
		t.Errorf("rows %+v", rows)
	}
}

// Q4: many are delivered, then their retention passes: the size of the store
// falls to a bound.
func testSizeFallsToItsBound(t *testing.T) {
	b := openBench(t, nil)
	old := time.Now().Add(-20 * day).Truncate(time.Hour)
	payload := make([]byte, 1000)
	for i := range payload {
		payload[i] = byte(i * i >> 3) // something that does not compress away
	}
	const events = 6000
	for from := 0; from < events; from += 500 {
		var list []*delivery.Published
		for i := from; i < from+500; i++ {
			x := eventAt(old.Add(time.Duration(i)*time.Minute), uint64(i), fmt.Sprint(i), 1)
			x.Event.Payload = fmt.Appendf(nil, "%d%s", i, payload)
			list = append(list, x)
		}
		for _, r := range b.Publish(t.Context(), list) {
			noErr(t, r.Err)
		}
		b.consume(1)
	}
	noErr(t, b.view(func(db *pebble.DB) error { return db.Flush() }))
	before := b.tableBytes()
	info, err := b.Retain(t.Context())
	noErr(t, err)
	noErr(t, b.view(func(db *pebble.DB) error { return db.Flush() }))
	after := b.tableBytes()
	t.Logf("%d bytes of tables before, %d after (horizon %v)", before, after, info.Horizon)
	if before < 1<<20 || after > before/20 {
		t.Errorf("%d bytes of tables before, %d after", before, after)
	}
}

// tableBytes is the size of the tables that count.
func (b *bench) tableBytes() (n uint64) {
	noErr(b.tb, b.view(func(db *pebble.DB) error {
		total := db.Metrics().Total()
		n = uint64(total.TablesSize)
		return nil
	}))
	return n
}

// Q6: the disk stalls, then fails, then works: what was accepted is there, new
// events are accepted without a restart, and health is red meanwhile.
func testStallAndReopening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inj, g := &injected{from: 1}, &gate{}
		inj.heal.Store(true)
		failures := 0
		b := openBench(t, errorfs.Wrap(errorfs.Wrap(InMemory(), inj), g), func(c *Config) {
			c.Observer.Failed = func(error) { failures++ }
		})
		b.publish(b.event("accepted", 1))

		// Stall: a publisher waits as long as it likes, nothing is lost or doubled.
		g.shut()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r := b.Publish(ctx, []*delivery.Published{b.event("stalled", 1)})
		wantErr(t, r[0].Err, delivery.ErrUnknownCommit)
		noErr(t, b.Accepting())
		time.Sleep(6 * time.Second)
		wantErr(t, b.Accepting(), delivery.ErrNotReady)
		r = b.Publish(t.Context(), []*delivery.Published{b.event("refused", 1)}) // at once
		wantErr(t, r[0].Err, delivery.ErrNotReady)
		noErr(t, b.Healthy()) // nothing has failed
		g.lift()
		synctest.Wait()
		noErr(t, b.Accepting())
		if r := b.publish(b.event("stalled", 1)); !r.Deduplicated {
			t.Errorf("after the stall: %+v", r)
		}
		noErr(t, b.Healthy())

		// Failure: red, with the reason, until it is opened again.
		inj.heal.Store(false)
		r = b.Publish(t.Context(), []*delivery.Published{b.event("refused", 1)})
		wantErr(t, r[0].Err, delivery.ErrNotReady)
		wantErr(t, b.Healthy(), errInjected)
		if err := b.Reopen(); !errors.Is(err, errInjected) {
			t.Errorf("opened on a disk that fails: %v", err)
		}
		wantErr(t, b.Healthy(), delivery.ErrNotReady)
		inj.heal.Store(true)
		noErr(t, b.Reopen())
		noErr(t, b.Healthy())
		if failures != 1 {
			t.Errorf("%d failures were reported: one that stops an opening is its error", failures)
		}
		b.publish(b.event("new", 1))
		var ids []string
		for _, row := range b.ready(1) {
			e, err := b.Event(t.Context(), row.Event)
			noErr(t, err)
			ids = append(ids, e.ID)
		}
		if fmt.Sprint(ids) != "[accepted stalled new]" {
			t.Errorf("events %v", ids)
		}
		b.close()
	})
}

// Q8: one row that cannot be read: the list works and that row says so.
func testOneDamagedDelivery(t *testing.T) {
	b := openBench(t, nil)
	var keys []delivery.EventKey
	for i := range 5 {
		keys = append(keys, b.publish(b.event(fmt.Sprint(i), 1)).Event)
		b.mustCommit(b.died(b.ready(1)[0]))
	}
	p := b.partition(1)
	noErr(t, b.view(func(db *pebble.DB) error {
		return errors.Join(
			db.Set(appendTimeRow(nil, p, 1, keys[1]), []byte("?"), pebble.Sync),
			db.Set(appendEventRow(nil, keys[2]), []byte("?"), pebble.Sync),
			db.Set(appendDeadRow(nil, p, 1, keys[3]), []byte("?"), pebble.Sync))
	}))
	check := func(what string, page Page, err error, damaged ...int) {
		t.Helper()
		if err != nil || len(page.Items) != 5 {
			t.Fatalf("%s: %d items, %v", what, len(page.Items), err)
		}
		for i, item := range page.Items {
			n := 4 - i // newest first
			want := false
			for _, d := range damaged {
				want = want || d == n
			}
			if item.Event != keys[n] || (item.Err != nil) != want {
				t.Errorf("%s: item %d is event %s with %v, damaged: %v", what, i, item.Event, item.Err, want)
			}
		}
	}
	page, err := b.Deliveries(t.Context(), Filter{Subscriber: 1}, "", 10)
	check("by subscriber", page, err, 1, 2)
	page, err = b.Deliveries(t.Context(), Filter{Tenant: 7}, "", 10)
	check("by tenant", page, err, 1, 2)
	page, err = b.DeadLetters(t.Context(), Filter{Subscriber: 1}, "", 10)
	check("dead letters", page, err, 3)
	// What cannot be read can still be removed.
	noErr(t, b.ExpungeTenant(t.Context(), time.Now(), 7))
	if page, err := b.Deliveries(t.Context(), Filter{Tenant: 7}, "", 10); err != nil || len(page.Items) != 0 {
		t.Errorf("after the deletion: %+v, %v", page, err)
	}
}

// Q11: at the watermark publishes are refused and told when to come back, while
// deliveries drain, and nothing accepted is lost.
func testFullDisk(t *testing.T) {
	free := uint64(1 << 40)
	b := openBench(t, nil, func(c *Config) {
		c.Watermark.Usage = func() (uint64, uint64, error) { return free, 1 << 40, nil }
	})
	for i := range 10 {
		b.publish(b.event(fmt.Sprint(i), 1))
	}
	free = 1 << 20
	b.disk.check(b.Store)
	r := b.Publish(t.Context(), []*delivery.Published{b.event("refused", 1)})
	full, ok := errors.AsType[*delivery.StoreFullError](r[0].Err)
	if !ok || full.RetryAfter <= 0 || full.Free != free {
		t.Fatalf("at the watermark: %v", r[0].Err)
	}
	noErr(t, b.Healthy())
	rows := b.ready(1)
	for _, row := range rows {
		b.mustCommit(b.delivered(row))
	}
	if len(rows) != 10 || len(b.ready(1)) != 0 {
		t.Errorf("%d rows, %d left", len(rows), len(b.ready(1)))
	}
	free = 1 << 40
	b.disk.check(b.Store)
	b.publish(b.event("accepted again", 1))
}
