package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"

	"github.com/dispatcher-engine/dispatcher/bench/link"
	"github.com/dispatcher-engine/dispatcher/delivery"
)

// kind is what a server of the estate is like. Every server speaks HTTP/1.1 and
// HTTP/2 over TLS.
type kind uint8

const (
	kindH3      kind = iota // advertises HTTP/3, and it works
	kindTCP                 // has no HTTP/3
	kindBlocked             // advertises HTTP/3, but UDP never arrives
	kindDying               // HTTP/3 dies right after the handshake
	kindWrong               // advertises HTTP/3, and nobody listens there
	kinds
)

var kindNames = [kinds]string{"h3", "tcp", "blocked", "dying", "wrong"}

// Addresses of the link: 198.18.0.0/15 is for benchmarks of networks (RFC 2544).
// They exist in the run's namespaces only.
var (
	clientAddr  = netip.MustParseAddr("198.18.0.1")
	linkPrefix  = netip.MustParsePrefix("198.18.0.0/24")
	loopPrefix  = netip.MustParsePrefix("127.0.0.0/8")
	serverAddrs = [kinds]netip.Addr{
		netip.MustParseAddr("198.18.0.2"), netip.MustParseAddr("198.18.0.3"),
		netip.MustParseAddr("198.18.0.4"), netip.MustParseAddr("198.18.0.5"), netip.MustParseAddr("198.18.0.6"),
	}
	linkRules = map[netip.Addr]link.Rule{serverAddrs[kindBlocked]: link.BlockUDP, serverAddrs[kindDying]: link.DieAfterHandshake}
)

// domain is that of all endpoints; the servers' certificate is for it.
const domain = "bench.test"

// endpoint is one origin of the estate. Its kind is part of its number, so that
// its name says to which server it leads.
type endpoint int

func endpointOf(n int, k kind) endpoint { return endpoint(n*int(kinds) + int(k)) }

func (e endpoint) kind() kind { return kind(int(e) % int(kinds)) } //nolint:gosec // below kinds

// host is its name: each endpoint is an origin of its own, also where several
// lead to one server.
func (e endpoint) host() string { return "e" + strconv.Itoa(int(e)) + "." + domain }

// servers is where the estate's servers are, by kind.
type servers struct {
	CAPEM string                `json:"ca"`
	Addr  [kinds]netip.AddrPort `json:"addr"` // invalid = there is none of that kind
	Echo  netip.AddrPort        `json:"echo"` // UDP
	Sink  netip.AddrPort        `json:"sink"` // UDP
}

// LookupNetIP implements netguard.Resolver: the estate needs no DNS.
func (s *servers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	label, _, _ := strings.Cut(host, ".")
	n, err := strconv.Atoi(strings.TrimPrefix(label, "e"))
	if err != nil || n < 0 {
		return nil, fmt.Errorf("lookup %s: no such endpoint", host)
	}
	return []netip.Addr{s.Addr[endpoint(n).kind()].Addr()}, nil
}

// route is how the transport sees an endpoint.
func (s *servers) route(e endpoint) delivery.Endpoint {
	return delivery.Endpoint{Route: delivery.Route{Origin: delivery.Origin{Scheme: "https", Host: e.host(), Port: s.Addr[e.kind()].Port()}}}
}

// Estate says what the endpoints of the mixed scenario are like.
type Estate struct {
	Endpoints int     `json:"endpoints"`
	H3        float64 `json:"h3"`      // share whose HTTP/3 works
	Blocked   float64 `json:"blocked"` // share that advertises it, with UDP blocked
	Dying     float64 `json:"dying"`   // share whose HTTP/3 dies after the handshake
	Wrong     float64 `json:"wrong"`   // share that advertises it where nobody listens
}

// draw makes the endpoints; the rest have no HTTP/3.
func (e Estate) draw(rng *rand.Rand) []endpoint {
	out := make([]endpoint, e.Endpoints)
	for i := range out {
		k := kindTCP
		switch x := rng.Float64(); {
		case x < e.H3:
			k = kindH3
		case x < e.H3+e.Blocked:
			k = kindBlocked
		case x < e.H3+e.Blocked+e.Dying:
			k = kindDying
		case x < e.H3+e.Blocked+e.Dying+e.Wrong:
			k = kindWrong
		}
		out[i] = endpointOf(i, k)
	}
	return out
}
