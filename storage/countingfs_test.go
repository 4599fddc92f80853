package storage

import (
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// countingFS counts the bytes that are read.
type countingFS struct {
	vfs.FS
	bytes atomic.Int64
}

func (c *countingFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := c.FS.Open(name, opts...)
	if err != nil {
		return nil, err
	}
	return &countingFile{f, c}, nil
}

func (c *countingFS) Unwrap() vfs.FS { return c.FS }

type countingFile struct {
	vfs.File
	fs *countingFS
}

func (f *countingFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	f.fs.bytes.Add(int64(n))
	return n, err
}

func (f *countingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.fs.bytes.Add(int64(n))
	return n, err
}
