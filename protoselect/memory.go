package protoselect

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Memory keeps what the selector learned across restarts. Keys and values are
// opaque to it. Losing it costs probes, never correctness, so it needs no
// synced writes.
type Memory interface {
	// Load calls each with every saved entry. The value may be reused after
	// each returns; an error of each ends the load.
	Load(ctx context.Context, each func(key string, value []byte) error) error
	// Save stores the changes; a nil Value deletes its key.
	Save(ctx context.Context, changes []MemoryChange) error
}

// MemoryChange is one entry to be stored or, with a nil Value, deleted.
type MemoryChange struct {
	Key   string
	Value []byte
}

// Key prefixes: what a route is remembered for, and operators' pins.
const (
	routePrefix = "route/"
	pinPrefix   = "pin/"
)

const memoryVersion = 1

// savedRoute is a route's memory on disk. Instants are wall-clock; Saved says
// what the clock showed, so that only elapsed time counts when it is read.
type savedRoute struct {
	Version  int        `json:"v"`
	Saved    time.Time  `json:"saved"`
	Scheme   string     `json:"scheme"`
	Host     string     `json:"host"`
	Port     uint16     `json:"port"`
	Identity string     `json:"identity,omitzero"`
	Egress   string     `json:"egress,omitzero"`
	TCPRTT   int64      `json:"tcp_rtt_us,omitzero"`
	Refusals uint64     `json:"refusals,omitzero"`
	Lies     uint64     `json:"lies,omitzero"`
	Distrust bool       `json:"distrust,omitzero"`
	Alts     []savedAlt `json:"alternatives,omitzero"`
}

type savedAlt struct {
	Host      string       `json:"host,omitzero"`
	Port      uint16       `json:"port"`
	AltSvc    savedAdvert  `json:"alt_svc,omitzero"`
	HTTPS     savedAdvert  `json:"https,omitzero"`
	Hints     []netip.Addr `json:"hints,omitzero"`
	Confirmed bool         `json:"confirmed,omitzero"`
	SRTT      int64        `json:"srtt_us,omitzero"`
	Breakages int          `json:"breakages,omitzero"`
	Class     uint8        `json:"class,omitzero"`
	Reason    string       `json:"reason,omitzero"`
	Until     time.Time    `json:"broken_until,omitzero"`
	Lasted    int64        `json:"lasted_s,omitzero"`
	Wins      uint64       `json:"wins,omitzero"`
	Losses    uint64       `json:"losses,omitzero"`
	Answers   uint64       `json:"answers,omitzero"`
	Failures  uint64       `json:"failures,omitzero"`
}

type savedAdvert struct {
	Expires time.Time     `json:"expires"`
	Life    time.Duration `json:"life_ns"`
	Rank    int           `json:"rank,omitzero"`
	Persist bool          `json:"persist,omitzero"`
}

type savedPin struct {
	Version  int       `json:"v"`
	Saved    time.Time `json:"saved"`
	Scheme   string    `json:"scheme"`
	Host     string    `json:"host"`
	Port     uint16    `json:"port"`
	Protocol string    `json:"protocol"`
	Until    time.Time `json:"until,omitzero"`
}

// routeKey is a route's key: readable, and unambiguous because no part can
// contain the separator.
func routeKey(r delivery.Route) string {
	return routePrefix + url.PathEscape(r.Egress) + "/" + hex.EncodeToString(r.Identity[:]) + "/" + url.PathEscape(r.Origin.String())
}

func pinKey(o delivery.Origin) string { return pinPrefix + url.PathEscape(o.String()) }

// wallAt converts an instant of this process into wall-clock time by what is
// left until then, so that a clock that was set in between does not matter.
func wallAt(now, at time.Time) time.Time {
	if at.IsZero() {
		return time.Time{}
	}
	return now.Round(0).Add(at.Sub(now))
}

// saved returns the route's memory as it is written, or false when there is
// nothing worth a write.
func (e *routeMemory) saved(now time.Time) (savedRoute, bool) {
	o := e.route.Origin
	out := savedRoute{
		Version: memoryVersion, Saved: now.Round(0), Scheme: o.Scheme, Host: o.Host, Port: o.Port, Egress: e.route.Egress,
		TCPRTT: e.tcpRTT.Microseconds(), Refusals: e.refusals, Lies: e.lies, Distrust: e.distrust,
	}
	if e.route.Identity != (delivery.Identity{}) {
		out.Identity = hex.EncodeToString(e.route.Identity[:])
	}
	for _, a := range e.alts {
		if !a.worthKeeping(now) {
			continue
		}
		b := a.broken
		out.Alts = append(out.Alts, savedAlt{
			Host: a.key.host, Port: a.key.port, AltSvc: a.altSvc.saveable(now), HTTPS: a.https.saveable(now), Hints: a.hints,
			Confirmed: a.confirmed, SRTT: a.srtt.Microseconds(),
			Breakages: b.n, Class: uint8(b.class), Reason: b.reason, Until: wallAt(now, b.until), Lasted: int64(b.lasted / time.Second),
			Wins: a.wins, Losses: a.losses, Answers: a.answers, Failures: a.failures,
		})
	}
	return out, len(out.Alts) > 0 || out.Distrust
}

func (a advert) saveable(now time.Time) savedAdvert {
	if !a.fresh(now) {
		return savedAdvert{}
	}
	return savedAdvert{Expires: wallAt(now, a.expires), Life: a.expires.Sub(a.learned), Rank: a.rank, Persist: a.persist}
}

// errSaved marks an entry that cannot be used; it is skipped and reported.
var errSaved = errors.New("unusable saved entry")

