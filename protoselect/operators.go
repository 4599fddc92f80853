package protoselect

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// OriginRow is what the selector knows about one route of an origin.
type OriginRow struct {
	Route        delivery.Route
	Pin          Pin
	State        State // what a delivery would find now
	Alternatives []AlternativeRow
	TCPRTT       time.Duration // smoothed; 0 = unknown
	TCPWorkedAt  time.Time
	HTTPSRecord  string    // last lookup in one line; "" = never asked
	HTTPSAgainAt time.Time // when it may be asked again
	HTTP1        uint64    // answers by protocol
	HTTP2        uint64
	HTTP3        uint64
	Refusals     uint64 // requests refused as unprocessed
	Lies         uint64 // refusals after evidence of processing
	Distrusted   bool   // its refusals are not resent
}

// AlternativeRow is what the selector knows about one alternative of a route.
type AlternativeRow struct {
	Authority   string
	State       State
	Source      Source
	LearnedAt   time.Time
	ExpiresAt   time.Time // zero = no fresh advert
	Persist     bool
	ConfirmedAt time.Time // last answer over HTTP/3
	Breakages   int       // in a row
	Class       delivery.Broken
	Reason      string    // of the last breakage
	BrokenUntil time.Time // zero = not broken; past = half-open
	HoldUntil   time.Time // no dial before: the last one failed for a reason of our own
	SRTT        time.Duration
	Wins        uint64 // races
	Losses      uint64
	Answers     uint64
	Failures    uint64
}

// maxPins bounds pins: each is a line an operator wrote.
const maxPins = 4096

// Errors of operators' commands.
var (
	ErrTooManyPins = errors.New("too many pins")
	ErrBadPin      = errors.New("pin needs a protocol (auto, h3, tcp) and no negative ttl")
)

// ParseAuthority reads "host" or "host:port" into an https origin.
func ParseAuthority(s string) (delivery.Origin, error) {
	host, port := s, uint64(443)
	if h, p, err := net.SplitHostPort(s); err == nil {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return delivery.Origin{}, fmt.Errorf("authority %q: invalid port", s)
		}
		host, port = h, n
	}
	host, ok := cleanHost(strings.Trim(host, "[]"))
	if !ok || host == "" {
		return delivery.Origin{}, fmt.Errorf("authority %q: invalid host", s)
	}
	return delivery.Origin{Scheme: "https", Host: host, Port: uint16(port)}, nil //nolint:gosec // 16 bits
}

// List returns up to limit rows in the order of [RowKey], beginning after the
// row with the key given. next is the last row's key, "" = no more.
func (s *Selector) List(after string, limit int) (rows []OriginRow, next string) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]string, 0, s.m.routes.Len())
	byKey := make(map[string]*routeMemory, s.m.routes.Len())
	for _, e := range s.m.routes.Values() {
		if k := RowKey(e.route); k > after {
			keys = append(keys, k)
			byKey[k] = e
		}
	}
	slices.Sort(keys)
	for i, k := range keys {
		if i == limit {
			return rows, keys[i-1]
		}
		rows = append(rows, s.m.row(byKey[k], now))
	}
	return rows, ""
}

// RowKey orders rows: by host, port, egress and identity.
func RowKey(r delivery.Route) string {
	return fmt.Sprintf("%s|%05d|%s|%s|%x", r.Origin.Host, r.Origin.Port, r.Origin.Scheme, r.Egress, r.Identity)
}

// Get returns the rows of an origin, one per TLS identity and egress, and its
// pin.
func (s *Selector) Get(o delivery.Origin) (rows []OriginRow, pin Pin) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.m.ofOrigin(o) {
		rows = append(rows, s.m.row(e, now))
	}
	slices.SortFunc(rows, func(a, b OriginRow) int { return cmp.Compare(RowKey(a.Route), RowKey(b.Route)) })
	if p := s.m.pins[o]; p.active(now) {
		pin = p
	}
	return rows, pin
}

// PinRow is an operator's pin.
type PinRow struct {
	Origin delivery.Origin
	Pin    Pin
}

// Pins returns the active pins by origin.
func (s *Selector) Pins() []PinRow {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var rows []PinRow
	for o, p := range s.m.pins {
		if p.active(now) {
			rows = append(rows, PinRow{o, p})
		}
	}
	slices.SortFunc(rows, func(a, b PinRow) int { return cmp.Compare(a.Origin.String(), b.Origin.String()) })
	return rows
}

