package transport

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// bucketKey is what a connection must lead to. All connections over TCP of a
// route share a bucket, whatever they speak, so that the cap is one.
type bucketKey struct {
	route delivery.Route
	quic  bool
	host  string // of the alternative; "" = the origin's
	port  uint16
}

// bucket holds the connections of one key and those who wait for one.
type bucket struct {
	key     bucketKey
	ep      delivery.Endpoint
	alt     delivery.Alternative
	links   []*link
	waiters []*waiter // oldest first
	dials   []*dial
	// multiplexed is what the last handshake over TCP taught: true = HTTP/2.
	known, multiplexed bool
}

// waiter is one caller who waits for a slot.
type waiter struct {
	opts   TCPOptions
	proof  bool
	result chan acquired // buffered: who hands over never blocks
	since  uint64        // order of arrival, compared with dial.since
}

type acquired struct {
	conn *Conn
	err  *delivery.SendError
}

// dial is one dial in flight, and for how many waiters it is.
type dial struct {
	protocol delivery.Protocol // asked for; ProtocolNone = any
	span     int
	since    uint64
	// generation is the pool's when it began.
	generation uint64
}

// dialOptions narrow a dial.
type dialOptions struct {
	protocol delivery.Protocol // over TCP; ProtocolNone = any
	proof    bool              // over QUIC: the peer has to speak HTTP/3 before it counts
}

// dialFunc makes a connection for a bucket. It runs without the pool's lock.
type dialFunc func(ctx context.Context, key bucketKey, ep delivery.Endpoint, alt delivery.Alternative, opts dialOptions) (*link, *delivery.SendError)

// pool owns every connection and decides who gets a slot, when to dial and when
// to let go.
//
// Dials do not belong to the caller who caused them: one who gives up takes
// nothing from the others, and what comes up stays warm.
//
// Lock order: pool.mu before any lock of a protocol stack. Callbacks from a
// stack therefore never take pool.mu on the stack's goroutine; see closed.
//
// Invariant: a waiter is in its bucket's list until a slot or an error is in
// its channel, and then never again. A live link with no slot taken is in the
// idle list of its class; no other link is.
type pool struct {
	cfg      *Config
	dialer   dialFunc
	dialCtx  context.Context // ends all dials
	stopDial context.CancelFunc
	tasks    tasks

	closing atomic.Bool  // closed, for those without the lock
	waiting atomic.Int32 // stats.Waiting, for those without the lock

	mu       sync.Mutex
	closed   bool
	buckets  map[bucketKey]*bucket
	arrivals uint64
	// generation counts how often everything was to be dialled again.
	generation uint64
	round      uint64 // of looking for a slot
	tcp        idleList
	http3      idleList
	stats      Stats
	emptied    chan struct{} // closed when the last link goes while closing
}

func newPool(cfg *Config, dialer dialFunc) *pool {
	p := &pool{cfg: cfg, dialer: dialer, buckets: map[bucketKey]*bucket{}, emptied: make(chan struct{})}
	p.dialCtx, p.stopDial = context.WithCancel(context.Background())
	p.tcp = idleList{pool: p, timeout: cfg.IdleTimeoutTCP, limit: cfg.MaxIdleTCP}
	p.http3 = idleList{pool: p, timeout: cfg.IdleTimeoutHTTP3, limit: cfg.MaxIdleHTTP3}
	return p
}

// background runs a task that close waits for.
func (p *pool) background(task func()) { p.tasks.run(task) }

// tasks counts goroutines. Unlike with a sync.WaitGroup, one may be started
// while another goroutine waits for none to be left.
type tasks struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to 0; nil while nobody waits
}

func (t *tasks) run(task func()) {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
	go func() {
		defer t.done()
		task()
	}()
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n--
	if t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// none returns a channel that is closed when no task runs.
func (t *tasks) none() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	if t.n == 0 {
		close(t.idle)
		t.idle = nil
	}
	return idle
}

// warm returns a slot on a live connection, if there is one.
func (p *pool) warm(key bucketKey, opts TCPOptions) (*Conn, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.buckets[key]
	if b == nil || p.closed || len(b.waiters) > 0 { // those who wait come first
		return nil, false
	}
	l := p.freeLocked(b, opts)
	if l == nil {
		p.forgetLocked(b) // its last link may have turned out to be dead
		return nil, false
	}
	return p.takeLocked(l, true), true
}

// acquire returns a slot, on a connection that is up or on a new one.
func (p *pool) acquire(ctx context.Context, key bucketKey, ep delivery.Endpoint, alt delivery.Alternative, w *waiter) (*Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, gaveUp(err, "before a dial")
	}
	w.result = make(chan acquired, 1)
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, errClosed()
	}
	b := p.buckets[key]
	if b == nil {
		b = &bucket{key: key}
		p.buckets[key] = b
	}
	b.ep, b.alt = ep, alt // the latest material and hints
	p.arrivals++
	w.since = p.arrivals
	b.waiters = append(b.waiters, w)
	p.waitingLocked(1)
	p.pumpLocked(b)
	p.mu.Unlock()

	select {
	case got := <-w.result:
		return got.unpack()
	case <-ctx.Done():
		return p.giveUp(ctx, b, w)
	}
}

func (a acquired) unpack() (*Conn, error) {
	if a.err != nil {
		return nil, a.err
	}
	return a.conn, nil
}

