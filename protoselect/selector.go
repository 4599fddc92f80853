package protoselect

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Selector chooses how each request travels and remembers what came of it.
//
// Lock order: mu, then a leg's mu. mu guards the state machine and the books of
// dials; it is never held across a dial, a request, an observer or the memory.
type Selector struct {
	cfg     Config
	dialer  Dialer
	lookups *lookups
	base    context.Context //nolint:containedctx // the life of dials that outlive deliveries
	stop    context.CancelFunc
	wg      sync.WaitGroup
	wake    chan struct{} // something is dirty

	mu      sync.Mutex
	m       *machine
	legs    map[legKey]*leg
	dials   int
	started bool
	stopped bool
	// dirty and dirtyPins are what Memory has not got yet.
	dirty     map[delivery.Route]struct{}
	dirtyPins map[delivery.Origin]struct{}
}

// New returns a selector that dials through d.
func New(cfg Config, d Dialer) (*Selector, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("protoselect config: %w", err)
	}
	s := &Selector{
		cfg: cfg, dialer: d, m: newMachine(cfg),
		legs: make(map[legKey]*leg), dirty: make(map[delivery.Route]struct{}),
		dirtyPins: make(map[delivery.Origin]struct{}), wake: make(chan struct{}, 1),
	}
	s.base, s.stop = context.WithCancel(context.Background())
	s.lookups = newLookups(cfg.DNS)
	return s, nil
}

// unlock lets go of mu and then reports what the machine has put out.
func (s *Selector) unlock() {
	if s.m.out.empty() {
		s.mu.Unlock()
		return
	}
	out := s.m.out
	s.m.out = reports{}
	if s.cfg.Memory != nil {
		s.dirtyLocked(out.dirty)
	}
	s.mu.Unlock()
	s.report(out)
	s.wakeSaver()
}

// dirtyLocked notes routes that Memory has not got yet. While saving fails for
// long, evicted routes could pile up without end; what is beyond the bound stays
// on disk until it is stale there.
func (s *Selector) dirtyLocked(routes []delivery.Route) {
	for _, r := range routes {
		if len(s.dirty) >= 4*s.cfg.MaxRoutes {
			return
		}
		s.dirty[r] = struct{}{}
	}
}

func (s *Selector) report(out reports) {
	for _, c := range out.states {
		s.cfg.Logger.Debug("alternative changed state", "origin", c.Route.Origin.Authority(), "alternative", c.Alternative,
			"from", c.From.String(), "to", c.To.String(), "why", c.Why)
		call(s.cfg.Observer.StateChanged, c)
	}
	for _, c := range out.egress {
		call(s.cfg.Observer.Egress, c)
	}
	for _, c := range out.refused {
		call(s.cfg.Observer.Refused, c)
	}
}

// SetMode changes the operator's switch at run time. Connections that are up
// are not closed; deliveries that begin after it obey.
func (s *Selector) SetMode(m Mode) error {
	if err := m.validate(); err != nil {
		return err
	}
	s.mu.Lock()
	m.Origins = slices.Clone(m.Origins)
	s.m.mode = m
	s.m.policyGen++
	s.unlock()
	return nil
}

// Mode returns the operator's switch.
func (s *Selector) Mode() Mode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.mode
}

// Stalled tells that a connection to the alternative got no packet for three
// probe timeouts after a request. The next cold delivery races without stagger.
func (s *Selector) Stalled(r delivery.Route, alt delivery.Alternative) {
	s.mu.Lock()
	s.m.stalled(time.Now(), r, altKey{alt.Host, alt.Port})
	s.unlock()
}

// Distrust tells that the origin was seen to process a request that it refused
// as unprocessed: its refusals are no reason to resend any more.
func (s *Selector) Distrust(r delivery.Route) {
	s.mu.Lock()
	s.m.lied(r)
	s.unlock()
	call(s.cfg.Observer.Lied, r)
}
