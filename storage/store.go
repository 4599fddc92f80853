package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// ErrLocked: another process has the store open.
var ErrLocked = errors.New("store is in use by another process")

// Store is the open store. Its methods may be called from any goroutine.
//
// It owns the committer's two goroutines and, from Start on, those that watch the
// disk and enforce retention. Lock order: life, then kv.mu; the committer's
// goroutine takes neither.
type Store struct {
	kv
	cfg   Config
	fs    vfs.FS
	hooks atomic.Pointer[Hooks]
	keep  atomic.Pointer[Retention]
	disk  disk
	spool *spool

	// life makes Reopen and Close exclude each other.
	life    sync.Mutex
	dirLock *pebble.Lock
	stopFS  io.Closer // ends the watch over the file system; nil = there is none
	cache   *pebble.Cache
	commit  atomic.Pointer[committer] // nil while closed
	lease   atomic.Pointer[delivery.Lease]
	heads   *heads // under kv.mu, like the database that they are about
	// Of the database that is open, under kv.mu.
	fuse        *fuse
	compactions *compactions

	partitions int       // set by Open, then constant
	registry   *Registry // set by Open, then constant

	cancel     context.CancelFunc // ends the background tasks
	background sync.WaitGroup
	session    atomic.Pointer[session]
}

// session is the time from one opening of the database to its closing; what may
// hold the database for long watches its end.
type session struct {
	ctx context.Context //nolint:containedctx // it is a lifetime, not a call
	end context.CancelFunc
}

// Open opens the store, or creates it. It scans nothing, however much is stored.
// Each opening has a higher epoch than the one before. The background tasks
// begin with Start.
func Open(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, fs: cfg.FS}
	s.log, s.onFail = cfg.Logger, cfg.Observer.Failed
	s.hooks.Store(&Hooks{})
	s.keep.Store(&cfg.Retention)
	if s.fs == nil {
		s.fs = s.realFS()
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store: %w", advise(cfg.Dir, err)), s.release())
	}
	if err := s.openRegistry(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store: %w", advise(cfg.Dir, err)), s.Close())
	}
	s.disk.check(s)
	return s, nil
}

// open takes the directory and what lies in it.
func (s *Store) open() error {
	if err := makeDir(s.fs, s.cfg.Dir); err != nil {
		return err
	}
	var err error
	if s.cfg.FS == nil {
		// The lock knows directories by their names: one that is a link has two.
		if s.cfg.Dir, err = filepath.EvalSymlinks(s.cfg.Dir); err != nil {
			return err
		}
	}
	if s.dirLock, err = lockDir(s.fs, s.cfg.Dir); err != nil {
		return err
	}
	if s.spool, err = openSpool(s.fs, s.cfg.Dir, s.cfg.FS == nil); err != nil {
		return err
	}
	// Pebble takes its memory tables out of its cache, of which there are two for
	// most of the time: without room for them there would be no cache at all.
	s.cache = pebble.NewCache(s.cfg.Cache + 2*s.cfg.MemTable)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openLocked()
}

// release gives back everything but the database.
func (s *Store) release() error {
	var err error
	if s.cache != nil {
		s.cache.Unref()
	}
	if s.spool != nil {
		err = s.spool.close()
	}
	if s.dirLock != nil {
		err = errors.Join(err, s.dirLock.Close())
	}
	if s.stopFS != nil {
		err = errors.Join(err, s.stopFS.Close())
	}
	return err
}

// openLocked opens the database with a new fuse, raises the epoch and starts a
// committer. The caller holds kv.mu for writing.
func (s *Store) openLocked() error {
	s.opening.Store(true)
	defer s.opening.Store(false)
	if err := checkFiles(s.fs, s.cfg.Dir); err != nil {
		return err
	}
	s.fuse, s.compactions = newFuse(s.fs, s.fail), newCompactions()
	s.failure.Store(nil)
	db, err := pebble.Open(s.cfg.Dir, s.options(s.fuse, s.compactions))
	if err != nil {
		return s.openError(err)
	}
	s.compactions.begin()
	if s.cfg.FS == nil {
		s.fuse.paces.hurry.Add(-1)
	}
	m, err := s.raiseEpoch(db)
	if err != nil {
		return errors.Join(err, s.closeDB(db, false))
	}
	s.db = db
	if s.partitions == 0 {
		s.partitions = m.partitions
	}
	lease := delivery.Lease{Node: s.cfg.Node, Epoch: m.epoch}
	s.lease.Store(&lease)
	c := newCommitter(&s.kv, db, &s.cfg, m, lease)
	c.hooks, c.spool, c.record = &s.hooks, s.spool, s.cfg.record
	s.heads = &heads{}
	c.sweeps.heads, c.sweeps.lookAfter = s.heads, s.cfg.lookAfter
	c.start()
	s.commit.Store(c)
	ctx, end := context.WithCancel(context.Background())
	s.session.Store(&session{ctx, end})
	return nil
}

