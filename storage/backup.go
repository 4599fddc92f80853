package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
)

// ErrBackupTarget: the directory of a backup exists already, or cannot be made.
var ErrBackupTarget = errors.New("backup directory cannot be used")

// Backup writes a consistent copy of the store into a new directory while the
// store goes on: the database as a checkpoint with its log flushed, then the
// spool files, then the node key if it lies in the store's directory. Files are
// linked where the file system allows that, so a backup on the same disk costs
// little; copy it to another disk afterwards.
//
// The database comes first: a spool file that is written later is an orphan of
// the copy, while one that the copy refers to is still there. A node that starts
// on the copy sends again what was in flight when it was made.
//
// The copy holds what the store holds, the node key included: keep it as secret.
func (s *Store) Backup(ctx context.Context, dir string) (err error) {
	if s.cfg.FS != nil {
		return fmt.Errorf("%w: the store is not on a disk", ErrBackupTarget)
	}
	dir = filepath.Clean(dir)
	if _, err := os.Lstat(dir); err == nil {
		return fmt.Errorf("%w: %s exists; name a new directory", ErrBackupTarget, dir)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", ErrBackupTarget, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	err = s.view(func(db *pebble.DB) error { return db.Checkpoint(dir, pebble.WithFlushedWAL()) })
	if err != nil {
		return fmt.Errorf("%w: checkpoint: %w", ErrBackupTarget, err)
	}
	if err := s.backupSpool(ctx, filepath.Join(dir, spoolDir)); err != nil {
		return fmt.Errorf("back up spool: %w", err)
	}
	if err := backupFile(filepath.Join(s.cfg.Dir, NodeKeyFile), filepath.Join(dir, NodeKeyFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("back up node key: %w", err)
	}
	return syncDirAt(dir)
}

func (s *Store) backupSpool(ctx context.Context, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	names, err := s.spool.dir.list()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := backupFile(filepath.Join(s.cfg.Dir, spoolDir, name), filepath.Join(to, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // removed since it was listed: nothing refers to it
			return err
		}
	}
	return syncDirAt(to)
}

// backupFile links a file, or copies it where that is not possible.
func backupFile(from, to string) error {
	if err := os.Link(from, to); err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	in, err := os.Open(filepath.Clean(from))
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was only read
	out, err := os.OpenFile(filepath.Clean(to), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

func syncDirAt(path string) error {
	root, err := os.OpenRoot(filepath.Clean(path))
	if err != nil {
		return err
	}
	return errors.Join(syncDir(root), root.Close())
}
