package ingress

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// CacheConfig bounds what is remembered about sources.
type CacheConfig struct {
	// TTL is for how long a source, or that there is none, is believed.
	// Default: 60 s.
	TTL time.Duration
	// Stale is for how long after TTL a known source is still used while it is
	// being read again, and while that fails. Default: 0 (read it first); 24 h
	// with a control plane.
	Stale time.Duration
	// Sources is how many known sources are held. Default: 10,000.
	Sources int
	// Unknown is how many unknown ids are held, 16 bytes each. With a control
	// plane it also is the most calls a minute for ids that are not held, so that
	// none is asked for twice in it. Default: 16,384.
	Unknown int
	// Timeout bounds one reading. Default: 3 s.
	Timeout time.Duration
	// RetryAfter is for how long a reading that failed is not repeated. Default: 5 s.
	RetryAfter time.Duration
}

// maxReads bounds readings at a time: of what is slow, more does not help.
const maxReads = 64

// sourceCache holds what Sources said.
//
//	known, fresh ──────────────► use
//	known, stale ──────────────► use, and read again in the background
//	absent, within TTL ────────► 404, no call
//	neither ───────────────────► read, once for all who wait
//	                               ├─ a source: known
//	                               ├─ none: absent
//	                               └─ error: the stale one if there is one, else 503
//
// Invariant: a call that was overtaken by forget stores nothing. Absences are
// evicted in the order in which they were found, never by their use: only so
// does the limit of calls guarantee that none is forgotten within its TTL.
type sourceCache struct {
	cfg      CacheConfig
	sources  Sources
	maxBody  int64
	observer *Observer
	log      *sampledLog
	// calls limits readings of ids that are not known; nil = no limit.
	calls *rate.Limiter

	ctx    context.Context //nolint:containedctx // ends every reading; set once
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	seeds  [2]maphash.Seed

	mu      sync.Mutex
	closed  bool
	known   *simplelru.LRU[sourceKey, *knownSource]
	unknown *simplelru.LRU[unknownKey, absence]
	reads   map[sourceKey]*reading
}

type sourceKey struct{ tenant, source string }

// unknownKey is a hash with a secret seed, so that invented ids of 256 bytes cost
// 16 and collisions cannot be made.
type unknownKey [2]uint64

type knownSource struct {
	prepared *prepared
	fetched  time.Time
	// retry is when a stale one may be read again; guarded by the cache's mu.
	retry time.Time
}

// absence is that a source is not there, or with err that it could not be read.
type absence struct {
	until time.Time
	err   error
}

// reading is one call, shared by all who wait for it.
type reading struct {
	done      chan struct{}
	forgotten bool // guarded by the cache's mu
	prepared  *prepared
	err       error
}

// errLimited: the id is not known, and too many others are being asked for.
var errLimited = errors.New("too many unknown sources are being asked for")

var errClosed = errors.New("ingress is stopped")

