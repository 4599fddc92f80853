package protoselect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// LookupResult is the end of a lookup of an origin's HTTPS records.
type LookupResult struct {
	Origin  delivery.Origin
	Records []HTTPSRecord // HTTP/3 endpoints by priority; none = TCP only
	TTL     time.Duration // how long to believe it
	Took    time.Duration
	Err     error // no answer: "no record", briefly
}

// String says it in one line for operators.
func (r LookupResult) String() string {
	switch {
	case r.Origin == delivery.Origin{}:
		return "not asked" // lookups are off, or the host is no name
	case r.Err != nil:
		return "failed: " + r.Err.Error()
	case len(r.Records) == 0:
		return "no HTTP/3 in HTTPS records"
	}
	return fmt.Sprintf("%d HTTP/3 endpoints", len(r.Records))
}

// Limits of what a DNS answer may say about time and indirection.
const (
	minTTL      = 5 * time.Second
	maxTTL      = time.Hour
	negativeTTL = 60 * time.Second
	maxAliases  = 8
	// muteAfter lookups in a row without any answer, deliveries no longer wait
	// for one: the resolver drops the type, or is gone.
	muteAfter = 4
)

// lookups resolves HTTPS records: one flight per name, answers cached by their
// TTL. Routes that differ only in identity or egress share a name's answer.
type lookups struct {
	dns   resolver
	cache *lru.Cache[string, cachedLookup]

	mu      sync.Mutex
	flights map[string]*flight
	silent  int // failed lookups in a row
}

// cachedLookup carries its deadlines inside the value; the cache knows no time.
type cachedLookup struct {
	result LookupResult
	// reuse ends before until does: whoever asks that late is refreshing.
	reuse time.Time
	until time.Time
}

type flight struct {
	done   chan struct{}
	routes []delivery.Route
}

func newLookups(cfg DNSConfig) *lookups {
	cache, err := lru.New[string, cachedLookup](cfg.MaxNames)
	if err != nil {
		panic("protoselect: " + err.Error()) // MaxNames was validated
	}
	return &lookups{
		dns:   resolver{servers: cfg.Servers, timeout: cfg.Timeout, attempts: cfg.Attempts, dial: cfg.Dial},
		cache: cache, flights: make(map[string]*flight),
	}
}

// refreshAge is the age at which a record in use is asked for again.
func refreshAge(life time.Duration) time.Duration { return life / 5 * 4 }

// mute reports whether waiting for an answer is a waste of a delivery's time.
func (l *lookups) mute() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent >= muteAfter
}

// join enters the route into the name's flight; started says that the caller
// must fly it.
func (l *lookups) join(name string, r delivery.Route) (f *flight, started bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f = l.flights[name]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		l.flights[name] = f
		started = true
	}
	f.routes = append(f.routes, r)
	return f, started
}

// land ends the flight and returns the routes that wait for it.
func (l *lookups) land(name string, f *flight, res LookupResult) []delivery.Route {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.flights, name)
	if res.Err == nil {
		l.silent = 0
	} else if !errors.Is(res.Err, context.Canceled) {
		l.silent++
	}
	return f.routes
}

// cached returns a result that is still to be believed, with what is left of
// its TTL.
func (l *lookups) cached(name string, now time.Time) (LookupResult, bool) {
	c, ok := l.cache.Get(name)
	if !ok || !now.Before(c.reuse) {
		return LookupResult{}, false
	}
	c.result.TTL = c.until.Sub(now)
	return c.result, true
}

// arrived is the channel of an answer that is there already.
var arrived = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// ask starts or joins the lookup for the route. The channel is closed when its
// result is in the memory; nil = it never will be.
func (s *Selector) ask(r delivery.Route) <-chan struct{} {
	name := recordName(r.Origin)
	if res, ok := s.lookups.cached(name, time.Now()); ok {
		s.learn(res, r)
		return arrived
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	f, started := s.lookups.join(name, r)
	if started {
		s.wg.Go(func() { s.fly(name, r.Origin, f) })
	}
	return f.done
}

func (s *Selector) fly(name string, o delivery.Origin, f *flight) {
	ctx, cancel := context.WithTimeout(s.base, s.cfg.DialTimeout)
	defer cancel()
	started := time.Now()
	res := s.lookups.resolve(ctx, o)
	now := time.Now()
	res.Took = now.Sub(started)
	if res.Err == nil {
		s.lookups.cache.Add(name, cachedLookup{res, now.Add(refreshAge(res.TTL)), now.Add(res.TTL)})
	}
	s.learn(res, s.lookups.land(name, f, res)...)
	close(f.done)
	call(s.cfg.Observer.LookedUp, res)
}

// learn takes a result into the memory of each route.
func (s *Selector) learn(res LookupResult, routes ...delivery.Route) {
	now := time.Now()
	s.mu.Lock()
	for _, r := range routes {
		s.m.lookedUp(now, r, res)
	}
	s.unlock()
}

// resolve finds an origin's HTTP/3 endpoints: the records at its name, through
// AliasMode records and CNAMEs.
func (l *lookups) resolve(ctx context.Context, o delivery.Origin) LookupResult {
	res := LookupResult{Origin: o}
	name := recordName(o)
	ttl := ^uint32(0)
	followsOrigin := o.Port == 443 // CNAMEs from here are those of the address lookup
	seen := []string{name}
	var own []string
	for range maxAliases + 1 {
		a, err := l.dns.query(ctx, name)
		if err != nil {
			res.Err = err
			return res
		}
		if followsOrigin {
			own = append(own, a.chain...)
		}
		if !a.found {
			return res.negative()
		}
		ttl = min(ttl, a.ttl)
		target, alias := aliasTarget(a.records)
		if !alias {
			res.Records = selectH3(o, a.records, own)
			res.TTL = min(max(time.Duration(ttl)*time.Second, minTTL), maxTTL)
			return res
		}
		// AliasMode moves to another name whose addresses are not the origin's.
		followsOrigin = false
		if target == "" || slices.Contains(seen, target) {
			return res.negative() // "does not exist" (§2.5.1), or a loop
		}
		seen = append(seen, target)
		name = target
	}
	return res.negative() // too deep: the origin's own addresses are used
}

func (r LookupResult) negative() LookupResult {
	r.Records, r.TTL = nil, negativeTTL
	return r
}

// aliasTarget returns the target of an AliasMode record; its presence makes
// ServiceMode records of the set ignored (§2.4.1). With several, which there
// should not be, the first in name order is taken.
func aliasTarget(records []svcb) (target string, alias bool) {
	for _, rec := range records {
		if rec.priority == 0 && (!alias || rec.target < target) {
			target, alias = rec.target, true
		}
	}
	return target, alias
}
