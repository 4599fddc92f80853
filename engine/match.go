package engine

import (
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// matcher is what the topic cache reads through to.
type matcher interface {
	Match(tenant delivery.TenantNum, topic string, dst []delivery.SubscriberNum) ([]delivery.SubscriberNum, error)
}

// topics caches which subscribers want a topic. A change to any subscriber of a
// tenant makes the tenant's entries stale: they carry a generation, and tenants
// share a fixed number of generations so that memory does not follow them.
// Matches over maxCachedMatch are not kept.
type topics struct {
	matcher     matcher
	cache       *lru.Cache[topicKey, topicEntry]
	generations [generationSlots]atomic.Uint64
}

type topicKey struct {
	tenant delivery.TenantNum
	topic  string
}

type topicEntry struct {
	generation uint64
	nums       []delivery.SubscriberNum
}

const (
	maxCachedTopics = 4096
	maxCachedMatch  = 1024
	generationSlots = 1024
)

func newTopics(m matcher) (*topics, error) {
	cache, err := lru.New[topicKey, topicEntry](maxCachedTopics)
	if err != nil {
		return nil, err
	}
	return &topics{matcher: m, cache: cache}, nil
}

func (t *topics) generation(tenant delivery.TenantNum) *atomic.Uint64 {
	return &t.generations[tenant%generationSlots]
}

// match returns the subscribers that want a topic; the slice is shared and must
// not be changed.
func (t *topics) match(tenant delivery.TenantNum, topic string) ([]delivery.SubscriberNum, error) {
	key := topicKey{tenant, topic}
	// Read before the match: a change in between leaves an entry that no later
	// reader accepts.
	generation := t.generation(tenant).Load()
	if entry, ok := t.cache.Get(key); ok && entry.generation == generation {
		return entry.nums, nil
	}
	nums, err := t.matcher.Match(tenant, topic, nil)
	if err != nil {
		return nil, err
	}
	if len(nums) <= maxCachedMatch {
		t.cache.Add(key, topicEntry{generation, nums})
	}
	return nums, nil
}

// forget makes a tenant's entries stale.
func (t *topics) forget(tenant delivery.TenantNum) { t.generation(tenant).Add(1) }
