package netguard

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
)

// Route says how to reach a target that has been vetted.
type Route struct {
	// Proxy is the proxy to ask, nil for a direct connection. It is dialled with
	// a plain dialer: it is the operator's address, most often a private one, and
	// allowing it in the policy would open it to every subscriber.
	Proxy *url.URL
	// Addrs are the vetted literals to dial directly, best first. Empty with a
	// proxy.
	Addrs []netip.AddrPort
	// Connect are the authorities (host:port) to CONNECT to, best first: vetted
	// literals, or with ProxyRemoteDNS the name. Empty without a proxy.
	Connect []string
}

// Route vets host and port and chooses between the proxy and a direct
// connection. The target is judged first in either case: a proxy stands inside
// the network that the policy protects, so it is never asked for an address that
// is denied. It is asked for the literal that was judged, since it would
// otherwise look the name up again, later, and trust the answer.
func (g *Guard) Route(ctx context.Context, host string, port uint16) (Route, error) {
	if g.proxy != nil && g.remoteName {
		h, err := g.checkHost(StageResolve, host, port)
		if err != nil {
			return Route{}, err
		}
		if h.kind == kindName && !g.noProxy.Match(h.name, port) {
			return Route{Proxy: g.proxyURL(), Connect: []string{authority(h.name, port)}}, nil
		}
	}
	targets, err := g.ResolvePort(ctx, host, port)
	if err != nil {
		return Route{}, err
	}
	if g.proxy == nil || g.direct(host, port, targets) {
		return Route{Addrs: targets}, nil
	}
	connect := make([]string, len(targets))
	for i, t := range targets {
		connect[i] = t.String()
	}
	return Route{Proxy: g.proxyURL(), Connect: connect}, nil
}

// direct reports whether a vetted target bypasses the proxy. Loopback always
// does: behind the proxy it would be the proxy's own.
func (g *Guard) direct(host string, port uint16, targets []netip.AddrPort) bool {
	h, _ := g.Policy().parseHost(host) // vetted before, so it parses
	return g.noProxy.Match(h.name, port) ||
		slices.ContainsFunc(targets, func(t netip.AddrPort) bool { return t.Addr().IsLoopback() })
}

// proxyURL returns a copy; a caller may take the credentials out of his.
func (g *Guard) proxyURL() *url.URL {
	u := *g.proxy
	return &u
}

func authority(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
