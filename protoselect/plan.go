package protoselect

import (
	"slices"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// planKind is how a delivery gets its connection.
type planKind uint8

const (
	// planTCP: warm TCP, else dial TCP. A background handshake may be asked for.
	planTCP planKind = iota
	// planWarmFirst: a warm connection of either kind, HTTP/3 first; with none,
	// race. With only TCP warm, a background handshake makes HTTP/3 warm.
	planWarmFirst
	// planRace: warm HTTP/3, else race; TCP takes part warm or cold after the
	// stagger.
	planRace
	// planH3Only: HTTP/3 or nothing, in the candidates' order.
	planH3Only
)

// maxCandidates bounds the alternatives that one delivery tries.
const maxCandidates = 3

// candidate is an alternative that a delivery may use.
type candidate struct {
	key       altKey
	alt       delivery.Alternative
	authority string
	altUsed   string // "" = nobody advertised it
	proven    bool   // it has answered since its last trouble: a handshake is enough
}

// plan is what one delivery does. It is a value without allocations of its own.
type plan struct {
	kind  planKind
	state State // of the best alternative, for the trace
	alts  [maxCandidates]candidate
	n     int
	// warmH3 lets the delivery use a warm HTTP/3 connection.
	warmH3  bool
	stagger time.Duration
	tcp     TCPOptions
	// probe asks for a background handshake with alts[0] unless HTTP/3 is warm.
	probe bool
	// ask starts a lookup of the HTTPS record; wait lets a cold delivery wait
	// for it, once.
	ask  bool
	wait bool
	// distrust says that this origin's refusals prove nothing.
	distrust bool
}

func (p *plan) candidates() []candidate { return p.alts[:p.n] }

func (p *plan) add(a *alternative) {
	if p.n < maxCandidates {
		p.alts[p.n] = candidate{key: a.key, alt: a.delivery(), authority: a.authority, altUsed: a.altUsed, proven: a.confirmed}
		p.n++
	}
}

// demand is what policy makes of a delivery before any memory is looked at.
type demand uint8

const (
	demandTCP demand = iota
	demandAuto
	demandH3
)

// demanded folds scheme, pin, mode, egress and the subscriber's policy. The
// second result says that policy switched HTTP/3 off here.
func (m *machine) demanded(e *routeMemory, policy delivery.ProtocolPolicy, now time.Time) (d demand, disabled bool) {
	m.refreshPolicy(e)
	switch policy {
	case delivery.ProtocolTCP, delivery.ProtocolH2, delivery.ProtocolH1:
		return demandTCP, true
	}
	if e.route.Origin.Scheme != "https" {
		return demandTCP, true
	}
	pin := PinNone
	if e.pin.active(now) {
		pin = e.pin.Protocol
	}
	switch {
	case pin == PinH3:
		return demandH3, false
	case pin == PinTCP, !m.canQUIC(e.route.Egress):
		return demandTCP, true
	case pin == PinAuto:
		return demandAuto, false
	case policy == delivery.ProtocolH3 && m.mode.Kind != ModeOff:
		return demandH3, false
	case e.disabled:
		return demandTCP, true
	default:
		return demandAuto, false
	}
}

// decide makes the plan of one delivery. The route's memory is created when it
// is new; nothing else changes except what is booked: a lookup, a probe.
func (m *machine) decide(now time.Time, r delivery.Route, policy delivery.ProtocolPolicy) plan {
	e := m.memory(r)
	p := plan{distrust: e.distrust}
	switch policy {
	case delivery.ProtocolH1:
		p.tcp.Protocol = delivery.ProtocolHTTP1
	case delivery.ProtocolH2:
		p.tcp.Protocol = delivery.ProtocolHTTP2
	}
	d, disabled := m.demanded(e, policy, now)
	switch {
	case disabled:
		p.state = StateDisabled
	case d == demandH3:
		m.planH3(&p, e, now)
	default:
		m.planAuto(&p, e, now)
	}
	return p
}

// planAuto is the table of package documentation: state to behaviour.
func (m *machine) planAuto(p *plan, e *routeMemory, now time.Time) {
	best, resting := m.choose(p, e, now)
	switch {
	case best == nil && resting == nil:
		p.state = StateUnknown
		m.bookLookup(p, e, now)
		return
	case m.breaker(e.route.Egress).open(now):
		m.planEgressDown(p, e, now, best, resting)
		return
	case best == nil:
		m.planResting(p, resting, now)
		return
	}
	p.state = best.state(now)
	if best.diedUnproven(now) {
		return // TCP, to see whether it is the path or HTTP/3
	}
	p.stagger = staggerFor(m.roundTrip(e, best), m.stagger)
	switch p.state {
	case StateConfirmed:
		p.kind, p.warmH3 = planRace, true
	case StateAdvertised:
		p.kind, p.warmH3, p.probe = planWarmFirst, true, true
	default: // Suspect: nothing new on the connections that are there
		p.kind, p.probe, p.stagger = planWarmFirst, true, 0
	}
	m.refreshLookup(p, e, best, now)
}

// planResting: nothing may be dialled now. A half-open alternative is probed,
// one that is on hold may be used while it is warm.
func (m *machine) planResting(p *plan, a *alternative, now time.Time) {
	p.state = a.state(now)
	held := now.Before(a.holdUntil)
	switch p.state {
	case StateHalfOpen:
		if !held {
			p.add(a)
			p.probe = true
		}
	case StateConfirmed, StateAdvertised:
		p.add(a)
		p.warmH3 = true
	}
}

// choose fills the plan's candidates with usable alternatives, best first, and
// returns the best one. When there is none, it returns the broken or half-open
// one that is nearest to being usable.
func (m *machine) choose(p *plan, e *routeMemory, now time.Time) (best, resting *alternative) {
	if len(e.alts) > 1 {
		slices.SortStableFunc(e.alts, func(a, b *alternative) int { return a.before(b, now) })
	}
	for _, a := range e.alts {
		m.settle(e, a, now, "time passed")
		switch a.state(now) {
		case StateConfirmed, StateAdvertised, StateSuspect:
			if best != nil && a.state(now) == StateSuspect {
				continue
			}
			if now.Before(a.holdUntil) {
				continue
			}
			if best == nil {
				best = a
			}
			p.add(a)
		case StateHalfOpen, StateBroken:
			if resting == nil {
				resting = a
			}
		}
	}
	if best == nil && resting == nil {
		resting = e.held(now)
	}
	return best, resting
}

// held returns an advertised alternative whose last dial failed for a reason of
// our own and is not due again, so that its state is shown rather than Unknown.
func (e *routeMemory) held(now time.Time) *alternative {
	for _, a := range e.alts {
		if a.fresh(now) {
			return a
		}
	}
	return nil
}

// planEgressDown: UDP does not leave this egress; TCP, and one handshake a
// minute finds out when it does again.
func (m *machine) planEgressDown(p *plan, e *routeMemory, now time.Time, best, resting *alternative) {
	*p = plan{distrust: p.distrust, tcp: p.tcp, state: StateDisabled}
	probe := best
	if probe == nil && resting.state(now) == StateHalfOpen {
		probe = resting
	}
	if probe != nil && m.breaker(e.route.Egress).probe(now) {
		p.add(probe)
		p.probe = true
	}
}

// planH3 serves a demand for HTTP/3: every fresh alternative in order, broken
// ones last, or the origin's own port when nobody has advertised anything.
func (m *machine) planH3(p *plan, e *routeMemory, now time.Time) {
	p.kind, p.warmH3, p.state = planH3Only, true, StateUnknown
	slices.SortStableFunc(e.alts, func(a, b *alternative) int { return a.before(b, now) })
	for _, a := range e.alts {
		m.settle(e, a, now, "time passed")
		if a.fresh(now) {
			p.add(a)
			if p.n == 1 {
				p.state = a.state(now)
			}
		}
	}
	if p.n > 0 {
		return
	}
	p.alts[0], p.n = ownPort(e.route), 1
	m.bookLookup(p, e, now)
}

// ownPort is the service to try when HTTP/3 is demanded and nobody has
// advertised any.
func ownPort(r delivery.Route) candidate {
	k := altKey{port: r.Origin.Port}
	return candidate{key: k, alt: delivery.Alternative{Port: k.port}, authority: k.String(r)}
}

// bookLookup asks for the HTTPS record when that is due. A cold delivery may
// wait for the answer when it is worth it: nothing is known yet, or the last
// answer had HTTP/3 in it. Otherwise the next delivery will know.
func (m *machine) bookLookup(p *plan, e *routeMemory, now time.Time) {
	if !m.askHTTPS || e.asking || now.Before(e.askAt) || !isHostname(e.route.Origin.Host) {
		return
	}
	e.asking = true
	p.ask = true
	p.wait = e.lookup == lookupNever || e.lookup == lookupH3
}

// refreshLookup asks again in the background when only an HTTPS record vouches
// for the alternative in use and four fifths of its life are over, so that busy
// origins do not fall back to TCP at every TTL.
func (m *machine) refreshLookup(p *plan, e *routeMemory, best *alternative, now time.Time) {
	source, ad := best.source(now)
	if source != SourceHTTPSRecord || now.Sub(ad.learned) < refreshAge(ad.expires.Sub(ad.learned)) {
		return
	}
	if !m.askHTTPS || e.asking || e.lookup == lookupFailed && now.Before(e.askAt) {
		return
	}
	e.asking = true
	p.ask = true
}

// roundTrip is the best estimate for a handshake with the alternative.
func (m *machine) roundTrip(e *routeMemory, a *alternative) time.Duration {
	if a.srtt > 0 {
		return a.srtt
	}
	return e.tcpRTT
}
