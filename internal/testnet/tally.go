package testnet

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"sync"
)

// Tally is what a receiver saw. It is safe for concurrent use.
type Tally struct {
	mu        sync.Mutex
	seed      maphash.Seed
	accepted  map[uint64]uint32 // hash of webhook-id → times answered 2xx
	requests  int64
	byProto   [4]int64
	badSig    int64
	statuses  map[int]int64
	bytes     int64
	tcpConns  int64
	quicConns int64
	seen      map[uint64]struct{} // hash of (id, attempt): a second POST of one attempt
	resent    int64
}

// Counts is a copy of a [Tally]'s figures.
type Counts struct {
	Requests          int64         `json:"requests"`
	Accepted          int64         `json:"accepted"`           // distinct ids answered 2xx
	Duplicates        int64         `json:"duplicates"`         // 2xx beyond the first per id
	ResentAttempts    int64         `json:"resent_attempts"`    // POSTs beyond the first per id and attempt number
	SignatureFailures int64         `json:"signature_failures"` // requests whose signature did not verify
	H1                int64         `json:"h1"`
	H2                int64         `json:"h2"`
	H3                int64         `json:"h3"`
	TCPConnections    int64         `json:"tcp_connections"`
	QUICConnections   int64         `json:"quic_connections"`
	Bytes             int64         `json:"bytes"`
	Statuses          map[int]int64 `json:"statuses"`
}

func newTally() *Tally {
	return &Tally{
		seed:     maphash.MakeSeed(),
		accepted: map[uint64]uint32{},
		seen:     map[uint64]struct{}{},
		statuses: map[int]int64{},
	}
}

// request is one POST as the tally needs it.
type request struct {
	id, attempt string
	proto       int // 1, 2, 3
	bytes       int64
	goodSig     bool
}

func (t *Tally) arrived(r request) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	t.bytes += r.bytes
	if r.proto >= 1 && r.proto <= 3 {
		t.byProto[r.proto]++
	}
	if !r.goodSig {
		t.badSig++
	}
	key := t.hash(r.id, r.attempt)
	if _, again := t.seen[key]; again {
		t.resent++
	}
	t.seen[key] = struct{}{}
	return t.requests
}

func (t *Tally) answered(id string, status int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.statuses[status]++
	if status >= 200 && status <= 299 {
		t.accepted[t.hash(id, "")]++
	}
}

func (t *Tally) connected(quic bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if quic {
		t.quicConns++
	} else {
		t.tcpConns++
	}
}

func (t *Tally) hash(id, attempt string) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	_, _ = h.WriteString(id)
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(id)))
	_, _ = h.Write(n[:])
	_, _ = h.WriteString(attempt)
	return h.Sum64()
}

// Has reports whether an id was answered with a 2xx.
func (t *Tally) Has(id string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.accepted[t.hash(id, "")] > 0
}

// Counts returns the figures so far.
func (t *Tally) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := Counts{
		Requests: t.requests, SignatureFailures: t.badSig, ResentAttempts: t.resent, Bytes: t.bytes,
		H1: t.byProto[1], H2: t.byProto[2], H3: t.byProto[3],
		TCPConnections: t.tcpConns, QUICConnections: t.quicConns, Statuses: make(map[int]int64, len(t.statuses)),
		Accepted: int64(len(t.accepted)),
	}
	for _, n := range t.accepted {
		c.Duplicates += int64(n - 1)
	}
	maps.Copy(c.Statuses, t.statuses)
	return c
}
