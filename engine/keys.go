package engine

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// keyMaker makes UUIDv7 event keys (RFC 9562 §5.7, method 1 of §6.2: a counter
// in rand_a). Keys of one process strictly increase, also when the wall clock
// steps back: then the last millisecond goes on being used.
type keyMaker struct {
	mu      sync.Mutex
	lastMS  int64
	counter uint16 // 12 bits
	pool    [512]byte
	left    int
}

const maxKeyCounter = 1<<12 - 1

// next returns a key for the wall time now.
func (m *keyMaker) next(now time.Time) delivery.EventKey {
	m.mu.Lock()
	defer m.mu.Unlock()
	ms := now.UnixMilli()
	switch {
	case ms > m.lastMS:
		m.lastMS, m.counter = ms, 0
	case m.counter < maxKeyCounter:
		m.counter++
	default: // 4096 keys in this millisecond: borrow from the next
		m.lastMS, m.counter = m.lastMS+1, 0
	}
	var k delivery.EventKey
	binary.BigEndian.PutUint64(k[0:8], uint64(m.lastMS)<<16|0x7000|uint64(m.counter)) //nolint:gosec // after 1970
	copy(k[8:], m.randomLocked())
	k[8] = k[8]&0x3f | 0x80
	return k
}

// randomLocked returns 8 random bytes; it reads the system's source in blocks,
// since a system call per event would cost more than the key.
func (m *keyMaker) randomLocked() []byte {
	if m.left < 8 {
		_, _ = rand.Read(m.pool[:]) // never fails: crypto/rand ends the process instead
		m.left = len(m.pool)
	}
	m.left -= 8
	return m.pool[m.left : m.left+8]
}
