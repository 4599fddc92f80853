package sched

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// memo is what is remembered about a subscriber without an actor. Nothing
// remembered means nothing is known: its actor has to ask the queue first.
type memo uint8

const (
	// memoKnown: this process served it, so a head of a key stands in PlaceRetry
	// and nothing else of it is unattended on disk.
	memoKnown memo = 1 << iota
	// memoKeys: some of its keys are blocked.
	memoKeys
	// memoSick: its health is not that of a subscriber that never failed.
	memoSick
	// memoAsleep: it has rows, and something will wake it; new rows need not.
	memoAsleep
	// memoDeaf: nor need rows that become due.
	memoDeaf
)

// clean reports whether a new row may go straight into memory.
func (m memo) clean() bool { return m == memoKnown }

// note is what is remembered about a subscriber that is slow or fails at times.
// It is lost in a restart, and may be dropped when there are too many.
type note struct {
	recent  uint64
	samples int
	latency time.Duration
	url     uint64 // hash of the URL that its failures are about; 0 = it has none
}

func (n note) empty() bool { return n.recent == 0 && n.latency == 0 && n.url == 0 }

// hashURL is never zero.
func hashURL(url string) uint64 { return maphash.String(urlSeed, url) | 1 }

var urlSeed = maphash.MakeSeed()

// notesPerShard bounds notes: 64 shards × 1024.
const notesPerShard = 1024

const shardCount = 64

// shard is a part of the actors in memory.
type shard struct {
	mu     sync.Mutex
	actors map[delivery.SubscriberNum]*actor
	memos  map[delivery.SubscriberNum]memo
	notes  map[delivery.SubscriberNum]note
}

// registry finds actors by subscriber.
type registry struct{ shards [shardCount]shard }

func newRegistry() *registry {
	r := &registry{}
	for i := range r.shards {
		s := &r.shards[i]
		s.actors = map[delivery.SubscriberNum]*actor{}
		s.memos = map[delivery.SubscriberNum]memo{}
		s.notes = map[delivery.SubscriberNum]note{}
	}
	return r
}

func (r *registry) shard(num delivery.SubscriberNum) *shard {
	x := uint64(num) * 0x9e3779b97f4a7c15
	return &r.shards[x>>58]
}

// find returns the actor in memory, and what is remembered if there is none.
func (r *registry) find(num delivery.SubscriberNum) (*actor, memo) {
	s := r.shard(num)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.actors[num], s.memos[num]
}

// findOrMake returns the actor in memory, or makes one. The caller locks it and
// looks whether it is gone.
func (r *registry) findOrMake(num delivery.SubscriberNum, make func(memo, note) *actor) *actor {
	s := r.shard(num)
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.actors[num]
	if a == nil {
		a = make(s.memos[num], s.notes[num])
		s.actors[num] = a
	}
	return a
}

// dismiss forgets an actor but for what is worth remembering. The caller holds
// the actor's lock.
func (r *registry) dismiss(a *actor, m memo, n note) {
	s := r.shard(a.num)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.actors, a.num)
	if m == 0 {
		delete(s.memos, a.num)
	} else {
		s.memos[a.num] = m
	}
	delete(s.notes, a.num)
	if n.empty() {
		return
	}
	if len(s.notes) >= notesPerShard {
		for old := range s.notes {
			delete(s.notes, old)
			break
		}
	}
	s.notes[a.num] = n
}

// forget drops what is remembered about a subscriber.
func (r *registry) forget(num delivery.SubscriberNum) {
	s := r.shard(num)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.memos, num)
	delete(s.notes, num)
}

// all lists the actors in memory.
func (r *registry) all() []*actor {
	var out []*actor
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		for _, a := range s.actors {
			out = append(out, a)
		}
		s.mu.Unlock()
	}
	return out
}
