package storage

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// heads remembers where the first live rows of busy queues are, so that a read
// from a queue's beginning does not meet what was consumed before it. A range
// delete does not spare a reader that: inside a memory table it is looked at once
// for every row that it covers.
//
// Only the committer writes it, between looking at what it has applied and adding
// to a batch. So what is remembered stays true: a ready or parked row that comes
// later has a higher sequence than all before it, and a row that waits for a due
// time lowers its queue's head before it is applied. It is about one opening of
// the database: a crash may bring back what was consumed.
type heads struct {
	mu sync.RWMutex
	at map[queueRef]headAt
}

// headAt is the place of a row in its run: due time in milliseconds where the run
// is in that order, and sequence.
type headAt struct{ due, seq uint64 }

func (h headAt) before(o headAt) bool { return h.due < o.due || h.due == o.due && h.seq < o.seq }

// maxHeads bounds the memory; when it is reached, all is forgotten.
const maxHeads = 1 << 15

// headOf reads the place of a row out of its key.
func headOf(ref queueRef, key []byte) headAt {
	seq := binary.BigEndian.Uint64(key[len(key)-8:])
	if ref.prefix == prefixRetry {
		return headAt{milliOf(milli48(key[partSubLen:])), seq}
	}
	return headAt{0, seq}
}

// headOfEmpty is where the first row of an empty run will stand at the earliest,
// if everything below a position has been applied.
func headOfEmpty(ref queueRef, next delivery.Position) headAt {
	if ref.prefix == prefixRetry {
		return headAt{math.MaxUint64, math.MaxUint64} // until somebody lowers it
	}
	return headAt{0, uint64(next)}
}

// get returns a run's head, the zero value if none is known.
func (h *heads) get(ref queueRef) headAt {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.at[ref]
}

// span returns the keys between which a run's live rows at or after a place are.
func (h *heads) span(ref queueRef, from headAt) (start, end []byte) {
	if at := h.get(ref); from.before(at) {
		from = at
	}
	start = ref.appendPrefix(make([]byte, 0, parkedRowLen))
	end = keyAfter(start)
	if ref.prefix == prefixRetry {
		start = appendMilli48(start, milliTime(min(from.due, maxMilli)))
	}
	return binary.BigEndian.AppendUint64(start, from.seq), end
}

func (h *heads) raise(ref queueRef, at headAt) {
	if ref.prefix == prefixWake {
		return // read by due time, not from its beginning
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at == nil || len(h.at) >= maxHeads {
		h.at = map[queueRef]headAt{}
	}
	h.at[ref] = at
}

// lower makes room before a head for a row that will be applied.
func (h *heads) lower(ref queueRef, at headAt) {
	h.mu.RLock()
	old, ok := h.at[ref]
	h.mu.RUnlock()
	if !ok || !at.before(old) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at[ref] = at
}
