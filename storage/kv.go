package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// kv is the database as the parts of this package share it: guarded against
// use while it is closed or being opened again, and unable to report success
// for what is not on disk.
//
// Invariant: db is used under mu held for reading, from NewIter or Get until
// the iterator or value is closed. Close and Reopen hold it for writing.
type kv struct {
	log    *slog.Logger
	onFail func(error) // told of a failure of the open database; may be nil
	// opening keeps failures while the database is being opened from onFail:
	// whoever opens it gets them as an error.
	opening atomic.Bool

	mu     sync.RWMutex
	db     *pebble.DB // nil while closed
	closed bool       // for good
	// failure says why nothing can be written any more; nil = healthy. Reads
	// stop as well: what they show might not survive.
	failure atomic.Pointer[failure]
}

type failure struct{ err error }

// ready returns nil, [delivery.ErrClosed], or an error that wraps
// [delivery.ErrNotReady] and says why.
func (k *kv) ready() error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.readyLocked()
}

func (k *kv) readyLocked() error {
	if k.closed {
		return delivery.ErrClosed
	}
	if f := k.failure.Load(); f != nil {
		return f.err
	}
	if k.db == nil {
		return fmt.Errorf("%w: being opened", delivery.ErrNotReady)
	}
	return nil
}

// fail makes the store not ready. The first reason stays.
func (k *kv) fail(cause error) {
	if k.failure.CompareAndSwap(nil, &failure{fmt.Errorf("%w: %w", delivery.ErrNotReady, cause)}) {
		k.log.Error("store failed, it must be opened again", "error", cause)
		if k.onFail != nil && !k.opening.Load() {
			k.onFail(cause)
		}
	}
}

// view runs fn with the open database. fn must close its iterators before it
// returns, and must not call view or commit.
func (k *kv) view(fn func(db *pebble.DB) error) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if err := k.readyLocked(); err != nil {
		return err
	}
	return fn(k.db)
}

// get returns a copy of the value at key; ok is false when there is none.
func (k *kv) get(key []byte) (value []byte, ok bool, err error) {
	err = k.view(func(db *pebble.DB) error {
		value, ok, err = getFrom(db, key)
		return err
	})
	return value, ok, err
}

// getFrom returns a copy of the value at key; ok is false when there is none.
func getFrom(r pebble.Reader, key []byte) (value []byte, ok bool, err error) {
	v, closer, err := r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	value = append([]byte(nil), v...)
	return value, true, closer.Close()
}

// applySynced applies a batch and waits for its sync. DB.Apply with Sync is not
// used: it hands a WAL error to Logger.Fatalf and then returns nil.
func (k *kv) applySynced(db *pebble.DB, b *pebble.Batch) error {
	if b.Empty() {
		return nil
	}
	if err := db.ApplyNoSyncWait(b, pebble.Sync); err != nil {
		k.fail(err)
		return k.failure.Load().err
	}
	if err := b.SyncWait(); err != nil {
		k.fail(err)
	}
	// Whatever failed since may have been this batch.
	if f := k.failure.Load(); f != nil {
		return f.err
	}
	return nil
}