// newSourceCache returns an empty cache in front of sources. With limitCalls they
// are far away, and ids that do not exist must not reach them often.
func newSourceCache(cfg *Config, sources Sources, limitCalls bool, log *sampledLog) (*sourceCache, error) {
	c := &sourceCache{
		cfg: cfg.Cache, sources: sources, maxBody: cfg.MaxBody, observer: &cfg.Observer, log: log,
		seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		reads: map[sourceKey]*reading{},
	}
	var err error
	if c.known, err = simplelru.NewLRU[sourceKey, *knownSource](c.cfg.Sources, nil); err != nil {
		return nil, err
	}
	if c.unknown, err = simplelru.NewLRU[unknownKey, absence](c.cfg.Unknown, nil); err != nil {
		return nil, err
	}
	if limitCalls {
		// At most burst + rate × time ids are asked for within any time. For the
		// time that one is remembered, a call's own included, that is as many as
		// are held: none is evicted too early.
		burst := max(1, c.cfg.Unknown/4)
		c.calls = rate.NewLimiter(rate.Limit(float64(c.cfg.Unknown-burst)/(c.cfg.TTL+c.cfg.Timeout).Seconds()), burst)
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c, nil
}

// get returns a source, ErrUnknownSource, or why it cannot be known.
func (c *sourceCache) get(ctx context.Context, tenant, source string) (*prepared, error) {
	key := sourceKey{tenant, source}
	p, r, result, err := c.look(key, time.Now())
	if r == nil {
		c.observer.lookedUp(Lookup{Result: result, Tenant: tenant, Source: source})
		return p, err
	}
	select {
	case <-r.done:
		return r.prepared, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// look answers from memory, or joins or starts a reading.
func (c *sourceCache) look(key sourceKey, now time.Time) (*prepared, *reading, LookupResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, result := c.knownLocked(key, now); p != nil {
		return p, nil, result, nil
	}
	if r := c.reads[key]; r != nil {
		return nil, r, LookupFetched, nil
	}
	if a, ok := c.unknown.Peek(c.hash(key)); ok && now.Before(a.until) {
		if a.err != nil {
			return nil, nil, LookupFailed, a.err
		}
		return nil, nil, LookupUnknown, ErrUnknownSource
	}
	if c.calls != nil && (len(c.reads) >= maxReads || !c.calls.AllowN(now, 1)) {
		return nil, nil, LookupLimited, errLimited
	}
	if r := c.readLocked(key); r != nil {
		return nil, r, LookupFetched, nil
	}
	return nil, nil, LookupLimited, errClosed
}

// knownLocked returns a source that may be used, and sees to it that a stale one
// is read again.
func (c *sourceCache) knownLocked(key sourceKey, now time.Time) (*prepared, LookupResult) {
	k, ok := c.known.Get(key)
	if !ok {
		return nil, LookupUnknown
	}
	age := now.Sub(k.fetched)
	switch {
	case age < c.cfg.TTL:
		return k.prepared, LookupHit
	case age >= c.cfg.TTL+c.cfg.Stale:
		c.known.Remove(key)
		return nil, LookupUnknown
	}
	if !now.Before(k.retry) && c.reads[key] == nil && c.readLocked(key) != nil {
		k.retry = now.Add(c.cfg.RetryAfter)
	}
	return k.prepared, LookupStale
}

func (c *sourceCache) hash(key sourceKey) unknownKey {
	return unknownKey{maphash.Comparable(c.seeds[0], key), maphash.Comparable(c.seeds[1], key)}
}

// readLocked starts a reading; nil if there are too many, or the cache is closed.
func (c *sourceCache) readLocked(key sourceKey) *reading {
	if c.closed || c.calls != nil && len(c.reads) >= maxReads {
		return nil
	}
	r := &reading{done: make(chan struct{})}
	c.reads[key] = r
	c.wg.Go(func() { c.read(key, r) })
	return r
}

var errReadTimeout = errors.New("reading a source took too long")

// read asks for one source and stores the answer.
func (c *sourceCache) read(key sourceKey, r *reading) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.cfg.Timeout, errReadTimeout)
	defer cancel()
	began := time.Now()
	source, err := c.sources.Source(ctx, key.tenant, key.source)
	if err == nil {
		r.prepared, err = prepare(key.tenant, key.source, source, c.maxBody)
	} else if ctx.Err() != nil && !errors.Is(err, ErrUnknownSource) {
		err = errors.Join(context.Cause(ctx), err)
	}
	r.err = err
	c.store(key, r, time.Now())
	defer close(r.done)
	event := Lookup{Result: LookupFetched, Tenant: key.tenant, Source: key.source, Took: time.Since(began), Err: err}
	switch {
	case errors.Is(err, ErrUnknownSource):
		event.Result, event.Err = LookupMissing, nil
	case err != nil:
		event.Result = LookupFailed
		c.log.warn("source_unreadable", "tenant", key.tenant, "source", key.source, "error", err.Error())
	}
	c.observer.lookedUp(event)
}

func (c *sourceCache) store(key sourceKey, r *reading, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reads[key] == r {
		delete(c.reads, key)
	}
	switch {
	case r.forgotten:
	case r.err == nil:
		c.known.Add(key, &knownSource{prepared: r.prepared, fetched: now})
		c.unknown.Remove(c.hash(key))
	case errors.Is(r.err, ErrUnknownSource):
		c.known.Remove(key)
		c.unknown.Add(c.hash(key), absence{until: now.Add(c.cfg.TTL)})
	case !c.known.Contains(key): // a known one stays, and is tried again later
		c.unknown.Add(c.hash(key), absence{until: now.Add(c.cfg.RetryAfter), err: r.err})
	}
}

// forget drops what is held of a source, or of all a tenant's with source "".
// The next request reads it anew. A reading under way answers those who wait for
// it, as they came before the change, and is not stored.
func (c *sourceCache) forget(tenant, source string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, r := range c.reads {
		if key.tenant == tenant && (source == "" || key.source == source) {
			r.forgotten = true
			delete(c.reads, key)
		}
	}
	if source != "" {
		key := sourceKey{tenant, source}
		c.known.Remove(key)
		c.unknown.Remove(c.hash(key))
		return
	}
	for _, key := range c.known.Keys() {
		if key.tenant == tenant {
			c.known.Remove(key)
		}
	}
}

// close ends readings and waits for them.
func (c *sourceCache) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel(errClosed)
	c.wg.Wait()
}
