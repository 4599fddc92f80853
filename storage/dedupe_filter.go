package storage

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
)

// dedupeFilter knows which dedupe keys are certainly not stored, so that a
// publish of something new, which is nearly every one, asks the database nothing.
// It holds a Bloom filter of fixed size for each bucket: when that fills up,
// more questions go to the database and nothing else happens.
//
// What was stored before the store was opened is loaded in the background; until
// then the answer is "maybe".
type dedupeFilter struct {
	complete atomic.Bool // everything stored is in the filters

	mu      sync.Mutex
	from    uint16 // of earlier buckets nothing is known: should a clock go back, they are asked for in the database
	buckets map[uint16]*idFilter
	size    int // bytes of one bucket's filter
}

func newDedupeFilter(memory, buckets int) *dedupeFilter {
	return &dedupeFilter{buckets: map[uint16]*idFilter{}, size: memory / buckets}
}

// maybe reports whether a key may be stored.
func (f *dedupeFilter) maybe(k dedupeKey) bool {
	if !f.complete.Load() {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if k.bucket() < f.from {
		return true
	}
	b := f.buckets[k.bucket()]
	return b != nil && b.has(k)
}

func (f *dedupeFilter) add(k dedupeKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addLocked(k)
}

func (f *dedupeFilter) addLocked(k dedupeKey) {
	if k.bucket() < f.from {
		return
	}
	b := f.buckets[k.bucket()]
	if b == nil {
		b = newIDFilter(f.size)
		f.buckets[k.bucket()] = b
	}
	b.add(k)
}

// forget drops the filters of buckets that nobody asks for any more.
func (f *dedupeFilter) forget(oldest uint16) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from = max(f.from, oldest)
	for bucket := range f.buckets {
		if bucket < oldest {
			delete(f.buckets, bucket)
		}
	}
}

// filterChunk is how many keys are loaded with one look at the database.
const filterChunk = 4096

// load adds the stored keys from a bucket on. stop ends it early. A new store is
// loaded at once.
func (f *dedupeFilter) load(k *kv, oldest uint16, stop <-chan struct{}) error {
	f.forget(oldest)
	next := binary.BigEndian.AppendUint16([]byte{prefixDedupe}, oldest)
	for next != nil {
		select {
		case <-stop:
			return nil
		default:
		}
		err := k.view(func(db *pebble.DB) (err error) {
			next, err = f.loadChunk(db, next)
			return err
		})
		if err != nil {
			return err
		}
	}
	f.complete.Store(true)
	return nil
}

func (f *dedupeFilter) loadChunk(db *pebble.DB, from []byte) (next []byte, err error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: []byte{prefixDedupe + 1}})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n == filterChunk {
			return append([]byte(nil), it.Key()...), nil
		}
		n++
		if len(it.Key()) == len(dedupeKey{}) {
			f.addLocked(dedupeKey(it.Key()))
		}
	}
	return nil, it.Error()
}

// idFilter is a Bloom filter in which a key's bits share one cache line.
type idFilter struct{ lines [][8]uint64 }

// bloomProbes is the number of bits a key sets; six are right for about ten bits
// a key.
const bloomProbes = 6

func newIDFilter(bytes int) *idFilter { return &idFilter{make([][8]uint64, max(1, bytes/64))} }

// line returns a key's cache line and the bits that choose inside of it. The key
// ends in a cryptographic hash, so its bits need no mixing.
func (b *idFilter) line(k dedupeKey) (line *[8]uint64, bits uint64) {
	h := binary.BigEndian.Uint64(k[7:])
	// The tenant is part of the key and not of the hash.
	h ^= uint64(binary.BigEndian.Uint32(k[3:])) * 0x9e3779b97f4a7c15
	return &b.lines[h%uint64(len(b.lines))], binary.BigEndian.Uint64(k[15:])
}

func (b *idFilter) add(k dedupeKey) {
	line, bits := b.line(k)
	for range bloomProbes {
		line[bits>>6&7] |= 1 << (bits & 63)
		bits >>= 9
	}
}

func (b *idFilter) has(k dedupeKey) bool {
	line, bits := b.line(k)
	for range bloomProbes {
		if line[bits>>6&7]&(1<<(bits&63)) == 0 {
			return false
		}
		bits >>= 9
	}
	return true
}
