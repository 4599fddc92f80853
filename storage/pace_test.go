package storage

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// watchedFile is a table on the disk of a test.
type watchedFile struct {
	vfs.File
	syncedTo []int64
	whole    bool
}

func (f *watchedFile) Write(p []byte) (int, error) { return len(p), nil }

func (f *watchedFile) SyncTo(length int64) (bool, error) {
	f.syncedTo = append(f.syncedTo, length)
	return f.whole, nil
}

func TestTablesGoToTheDiskEvenly(t *testing.T) {
	const size, block = 1 << 20, 4 << 10
	for _, tt := range []struct {
		name    string
		hurry   int32
		perTick int // bytes logged with each block
		whole   bool
		took    [2]time.Duration // of a MiB
		syncs   [2]int
	}{
		{"at its rate", 0, 0, false, [2]time.Duration{230 * time.Millisecond, 260 * time.Millisecond}, [2]int{30, 32}},
		{"twice as fast, with a third of its rate logged", 0, block / 6, false, [2]time.Duration{110 * time.Millisecond, 140 * time.Millisecond}, [2]int{30, 32}},
		{"not held up where as much is logged", 0, block, false, [2]time.Duration{0, 0}, [2]int{0, 0}},
		{"not held up in a hurry", 1, 0, false, [2]time.Duration{0, 0}, [2]int{0, 0}},
		{"synced whole once", 0, 0, true, [2]time.Duration{230 * time.Millisecond, 260 * time.Millisecond}, [2]int{1, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPaces()
				p.hurry.Store(tt.hurry)
				disk := &watchedFile{whole: tt.whole}
				f := p.wrap("000001.sst", flushCategory, disk)
				log := p.wrap("000002.log", "wal", &watchedFile{})
				begin := time.Now()
				for range size / block {
					mustWrite(t, log, tt.perTick)
					mustWrite(t, f, block)
				}
				if took := time.Since(begin); took < tt.took[0] || took > tt.took[1] {
					t.Errorf("a MiB took %s, want %s", took, tt.took)
				}
				if n := len(disk.syncedTo); n < tt.syncs[0] || n > tt.syncs[1] {
					t.Errorf("%d parts were handed to the disk, want %d", n, tt.syncs)
				}
				for i, to := range disk.syncedTo {
					if i > 0 && to-disk.syncedTo[i-1] > paceChunk+block {
						t.Errorf("part %d has %d bytes", i, to-disk.syncedTo[i-1])
					}
				}
			})
		})
	}
}

func mustWrite(t *testing.T, f vfs.File, n int) {
	t.Helper()
	if _, err := f.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}

// TestPaceForgetsWhatWasLoggedLongAgo: a flush after a pause has no right to a burst.
func TestPaceForgetsWhatWasLoggedLongAgo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPaces()
		now := time.Now()
		p.flush.take(1, now)
		p.logged.Add(100 << 20)
		now = now.Add(time.Second)
		if wait := p.flush.take(paceChunk, now); wait != 0 {
			t.Errorf("the first chunk waits for %s", wait)
		}
		if wait := p.flush.take(paceChunk, now); wait < 7*time.Millisecond {
			t.Errorf("the second chunk waits for %s: what was logged before counts", wait)
		}
		p.logged.Add(100 << 20)
		if wait := p.flush.take(paceBurst, now); wait != 0 {
			t.Errorf("half a MiB waits for %s, beside a log that gets 100", wait)
		}
		if wait := p.flush.take(2*paceChunk, now); wait == 0 {
			t.Error("what was logged counts without a bound")
		}
	})
}

func TestOnlyFlushesAndCompactionsArePaced(t *testing.T) {
	p := newPaces()
	for category, paced := range map[vfs.DiskWriteCategory]bool{flushCategory: true, compactionCategory: true, "pebble-manifest": false, vfs.WriteCategoryUnspecified: false} {
		if _, is := p.wrap("000001.sst", category, &watchedFile{}).(*pacedFile); is != paced {
			t.Errorf("%s: paced %t, want %t", category, is, paced)
		}
	}
}

// TestPebbleNamesItsWritersAsBefore: the names that the paces and the closing go by.
func TestPebbleNamesItsWritersAsBefore(t *testing.T) {
	seen := &categories{FS: InMemory(), seen: map[vfs.DiskWriteCategory]bool{}}
	b := openBench(t, seen)
	for _, id := range []string{"a", "b"} {
		b.publish(b.event(id, 1))
		noErr(t, b.view(func(db *pebble.DB) error { return db.Flush() }))
	}
	noErr(t, b.Compact(t.Context()))
	b.close()
	if !seen.seen[flushCategory] || !seen.seen[compactionCategory] {
		t.Errorf("tables were written by %v", seen.seen)
	}
}

// categories remembers who created tables.
type categories struct {
	vfs.FS
	seen map[vfs.DiskWriteCategory]bool // under Pebble's locks: one writer at a time
}

func (c *categories) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if isTable(name) {
		c.seen[category] = true
	}
	return c.FS.Create(name, category)
}

func (c *categories) Unwrap() vfs.FS { return c.FS }

// TestAStoreOnARealDiskIsPacedWhileItIsOpen: not while it opens or closes.
func TestAStoreOnARealDiskIsPacedWhileItIsOpen(t *testing.T) {
	b := openDisk(t, t.TempDir())
	hurry := func(what string, want int32) {
		t.Helper()
		if n := b.fuse.paces.hurry.Load(); n != want {
			t.Errorf("%s: %d reasons to hurry, want %d", what, n, want)
		}
	}
	hurry("open", 0)
	b.publish(b.event("a", 1))
	noErr(t, b.Reopen())
	hurry("opened again", 0)
	noErr(t, b.Compact(t.Context()))
	hurry("after compacting", 0)
	b.close()
	if b.fuse.paces.hurry.Load() == 0 {
		t.Error("it does not hurry to close")
	}
}

// TestAStoreThatMayTakeNoMoreIsClosed: a flush would wait for compactions, of which
// none begins any more.
func TestAStoreThatMayTakeNoMoreIsClosed(t *testing.T) {
	held := &compactingFS{FS: InMemory(), began: make(chan struct{}, 1000), goOn: make(chan struct{})}
	b := openBench(t, held)
	for n := range l0Stop {
		b.publish(b.event(string(rune('a'+n%26))+string(rune('a'+n/26)), 1))
		noErr(t, b.view(func(db *pebble.DB) error { return db.Flush() }))
	}
	b.publish(b.event("last", 1))
	closed := make(chan error, 1)
	go func() { closed <- b.Store.Close() }()
	for !b.fuse.closing.Load() {
		time.Sleep(time.Millisecond)
	}
	close(held.goOn)
	select {
	case err := <-closed:
		noErr(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the store is not closed after a minute")
	}
	b = openBench(t, held.FS)
	if rows := b.ready(1); len(rows) != l0Stop+1 {
		t.Errorf("%d rows of %d", len(rows), l0Stop+1)
	}
}
