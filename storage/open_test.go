package storage

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// setMetaIn overwrites a meta record of a closed store.
func setMetaIn(t *testing.T, fs vfs.FS, kind byte, v uint64) {
	t.Helper()
	db, err := pebble.Open("store", &pebble.Options{FS: fs, Merger: merger, Logger: quietPebble{}, FormatMajorVersion: pebbleFormat})
	noErr(t, err)
	noErr(t, db.Set(metaKey(kind), metaValue(v), pebble.Sync))
	noErr(t, db.Close())
}

func TestAStoreOfANewerFormatIsRefusedWithAClearMessage(t *testing.T) {
	b := openBench(t, nil)
	b.close()
	setMetaIn(t, b.fs, metaFormat, FormatVersion+1)
	_, err := tryBench(t, b.fs)
	format, ok := errors.AsType[*FormatError](err)
	if !ok || format.Found != FormatVersion+1 || format.Supported != FormatVersion {
		t.Fatalf("opening a newer store: %v", err)
	}
	if !strings.Contains(err.Error(), "start the version that wrote it") {
		t.Errorf("the message does not say what to do: %v", err)
	}
	setMetaIn(t, b.fs, metaFormat, FormatVersion)
	openBench(t, b.fs) // nothing was damaged
}

func TestAForeignDatabaseIsRefused(t *testing.T) {
	fs := InMemory()
	db, err := pebble.Open("store", &pebble.Options{FS: fs, Merger: merger, Logger: quietPebble{}})
	noErr(t, err)
	noErr(t, db.Set([]byte("theirs"), nil, pebble.Sync))
	noErr(t, db.Close())
	if _, err := tryBench(t, fs); !errors.Is(err, errCorrupt) {
		t.Errorf("opening a foreign database: %v", err)
	}
}

func TestTheNumberOfPartitionsIsFixedWhenAStoreIsMade(t *testing.T) {
	b := openBench(t, nil, func(c *Config) { c.Partitions = 3 })
	b.publish(b.event("a", simSubs...))
	b.close()
	if _, err := tryBench(t, b.fs, func(c *Config) { c.Partitions = 4 }); err == nil {
		t.Error("another number of partitions was accepted")
	}
	b = openBench(t, b.fs)
	if b.Partitions() != 3 {
		t.Errorf("%d partitions, want 3", b.Partitions())
	}
	for _, sub := range simSubs {
		if len(b.ready(sub)) != 1 {
			t.Errorf("subscriber %d has lost its row", sub)
		}
	}
}

func TestASecondOpeningIsRefusedWhileTheFirstLives(t *testing.T) {
	b := openBench(t, nil)
	_, err := tryBench(t, b.fs)
	wantErr(t, err, ErrLocked)
	noErr(t, b.Reopen()) // the lock is held over a reopening
	_, err = tryBench(t, b.fs)
	wantErr(t, err, ErrLocked)
	b.close()
	openBench(t, b.fs)
}

// lockHolder names the variable that makes this test binary hold a store open.
const lockHolder = "DISPATCHER_TEST_HOLD_STORE"

// TestASecondProcessIsRefused runs this test binary again on the same directory.
func TestASecondProcessIsRefused(t *testing.T) {
	if dir := os.Getenv(lockHolder); dir != "" {
		_, err := Open(Config{Dir: dir})
		wantErr(t, err, ErrLocked)
		return
	}
	dir := filepath.Join(t.TempDir(), "deep", "store")
	s, err := Open(Config{Dir: dir})
	noErr(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestASecondProcessIsRefused$")
	cmd.Env = append(os.Environ(), lockHolder+"="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("second process: %v\n%s", err, out)
	}
	noErr(t, s.Close())
}

func TestOnlyTheOwnerCanReadTheDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := Open(Config{Dir: dir, SpoolOver: 1})
	noErr(t, err)
	r := s.Publish(t.Context(), []*delivery.Published{eventAt(time.Now(), 1, "a", 1)})
	noErr(t, r[0].Err)
	noErr(t, s.Close())
	info, err := os.Stat(dir)
	noErr(t, err)
	if mode := info.Mode().Perm(); mode != 0o700 {
		t.Errorf("directory has mode %o", mode)
	}
}

