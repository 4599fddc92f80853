package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// gate holds back the syncs of the log until it is opened, and counts them.
type gate struct {
	mu     sync.Mutex
	closed bool
	open   chan struct{}
	waits  atomic.Int64
	syncs  atomic.Int64
	lasts  time.Duration // how long a sync takes
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.open = true, make(chan struct{})
}

func (g *gate) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		g.closed = false
		close(g.open)
	}
}

func (g *gate) MaybeError(op errorfs.Op) error {
	if (op.Kind != errorfs.OpFileSync && op.Kind != errorfs.OpFileSyncData) || !strings.HasSuffix(op.Path, ".log") {
		return nil
	}
	g.syncs.Add(1)
	time.Sleep(g.lasts) // in a bubble
	g.mu.Lock()
	wait := g.open
	if !g.closed {
		wait = nil
	}
	g.mu.Unlock()
	if wait != nil {
		g.waits.Add(1)
		<-wait
	}
	return nil
}

func (g *gate) String() string { return "gate" }

func gated(t *testing.T, change ...func(*Config)) (*bench, *gate) {
	g := &gate{}
	b := openBench(t, errorfs.Wrap(InMemory(), g), change...)
	t.Cleanup(g.lift)
	return b, g
}

func TestPublishersSideBySideShareOneFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g := gated(t)
		g.shut()
		before := g.syncs.Load()
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				r := b.Publish(context.Background(), []*delivery.Published{eventAt(time.Now(), uint64(i), fmt.Sprint(i), 1)})
				if r[0].Err != nil {
					t.Error(r[0].Err)
				}
			})
			if i == 0 {
				synctest.Wait() // the first is on its way, the others meet behind it
			}
		}
		synctest.Wait()
		g.lift()
		wg.Wait()
		if n := g.syncs.Load() - before; n != 2 {
			t.Errorf("%d fsyncs for 100 publishes, want 2", n)
		}
		if rows := b.ready(1); len(rows) != 100 {
			t.Errorf("%d rows", len(rows))
		}
		b.close()
	})
}

// Batches that grow without a bound get memory tables of their own.
func TestABatchTakesNoMoreOnceItIsLarge(t *testing.T) {
	const limit, size = 64 << 10, 20 << 10
	synctest.Test(t, func(t *testing.T) {
		var batches []BatchInfo
		b, g := gated(t, func(c *Config) {
			c.CommitBytes = limit
			c.Observer.Batch = func(i BatchInfo) { batches = append(batches, i) }
		})
		g.shut()
		var wg sync.WaitGroup
		for i := range 13 {
			wg.Go(func() {
				x := eventAt(time.Now(), uint64(i), fmt.Sprint(i), 1)
				x.Event.Payload = make([]byte, size)
				if r := b.Publish(context.Background(), []*delivery.Published{x}); r[0].Err != nil {
					t.Error(r[0].Err)
				}
			})
			if i == 0 {
				synctest.Wait() // the first is on its way, the others meet behind it
			}
		}
		synctest.Wait()
		batches = nil
		g.lift()
		wg.Wait()
		if len(batches) != 4 { // one, and three of four
			t.Errorf("%d batches", len(batches))
		}
		for _, i := range batches {
			if i.Bytes > limit+size {
				t.Errorf("a batch of %d bytes", i.Bytes)
			}
		}
		b.close()
	})
}

func TestABatchOfAThousandEventsCostsOneFsync(t *testing.T) {
	b, g := gated(t, func(c *Config) { c.MemTable = 16 << 20 })
	batch := func() int64 {
		var list []*delivery.Published
		for range 1000 {
			list = append(list, b.event(fmt.Sprint(b.keys.Load()), 1, 2, 3))
		}
		before := g.syncs.Load()
		for _, r := range b.Publish(t.Context(), list) {
			noErr(t, r.Err)
		}
		return g.syncs.Load() - before
	}
	// A new store's memory tables begin small and double; a full one costs a sync
	// of the log that ends with it.
	const growing = 5
	for range growing {
		batch()
	}
	if n := batch(); n != 1 {
		t.Errorf("%d fsyncs, want 1", n)
	}
}

