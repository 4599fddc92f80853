package storage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// oneOfEach publishes an event that is delivered and one that dies, both now.
func (b *bench) oneOfEach() (done, dead delivery.Receipt) {
	b.tb.Helper()
	done = b.publish(eventAt(time.Now(), 1, "done", 1))
	b.mustCommit(b.delivered(b.ready(1)[0]))
	dead = b.publish(eventAt(time.Now(), 2, "dead", 2))
	m := b.died(b.ready(2)[0])
	m.At = time.Now()
	b.mustCommit(m)
	return done, dead
}

func TestRetentionRunsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs []RetainInfo
		b := openBench(t, nil, func(c *Config) {
			c.Retention = Retention{Events: 2 * time.Hour, Dead: 5 * time.Hour, Every: 30 * time.Minute}
			c.DedupeWindow, c.Watermark.Bytes, c.Partitions = time.Hour, -1, 16
			c.Observer.Retained = func(i RetainInfo) { runs = append(runs, i) }
		})
		noErr(t, b.Start(t.Context()))
		done, dead := b.oneOfEach()

		time.Sleep(2 * time.Hour)
		_, err := b.Event(t.Context(), done.Event)
		noErr(t, err)
		time.Sleep(90 * time.Minute)
		_, err = b.Event(t.Context(), done.Event)
		wantErr(t, err, delivery.ErrEventGone)
		_, err = b.Delivery(t.Context(), done.Event, 1)
		wantErr(t, err, delivery.ErrNoDelivery)
		_, _, err = b.DeadLetter(t.Context(), dead.Event, 2)
		noErr(t, err)
		time.Sleep(2 * time.Hour)
		_, _, err = b.DeadLetter(t.Context(), dead.Event, 2)
		wantErr(t, err, delivery.ErrNoDelivery)
		b.close()
		if len(runs) != 11 || runs[10].Err != nil {
			t.Errorf("%d runs, the last: %+v", len(runs), runs[len(runs)-1])
		}
	})
}

// TestRetentionCanBeChangedWhileItRuns: what is finished goes when the time that holds
// now has passed, whatever held when it was finished.
func TestRetentionCanBeChangedWhileItRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := openBench(t, nil, func(c *Config) {
			c.Retention = Retention{Events: 100 * time.Hour, Dead: 200 * time.Hour, Every: 30 * time.Minute}
			c.DedupeWindow, c.Watermark.Bytes = time.Hour, -1
		})
		noErr(t, b.Start(t.Context()))
		done, dead := b.oneOfEach()
		kept := func(event, letter bool) {
			t.Helper()
			_, err := b.Event(t.Context(), done.Event)
			if event != (err == nil) {
				t.Errorf("the event: %v", err)
			}
			if _, _, err = b.DeadLetter(t.Context(), dead.Event, 2); letter != (err == nil) {
				t.Errorf("the dead letter: %v", err)
			}
		}
		time.Sleep(6 * time.Hour)
		kept(true, true)
		b.SetRetention(Retention{Events: 4 * time.Hour, Dead: 200 * time.Hour})
		time.Sleep(31 * time.Minute)
		kept(false, true)
		b.SetRetention(Retention{Events: 4 * time.Hour, Dead: 5 * time.Hour})
		time.Sleep(31 * time.Minute)
		kept(false, false)
		b.close()
	})
}

func TestNothingIsLeftOfWhatHasPassed(t *testing.T) {
	b := openBench(t, nil, func(c *Config) { c.SpoolOver = 30 })
	old := time.Now().Add(-60 * day).Truncate(time.Hour)
	for i := range 200 {
		x := eventAt(old.Add(time.Duration(i)*17*time.Minute), uint64(i), fmt.Sprint("event", i), simSubs[i%6], simSubs[(i+1)%6])
		x.Event.Tenant = delivery.TenantNum(1 + i%5)
		if i%10 == 0 {
			x.Event.Payload = make([]byte, 100) // a file
		}
		b.publish(x)
	}
	for n, sub := range simSubs {
		for i, row := range b.ready(sub) {
			m := b.delivered(row)
			if (n+i)%3 == 0 {
				m = b.died(row)
			}
			m.At = row.Event.Time()
			b.mustCommit(m)
		}
	}
	info, err := b.Retain(t.Context())
	noErr(t, err)
	if info.Dead == 0 || info.Spooled == 0 || info.OpenHours != 0 {
		t.Errorf("run %+v", info)
	}
	if rows := b.dump(); len(rows) != 0 {
		t.Errorf("%d rows are left, the first: %s", len(rows), rows[0])
	}
	if names, err := b.spool.dir.list(); err != nil || len(names) != 0 {
		t.Errorf("spool holds %v, %v", names, err)
	}
}

// TestALateEntryOnATimelineGoesWithTheNextRun: a purge writes on the timeline of a
// delivery whose hour has passed.
func TestALateEntryOnATimelineGoesWithTheNextRun(t *testing.T) {
	b := openBench(t, nil)
	old := time.Now().Add(-10 * day)
	r := b.publish(eventAt(old, 1, "a", 1))
	m := b.died(b.ready(1)[0])
	m.At = time.Now()
	b.mustCommit(m)
	_, err := b.Retain(t.Context())
	noErr(t, err)
	noErr(t, b.Purge(t.Context(), time.Now(), []DeliveryRef{{r.Event, 1}})[0])
	if !slices.ContainsFunc(b.dump(), func(row string) bool { return row[0] == prefixTime }) {
		t.Fatal("the purge left no entry: nothing to test")
	}
	_, err = b.Retain(t.Context())
	noErr(t, err)
	if rows := b.dump(); len(rows) != 0 {
		t.Errorf("left: %v", rows)
	}
}

