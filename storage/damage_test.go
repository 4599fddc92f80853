package storage

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

var damageTrials = flag.Int("damage-trials", 150, "trials of the test that damages files")

// damagedImage is a store with tables, a manifest and a log that was not written out, as
// a killed process leaves it, and the events that it has acknowledged.
func damagedImage(t *testing.T) (*vfs.MemFS, []delivery.EventKey) {
	t.Helper()
	b := openBench(t, nil)
	var keys []delivery.EventKey
	fill := func(n int) {
		for i := range n {
			x := b.event(fmt.Sprint("e", len(keys)), simSubs[i%len(simSubs)])
			x.Event.Payload = bytes.Repeat([]byte{byte(i)}, 300)
			keys = append(keys, b.publish(x).Event)
		}
	}
	fill(150)
	noErr(t, b.view(func(db *pebble.DB) error { return db.Flush() }))
	fill(150)
	noErr(t, b.view(func(db *pebble.DB) error {
		return errors.Join(db.Flush(), db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	}))
	fill(100) // in the log alone
	mem, ok := b.fs.(*vfs.MemFS)
	if !ok {
		t.Fatal("not in memory")
	}
	return mem.CrashClone(vfs.CrashCloneCfg{}), keys
}

func readAll(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	f, err := fs.Open(name)
	noErr(t, err)
	raw, err := io.ReadAll(f)
	noErr(t, errors.Join(err, f.Close()))
	return raw
}

func writeAll(t *testing.T, fs vfs.FS, name string, raw []byte) {
	t.Helper()
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	noErr(t, err)
	_, err = f.Write(raw)
	noErr(t, errors.Join(err, f.Sync(), f.Close()))
}

// kindOf is what a file of the store is.
func kindOf(name string) string {
	switch {
	case strings.HasPrefix(name, "MANIFEST"), strings.HasPrefix(name, "OPTIONS"), strings.HasPrefix(name, "marker"):
		kind, _, _ := strings.Cut(name, "-")
		return strings.Join(strings.Split(kind, ".")[:min(2, strings.Count(kind, ".")+1)], ".")
	}
	return strings.TrimPrefix(path.Ext(name), ".")
}

// lossOfTail is how many of the events of the log a damaged one may lose without a
// word: a log that ends early is what every crash leaves, so what was cut off its end,
// or stands behind a flipped bit in its last block of 32 KiB, cannot be told from what
// was never written.
const lossOfTail = 100

// TestDamageIsReportedAndNeverPassedOver flips bytes in the files of a store, cuts
// them short and takes them away. Either the store does not open and says which
// file is bad and what to do, or all that was acknowledged is there, or Check says
// what is not.
func TestDamageIsReportedAndNeverPassedOver(t *testing.T) {
	image, keys := damagedImage(t)
	names, err := image.List("store")
	noErr(t, err)
	names = slices.DeleteFunc(names, func(n string) bool { return n == "LOCK" || n == spoolDir })
	slices.Sort(names)
	seed := rand.Uint64()
	t.Logf("seed %d, files %v", seed, names)
	rng := rand.New(rand.NewPCG(seed, 1))
	count := map[string]int{}
	for trial := range *damageTrials {
		fs := image.CrashClone(vfs.CrashCloneCfg{})
		name := names[trial%len(names)]
		file := path.Join("store", name)
		raw := readAll(t, fs, file)
		how := "flip"
		switch at := rng.IntN(max(1, len(raw))); {
		case rng.IntN(8) == 0:
			how = "remove"
			noErr(t, fs.Remove(file))
		case len(raw) == 0:
			continue
		case rng.IntN(4) == 0:
			how = "truncate"
			writeAll(t, fs, file, raw[:at])
		default:
			raw[at] ^= byte(1 << rng.IntN(8))
			writeAll(t, fs, file, raw)
		}
		result := openDamaged(t, fs, keys, name, how)
		count[how+" "+kindOf(name)+": "+result]++
	}
	for _, line := range slices.Sorted(maps.Keys(count)) {
		t.Logf("%4d %s", count[line], line)
	}
}

// openDamaged opens a damaged store and says how that went.
func openDamaged(t *testing.T, fs vfs.FS, keys []delivery.EventKey, name, how string) string {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("%s %s: panic: %v", how, name, p)
		}
	}()
	b, err := tryBench(t, fs)
	if err != nil {
		if !strings.Contains(err.Error(), "restore ") {
			t.Errorf("%s %s: the error does not say what to do: %v", how, name, err)
		}
		return "refused"
	}
	defer func() { _ = b.Close() }() // it may complain
	lost := 0
	for _, key := range keys {
		if _, err := b.Event(context.Background(), key); errors.Is(err, delivery.ErrEventGone) {
			lost++
		} else if err != nil {
			return "opened, an event is reported as unreadable"
		}
	}
	report, err := b.Check(context.Background(), nil)
	switch {
	case err != nil || report.Bad > 0:
		return "opened, check reports it"
	case lost == 0:
		return "opened, nothing is lost"
	case strings.HasSuffix(name, ".log") && lost <= lossOfTail:
		return "opened, the end of the log is lost"
	}
	t.Errorf("%s %s: %d of %d events are gone without a word", how, name, lost, len(keys))
	return "LOST IN SILENCE"
}

