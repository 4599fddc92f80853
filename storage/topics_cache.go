package storage

import (
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Bounds of the cache of matches: at most 16 MiB of numbers, whatever is
// registered or published. Longer answers cost less than the rows that follow
// from them, so they are read again each time.
const (
	topicCacheSize    = 4096
	topicCacheMatches = 512
	topicGenerations  = 256
)

type topicKey struct {
	tenant delivery.TenantNum
	topic  string
}

type topicMatches struct {
	generation uint64
	subs       []delivery.SubscriberNum
}

// topicCache remembers who wants a topic, since most events have one of few
// topics and a look into the index costs as much as the rest of a publish.
//
// Invariant: an answer is given only while the generation of its tenant is the
// one that was read before the index was. A write raises the generation after
// its rows are visible and before it is answered, so an answer from before the
// write is never given after it. Tenants share generations by their low byte:
// that forgets too much now and then, and takes no memory per tenant.
type topicCache struct {
	entries     *lru.Cache[topicKey, topicMatches]
	generations [topicGenerations]atomic.Uint64

	// mu guards the database the entries were read from: one that is opened again
	// after a failure may have lost what was visible, but never synced, before.
	mu sync.Mutex
	db *pebble.DB
}

func newTopicCache() (*topicCache, error) {
	entries, err := lru.New[topicKey, topicMatches](topicCacheSize)
	if err != nil {
		return nil, err
	}
	return &topicCache{entries: entries}, nil
}

func (c *topicCache) generation(t delivery.TenantNum) *atomic.Uint64 {
	return &c.generations[t%topicGenerations]
}

// use makes sure that the entries are those of db.
func (c *topicCache) use(db *pebble.DB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.db != db {
		c.entries.Purge()
		c.db = db
	}
}

// get appends what is known of a topic to dst. Otherwise it returns the
// generation to put the answer under.
func (c *topicCache) get(k topicKey, dst []delivery.SubscriberNum) (_ []delivery.SubscriberNum, generation uint64, ok bool) {
	generation = c.generation(k.tenant).Load()
	e, ok := c.entries.Get(k)
	if !ok || e.generation != generation {
		return dst, generation, false
	}
	return append(dst, e.subs...), generation, true
}

func (c *topicCache) put(k topicKey, generation uint64, subs []delivery.SubscriberNum) {
	if len(subs) > topicCacheMatches || len(k.topic) > MaxPattern {
		return
	}
	c.entries.Add(k, topicMatches{generation, append([]delivery.SubscriberNum(nil), subs...)})
}

// forget ends the answers of a tenant whose index rows changed.
func (c *topicCache) forget(t delivery.TenantNum) { c.generation(t).Add(1) }
