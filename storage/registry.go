package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// What the registry's methods answer when they cannot do what was asked, besides
// [delivery.ErrNoTenant] and [delivery.ErrNoSubscriber]; test with [errors.Is].
var (
	// ErrNoDoc says that a document does not exist.
	ErrNoDoc = errors.New("no such document")
	// ErrExists says that the id is taken.
	ErrExists = errors.New("id exists already")
	// ErrConflict says that the record has another version than was expected.
	ErrConflict = errors.New("changed meanwhile")
	// ErrBadRecord says that a record cannot be stored as it is given.
	ErrBadRecord = errors.New("record is malformed")
	// ErrDamaged says that a stored record cannot be read.
	ErrDamaged = errors.New("stored record is damaged")
	// ErrFull says that no number is left to give out.
	ErrFull = errors.New("out of numbers")
)

// Versions that a write may expect besides the one it has read.
const (
	// MustNotExist makes a write create the record.
	MustNotExist uint64 = 0
	// AnyVersion makes a write win over whatever is there.
	AnyVersion = ^uint64(0)
)

// Registry is the configuration record of the store: tenants, subscribers with
// their secrets, the index that finds the subscribers of a topic, and documents
// of other packages.
//
// Writes are compare-and-set, each one batch, synced before it is answered.
// The registry keeps nothing in memory, however much is registered, but a
// bounded cache of who wants a topic; whoever reads records often keeps a cache
// of them and hears of changes by [Registry.Watch].
//
// Invariant: numbers of tenants and subscribers come from a counter that is
// raised in the batch that uses them. None is given out twice, deletion and
// crash included. A reader may see a change before it is synced; anything that
// it writes because of that comes later in the same log, so a crash cannot keep
// the consequence and lose the cause.
//
//	write ─► mu: read, decide, build one batch, apply ─► sync ─► watchers ─► answer
//	             └─ next writer goes on here while this one waits for its sync
type Registry struct {
	kv   *kv
	seal *sealer

	// mu makes a read-modify-write one step. It is held until the batch is
	// visible, not until it is synced, so that writers side by side share syncs.
	mu sync.Mutex

	watchMu  sync.Mutex
	watchers []*watcher

	topics *topicCache
}

// newRegistry opens the registry of a store. Secrets are sealed with key; if the
// store was sealed with another one, it says so now and not at the first
// delivery.
func newRegistry(k *kv, key NodeKey) (*Registry, error) {
	s, err := newSealer(key)
	if err != nil {
		return nil, err
	}
	topics, err := newTopicCache()
	if err != nil {
		return nil, fmt.Errorf("topic cache: %w", err)
	}
	r := &Registry{kv: k, seal: s, topics: topics}
	stored, ok, err := k.get(keySealCheck())
	if err != nil {
		return nil, fmt.Errorf("read seal check: %w", err)
	}
	if !ok {
		err := r.write(func(tx *registryTx) error {
			return tx.set(keySealCheck(), s.seal(nil, []byte("dispatcher"), keySealCheck()))
		})
		return r, err
	}
	if _, err := s.open(stored, keySealCheck()); err != nil {
		return nil, fmt.Errorf("the store's secrets and %s do not belong together: %w", NodeKeyFile, err)
	}
	return r, nil
}

// isSealed reports whether the store already holds values sealed with a node
// key, so that a missing key file is a loss and not a first start.
func isSealed(k *kv) (bool, error) {
	_, ok, err := k.get(keySealCheck())
	return ok, err
}

// read runs fn on the store as it is now. What fn reads with several calls may
// come from several moments; fn takes a snapshot where that matters.
func (r *Registry) read(fn func(db *pebble.DB) error) error { return r.kv.view(fn) }

func exists(from pebble.Reader, key []byte) (bool, error) {
	_, closer, err := from.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, closer.Close()
}

// registryTx is one write: an indexed batch that sees itself, the counters, and
// what watchers will hear. It lives under Registry.mu.
type registryTx struct {
	seal     *sealer
	b        *pebble.Batch
	now      time.Time
	counters counters
	changes  []Change
	indexed  []delivery.TenantNum // whose index rows changed
}

func (tx *registryTx) set(key, value []byte) error { return tx.b.Set(key, value, nil) }
func (tx *registryTx) delete(key []byte) error     { return tx.b.Delete(key, nil) }

// deletePrefix removes every row that starts with prefix, at a cost that does
// not depend on how many there are.
func (tx *registryTx) deletePrefix(prefix []byte) error {
	return tx.b.DeleteRange(prefix, keyAfter(prefix), nil)
}

func (tx *registryTx) changed(c Change) { tx.changes = append(tx.changes, c) }

