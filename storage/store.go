package storage

import (
	"log/slog"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Config is what a [Store] needs to know.
type Config struct {
	// Dir is the directory of the store. It is created when it does not exist.
	Dir string
	// FS is the file system; nil = the operating system's.
	FS vfs.FS
	// Logger gets what an operator must know; nil = nothing is logged.
	Logger *slog.Logger
}

// Store is the open store.
type Store struct {
	kv
	cfg Config
}

// Open opens the store, or creates it.
func Open(cfg Config) (*Store, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{cfg: cfg}
	s.log = cfg.Logger
	db, err := pebble.Open(cfg.Dir, &pebble.Options{FS: cfg.FS})
	if err != nil {
		return nil, err
	}
	s.db = db
	return s, nil
}

// Close closes the store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.db.Close()
}