// On a disk whose syncs take a millisecond each publisher stores one event after
// the other.
func TestManyPublishersShareFsyncsAndOneAlonePaysForOneEach(t *testing.T) {
	for _, c := range []struct{ publishers, events, most int }{{1, 20, 20}, {64, 20, 64 * 20 / 16}} {
		synctest.Test(t, func(t *testing.T) {
			b, g := gated(t)
			g.lasts = time.Millisecond
			before, start := g.syncs.Load(), time.Now()
			var wg sync.WaitGroup
			for p := range c.publishers {
				wg.Go(func() {
					for i := range c.events {
						n := uint64(p*c.events + i)
						r := b.Publish(context.Background(), []*delivery.Published{eventAt(time.Now(), n, fmt.Sprint(n), 1)})
						if r[0].Err != nil {
							t.Error(r[0].Err)
						}
					}
				})
			}
			wg.Wait()
			if n := g.syncs.Load() - before; n > int64(c.most) {
				t.Errorf("%d publishers: %d fsyncs for %d events, want at most %d", c.publishers, n, c.publishers*c.events, c.most)
			}
			// Nobody waits for anything but syncs: that on its way, and its own.
			if took := time.Since(start); took > time.Duration(2*c.events+2)*g.lasts || c.publishers == 1 && took != time.Duration(c.events)*g.lasts {
				t.Errorf("%d publishers: %d events each took %v", c.publishers, c.events, took)
			}
			b.close()
		})
	}
}

func TestOutcomesWaitForCompanyButNotLongerThanTheirDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g := gated(t, func(c *Config) { c.CommitDelay = 5 * time.Millisecond })
		for i := range 40 {
			b.publish(eventAt(time.Now(), uint64(i), fmt.Sprint(i), 1))
		}
		rows, before, start := b.ready(1), g.syncs.Load(), time.Now()
		var last time.Duration
		for _, row := range rows[:20] {
			b.Commit([]delivery.Fact{b.delivered(row)}, func(err error) {
				if err != nil {
					t.Error(err)
				}
				last = time.Since(start)
			})
			time.Sleep(100 * time.Microsecond)
		}
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		if last != 5*time.Millisecond || g.syncs.Load()-before != 1 {
			t.Errorf("outcomes were durable after %v and %d fsyncs, want 5ms and 1", last, g.syncs.Load()-before)
		}
		// A publish takes along what waits.
		before, start = g.syncs.Load(), time.Now()
		for _, row := range rows[20:] {
			b.Commit([]delivery.Fact{b.delivered(row)}, func(error) { last = time.Since(start) })
		}
		b.publish(eventAt(time.Now(), 999, "company", 2))
		synctest.Wait()
		if last != 0 || g.syncs.Load()-before != 1 {
			t.Errorf("with a publish: after %v and %d fsyncs, want at once and 1", last, g.syncs.Load()-before)
		}
		// A lease does not wait: its rows are to be sent.
		start = time.Now()
		b.mustCommit(&delivery.Leased{Lease: b.Lease(), Subscriber: 2, Lane: delivery.PriorityNormal, UpTo: 1000})
		if took := time.Since(start); took != 0 {
			t.Errorf("a lease took %v", took)
		}
		// Nor does an outcome that the next delivery waits for.
		b.publish(eventAt(time.Now(), 1000, "strict", 3))
		awaited := b.delivered(b.ready(3)[0])
		awaited.Awaited, start = true, time.Now()
		b.mustCommit(awaited)
		if took := time.Since(start); took != 0 {
			t.Errorf("an awaited outcome took %v", took)
		}
		b.close()
	})
}

func TestAFullBatchDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _ := gated(t, func(c *Config) { c.CommitDelay, c.CommitFacts = 10*time.Millisecond, 8 })
		for i := range 20 {
			b.publish(eventAt(time.Now(), uint64(i), fmt.Sprint(i), 1))
		}
		start := time.Now()
		var took []time.Duration
		for _, row := range b.ready(1) {
			b.Commit([]delivery.Fact{b.delivered(row)}, func(error) { took = append(took, time.Since(start)) })
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(took) != 20 || took[0] != 0 || took[15] != 0 || took[19] != 10*time.Millisecond {
			t.Errorf("durable after %v", took)
		}
		b.close()
	})
}

func TestAPublishIsWithdrawnOnlyWhileItIsNotInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g := gated(t, func(c *Config) { c.CommitFacts, c.SpoolOver = 1, 5 })
		g.shut()
		results := map[string]delivery.Receipt{}
		var wg sync.WaitGroup
		var mu sync.Mutex
		for i, id := range []string{"syncing", "built", "queued"} {
			ctx, cancel := context.WithTimeoutCause(context.Background(), 3*time.Second, errors.New("caller has left"))
			wg.Go(func() {
				defer cancel()
				r := b.Publish(ctx, []*delivery.Published{eventAt(time.Now(), uint64(i), id, 1)})
				mu.Lock()
				results[id] = r[0]
				mu.Unlock()
			})
			synctest.Wait()
		}
		start := time.Now()
		wg.Wait()
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("callers waited %v", took)
		}
		wantErr(t, results["syncing"].Err, delivery.ErrUnknownCommit)
		wantErr(t, results["built"].Err, delivery.ErrUnknownCommit)
		if err := results["queued"].Err; errors.Is(err, delivery.ErrUnknownCommit) || err == nil {
			t.Errorf("queued: %v", err)
		}
		g.lift()
		b.publish(eventAt(time.Now(), 9, "next", 2))
		if rows := b.ready(1); len(rows) != 2 {
			t.Errorf("%d rows, want those of the two that were in a batch", len(rows))
		}
		// Publishing again is answered with what was stored, and a withdrawn event
		// leaves no file behind.
		if r := b.publish(eventAt(time.Now(), 10, "syncing", 1)); !r.Deduplicated {
			t.Errorf("again: %+v", r)
		}
		if names, err := b.spool.dir.list(); err != nil || len(names) != 3 {
			t.Errorf("spool holds %v, %v", names, err)
		}
		b.close()
	})
}