// Pin sets an origin's pin; ttl 0 = until it is forgotten. Every route of the
// origin obeys from its next delivery on.
func (s *Selector) Pin(o delivery.Origin, protocol PinProtocol, ttl time.Duration) error {
	if protocol == PinNone || int(protocol) >= len(pinNames) || ttl < 0 {
		return ErrBadPin
	}
	now := time.Now()
	pin := Pin{Protocol: protocol}
	if ttl > 0 {
		pin.Until = now.Add(ttl)
	}
	s.mu.Lock()
	for old, p := range s.m.pins {
		if !p.active(now) {
			s.unpinLocked(old)
		}
	}
	if _, ok := s.m.pins[o]; !ok && len(s.m.pins) >= maxPins {
		s.unlock()
		return ErrTooManyPins
	}
	s.m.pins[o] = pin
	s.m.policyGen++
	s.pinDirtyLocked(o)
	s.unlock()
	s.wakeSaver()
	return nil
}

func (s *Selector) pinDirtyLocked(o delivery.Origin) {
	if s.cfg.Memory != nil {
		s.dirtyPins[o] = struct{}{}
	}
}

// Unpin removes an origin's pin.
func (s *Selector) Unpin(o delivery.Origin) {
	s.mu.Lock()
	s.unpinLocked(o)
	s.unlock()
	s.wakeSaver()
}

func (s *Selector) unpinLocked(o delivery.Origin) {
	if _, ok := s.m.pins[o]; !ok {
		return
	}
	delete(s.m.pins, o)
	s.m.policyGen++
	s.pinDirtyLocked(o)
}

// Forget removes everything that is known about an origin: adverts, breakages,
// counters, the cached HTTPS record and the pin. It reports whether there was
// anything.
func (s *Selector) Forget(o delivery.Origin) bool {
	s.lookups.cache.Remove(recordName(o))
	s.mu.Lock()
	_, known := s.m.pins[o]
	s.unpinLocked(o)
	for _, e := range s.m.ofOrigin(o) {
		s.m.routes.Remove(e.route) // the eviction hook marks it dirty
		known = true
	}
	s.unlock()
	s.wakeSaver()
	return known
}

func (m *machine) ofOrigin(o delivery.Origin) []*routeMemory {
	var out []*routeMemory
	for _, e := range m.routes.Values() {
		if e.route.Origin == o {
			out = append(out, e)
		}
	}
	return out
}

func (m *machine) row(e *routeMemory, now time.Time) OriginRow {
	row := OriginRow{
		Route: e.route, State: StateUnknown, TCPRTT: e.tcpRTT, TCPWorkedAt: e.tcpAt,
		HTTPSRecord: e.lookupIs, HTTPSAgainAt: e.askAt,
		HTTP1: e.answers[delivery.ProtocolHTTP1], HTTP2: e.answers[delivery.ProtocolHTTP2], HTTP3: e.answers[delivery.ProtocolHTTP3],
		Refusals: e.refusals, Lies: e.lies, Distrusted: e.distrust,
	}
	alts := slices.SortedStableFunc(slices.Values(e.alts), func(a, b *alternative) int { return a.before(b, now) })
	for _, a := range alts {
		row.Alternatives = append(row.Alternatives, a.row(now))
	}
	if len(alts) > 0 {
		row.State = alts[0].state(now)
	}
	if _, disabled := m.demanded(e, delivery.ProtocolAuto, now); disabled {
		row.State = StateDisabled
	}
	if e.pin.active(now) {
		row.Pin = e.pin
	}
	return row
}

func (a *alternative) row(now time.Time) AlternativeRow {
	source, ad := a.source(now)
	return AlternativeRow{
		Authority: a.authority, State: a.state(now), Source: source,
		LearnedAt: ad.learned, ExpiresAt: ad.expires, Persist: ad.persist, ConfirmedAt: a.confirmedAt,
		Breakages: a.broken.n, Class: a.broken.class, Reason: a.broken.reason, BrokenUntil: a.broken.until,
		HoldUntil: a.holdUntil, SRTT: a.srtt,
		Wins: a.wins, Losses: a.losses, Answers: a.answers, Failures: a.failures,
	}
}
