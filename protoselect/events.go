package protoselect

import (
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// The events of an alternative's life. Each takes the instant it is judged at;
// none of them blocks.

// quicUp: a handshake with the alternative is complete.
func (m *machine) quicUp(now time.Time, r delivery.Route, k altKey, rtt time.Duration) {
	e := m.memory(r)
	forgive, closed := m.breaker(r.Egress).success(now)
	if closed {
		m.out.egress = append(m.out.egress, EgressChange{Egress: r.Egress})
	}
	m.forgive(now, forgive)
	a := e.find(k)
	if a == nil {
		return // demanded, not advertised: nothing to remember
	}
	a.upAt = now
	a.srtt = smoothed(a.srtt, rtt)
	a.holds, a.holdUntil = 0, time.Time{}
	if a.diedUnproven(now) {
		return
	}
	m.clearPending(e, a)
	if !a.broken.until.IsZero() {
		// A handshake proves that packets pass, not that requests do: the
		// count of breakages stays until answers have come for a while.
		a.broken.until, a.confirmed = time.Time{}, false
	}
	if a.suspect {
		a.suspect, a.stalled, a.confirmed = false, stallNone, false
	}
	m.settle(e, a, now, "handshake complete")
}

// quicFailed: a handshake with the alternative failed.
func (m *machine) quicFailed(now time.Time, r delivery.Route, k altKey, class delivery.Broken, why string) {
	e := m.memory(r)
	a := e.find(k)
	if a == nil {
		return
	}
	a.failures++
	if brokenBase(class) == 0 {
		m.hold(e, a, now)
		return
	}
	if class == delivery.BrokenTimeout {
		b := m.breaker(r.Egress)
		if b.open(now) {
			return // ours, not the alternative's
		}
		if b.timeout(now, r, k) {
			m.out.egress = append(m.out.egress, EgressChange{Egress: r.Egress, Open: true, Until: b.until})
		}
	}
	if now.Before(a.broken.until) {
		return // broken already: a demanded dial tells nothing new
	}
	m.fail(e, a, now, class, why)
}

// hold keeps a failure that says nothing about HTTP/3 (our cancel, DNS, policy,
// local resources) from being repeated by every delivery.
func (m *machine) hold(e *routeMemory, a *alternative, now time.Time) {
	a.holdUntil = now.Add(min(holdBase<<min(a.holds, maxHoldFails), holdMax))
	a.holds = min(a.holds+1, maxHoldFails)
	m.settle(e, a, now, "dial failed for a reason of our own")
}

// died: a request failed because its connection died after the handshake.
// started is when the request began: a connection older than the last handshake
// is a ghost of a path that has already been judged.
func (m *machine) died(now time.Time, r delivery.Route, k altKey, started time.Time, why string) {
	e := m.memory(r)
	a := e.find(k)
	if a == nil {
		return
	}
	a.failures++
	switch {
	case now.Before(a.broken.until), a.suspect && a.stalled == stallNone, started.Before(a.upAt):
		return // this trouble is known
	case a.stalled == stallWorked, a.stalled == stallNone && a.confirmed && a.broken.n == 0:
		// It has worked: a restart or a rebinding, once, is no reason to leave.
		a.suspect, a.stalled, a.confirmed = true, stallNone, false
		m.settle(e, a, now, why)
	default:
		m.fail(e, a, now, delivery.BrokenAfterDeath, why)
	}
}

// requestFailed: a request over HTTP/3 got no answer.
func (m *machine) requestFailed(now time.Time, r delivery.Route, k altKey, class delivery.Broken, started time.Time, why string) {
	switch class {
	case delivery.BrokenAfterDeath:
		m.died(now, r, k, started, why)
	case delivery.BrokenTimeout, delivery.BrokenExplicit, delivery.BrokenCertificate:
		e := m.memory(r)
		if a := e.find(k); a != nil && !now.Before(a.broken.until) && !started.Before(a.upAt) {
			a.failures++
			m.fail(e, a, now, class, why)
		}
	}
}

// stalled: no packet came for three probe timeouts after a request.
func (m *machine) stalled(now time.Time, r delivery.Route, k altKey) {
	e := m.memory(r)
	if a := e.find(k); a != nil && !a.suspect && !now.Before(a.broken.until) {
		a.stalled = stallUnproven
		if a.confirmed && a.broken.n == 0 {
			a.stalled = stallWorked
		}
		a.suspect, a.confirmed = true, false
		m.settle(e, a, now, "no packet for three probe timeouts")
	}
}

// fail notes a failure of HTTP/3. It breaks the alternative if TCP worked not
// long ago; otherwise the alternative is suspect until TCP is seen to work.
func (m *machine) fail(e *routeMemory, a *alternative, now time.Time, class delivery.Broken, why string) {
	a.confirmed, a.stalled = false, stallNone
	if m.tcpWorked(e, now) {
		m.backOff(e, a, now, class, why)
		return
	}
	a.suspect = true
	if a.pending == delivery.BrokenNot {
		e.pending++
	}
	a.pending, a.pendingWhy, a.pendingAt = class, why, now
	m.settle(e, a, now, why)
}

func (m *machine) tcpWorked(e *routeMemory, now time.Time) bool {
	return !e.tcpAt.IsZero() && now.Sub(e.tcpAt) <= tcpWitness
}

// backOff starts a backoff.
func (m *machine) backOff(e *routeMemory, a *alternative, now time.Time, class delivery.Broken, why string) {
	m.clearPending(e, a)
	lasted := brokenFor(class, a.broken.n, m.random())
	a.broken = breakage{n: a.broken.n + 1, class: class, reason: why, until: now.Add(lasted), lasted: lasted}
	a.suspect, a.confirmed = false, false
	m.settle(e, a, now, why)
}

func (m *machine) clearPending(e *routeMemory, a *alternative) {
	if a.pending != delivery.BrokenNot {
		a.pending = delivery.BrokenNot
		e.pending--
	}
}

// forgive ends the backoff of alternatives whose timeouts were the egress's
// fault: they are half-open at once and asked again in the background.
func (m *machine) forgive(now time.Time, tripped []egressTimeout) {
	for _, t := range tripped {
		e, ok := m.routes.Peek(t.route)
		if !ok {
			continue
		}
		a := e.find(t.alt)
		if a != nil && a.broken.class == delivery.BrokenTimeout && now.Before(a.broken.until) {
			a.broken.until = now
			a.broken.n = max(a.broken.n-1, 0)
			m.settle(e, a, now, "its timeouts were the egress's")
		}
	}
}

// tcpUp: TCP works; rtt is its connect time, 0 on a warm connection.
func (m *machine) tcpUp(now time.Time, r delivery.Route, rtt time.Duration) {
	m.tcpWitnessed(m.memory(r), now, rtt)
}

func (m *machine) tcpWitnessed(e *routeMemory, now time.Time, rtt time.Duration) {
	e.tcpAt = now
	e.tcpRTT = smoothed(e.tcpRTT, rtt)
	if e.pending == 0 {
		return
	}
	for _, a := range e.alts {
		if a.pending == delivery.BrokenNot {
			continue
		}
		if now.Sub(a.pendingAt) > tcpWitness {
			m.clearPending(e, a) // too long ago to compare: stays suspect
			continue
		}
		m.backOff(e, a, now, a.pending, a.pendingWhy)
	}
}

// answered: response headers came over p; k names the alternative for HTTP/3.
func (m *machine) answered(now time.Time, e *routeMemory, p delivery.Protocol, k altKey) {
	if int(p) < len(e.answers) {
		e.answers[p]++
	}
	if p != delivery.ProtocolHTTP3 {
		m.tcpWitnessed(e, now, 0)
		return
	}
	a := e.find(k)
	if a == nil {
		return
	}
	a.answers++
	if a.confirmed && a.broken.n == 0 {
		a.confirmedAt = now
		return // the hot path: nothing else can have changed
	}
	m.clearPending(e, a)
	a.suspect, a.stalled, a.confirmed, a.confirmedAt = false, stallNone, true, now
	a.broken.until = time.Time{}
	if a.broken.n > 0 {
		if a.broken.healthy.IsZero() {
			a.broken.healthy = now
		}
		if now.Sub(a.broken.healthy) >= max(a.broken.lasted, minHealthy) {
			a.broken = breakage{}
			m.markDirty(e)
		}
	}
	m.settle(e, a, now, "answer over HTTP/3")
}

// misdirected: the alternative answered 421. Its advert is forgotten (RFC 9110
// §15.5.20), and since the origin's next answer over TCP will usually advertise
// it again, it is also broken for a while.
func (m *machine) misdirected(now time.Time, r delivery.Route, k altKey) {
	e := m.memory(r)
	a := e.find(k)
	if a == nil {
		return
	}
	a.failures++
	a.altSvc, a.https = advert{}, advert{}
	if !now.Before(a.broken.until) {
		m.backOff(e, a, now, delivery.BrokenMisdirected, "421 over HTTP/3")
	}
	m.settle(e, a, now, "421 over HTTP/3")
}

// raced: a race was decided.
func (m *machine) raced(r delivery.Route, k altKey, quicWon bool) {
	a := m.memory(r).find(k)
	switch {
	case a == nil:
	case quicWon:
		a.wins++
	default:
		a.losses++
	}
}

// refused: the peer refused a request as unprocessed.
func (m *machine) refused(r delivery.Route) { m.memory(r).refusals++ }

// lied: the peer refused a request as unprocessed although it had shown that it
// was processing it. Its refusals prove nothing any more.
func (m *machine) lied(r delivery.Route) {
	e := m.memory(r)
	e.lies++
	e.distrust = true
	m.markDirty(e)
}
