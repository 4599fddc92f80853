package storage

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// fuse is the file system that Pebble sees. It passes everything through until
// the first write fails. Then it blows: from that moment nothing reaches the
// disk any more, as if the process had crashed there, and what Pebble goes on
// writing ends in memory. Reads go on.
//
// The reason is what Pebble does with such errors: it panics inside its commit
// lock when the WAL cannot be written, closed or created, and asks its logger to
// end the process when the MANIFEST cannot. Behind the fuse it sees neither, so
// that the store can be closed and opened again in the same process, and what it
// finds then is a crash image like any other. Nobody is told of a success
// meanwhile: the fuse reports the failure before the failed call returns, and
// the committer looks after every sync.
//
// Failed writes of tables are returned as they are; Pebble handles those.
type fuse struct {
	vfs.FS // the real one

	cause   atomic.Pointer[error]
	closing atomic.Bool // compactions are to end
	paces   *paces
	memory  *vfs.MemFS  // holds what is created after the fuse has blown
	onError func(error) // told once, before the failed call returns
}

func newFuse(fs vfs.FS, onError func(error)) *fuse {
	return &fuse{FS: fs, memory: vfs.NewMem(), onError: onError, paces: newPaces()}
}

// blow records the first failure and reports it.
func (f *fuse) blow(err error) {
	if f.cause.CompareAndSwap(nil, &err) {
		f.onError(err)
	}
}

// endCompactions fails what compactions write from now on. Pebble removes what they
// wrote before.
func (f *fuse) endCompactions() { f.closing.Store(true) }

// unwanted reports whether a write is for nothing: of a compaction, in a database
// that is being closed.
func (f *fuse) unwanted(category vfs.DiskWriteCategory) bool {
	return category == compactionCategory && f.closing.Load()
}

func (f *fuse) blown() error {
	if p := f.cause.Load(); p != nil {
		return *p
	}
	return nil
}

// isTable reports whether Pebble copes with errors of a file by itself.
func isTable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}

// inMemory makes a file that nothing is kept of.
func (f *fuse) inMemory(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.memory.MkdirAll(f.PathDir(name), 0o700); err != nil {
		return nil, err
	}
	return f.memory.Create(name, category)
}

// Unwrap implements vfs.FS.
func (f *fuse) Unwrap() vfs.FS { return f.FS }

// Create implements vfs.FS.
func (f *fuse) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if f.unwanted(category) {
		return nil, errClosing
	}
	if f.blown() == nil {
		file, err := f.create(name, category)
		if err == nil {
			return &fuseFile{File: f.paces.wrap(name, category, file), fuse: f, table: isTable(name), category: category}, nil
		}
		f.blow(err)
		if isTable(name) {
			return nil, err
		}
	}
	return f.inMemory(name, category)
}

// create creates a file. The name of a marker says which MANIFEST counts; the
// MANIFEST's own name must not reach the disk after it, and Pebble leaves that to
// the file system's order.
func (f *fuse) create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(f.PathBase(name), "marker.") {
		if err := syncNamesIn(f.FS, f.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return f.FS.Create(name, category)
}

// ReuseForWrite implements vfs.FS.
func (f *fuse) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if f.blown() == nil {
		file, err := f.FS.ReuseForWrite(oldname, newname, category)
		if err == nil {
			return &fuseFile{File: f.paces.wrap(newname, category, file), fuse: f, table: isTable(newname)}, nil
		}
		f.blow(err)
	}
	return f.inMemory(newname, category)
}

// OpenReadWrite implements vfs.FS.
func (f *fuse) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if f.blown() == nil {
		file, err := f.FS.OpenReadWrite(name, category, opts...)
		if err == nil {
			return &fuseFile{File: file, fuse: f, table: isTable(name)}, nil
		}
		f.blow(err)
	}
	return f.inMemory(name, category)
}

// Open implements vfs.FS.
func (f *fuse) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if f.blown() != nil {
		if file, err := f.memory.Open(name, opts...); err == nil {
			return file, nil
		}
	}
	return f.FS.Open(name, opts...)
}

// OpenDir implements vfs.FS.
func (f *fuse) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &fuseFile{File: dir, fuse: f}, nil
}

