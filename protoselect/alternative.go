package protoselect

import (
	"cmp"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// altKey names an alternative within a route. An empty host is the origin's own.
type altKey struct {
	host string
	port uint16
}

func (k altKey) dialHost(r delivery.Route) string {
	if k.host == "" {
		return r.Origin.Host
	}
	return k.host
}

// altUsed returns the value of Alt-Used (RFC 7838 §5): the alternative's
// authority, without the port where that is the scheme's default.
func (k altKey) altUsed(r delivery.Route) string {
	host := k.dialHost(r)
	if k.port != 443 {
		return net.JoinHostPort(host, strconv.Itoa(int(k.port)))
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		return "[" + host + "]"
	}
	return host
}

// advert is one source's word that an alternative exists.
type advert struct {
	learned time.Time
	expires time.Time // zero = never advertised by this source
	rank    int       // position in the header, or SvcPriority
	persist bool      // RFC 7838 §3.1; shown to operators
	seen    uint64    // which header named it
	saved   time.Time // the expiry that was last given to Memory
}

func (a advert) fresh(now time.Time) bool { return now.Before(a.expires) }

// breakage is the memory of failures that makes an alternative Broken. It
// outlives adverts: re-advertising does not clear it.
type breakage struct {
	n       int             // breakages in a row; the exponent of the next backoff
	class   delivery.Broken // of the last one
	reason  string          // of the last one, for operators
	until   time.Time       // zero = not broken; passed = half-open
	lasted  time.Duration   // the last backoff: as long must it answer for n to be forgiven
	healthy time.Time       // first answer after the last breakage
}

// alternative is the memory of one HTTP/3 alternative of a route.
type alternative struct {
	key       altKey
	authority string // host:port, made once
	altUsed   string
	hints     []netip.Addr
	altSvc    advert
	https     advert

	confirmed   bool // an answer came over HTTP/3 since the last trouble
	confirmedAt time.Time
	suspect     bool
	stalled     stall           // why it is suspect, until the stalled request has ended
	pending     delivery.Broken // a failure that breaks it as soon as TCP is seen to work
	pendingWhy  string
	pendingAt   time.Time
	broken      breakage
	upAt        time.Time // when the last handshake was completed
	holdUntil   time.Time // no dial before: the last one failed without saying anything about HTTP/3
	holds       int
	srtt        time.Duration
	wins        uint64 // races won by QUIC
	losses      uint64
	answers     uint64
	failures    uint64
	shown       State // last state reported to the observer
}

// stall is what a stall found. It is the first sign of a death, and the request
// that stalled tells at its end whether it was one.
type stall uint8

const (
	stallNone     stall = iota
	stallUnproven       // of an alternative that had not answered since its last trouble
	stallWorked         // of one that had
)

// fresh reports whether any source vouches for the alternative at now.
func (a *alternative) fresh(now time.Time) bool { return a.altSvc.fresh(now) || a.https.fresh(now) }

// source returns the source whose word counts, and its advert.
func (a *alternative) source(now time.Time) (Source, advert) {
	switch {
	case a.altSvc.fresh(now):
		return SourceAltSvc, a.altSvc
	case a.https.fresh(now):
		return SourceHTTPSRecord, a.https
	default:
		return SourceNone, advert{}
	}
}

// state derives the state from the memory: time alone moves an alternative from
// Broken to HalfOpen and from anything to Unknown, so there is no timer to lose.
func (a *alternative) state(now time.Time) State {
	switch {
	case !a.fresh(now):
		return StateUnknown
	case now.Before(a.broken.until):
		return StateBroken
	case !a.broken.until.IsZero():
		return StateHalfOpen
	case a.suspect:
		return StateSuspect
	case a.confirmed:
		return StateConfirmed
	default:
		return StateAdvertised
	}
}

// diedUnproven reports whether the alternative swallowed requests after its
// handshake and TCP has not been tried since: another handshake proves nothing,
// so the next delivery tries TCP, which also settles the question.
func (a *alternative) diedUnproven(now time.Time) bool {
	return a.pending == delivery.BrokenAfterDeath && now.Sub(a.pendingAt) <= tcpWitness
}

// worthKeeping reports whether a record without a fresh advert still carries
// memory that a new advert must not erase.
func (a *alternative) worthKeeping(now time.Time) bool {
	return a.fresh(now) || a.broken.n > 0 || a.suspect || a.pending != delivery.BrokenNot
}

// before orders usable alternatives. Documented order: Confirmed, Advertised,
// Suspect; then Alt-Svc before HTTPS records, because the origin said the one
// over verified TLS and anybody on the path may have said the other; then the
// order of the header or SvcPriority; then port and host, so that the order
// never depends on a map or on timing.
func (a *alternative) before(b *alternative, now time.Time) int {
	as, aa := a.source(now)
	bs, ba := b.source(now)
	return cmp.Or(
		cmp.Compare(stateRank(a.state(now)), stateRank(b.state(now))),
		cmp.Compare(as, bs),
		cmp.Compare(aa.rank, ba.rank),
		cmp.Compare(a.key.port, b.key.port),
		cmp.Compare(a.key.host, b.key.host),
	)
}

func stateRank(s State) int {
	switch s {
	case StateConfirmed:
		return 0
	case StateAdvertised:
		return 1
	case StateSuspect:
		return 2
	case StateHalfOpen:
		return 3
	case StateBroken:
		return 4
	default:
		return 5
	}
}

func (a *alternative) delivery() delivery.Alternative {
	return delivery.Alternative{Host: a.key.host, Port: a.key.port, Hints: a.hints}
}
