package engine

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/dispatcher-engine/dispatcher/storage"
)

// StoreStats are the store's figures, under the engine's name: the API knows the
// engine alone.
type StoreStats = storage.Stats

// StoreStats returns the store's figures.
func (e *Engine) StoreStats(context.Context) (StoreStats, error) {
	s, err := e.store.Stats()
	if err != nil {
		return s, e.storeFault(err)
	}
	return s, nil
}

// BackupStore writes a consistent copy of the store into a new directory of the
// node's machine while deliveries go on.
func (e *Engine) BackupStore(ctx context.Context, dir string) error {
	if !filepath.IsAbs(dir) {
		return &InvalidError{Fields: []FieldError{{
			Field: "directory", Value: clipped(dir), Rule: "an absolute path on the node's machine", Hint: "write /backups/2026-01-02",
		}}}
	}
	err := e.store.Backup(ctx, dir)
	if errors.Is(err, storage.ErrBackupTarget) {
		return &ConflictError{Field: "directory", Value: clipped(dir), Rule: err.Error(), Hint: "name a directory that does not exist, below one that does"}
	}
	if err != nil {
		return e.storeFault(err)
	}
	e.logger.Info("store_backed_up", "directory", dir)
	return nil
}

// CompactStore rewrites the store so that what was deleted takes no space.
func (e *Engine) CompactStore(ctx context.Context) error {
	if err := e.store.Compact(ctx); err != nil {
		return e.storeFault(err)
	}
	return nil
}