// write runs one read-modify-write and returns when it is durable. If decide
// fails, nothing is written.
func (r *Registry) write(decide func(*registryTx) error) error {
	var changes []Change
	err := r.kv.view(func(db *pebble.DB) (err error) {
		b := db.NewIndexedBatch()
		defer func() { err = errors.Join(err, b.Close()) }()
		tx := &registryTx{seal: r.seal, b: b, now: time.Now().UTC().Truncate(time.Millisecond)}
		if err := r.apply(db, tx, decide); err != nil || b.Empty() {
			return err
		}
		changes = tx.changes
		if err := b.SyncWait(); err != nil {
			r.kv.fail(err)
		}
		return r.kv.readyLocked() // whatever failed meanwhile may have been this batch
	})
	// Also after a failed sync: the change is visible, and a cache that forgets
	// too much does no harm.
	r.notify(changes)
	return err
}

func (r *Registry) apply(db *pebble.DB, tx *registryTx, decide func(*registryTx) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, err := loadCounters(db)
	if err != nil {
		return err
	}
	tx.counters = before
	if err := decide(tx); err != nil {
		return err
	}
	if tx.counters != before {
		if err := tx.set(keyCounters(), tx.counters.encode()); err != nil {
			return err
		}
	}
	if tx.b.Empty() {
		return nil
	}
	// Apply with Sync would report a failed log through the logger alone and
	// return nil for what is not on the disk; this and SyncWait return the error.
	if err := db.ApplyNoSyncWait(tx.b, pebble.Sync); err != nil {
		r.kv.fail(err)
		return r.kv.readyLocked()
	}
	for _, t := range tx.indexed {
		r.topics.forget(t)
	}
	return nil
}

// counters are the registry's only mutable totals, one small record.
type counters struct {
	tenant      delivery.TenantNum     // last number given out
	subscriber  delivery.SubscriberNum // last number given out
	revision    uint64                 // last version given to a document
	tenants     uint64                 // registered now
	subscribers uint64                 // registered now
}

const (
	countersVersion = 1
	countersSize    = 1 + 4 + 8 + 8 + 8 + 8
)

func (c counters) encode() []byte {
	b := append(make([]byte, 0, countersSize), countersVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(c.tenant))
	b = binary.BigEndian.AppendUint64(b, uint64(c.subscriber))
	b = binary.BigEndian.AppendUint64(b, c.revision)
	b = binary.BigEndian.AppendUint64(b, c.tenants)
	return binary.BigEndian.AppendUint64(b, c.subscribers)
}

func decodeCounters(b []byte) (counters, error) {
	if len(b) != countersSize || b[0] != countersVersion {
		return counters{}, fmt.Errorf("counters: %d bytes of unknown form: %w", len(b), ErrDamaged)
	}
	return counters{
		tenant:      delivery.TenantNum(binary.BigEndian.Uint32(b[1:])),
		subscriber:  delivery.SubscriberNum(binary.BigEndian.Uint64(b[5:])),
		revision:    binary.BigEndian.Uint64(b[13:]),
		tenants:     binary.BigEndian.Uint64(b[21:]),
		subscribers: binary.BigEndian.Uint64(b[29:]),
	}, nil
}

func loadCounters(from pebble.Reader) (counters, error) {
	b, ok, err := getFrom(from, keyCounters())
	if err != nil {
		return counters{}, fmt.Errorf("read counters: %w", err)
	}
	if !ok {
		return counters{}, nil
	}
	return decodeCounters(b)
}

// Registered returns how many tenants and subscribers exist now.
func (r *Registry) Registered() (tenants, subscribers uint64, err error) {
	err = r.read(func(db *pebble.DB) error {
		c, err := loadCounters(db)
		tenants, subscribers = c.tenants, c.subscribers
		return err
	})
	return tenants, subscribers, err
}

// Change is one record that was written or deleted. Exactly one of Subscriber,
// Doc.Kind or, with neither, Tenant says which record it is.
type Change struct {
	Tenant     delivery.TenantNum // the record's tenant, or the tenant itself; 0 with a node's document
	Subscriber delivery.SubscriberNum
	Doc        DocKey
	// Deleted is set when the record is gone. For a tenant it covers all of its
	// subscribers and documents, which are not listed one by one.
	Deleted bool
}

type watcher struct{ fn func([]Change) }

// Watch calls fn after each durable write with what it changed, on the writer's
// goroutine and before the writer's call returns: whoever changed a record and
// then asks a cache that watches sees the change. fn must not block and must
// not write to the registry. Concurrent writes may call fn at the same time, and
// for one record in either order; fn should forget, not remember. A cache must
// not keep what it read before a call that came while it was reading.
//
// The returned function ends the watch.
func (r *Registry) Watch(fn func([]Change)) (stop func()) {
	w := &watcher{fn}
	r.watchMu.Lock()
	defer r.watchMu.Unlock()
	r.watchers = append(slices.Clip(r.watchers), w)
	return func() {
		r.watchMu.Lock()
		defer r.watchMu.Unlock()
		r.watchers = slices.DeleteFunc(slices.Clone(r.watchers), func(x *watcher) bool { return x == w })
	}
}

func (r *Registry) notify(changes []Change) {
	if len(changes) == 0 {
		return
	}
	r.watchMu.Lock()
	watchers := r.watchers
	r.watchMu.Unlock()
	for _, w := range watchers {
		w.fn(changes)
	}
}