// TestADirectoryThatCannotBeUsedIsRefusedWithWhatToDo opens what is no good place for
// a store.
func TestADirectoryThatCannotBeUsedIsRefusedWithWhatToDo(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	noErr(t, os.WriteFile(file, nil, 0o600))
	first, err := Open(Config{Dir: filepath.Join(dir, "store")})
	noErr(t, err)
	link := filepath.Join(dir, "link")
	noErr(t, os.Symlink(filepath.Join(dir, "store"), link))
	for name, c := range map[string]struct{ dir, says string }{
		"a file":            {file, "name a directory"},
		"below a file":      {filepath.Join(file, "store"), "name a directory"},
		"in use":            {filepath.Join(dir, "store"), "stop that process"},
		"in use, by a link": {link, "stop that process"},
		"not to be made":    {"/proc/self/store", "/proc/self/store"},
	} {
		s, err := Open(Config{Dir: c.dir})
		if err == nil {
			t.Errorf("%s: opened", name)
			noErr(t, s.Close())
		} else if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v\nwant it to say %q", name, err, c.says)
		}
	}
	noErr(t, first.Close())
	// A link to a directory is as good as the directory.
	second, err := Open(Config{Dir: link})
	noErr(t, err)
	noErr(t, second.Close())
	for cause, says := range map[error]string{
		syscall.EROFS: "mounted read-only", syscall.EACCES: "must own it", syscall.ENOSPC: "free some space", syscall.EDQUOT: "free some space",
	} {
		if err := advise("d", fmt.Errorf("write: %w", cause)); !errors.Is(err, cause) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: want it to say %q", err, says)
		}
	}
}

// TestAStoreWithoutItsMarkerIsRefusedAndStaysAsItIs: Pebble would begin a new one in
// its place and remove the tables.
func TestAStoreWithoutItsMarkerIsRefusedAndStaysAsItIs(t *testing.T) {
	b := openBench(t, nil)
	r := b.publish(b.event("a", 1))
	b.close()
	names, err := b.fs.List("store")
	noErr(t, err)
	i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, "marker.manifest.") })
	marker := path.Join("store", names[i])
	raw := readAll(t, b.fs, marker)
	noErr(t, b.fs.Remove(marker))
	if _, err := tryBench(t, b.fs); !errors.Is(err, errNoManifest) || !strings.Contains(err.Error(), "restore a backup") {
		t.Fatalf("without its marker: %v", err)
	}
	writeAll(t, b.fs, marker, raw)
	b = openBench(t, b.fs)
	_, err = b.Event(t.Context(), r.Event)
	noErr(t, err)
}