// giveUp takes a waiter out whose context has ended. A slot that was handed over
// meanwhile goes back.
func (p *pool) giveUp(ctx context.Context, b *bucket, w *waiter) (*Conn, error) {
	p.mu.Lock()
	dialing := len(b.dials) > 0
	removed := p.removeWaiterLocked(b, w)
	p.forgetLocked(b)
	p.mu.Unlock()
	if !removed {
		got := <-w.result
		if got.err != nil {
			return nil, got.err
		}
		got.conn.Release()
	}
	if dialing {
		return nil, gaveUp(ctx.Err(), "while dialling")
	}
	return nil, gaveUpWaiting(ctx.Err(), p.capOf(b.key))
}

func (p *pool) waitingLocked(delta int) {
	p.stats.Waiting += delta
	p.waiting.Add(int32(delta)) //nolint:gosec // callers who wait
}

func (p *pool) removeWaiterLocked(b *bucket, w *waiter) bool {
	for i, other := range b.waiters {
		if other == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			p.waitingLocked(-1)
			return true
		}
	}
	return false
}

// takeLocked makes the handle of a slot that freeLocked has reserved.
func (p *pool) takeLocked(l *link, reused bool) *Conn {
	l.inflight++
	l.uses++
	p.stats.InFlight++
	p.listOf(l).removeLocked(l)
	return &Conn{link: l, reused: reused}
}

// release gives a slot back.
func (p *pool) release(l *link, f fate) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.inflight--
	p.stats.InFlight--
	switch f {
	case keepLink:
	case drainLink:
		p.drainLocked(l, EvictDrained)
	case dropLink:
		// What ended the connection ends its other requests too, and gone takes
		// it out at once. Where nothing has, the peer may be about to answer
		// them, and closing would make each of them ambiguous.
		p.drainLocked(l, EvictFailed)
	}
	b := l.bucket
	if l.inflight == 0 {
		switch {
		case l.state == linkDraining:
			p.evictLocked(l, l.why)
		case p.closed:
			p.evictLocked(l, EvictShutdown)
		}
	}
	p.pumpLocked(b)
	if l.state == linkLive && l.inflight == 0 {
		p.listOf(l).pushLocked(l)
	}
	p.forgetLocked(b)
}

// drain keeps new requests from a connection.
func (p *pool) drain(l *link, why Eviction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drainLocked(l, why)
	if l.state == linkDraining && l.inflight == 0 && l.bucket != nil {
		p.evictLocked(l, why)
	}
	p.settleLocked(l.bucket)
}

// settleLocked looks at a bucket after one of its links has changed. A link that
// changes before it was added has no bucket yet.
func (p *pool) settleLocked(b *bucket) {
	if b != nil {
		p.pumpLocked(b)
		p.forgetLocked(b)
	}
}

func (p *pool) drainLocked(l *link, why Eviction) {
	if l.state == linkLive {
		l.state, l.why = linkDraining, why
		p.listOf(l).removeLocked(l)
	}
}

// gone notes that a connection has ended by itself. It may be called on any
// goroutine but takes the lock on one of its own: protocol stacks call while
// they hold locks that come after pool.mu.
func (p *pool) gone(l *link) {
	if l.dead.Load() {
		return // by us
	}
	p.background(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.evictLocked(l, EvictClosed)
		p.settleLocked(l.bucket)
	})
}

// wake looks again for slots, after a peer has raised its own limit. The same
// holds as for gone.
func (p *pool) wake(l *link) {
	if l.dead.Load() {
		return
	}
	p.background(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.settleLocked(l.bucket)
	})
}

// evictLocked takes a connection out and closes it. What is in flight on it
// fails.
func (p *pool) evictLocked(l *link, why Eviction) {
	if l.state == linkGone {
		return
	}
	if l.state == linkDraining && why == EvictClosed {
		why = l.why // the end that was waited for
	}
	l.state = linkGone
	l.dead.Store(true)
	p.listOf(l).removeLocked(l)
	if l.bucket == nil {
		return // addLocked will see it
	}
	for i, other := range l.bucket.links {
		if other == l {
			l.bucket.links = append(l.bucket.links[:i], l.bucket.links[i+1:]...)
			break
		}
	}
	p.gauge(l.proto).Live--
	p.cfg.Observer.evicted(l.proto, why)
	// A close can wait for the network for a moment.
	p.background(l.wire.close)
}

// lowerLimit lowers a link's cap after the peer has shown a lower one.
func (p *pool) lowerLimit(l *link, limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.limit = max(1, min(l.limit, limit))
}

// keepAliveHint notes how long the peer says it keeps an idle connection.
func (p *pool) keepAliveHint(l *link, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.keepAlive = d
}

// forgetLocked drops a bucket that holds nothing.
func (p *pool) forgetLocked(b *bucket) {
	if len(b.links) == 0 && len(b.waiters) == 0 && len(b.dials) == 0 && p.buckets[b.key] == b {
		delete(p.buckets, b.key)
	}
	p.checkEmptyLocked()
}

func (p *pool) checkEmptyLocked() {
	if p.closed && len(p.buckets) == 0 && p.emptied != nil {
		close(p.emptied)
		p.emptied = nil
	}
}

func (p *pool) listOf(l *link) *idleList {
	if l.proto == delivery.ProtocolHTTP3 {
		return &p.http3
	}
	return &p.tcp
}

func (p *pool) gauge(proto delivery.Protocol) *Gauge {
	switch proto {
	case delivery.ProtocolHTTP3:
		return &p.stats.HTTP3
	case delivery.ProtocolHTTP2:
		return &p.stats.HTTP2
	default:
		return &p.stats.HTTP1
	}
}

// snapshot returns the counts.
func (p *pool) snapshot() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

func (p *pool) capOf(key bucketKey) int {
	if key.quic {
		return p.cfg.MaxQUICConnsPerRoute
	}
	return p.cfg.MaxTCPConnsPerRoute
}
