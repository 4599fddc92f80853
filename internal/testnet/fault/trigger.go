package fault

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// armed is a fault with the count of what has passed by.
type armed struct {
	Fault

	mu    sync.Mutex
	seen  uint64
	fired uint64
	rng   *rand.Rand
}

func arm(faults []Fault) []*armed {
	var out []*armed
	for _, f := range faults {
		if f.kind == nil {
			continue
		}
		seed := f.num("seed")
		out = append(out, &armed{Fault: f, rng: rand.New(rand.NewPCG(seed, seed^0x9e3779b97f4a7c15))}) //nolint:gosec // repeatable on purpose
	}
	return out
}

// fires counts one request or connection and says whether the fault is for it.
func (a *armed) fires() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen++
	after, every, times := a.num("after"), max(a.num("every"), 1), a.num("times")
	if a.seen <= after || (a.seen-after)%every != 0 || (times > 0 && a.fired >= times) {
		return false
	}
	if odds := a.values["p"].odds; odds < 1 && a.rng.Float64() >= odds {
		return false
	}
	a.fired++
	return true
}

// network says on which of the two sockets something happens, where the protocol
// is not known yet.
type network uint8

const (
	overTCP network = iota
	overUDP
)

// over parameters narrow a fault of the handshake to one of the sockets.
func (f Fault) onNetwork(n network) bool {
	if v, ok := f.values["over"]; ok && v.text != "both" && (v.text == "udp") != (n == overUDP) {
		return false
	}
	if n == overUDP {
		return f.kind.Applies(delivery.ProtocolHTTP3)
	}
	return f.kind.Applies(delivery.ProtocolHTTP1) || f.kind.Applies(delivery.ProtocolHTTP2)
}

// decide returns the fault for a request, or for a connection that has completed
// its handshake.
func (s *Server) decide(at point, p delivery.Protocol) (Fault, bool) {
	f, ok := s.first(at, func(f Fault) bool { return f.Applies(p) })
	if ok && at != atIdle { // that one is counted once it has acted
		s.tally.fired(f.kind.Name)
	}
	return f, ok
}

// decideEarly returns the fault for a connection whose protocol is not known.
func (s *Server) decideEarly(at point, n network, names ...string) (Fault, bool) {
	f, ok := s.first(at, func(f Fault) bool { return f.onNetwork(n) && slices.Contains(names, f.kind.Name) })
	if ok {
		s.tally.fired(f.kind.Name)
	}
	return f, ok
}

// first asks the armed faults in order. Those behind the one that fires do not
// count the event.
func (s *Server) first(at point, applies func(Fault) bool) (Fault, bool) {
	for _, a := range *s.armed.Load() {
		if a.at() == at && applies(a.Fault) && a.fires() {
			return a.Fault, true
		}
	}
	return Fault{}, false
}

// standing returns the armed fault of a name, without counting anything.
func (s *Server) standing(name string) (Fault, bool) {
	for _, a := range *s.armed.Load() {
		if a.kind.Name == name {
			return a.Fault, true
		}
	}
	return Fault{}, false
}
