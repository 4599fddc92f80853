package storage

import (
	"io"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestABlownFuseFreezesTheDisk: after the first failed write nothing on the disk
// changes any more, and whoever writes on does not notice.
func TestABlownFuseFreezesTheDisk(t *testing.T) {
	mem := vfs.NewMem()
	inj := &injected{from: 1}
	inj.heal.Store(true)
	var reports atomic.Int64
	f := newFuse(errorfs.Wrap(mem, inj), func(error) { reports.Add(1) })
	const category = vfs.WriteCategoryUnspecified
	create := func(name, text string) vfs.File {
		t.Helper()
		file, err := f.Create(name, category)
		noErr(t, err)
		_, err = file.Write([]byte(text))
		noErr(t, err)
		return file
	}
	log, table := create("000001.log", "before"), create("000002.sst", "before")
	noErr(t, create("old", "x").Close())
	inj.heal.Store(false)

	n, err := log.Write([]byte("lost"))
	if err != nil || n != 4 || reports.Load() != 1 {
		t.Fatalf("the log saw %d, %v; %d reports", n, err, reports.Load())
	}
	inj.heal.Store(true) // the disk works again, but what is missing stays missing
	_, err = log.Write([]byte("more"))
	noErr(t, err)
	noErr(t, log.Sync())
	noErr(t, log.Close())
	if _, err := table.Write([]byte("more")); err == nil {
		t.Error("a table that was begun before goes on")
	}
	noErr(t, f.Remove("old"))
	noErr(t, f.Rename("old", "new"))
	noErr(t, f.RemoveAll("old"))
	noErr(t, f.Link("old", "second"))
	noErr(t, f.MkdirAll("dir", 0o700))
	noErr(t, create("dir/000003.log", "in memory").Close())
	again, err := f.ReuseForWrite("old", "000004.log", category)
	noErr(t, err)
	noErr(t, again.Close())
	dir, err := f.OpenDir("")
	noErr(t, err)
	noErr(t, dir.Sync())
	noErr(t, dir.Close())

	file, err := f.Open("dir/000003.log")
	noErr(t, err)
	text, err := io.ReadAll(file)
	if err != nil || string(text) != "in memory" {
		t.Errorf("what was written after the fuse blew reads %q, %v", text, err)
	}
	noErr(t, file.Close())
	if info, err := f.Stat("dir/000003.log"); err != nil || info.Size() != 9 {
		t.Errorf("stat: %v, %v", info, err)
	}
	names, err := mem.List("")
	if err != nil || len(names) != 3 {
		t.Errorf("on the disk: %v, %v; want what was there when the fuse blew", names, err)
	}
	file, err = mem.Open("000001.log")
	noErr(t, err)
	if text, _ := io.ReadAll(file); string(text) != "before" {
		t.Errorf("the log holds %q", text)
	}
	noErr(t, file.Close())
	if reports.Load() != 1 {
		t.Errorf("%d reports", reports.Load())
	}
}

// TestEveryKindOfWriteBlowsTheFuse, and none of those that lose nothing does.
func TestEveryKindOfWriteBlowsTheFuse(t *testing.T) {
	const category = vfs.WriteCategoryUnspecified
	for name, c := range map[string]struct {
		write func(f *fuse, open vfs.File) error
		blows bool
		err   bool
	}{
		"create log":   {func(f *fuse, _ vfs.File) error { _, err := f.Create("2.log", category); return err }, true, false},
		"create table": {func(f *fuse, _ vfs.File) error { _, err := f.Create("2.sst", category); return err }, true, true},
		"reuse":        {func(f *fuse, _ vfs.File) error { _, err := f.ReuseForWrite("1.log", "2.log", category); return err }, true, false},
		"rename":       {func(f *fuse, _ vfs.File) error { return f.Rename("1.log", "2") }, true, false},
		"link":         {func(f *fuse, _ vfs.File) error { return f.Link("1.log", "2") }, true, false},
		"mkdir":        {func(f *fuse, _ vfs.File) error { return f.MkdirAll("dir", 0o700) }, true, false},
		"write":        {func(_ *fuse, open vfs.File) error { _, err := open.Write([]byte("x")); return err }, true, false},
		"write at":     {func(_ *fuse, open vfs.File) error { _, err := open.WriteAt([]byte("x"), 0); return err }, true, false},
		"sync":         {func(_ *fuse, open vfs.File) error { return open.Sync() }, true, false},
		"sync data":    {func(_ *fuse, open vfs.File) error { return open.SyncData() }, true, false},
		"sync to":      {func(_ *fuse, open vfs.File) error { _, err := open.SyncTo(1); return err }, true, false},
		"remove":       {func(f *fuse, _ vfs.File) error { return f.Remove("1.log") }, false, false},
		"open":         {func(f *fuse, _ vfs.File) error { _, err := f.Open("nothing"); return err }, false, true},
		"preallocate":  {func(_ *fuse, open vfs.File) error { return open.Preallocate(0, 1) }, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			inj := &injected{from: 1}
			inj.heal.Store(true)
			blown := false
			f := newFuse(errorfs.Wrap(vfs.NewMem(), inj), func(error) { blown = true })
			file, err := f.Create("1.log", category)
			noErr(t, err)
			inj.heal.Store(false)
			if err := c.write(f, file); (err != nil) != c.err {
				t.Errorf("Pebble sees %v", err)
			}
			if blown != c.blows {
				t.Errorf("blown: %v", blown)
			}
			inj.heal.Store(true)
			noErr(t, file.Close())
		})
	}
}
