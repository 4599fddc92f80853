package fault

import (
	"hash/maphash"
	"maps"
	"sync"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Tally is what the server did, exact at any time. It is safe for concurrent
// use, and keeps a hash of each request id, not the id.
type Tally struct {
	seed maphash.Seed

	mu       sync.Mutex
	ids      map[uint64]*idCount
	requests int64
	runs     int64
	second   int64 // runs beyond the first of an id
	lies     int64
	bytes    int64
	byName   map[string]int64
	byProto  [4]int64
	accepted [2]int64 // by network
	open     [2]int64
}

// idCount is what happened to one request id.
type idCount struct {
	arrived, runs, lies int
	bytes               int64
}

// Counts is a copy of a [Tally]'s figures.
type Counts struct {
	// Requests counts header blocks that arrived, Runs what the handler did,
	// SecondRuns its runs beyond the first of each id.
	Requests   int64 `json:"requests"`
	Runs       int64 `json:"runs"`
	SecondRuns int64 `json:"second_runs"`
	// Lies counts requests that were processed and then refused.
	Lies int64 `json:"lies"`
	// Bytes counts request bodies as far as they were read.
	Bytes int64 `json:"bytes"`
	H1    int64 `json:"h1"`
	H2    int64 `json:"h2"`
	H3    int64 `json:"h3"`
	// Connections that were accepted, and that are open now. QUIC ones count
	// from the end of their handshake.
	TCPConnections  int64 `json:"tcp_connections"`
	QUICConnections int64 `json:"quic_connections"`
	TCPOpen         int64 `json:"tcp_open"`
	QUICOpen        int64 `json:"quic_open"`
	// Faults counts how often each fault acted.
	Faults map[string]int64 `json:"faults"`
}

func newTally() *Tally {
	return &Tally{seed: maphash.MakeSeed(), ids: map[uint64]*idCount{}, byName: map[string]int64{}}
}

// Runs returns how often the handler ran for a request id.
func (t *Tally) Runs(id string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peekLocked(id).runs
}

// Arrived returns how often the headers of a request id arrived.
func (t *Tally) Arrived(id string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peekLocked(id).arrived
}

// Lies returns how often a request id was processed and then refused.
func (t *Tally) Lies(id string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peekLocked(id).lies
}

// Bytes returns how many bytes of a request id's bodies were read.
func (t *Tally) Bytes(id string) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peekLocked(id).bytes
}

// Fired returns how often a fault of that name acted, in all.
func (t *Tally) Fired(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int(t.byName[name])
}

// Counts returns the figures so far.
func (t *Tally) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Counts{
		Requests: t.requests, Runs: t.runs, SecondRuns: t.second, Lies: t.lies, Bytes: t.bytes,
		H1: t.byProto[delivery.ProtocolHTTP1], H2: t.byProto[delivery.ProtocolHTTP2], H3: t.byProto[delivery.ProtocolHTTP3],
		TCPConnections: t.accepted[overTCP], QUICConnections: t.accepted[overUDP],
		TCPOpen: t.open[overTCP], QUICOpen: t.open[overUDP],
		Faults: maps.Clone(t.byName),
	}
}

func (t *Tally) peekLocked(id string) idCount {
	if c := t.ids[maphash.String(t.seed, id)]; c != nil {
		return *c
	}
	return idCount{}
}

func (t *Tally) ofLocked(id string) *idCount {
	key := maphash.String(t.seed, id)
	c := t.ids[key]
	if c == nil {
		c = &idCount{}
		t.ids[key] = c
	}
	return c
}

func (t *Tally) arrived(id string, p delivery.Protocol) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	t.byProto[p]++
	t.ofLocked(id).arrived++
}

func (t *Tally) read(id string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes += n
	t.ofLocked(id).bytes += n
}

func (t *Tally) ran(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs++
	c := t.ofLocked(id)
	if c.runs++; c.runs > 1 {
		t.second++
	}
}

func (t *Tally) lied(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lies++
	t.ofLocked(id).lies++
}

func (t *Tally) fired(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byName[name]++
}

func (t *Tally) connected(n network) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.accepted[n]++
	t.open[n]++
}

func (t *Tally) disconnected(n network) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[n]--
}
