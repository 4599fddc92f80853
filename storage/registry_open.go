package storage

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// openRegistry opens the registry of a store that is open, with its node key.
func (s *Store) openRegistry() error {
	needed, err := isSealed(&s.kv)
	if err != nil {
		return err
	}
	var key NodeKey
	if s.cfg.FS != nil {
		key, err = openNodeKeyIn(s.cfg.FS, s.cfg.Dir, needed)
	} else {
		key, err = openNodeKey(cmp.Or(s.cfg.NodeKeyFile, filepath.Join(s.cfg.Dir, NodeKeyFile)), needed)
	}
	if err != nil {
		return err
	}
	s.registry, err = newRegistry(&s.kv, key)
	return err
}

// Registry is the store's configuration record.
func (s *Store) Registry() *Registry { return s.registry }

// openNodeKeyIn is openNodeKey on a file system of a test, which can crash and
// has no permissions.
func openNodeKeyIn(v vfs.FS, dir string, needed bool) (k NodeKey, err error) {
	path := v.PathJoin(dir, NodeKeyFile)
	f, err := v.Open(path)
	switch {
	case err == nil:
		if _, err = io.ReadFull(f, k.raw[:]); err != nil {
			err = fmt.Errorf("node key %s: %w: %w", path, err, ErrNodeKeyFile)
		}
		return k, errors.Join(err, f.Close())
	case !errors.Is(err, fs.ErrNotExist):
		return k, fmt.Errorf("open node key: %w", err)
	case needed:
		return k, fmt.Errorf("%s: %w", path, ErrNoNodeKey)
	}
	k = NewNodeKey()
	partial := path + ".partial"
	if f, err = v.Create(partial, vfs.WriteCategoryUnspecified); err != nil {
		return k, err
	}
	_, err = f.Write(append([]byte(nil), k.raw[:]...)) // the file system may keep the slice
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return k, err
	}
	if err = v.Rename(partial, path); err != nil {
		return k, err
	}
	d, err := v.OpenDir(dir)
	if err != nil {
		return k, err
	}
	return k, errors.Join(d.Sync(), d.Close())
}