// change runs an operation on names, unless the fuse has blown.
func (f *fuse) change(real, memory func() error) error {
	if f.blown() == nil {
		err := real()
		if err == nil || errors.Is(err, os.ErrNotExist) {
			return err
		}
		f.blow(err)
	}
	// Whether the name exists in memory depends on when the fuse blew.
	_ = memory() //nolint:errcheck // nothing of this is kept
	return nil
}

// Link implements vfs.FS.
func (f *fuse) Link(oldname, newname string) error {
	return f.change(
		func() error { return f.FS.Link(oldname, newname) },
		func() error { return f.memory.Link(oldname, newname) })
}

// Rename implements vfs.FS.
func (f *fuse) Rename(oldname, newname string) error {
	return f.change(
		func() error { return f.FS.Rename(oldname, newname) },
		func() error { return f.memory.Rename(oldname, newname) })
}

// MkdirAll implements vfs.FS.
func (f *fuse) MkdirAll(dir string, perm os.FileMode) error {
	return f.change(
		func() error { return f.FS.MkdirAll(dir, perm) },
		func() error { return f.memory.MkdirAll(dir, perm) })
}

// Remove implements vfs.FS. That a file cannot be removed loses nothing. After
// the fuse has blown nothing is removed: the disk still needs what the version
// in memory has replaced.
func (f *fuse) Remove(name string) error {
	if f.blown() == nil {
		return f.FS.Remove(name)
	}
	_ = f.memory.Remove(name)
	return nil
}

// RemoveAll implements vfs.FS; see Remove.
func (f *fuse) RemoveAll(name string) error {
	if f.blown() == nil {
		return f.FS.RemoveAll(name)
	}
	_ = f.memory.RemoveAll(name)
	return nil
}

// Stat implements vfs.FS.
func (f *fuse) Stat(name string) (vfs.FileInfo, error) {
	if f.blown() != nil {
		if info, err := f.memory.Stat(name); err == nil {
			return info, nil
		}
	}
	return f.FS.Stat(name)
}

// Lock implements vfs.FS.
func (f *fuse) Lock(name string) (io.Closer, error) { return f.FS.Lock(name) }

// fuseFile is an open file behind the fuse.
type fuseFile struct {
	vfs.File
	fuse     *fuse
	table    bool
	category vfs.DiskWriteCategory
	closed   atomic.Bool
}

// guard runs a write, unless the fuse has blown. Pebble forgets a table that it
// could not write, and leaves it open.
func (f *fuseFile) guard(write func() error) error {
	if f.fuse.unwanted(f.category) {
		return errors.Join(errClosing, f.close())
	}
	err := f.fuse.blown()
	if err == nil {
		if err = write(); err == nil {
			return nil
		}
		f.fuse.blow(err)
	}
	if f.table {
		return err
	}
	return nil
}

// Write implements vfs.File.
func (f *fuseFile) Write(p []byte) (int, error) {
	err := f.guard(func() error {
		_, err := f.File.Write(p)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteAt implements vfs.File.
func (f *fuseFile) WriteAt(p []byte, off int64) (int, error) {
	err := f.guard(func() error {
		_, err := f.File.WriteAt(p, off)
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Preallocate implements vfs.File. It is a hint: a full disk shows at the write.
func (f *fuseFile) Preallocate(offset, length int64) error {
	if f.fuse.blown() != nil {
		return nil
	}
	return f.File.Preallocate(offset, length)
}

// Sync implements vfs.File.
func (f *fuseFile) Sync() error { return f.guard(f.File.Sync) }

// SyncData implements vfs.File.
func (f *fuseFile) SyncData() error { return f.guard(f.File.SyncData) }

// SyncTo implements vfs.File.
func (f *fuseFile) SyncTo(length int64) (full bool, err error) {
	err = f.guard(func() error {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

// Close implements vfs.File. The real file is closed in any case.
func (f *fuseFile) Close() error {
	err := f.close()
	if err == nil {
		return nil
	}
	return f.guard(func() error { return err })
}

func (f *fuseFile) close() error {
	if f.closed.Swap(true) {
		return nil
	}
	return f.File.Close()
}