func TestADeadLetterCountsFromItsDeath(t *testing.T) {
	b := openBench(t, nil)
	old := time.Now().Add(-90 * day)
	long := b.publish(eventAt(old, 1, "waited for two months", 1))
	m := b.died(b.ready(1)[0])
	m.At = time.Now().Add(-29 * day)
	b.mustCommit(m)
	gone := b.publish(eventAt(old, 2, "died long ago", 1))
	m = b.died(b.ready(1)[0])
	m.At = time.Now().Add(-31 * day)
	b.mustCommit(m)
	info, err := b.Retain(t.Context())
	noErr(t, err)
	_, _, err = b.DeadLetter(t.Context(), long.Event, 1)
	noErr(t, err)
	_, _, err = b.DeadLetter(t.Context(), gone.Event, 1)
	wantErr(t, err, delivery.ErrNoDelivery)
	if info.Dead != 1 {
		t.Errorf("%d dead letters removed", info.Dead)
	}
}

func TestDeletingATenantLeavesNoPayload(t *testing.T) {
	b := openBench(t, nil, func(c *Config) { c.SpoolOver = 30 })
	var mine []delivery.EventKey
	for i := range stepSize + 50 {
		x := b.event(fmt.Sprint("e", i), 1, 2)
		x.Event.Tenant = delivery.TenantNum(8 + i%2)
		x.Event.Payload = fmt.Appendf(nil, "%050d", i)
		r := b.publish(x)
		if x.Event.Tenant == 8 {
			mine = append(mine, r.Event)
		}
	}
	b.mustCommit(b.died(b.ready(1)[0]), b.died(b.ready(2)[0]))
	noErr(t, b.ExpungeTenant(t.Context(), time.Now(), 8))
	noErr(t, b.DropSubscriber(t.Context(), time.Now(), 1, delivery.ReasonTenantDeleted))
	for _, key := range mine {
		_, err := b.Event(t.Context(), key)
		wantErr(t, err, delivery.ErrEventGone)
	}
	items, _, err := b.Events(t.Context(), Filter{Tenant: 8}, "", 10)
	if err != nil || len(items) != 0 {
		t.Errorf("events of the tenant: %v, %v", items, err)
	}
	items, _, err = b.Events(t.Context(), Filter{Tenant: 9}, "", maxLimit)
	if err != nil || len(items) != (stepSize+50)/2 {
		t.Errorf("%d events of the other tenant, %v", len(items), err)
	}
	if rows := b.ready(1); len(rows) != 0 {
		t.Errorf("%d rows of the deleted subscriber", len(rows))
	}
	names, err := b.spool.dir.list()
	if err != nil || len(names) != (stepSize+50)/2 {
		t.Errorf("%d spool files are left, want the other tenant's %d (%v)", len(names), (stepSize+50)/2, err)
	}
	// The id may be used again: nothing remembers it.
	x := b.event("e0", 3)
	x.Event.Tenant = 8
	if r := b.publish(x); r.Deduplicated {
		t.Error("a deleted tenant's id is still known")
	}
}

// TestTheSizeComesBackToItsBoundWhenEventsExpire publishes the same amount again
// and again, and lets each pass: the files of the store do not add up.
func TestTheSizeComesBackToItsBoundWhenEventsExpire(t *testing.T) {
	b := openBench(t, nil)
	// Of tables: the log's files are kept to be written again.
	size := func() (bytes int64) {
		noErr(t, b.view(func(db *pebble.DB) error {
			bytes = db.Metrics().Total().TablesSize
			return nil
		}))
		return bytes
	}
	noise := rand.NewChaCha8([32]byte{1}) // does not compress
	old := time.Now().Add(-60 * day).Truncate(time.Hour)
	var full, after []int64
	for round := range 5 {
		for i := range 400 {
			n := round*400 + i
			x := eventAt(old.Add(time.Duration(round)*day), uint64(n), fmt.Sprint("e", n), 1)
			x.Event.Payload = make([]byte, 4<<10)
			_, _ = noise.Read(x.Event.Payload) // never fails
			b.publish(x)
		}
		for _, row := range b.ready(1) {
			b.mustCommit(b.delivered(row))
		}
		noErr(t, b.view(func(db *pebble.DB) error { return db.Flush() }))
		full = append(full, size())
		_, err := b.Retain(t.Context())
		noErr(t, err)
		noErr(t, b.Compact(t.Context()))
		after = append(after, size())
	}
	t.Logf("bytes with events %d, after they had passed %d", full, after)
	const payloads = 400 * 4 << 10
	for i := range full {
		if full[i] < payloads || after[i] > payloads/4 {
			t.Errorf("round %d: %d bytes with %d of payloads, %d after they had passed", i, full[i], payloads, after[i])
		}
	}
}

// TestOpeningDoesNotScan opens a store with a backlog and counts what it read.
func TestOpeningDoesNotScan(t *testing.T) {
	b := openBench(t, nil)
	b.fillQueue(20_000, 5)
	// So that Pebble has nothing to do on its own behalf.
	noErr(t, b.view(func(db *pebble.DB) error { return db.Compact(t.Context(), []byte{0}, []byte{0xFF}, false) }))
	fs := &countingFS{FS: b.fs}
	b.close()
	b = openBench(t, fs)
	if n := fs.bytes.Load(); n > 256<<10 {
		t.Errorf("opening read %d bytes", n)
	}
	for sub, err := range b.Backlogs(t.Context()) {
		noErr(t, err)
		if sub != 5 {
			t.Errorf("backlog of %d", sub)
		}
	}
}