// restore takes one saved entry into the machine.
func (m *machine) restore(now time.Time, key string, value []byte) error {
	var err error
	switch {
	case strings.HasPrefix(key, routePrefix):
		err = m.restoreRoute(now, key, value)
	case strings.HasPrefix(key, pinPrefix):
		err = m.restorePin(now, key, value)
	default:
		err = errSaved
	}
	if err != nil {
		return fmt.Errorf("restore %q: %w", key, err)
	}
	return nil
}

func (m *machine) restoreRoute(now time.Time, key string, value []byte) error {
	var in savedRoute
	if err := json.Unmarshal(value, &in); err != nil {
		return fmt.Errorf("%w: %w", errSaved, err)
	}
	r, ok := in.route()
	if !ok || in.Version != memoryVersion || routeKey(r) != key || len(in.Alts) > maxAlternatives {
		return errSaved
	}
	e := m.memory(r)
	e.tcpRTT = sane(in.TCPRTT, time.Microsecond, maxRaceStagger)
	e.refusals, e.lies, e.distrust = in.Refusals, in.Lies, in.Distrust
	elapsed := max(now.Round(0).Sub(in.Saved), 0) // a clock set back means "no time passed"
	for _, sa := range in.Alts {
		m.restoreAlt(now, e, sa, in.Saved, elapsed)
	}
	e.prune(now)
	if len(e.alts) == 0 && !e.distrust {
		m.routes.Remove(r) // stale: the eviction hook has it deleted from disk as well
	}
	return nil
}

func (in savedRoute) route() (delivery.Route, bool) {
	r := delivery.Route{Origin: delivery.Origin{Scheme: in.Scheme, Host: in.Host, Port: in.Port}, Egress: in.Egress}
	id, err := hex.DecodeString(in.Identity)
	if err != nil || (len(id) != 0 && len(id) != len(r.Identity)) || in.Scheme != "https" || in.Host == "" || in.Port == 0 {
		return r, false
	}
	copy(r.Identity[:], id)
	return r, true
}

// restoreAlt restores one alternative, judged by today's policy and with every
// number bounded: the file may be older than the configuration, or damaged.
func (m *machine) restoreAlt(now time.Time, e *routeMemory, in savedAlt, saved time.Time, elapsed time.Duration) {
	host, ok := cleanHost(in.Host)
	k, refusal := m.policy.check(e.route.Origin, host, in.Port)
	if !ok || in.Port == 0 || refusal != RefusedNot || len(in.Hints) > maxHints {
		return
	}
	a := e.ensure(k, now)
	a.altSvc = in.AltSvc.restore(now, saved, elapsed, maxAdvert)
	a.https = in.HTTPS.restore(now, saved, elapsed, maxTTL)
	a.hints = in.Hints
	a.confirmed = in.Confirmed
	a.srtt = sane(in.SRTT, time.Microsecond, maxRaceStagger)
	a.wins, a.losses, a.answers, a.failures = in.Wins, in.Losses, in.Answers, in.Failures
	left := -elapsed
	if !in.Until.IsZero() {
		left = min(in.Until.Sub(saved)-elapsed, maxBroken)
	}
	// A breakage that nobody has looked into for a day longer than any backoff
	// is history.
	if class := delivery.Broken(in.Class); in.Breakages > 0 && brokenBase(class) > 0 && left > -maxBroken {
		a.broken = breakage{
			n: min(in.Breakages, maxShift), class: class, reason: in.Reason[:min(len(in.Reason), maxDetail)],
			lasted: sane(in.Lasted, time.Second, maxBroken),
		}
		if !in.Until.IsZero() {
			a.broken.until = now.Add(max(left, 0))
		}
	}
	a.shown = a.state(now)
}

func (in savedAdvert) restore(now, saved time.Time, elapsed, most time.Duration) advert {
	left := min(in.Expires.Sub(saved)-elapsed, most)
	if in.Expires.IsZero() || left <= 0 || in.Rank < 0 {
		return advert{}
	}
	expires := now.Add(left)
	life := min(max(in.Life, left), most)
	return advert{learned: expires.Add(-life), expires: expires, saved: expires, rank: in.Rank, persist: in.Persist}
}

// sane reads a duration that may be anything.
func sane(n int64, unit, most time.Duration) time.Duration {
	if n <= 0 || n > int64(most/unit) {
		return 0
	}
	return time.Duration(n) * unit
}

func (m *machine) restorePin(now time.Time, key string, value []byte) error {
	var in savedPin
	if err := json.Unmarshal(value, &in); err != nil {
		return fmt.Errorf("%w: %w", errSaved, err)
	}
	o := delivery.Origin{Scheme: in.Scheme, Host: in.Host, Port: in.Port}
	protocol, ok := ParsePin(in.Protocol)
	if !ok || in.Version != memoryVersion || pinKey(o) != key || in.Host == "" || in.Port == 0 || len(m.pins) >= maxPins {
		return errSaved
	}
	pin := Pin{Protocol: protocol}
	if !in.Until.IsZero() {
		left := in.Until.Sub(in.Saved) - max(now.Round(0).Sub(in.Saved), 0)
		if left <= 0 {
			return nil
		}
		pin.Until = now.Add(left)
	}
	m.pins[o] = pin
	m.policyGen++
	return nil
}

func savePin(now time.Time, o delivery.Origin, p Pin) savedPin {
	return savedPin{
		Version: memoryVersion, Saved: now.Round(0), Scheme: o.Scheme, Host: o.Host, Port: o.Port,
		Protocol: p.Protocol.String(), Until: wallAt(now, p.Until),
	}
}