func TestClosingTwiceAndUsingWhatIsClosed(t *testing.T) {
	b := openBench(t, nil)
	noErr(t, b.Start(t.Context()))
	noErr(t, b.Close())
	noErr(t, b.Close())
	r := b.Publish(t.Context(), []*delivery.Published{b.event("a", 1)})
	wantErr(t, r[0].Err, delivery.ErrClosed)
	wantErr(t, b.commitNow(&delivery.HealthChanged{Lease: b.Lease(), Subscriber: 1}), delivery.ErrClosed)
	_, err := b.Ready(1, 1, 0, 1)
	wantErr(t, err, delivery.ErrClosed)
	wantErr(t, b.Healthy(), delivery.ErrClosed)
	wantErr(t, b.Reopen(), delivery.ErrClosed)
	wantErr(t, b.Start(t.Context()), delivery.ErrClosed)
	_, err = b.Retain(t.Context())
	wantErr(t, err, delivery.ErrClosed)
}

func TestWhatWasHandedInBeforeCloseIsDurable(t *testing.T) {
	b := openBench(t, nil)
	b.publish(b.event("a", 1))
	done := make(chan error, 1)
	b.Commit([]delivery.Fact{b.delivered(b.ready(1)[0])}, func(err error) { done <- err })
	b.close()
	noErr(t, <-done)
	if rows := openBench(t, b.fs).ready(1); len(rows) != 0 {
		t.Errorf("rows %+v", rows)
	}
}

func TestFactsOfAnEarlierOpeningAreRefused(t *testing.T) {
	b := openBench(t, nil)
	b.publish(b.event("a", 1))
	late := b.delivered(b.ready(1)[0])
	old := b.Lease()
	noErr(t, b.Reopen())
	if b.Lease().Epoch <= old.Epoch {
		t.Fatalf("lease %+v after %+v", b.Lease(), old)
	}
	wantErr(t, b.commitNow(late), ErrFenced)
	if len(b.ready(1)) != 1 {
		t.Error("a fenced fact was applied")
	}
}

func TestFactsThatCannotBeAppliedAreRefusedAsAWhole(t *testing.T) {
	b := openBench(t, nil)
	b.publish(b.event("a", 1))
	row := b.ready(1)[0]
	bad := b.delivered(row)
	bad.Next = 9
	parked := b.moved(row, delivery.NextParked, delivery.ReasonOrder, 0)
	wantErr(t, b.commitNow(b.delivered(row), bad), errBadFact)
	wantErr(t, b.commitNow(parked), errBadFact) // it has no key to wait behind
	wantErr(t, b.commitNow(&delivery.Published{Lease: b.Lease()}), errBadFact)
	wantErr(t, b.commitNow(nil), errBadFact)
	if len(b.ready(1)) != 1 {
		t.Error("half of it was applied")
	}
	for _, x := range []*delivery.Published{nil, {}, eventAt(time.Now(), 1, ""), eventAt(time.Now(), 1, "a", 0)} {
		wantErr(t, b.Publish(t.Context(), []*delivery.Published{x})[0].Err, errBadEvent)
	}
}

func TestConfigNamesEveryFieldThatIsWrong(t *testing.T) {
	_, err := Open(Config{
		Partitions: 70000, MemTable: 1, Cache: -1, CommitDelay: time.Second, CommitFacts: 1 << 20, CommitBytes: -1,
		StallAfter: -1, DedupeWindow: -1, DedupeMemory: -1, SpoolOver: -1,
		Retention: Retention{Events: -1, Dead: -1}, Watermark: Watermark{Percent: 100, Every: -1, RetryAfter: -1},
	})
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, field := range []string{
		"Dir", "Partitions", "MemTable", "Cache", "CommitDelay", "CommitFacts", "CommitBytes", "StallAfter", "DedupeWindow", "DedupeMemory",
		"SpoolOver", "Retention.Events", "Retention.Dead", "Watermark.Percent", "Watermark.Every", "Watermark.RetryAfter",
	} {
		if !slices.ContainsFunc(strings.Split(err.Error(), "\n"), func(line string) bool { return strings.Contains(line, " "+field+" is ") }) {
			t.Errorf("%s is not named", field)
		}
	}
}
