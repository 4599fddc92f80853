package ingress

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
)

// DirSpool is a [Spool] in a directory. What a crash leaves there belongs to
// requests that were never answered, and is removed when the spool is opened.
type DirSpool struct {
	root *os.Root
}

// spoolPrefix begins the names of the spool's files; others are left alone.
const spoolPrefix = "ingress-"

// OpenSpool opens a directory that exists, for this process alone.
func OpenSpool(dir string) (*DirSpool, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	s := &DirSpool{root}
	if err := s.sweep(); err != nil {
		return nil, fmt.Errorf("open spool: %w", errors.Join(err, root.Close()))
	}
	return s, nil
}

func (s *DirSpool) sweep() error {
	dir, err := s.root.Open(".")
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	errs := []error{err, dir.Close()}
	for _, name := range names {
		if strings.HasPrefix(name, spoolPrefix) {
			errs = append(errs, s.root.Remove(name))
		}
	}
	return errors.Join(errs...)
}

// Create implements [Spool].
func (s *DirSpool) Create(context.Context) (SpoolFile, error) {
	name := spoolPrefix + rand.Text()
	f, err := s.root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &dirFile{File: f, root: s.root, name: name}, nil
}

// Close implements [io.Closer]. Files that are in use stay usable.
func (s *DirSpool) Close() error { return s.root.Close() }

// dirFile is a file of a DirSpool.
type dirFile struct {
	*os.File
	root *os.Root
	name string
	gone atomic.Bool
}

// Discard closes and removes the file.
func (f *dirFile) Discard() error {
	if f.gone.Swap(true) {
		return nil
	}
	err := f.root.Remove(f.name)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // whoever took the bytes over has renamed it
	}
	return errors.Join(f.File.Close(), err)
}

// Name returns the file's name inside the directory, for an [Enqueuer] that
// links or renames it instead of copying.
func (f *dirFile) Name() string { return f.name }