func TestHooksAreCalledInTheOrderOfPositions(t *testing.T) {
	b := openBench(t, nil)
	var admitted []string
	told := make(chan delivery.Position, 9)
	b.SetHooks(Hooks{
		Admit: func(x *delivery.Published) {
			admitted = append(admitted, x.Event.ID)
			x.Targets[0].Leased = x.Event.ID != "b"
		},
		Committed: func(_ *delivery.Published, pos delivery.Position) { told <- pos },
		Aborted:   func(x *delivery.Published) { t.Errorf("%s was aborted", x.Event.ID) },
	})
	b.publish(b.event("a", 1))
	b.Publish(t.Context(), []*delivery.Published{b.event("b", 1), b.event("a", 1), b.event("c", 1)})
	if fmt.Sprint(admitted) != "[a b c]" { // a duplicate is nobody's business
		t.Errorf("admitted %v", admitted)
	}
	committed := []delivery.Position{<-told, <-told, <-told}
	b.mustCommit() // what comes after them is answered after them
	if len(told) != 0 || committed[0] >= committed[1] || committed[1] >= committed[2] {
		t.Errorf("committed %v", committed)
	}
	for i, want := range []delivery.Epoch{b.Lease().Epoch, 0, b.Lease().Epoch} {
		if got := b.ready(1)[i].LeasedBy; got != want {
			t.Errorf("row %d leased by %d, want %d", i, got, want)
		}
	}
}

func TestAFailedCommitAbortsWhatWasAdmitted(t *testing.T) {
	inj := &injected{from: 1}
	inj.heal.Store(true)
	failed := make(chan error, 9)
	b := openBench(t, errorfs.Wrap(InMemory(), inj), func(c *Config) {
		c.Observer.Failed = func(err error) { failed <- err }
	})
	var admitted, aborted int
	b.SetHooks(Hooks{
		Admit:     func(*delivery.Published) { admitted++ },
		Committed: func(x *delivery.Published, _ delivery.Position) { t.Errorf("%s was committed", x.Event.ID) },
		Aborted:   func(*delivery.Published) { aborted++ },
	})
	inj.heal.Store(false)
	r := b.Publish(t.Context(), []*delivery.Published{b.event("a", 1), b.event("b", 2)})
	for i := range r {
		wantErr(t, r[i].Err, delivery.ErrNotReady)
		wantErr(t, r[i].Err, errInjected)
	}
	if admitted != 2 || aborted != 2 {
		t.Errorf("%d admitted, %d aborted", admitted, aborted)
	}
	wantErr(t, <-failed, errInjected)
	if len(failed) != 0 {
		t.Error("the failure was reported more than once")
	}
	wantErr(t, b.commitNow(&delivery.HealthChanged{Lease: b.Lease(), Subscriber: 1}), delivery.ErrNotReady)
	_, err := b.Event(t.Context(), eventKey(time.Now(), 1))
	wantErr(t, err, delivery.ErrNotReady)
	inj.heal.Store(true)
}

func TestDuplicatesOfWhatIsBeingSyncedWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, g := gated(t)
		g.shut()
		var acked atomic.Int64
		for range 3 { // one is syncing, one waits in the next batch, with it a third
			go func() {
				r := b.Publish(context.Background(), []*delivery.Published{eventAt(time.Now(), 1, "a", 1)})
				if r[0].Err == nil {
					acked.Add(1)
				}
			}()
			synctest.Wait()
		}
		if n := acked.Load(); n != 0 {
			t.Errorf("%d were acknowledged before the sync", n)
		}
		g.lift()
		synctest.Wait()
		if n := acked.Load(); n != 3 {
			t.Errorf("%d were acknowledged", n)
		}
		if rows := b.ready(1); len(rows) != 1 {
			t.Errorf("%d rows", len(rows))
		}
		b.close()
	})
}
