package protoselect

import (
	"slices"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Limits of the egress breaker.
const (
	egressDistinct = 8
	egressWindow   = 60 * time.Second
	egressBase     = 60 * time.Second
	egressMax      = 30 * time.Minute
	egressProbe    = time.Minute
)

// egressBreaker notices that UDP does not leave this egress at all: many
// distinct alternatives time out and none succeeds. The fault is then ours, and
// waiting out a handshake timeout per origin would teach the same thing a
// thousand times.
type egressBreaker struct {
	name      string
	timeouts  []egressTimeout
	opens     int // times in a row without a success between: the exponent
	until     time.Time
	nextProbe time.Time
	// tripped are the alternatives whose timeouts opened the breaker: their own
	// brokenness was the egress's fault, so it is forgiven when UDP works again.
	tripped []egressTimeout
}

type egressTimeout struct {
	route delivery.Route
	alt   altKey
	at    time.Time
}

// same reports whether two timeouts are of one alternative, whichever TLS
// identity it was dialled with: the breaker counts paths, not tenants.
func (t egressTimeout) same(o egressTimeout) bool {
	return t.alt.port == o.alt.port && t.alt.dialHost(t.route) == o.alt.dialHost(o.route)
}

// open reports whether HTTP/3 is off for this egress.
func (b *egressBreaker) open(now time.Time) bool { return now.Before(b.until) }

// timeout notes that a handshake got no answer. It reports whether that opened
// the breaker.
func (b *egressBreaker) timeout(now time.Time, route delivery.Route, alt altKey) bool {
	if b.open(now) {
		return false
	}
	failed := egressTimeout{route, alt, now}
	b.timeouts = slices.DeleteFunc(b.timeouts, func(t egressTimeout) bool {
		return t.same(failed) || now.Sub(t.at) > egressWindow
	})
	b.timeouts = append(b.timeouts, failed)
	if len(b.timeouts) < egressDistinct {
		return false
	}
	b.until = now.Add(min(egressBase<<min(b.opens, maxShift), egressMax))
	b.opens++
	b.nextProbe = now.Add(egressProbe)
	b.tripped = append(b.tripped[:0], b.timeouts...)
	b.timeouts = b.timeouts[:0]
	return true
}

// success notes a completed handshake: UDP leaves. It returns the alternatives
// to forgive and whether the breaker was open.
func (b *egressBreaker) success(now time.Time) (forgive []egressTimeout, closed bool) {
	closed = b.open(now)
	if b.opens > 0 {
		forgive = b.tripped
	}
	b.timeouts, b.tripped, b.opens = b.timeouts[:0], nil, 0
	b.until, b.nextProbe = time.Time{}, time.Time{}
	return forgive, closed
}

// probe reports whether one background handshake is due while the breaker is
// open, and books it.
func (b *egressBreaker) probe(now time.Time) bool {
	if now.Before(b.nextProbe) {
		return false
	}
	b.nextProbe = now.Add(egressProbe)
	return true
}
