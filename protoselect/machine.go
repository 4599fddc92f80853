package protoselect

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// machine is the selector's state machine: events in, plans and reports out. It
// reads no clock, starts nothing and locks nothing; time is an argument of
// every method and randomness is injected, so a timeline can be replayed.
//
// Invariant: routes and alternatives per route are bounded; what is evicted is
// forgotten, which costs a probe and never correctness.
type machine struct {
	routes *simplelru.LRU[delivery.Route, *routeMemory]
	egress map[string]*egressBreaker
	pins   map[delivery.Origin]Pin
	mode   Mode
	// policyGen changes with mode and pins; routes cache what they say.
	policyGen uint64

	stagger  time.Duration
	policy   AltPolicy
	canQUIC  func(egress string) bool
	askHTTPS bool
	random   func() float64

	// out collects what happened, for the driver to report and to save after
	// it has let go of its lock.
	out reports
}

// reports are the machine's output beside plans.
type reports struct {
	states  []StateChange
	egress  []EgressChange
	refused []AlternativeRefused
	dirty   []delivery.Route
}

func (r *reports) empty() bool {
	return len(r.states)+len(r.egress)+len(r.refused)+len(r.dirty) == 0
}

// maxAlternatives bounds the memory of one route; maxAdverts of them may be
// advertised at once by one source.
const (
	maxAdverts      = 8
	maxAlternatives = 2*maxAdverts + 4
)

// routeMemory is what is known about one route.
type routeMemory struct {
	route  delivery.Route
	alts   []*alternative
	bucket uint8 // stable share of origins, for Mode percent

	policyGen uint64 // of the two cached fields below
	disabled  bool   // mode says no, unless a pin says otherwise
	pin       Pin

	tcpAt   time.Time // last success over TCP
	tcpRTT  time.Duration
	pending int // alternatives with a pending failure

	askAt    time.Time // HTTPS record: not before
	asking   bool
	askFails int // failed lookups in a row
	lookup   lookupState
	lookupIs string // the last result in one line, for operators

	altSvcRaw  string // last header, so that a repeated one is not read again
	altSvc     []allowedEntry
	altSvcSaid bool   // it was a list, if only of other protocols
	altSvcSeen uint64 // counts lists, to tell what the last one named

	answers  [4]uint64 // by delivery.Protocol
	refusals uint64    // requests refused as unprocessed
	lies     uint64    // refusals after evidence of processing
	distrust bool
}

// lookupState is what the last lookup of a route's HTTPS record gave.
type lookupState uint8

const (
	lookupNever  lookupState = iota // not asked yet
	lookupH3                        // HTTP/3 endpoints
	lookupNone                      // an answer without any
	lookupFailed                    // no answer
)

func newMachine(cfg Config) *machine {
	m := &machine{
		egress:   make(map[string]*egressBreaker),
		pins:     make(map[delivery.Origin]Pin),
		mode:     cfg.Mode,
		stagger:  cfg.Stagger,
		policy:   cfg.Alternatives,
		canQUIC:  cfg.EgressHTTP3,
		askHTTPS: !cfg.DNS.Disabled,
		random:   cfg.Random,

		policyGen: 1,
	}
	// The eviction hook marks the route dirty, so its saved memory goes as well.
	routes, err := simplelru.NewLRU(cfg.MaxRoutes, func(r delivery.Route, _ *routeMemory) {
		m.out.dirty = append(m.out.dirty, r)
	})
	if err != nil {
		panic("protoselect: " + err.Error()) // MaxRoutes was validated
	}
	m.routes = routes
	return m
}

// memory returns the route's memory, making it when there is none.
func (m *machine) memory(r delivery.Route) *routeMemory {
	if e, ok := m.routes.Get(r); ok {
		return e
	}
	e := &routeMemory{route: r, bucket: originBucket(r.Origin)}
	m.routes.Add(r, e)
	return e
}

// originBucket places an origin in one of a hundred shares that are the same on
// every node and after every restart.
func originBucket(o delivery.Origin) uint8 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(o.Authority()))
	return uint8(h.Sum32() % 100) //nolint:gosec // below 100
}

func (m *machine) breaker(egress string) *egressBreaker {
	b := m.egress[egress]
	if b == nil {
		b = &egressBreaker{name: egress}
		m.egress[egress] = b
	}
	return b
}

// refreshPolicy brings the route's cached view of mode and pins up to date.
func (m *machine) refreshPolicy(e *routeMemory) {
	if e.policyGen == m.policyGen {
		return
	}
	e.policyGen = m.policyGen
	e.pin = m.pins[e.route.Origin]
	e.disabled = !m.mode.allows(e.route.Origin, e.bucket)
}

// find returns the alternative with that key, or nil.
func (e *routeMemory) find(k altKey) *alternative {
	for _, a := range e.alts {
		if a.key == k {
			return a
		}
	}
	return nil
}

// ensure returns the alternative with that key, making it when there is none.
// When the route's memory is full, the least useful record makes room.
func (e *routeMemory) ensure(k altKey, now time.Time) *alternative {
	if a := e.find(k); a != nil {
		return a
	}
	if len(e.alts) >= maxAlternatives {
		e.prune(now)
	}
	if len(e.alts) >= maxAlternatives {
		worst := slices.MaxFunc(e.alts, func(a, b *alternative) int { return a.before(b, now) })
		e.drop(worst)
	}
	a := &alternative{key: k, authority: k.String(e.route), altUsed: k.altUsed(e.route)}
	e.alts = append(e.alts, a)
	return a
}

// prune drops records that neither a source nor a failure gives a reason to keep.
func (e *routeMemory) prune(now time.Time) {
	for _, a := range slices.Clone(e.alts) {
		if !a.worthKeeping(now) {
			e.drop(a)
		}
	}
}

func (e *routeMemory) drop(gone *alternative) {
	if gone.pending != delivery.BrokenNot {
		e.pending--
	}
	e.alts = slices.DeleteFunc(e.alts, func(a *alternative) bool { return a == gone })
}

// settle reports a change of an alternative's state since it was last shown.
func (m *machine) settle(e *routeMemory, a *alternative, now time.Time, why string) {
	state := a.state(now)
	if state == a.shown {
		return
	}
	m.out.states = append(m.out.states, StateChange{
		Route: e.route, Alternative: a.authority, From: a.shown, To: state, Why: why,
		Class: a.broken.class, Breakages: a.broken.n, Until: a.broken.until,
	})
	a.shown = state
	m.markDirty(e)
}

func (m *machine) markDirty(e *routeMemory) {
	if !slices.Contains(m.out.dirty, e.route) {
		m.out.dirty = append(m.out.dirty, e.route)
	}
}