// raiseEpoch makes this opening's epoch and positions durable.
func (s *Store) raiseEpoch(db *pebble.DB) (meta, error) {
	b := db.NewBatch()
	defer b.Close()
	m, err := loadMeta(db, b, s.cfg.Partitions)
	if err != nil {
		return meta{}, err
	}
	// What the migration writes is in the log before the format that promises it.
	if err := s.migrate(db, m.partitions); err != nil {
		return meta{}, err
	}
	return m, s.applySynced(db, b)
}

// openError says in our words what Pebble means.
func (s *Store) openError(err error) error {
	if f := s.failure.Load(); f != nil {
		return f.err
	}
	if isNewerFormat(err) {
		return &FormatError{Supported: FormatVersion, Err: err}
	}
	return err
}

// mayFlush reports whether a flush would not wait for a compaction.
func mayFlush(db *pebble.DB) bool {
	m := db.Metrics()
	return int64(m.Levels[0].Sublevels)+m.MemTable.Count < l0Stop
}

// closeDB closes a database, after its memory was written out if flush is set: the
// log has it all, but takes longer to read. A compaction that runs ends unfinished.
// That a fuse has blown is known elsewhere.
func (s *Store) closeDB(db *pebble.DB, flush bool) error {
	s.compactions.end()
	s.fuse.endCompactions()
	if flush && mayFlush(db) {
		if err := db.Flush(); err != nil {
			s.log.Warn("memory was not written out, the next opening replays the log", "error", err)
		}
	}
	if err := db.Close(); err != nil {
		return fmt.Errorf("close database: %w", err)
	}
	return nil
}

// Lease is the right to write facts. It changes when the store is opened again.
func (s *Store) Lease() delivery.Lease { return *s.lease.Load() }

// Partitions is the number of partitions of this store.
func (s *Store) Partitions() int { return s.partitions }

// SetHooks tells the committer whom to ask and tell about publishes. It is to be
// called while nothing is being published.
func (s *Store) SetHooks(h Hooks) { s.hooks.Store(&h) }

// Healthy returns nil if the store can write. Otherwise the error wraps
// [delivery.ErrNotReady] and says why, or is [delivery.ErrClosed].
func (s *Store) Healthy() error { return s.ready() }

// committer returns the one that takes jobs now.
func (s *Store) committer() (*committer, error) {
	if f := s.failure.Load(); f != nil {
		return nil, f.err
	}
	c := s.commit.Load()
	if c == nil {
		return nil, s.notTaken()
	}
	return c, nil
}

// Reopen closes the database and opens it again: the way back after a failure,
// once its cause is gone. What was acknowledged is there, what was not may be.
// The lease is a new one, and facts with the old one are refused: whoever holds
// rows in memory must load them again. If opening fails the store stays not
// ready, and Reopen may be tried again.
func (s *Store) Reopen() error {
	s.life.Lock()
	defer s.life.Unlock()
	s.stopCommitter()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return delivery.ErrClosed
	}
	if s.db != nil {
		if err := s.closeDB(s.db, false); err != nil {
			s.log.Warn("database was closed with an error", "error", err)
		}
		s.db = nil
	}
	if err := s.openLocked(); err != nil {
		s.failure.CompareAndSwap(nil, &failure{fmt.Errorf("%w: %w", delivery.ErrNotReady, err)})
		return fmt.Errorf("reopen store: %w", err)
	}
	s.log.Info("store opened again", "epoch", uint64(s.Lease().Epoch))
	return nil
}

// stopCommitter finishes what was handed in and takes no more. Long readers are
// told to let go of the database.
func (s *Store) stopCommitter() {
	if c := s.commit.Swap(nil); c != nil {
		c.close()
	}
	if o := s.session.Load(); o != nil {
		o.end()
	}
}

// Close finishes what was handed in, ends the background tasks and closes the
// database. It writes out what is in memory, so that the next opening has no log
// to replay. A second call does nothing.
func (s *Store) Close() error {
	s.life.Lock()
	defer s.life.Unlock()
	s.fuse.paces.hurry.Add(1)
	if s.cancel != nil {
		s.cancel()
	}
	s.background.Wait()
	s.stopCommitter()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var err error
	if s.db != nil {
		err = s.closeDB(s.db, s.failure.Load() == nil)
		s.db = nil
	}
	return errors.Join(err, s.release())
}
