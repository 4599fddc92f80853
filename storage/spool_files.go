package storage

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// rootFiles is the spool on a real disk. An [os.Root] keeps every name inside
// its directory, whatever the store says it is.
type rootFiles struct{ root *os.Root }

func (r rootFiles) create(name string, data io.Reader) (int64, error) {
	f, err := r.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(f, data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return n, err
	}
	return n, r.syncNames()
}

func (r rootFiles) syncNames() error {
	dir, err := r.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func (r rootFiles) open(name string) (io.ReadCloser, error) { return r.root.Open(name) }

func (r rootFiles) link(name, second string) error {
	if err := r.root.Link(name, second); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return r.syncNames()
}

func (r rootFiles) remove(name string) error { return r.root.Remove(name) }

func (r rootFiles) list() ([]string, error) {
	dir, err := r.root.Open(".")
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	return names, errors.Join(err, dir.Close())
}

// Close implements io.Closer.
func (r rootFiles) Close() error { return r.root.Close() }

// vfsFiles is the spool in the file system of a test, which can crash.
type vfsFiles struct {
	fs  vfs.FS
	dir string
}

func (v vfsFiles) path(name string) string { return v.fs.PathJoin(v.dir, v.fs.PathBase(name)) }

func (v vfsFiles) create(name string, data io.Reader) (int64, error) {
	f, err := v.fs.Create(v.path(name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return 0, err
	}
	// The file system may change what it writes; the payload is not ours. The
	// bare reader makes Copy use a buffer of its own.
	n, err := io.Copy(f, struct{ io.Reader }{data})
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return n, err
	}
	return n, syncNamesIn(v.fs, v.dir)
}

func (v vfsFiles) open(name string) (io.ReadCloser, error) { return v.fs.Open(v.path(name)) }

func (v vfsFiles) link(name, second string) error {
	if err := v.fs.Link(v.path(name), v.path(second)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncNamesIn(v.fs, v.dir)
}

func (v vfsFiles) remove(name string) error { return v.fs.Remove(v.path(name)) }

func (v vfsFiles) list() ([]string, error) { return v.fs.List(v.dir) }

// Close implements io.Closer.
func (vfsFiles) Close() error { return nil }
