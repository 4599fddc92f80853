package storage

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// wanting is a database that wants compactions.
type wanting struct {
	allowed, waiting, scheduled atomic.Int64
}

func (w *wanting) GetAllowedWithoutPermission() int { return int(w.allowed.Load()) }

func (w *wanting) GetWaitingCompaction() (bool, pebble.WaitingCompaction) {
	return w.waiting.Load() > 0, pebble.WaitingCompaction{}
}

func (w *wanting) Schedule(pebble.CompactionGrantHandle) bool {
	w.waiting.Add(-1)
	w.scheduled.Add(1)
	return true
}

func TestCompactionsRunFromBeginToEndAsOftenAsPebbleAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var db wanting
		db.allowed.Store(2)
		c := newCompactions()
		c.Register(2, &db)
		for range 5 {
			if ok, _ := c.TrySchedule(); ok {
				t.Fatal("a compaction began before the database was open")
			}
			db.waiting.Add(1) // Pebble remembers it
		}
		time.Sleep(2 * lookAgain)
		want := func(what string, scheduled int64) {
			t.Helper()
			synctest.Wait()
			if n := db.scheduled.Load(); n != scheduled {
				t.Errorf("%s: %d compactions began, want %d", what, n, scheduled)
			}
		}
		want("not open", 0)
		c.begin()
		want("open", 2)
		c.Done()
		want("one is done", 3)
		db.allowed.Store(3)
		c.UpdateGetAllowedWithoutPermission()
		want("one more is allowed", 4)
		c.Done()
		want("another is done", 5)
		if ok, _ := c.TrySchedule(); ok {
			t.Error("a fourth began beside three")
		}
		c.Done()
		if ok, _ := c.TrySchedule(); !ok {
			t.Error("there is room for a third, and it was refused")
		}
		c.Done()
		db.waiting.Add(1) // nobody says so
		time.Sleep(lookAgain)
		want("it is looked for", 6)
		c.Done()
		c.Unregister()
		db.waiting.Add(1)
		c.UpdateGetAllowedWithoutPermission()
		time.Sleep(2 * lookAgain)
		want("closed", 6)
		if ok, _ := c.TrySchedule(); ok {
			t.Error("a compaction began after the end")
		}
		c.Unregister() // by Pebble, after the store
	})
}

// compactingFS holds compactions up when they begin to write.
type compactingFS struct {
	vfs.FS
	began chan struct{} // gets one value for each table that a compaction creates
	goOn  chan struct{} // closed to let them go on
	open  atomic.Int64  // tables of compactions that are not closed yet
}

func (c *compactingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if category != compactionCategory {
		return c.FS.Create(name, category)
	}
	c.began <- struct{}{}
	<-c.goOn
	f, err := c.FS.Create(name, category)
	if err != nil {
		return nil, err
	}
	c.open.Add(1)
	return &compactedFile{f, c}, nil
}

type compactedFile struct {
	vfs.File
	fs *compactingFS
}

func (f *compactedFile) Close() error {
	f.fs.open.Add(-1)
	return f.File.Close()
}

func (c *compactingFS) Unwrap() vfs.FS { return c.FS }

// deepL0 leaves a store whose next opening has something to compact: it was closed
// while it was being compacted.
func deepL0(t *testing.T, fs vfs.FS) (publishes int) {
	t.Helper()
	held := &compactingFS{FS: fs, began: make(chan struct{}, 1000), goOn: make(chan struct{})}
	b := openBench(t, held)
	for n := range 2 * l0Depth {
		b.publish(b.event(strings.Repeat("x", n+1), 1))
		noErr(t, b.view(func(db *pebble.DB) error { return db.Flush() }))
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		b.close()
	}()
	select {
	case <-held.began: // so there was enough for one
	case <-time.After(time.Minute):
		t.Fatal("nothing was compacted")
	}
	for !b.fuse.closing.Load() {
		time.Sleep(time.Millisecond)
	}
	close(held.goOn)
	<-closed
	if n := held.open.Load(); n != 0 {
		t.Errorf("%d tables were left open", n)
	}
	return 2 * l0Depth
}

// TestOpeningDoesNotWaitForCompactions: a store is open although what it begins to
// compact does not end.
func TestOpeningDoesNotWaitForCompactions(t *testing.T) {
	fs := InMemory()
	events := deepL0(t, fs)
	held := &compactingFS{FS: fs, began: make(chan struct{}, 1000), goOn: make(chan struct{})}
	release := time.AfterFunc(time.Minute, func() { close(held.goOn) })
	b := openBench(t, held)
	if !release.Stop() {
		t.Error("the opening waited for a compaction")
	} else {
		defer close(held.goOn)
	}
	if rows := b.ready(1); len(rows) != events {
		t.Errorf("%d rows of %d", len(rows), events)
	}
	select {
	case <-held.began:
	case <-time.After(time.Minute):
		t.Error("no compaction begins after the opening: the closing let the one before finish")
	}
}
