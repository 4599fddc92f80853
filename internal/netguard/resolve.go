package netguard

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
)

// maxAddrs bounds how many addresses of one answer are dialled. All of them are
// judged; an answer over TCP can hold thousands, and a dial is not to be kept
// busy by one.
const maxAddrs = 16

// Resolve turns host into the literals to dial, best first: one lookup, every
// answer judged, mapped addresses as IPv4, duplicates removed, the two families
// interleaved (RFC 8305 section 4) beginning with the one the resolver put
// first. The order within a family stays as it is: net.Resolver has sorted it by
// RFC 6724 with knowledge of the routes.
//
// The error is a *[DeniedError], or the resolver's wrapped, or [ErrNoAddress].
// Callers who know the port use [Guard.ResolvePort], which also keeps them from
// the process's own listeners.
func (g *Guard) Resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	return g.resolve(ctx, host, 0)
}

// ResolvePort is Resolve for a port.
func (g *Guard) ResolvePort(ctx context.Context, host string, port uint16) ([]netip.AddrPort, error) {
	addrs, err := g.resolve(ctx, host, port)
	if err != nil {
		return nil, err
	}
	return withPort(addrs, port), nil
}

func withPort(addrs []netip.Addr, port uint16) []netip.AddrPort {
	targets := make([]netip.AddrPort, len(addrs))
	for i, addr := range addrs {
		targets[i] = netip.AddrPortFrom(addr, port)
	}
	return targets
}

func (g *Guard) resolve(ctx context.Context, host string, port uint16) ([]netip.Addr, error) {
	h, err := g.checkHost(StageResolve, host, port)
	if err != nil {
		return nil, err
	}
	switch h.kind {
	case kindLiteral:
		return []netip.Addr{h.addr.Unmap()}, nil
	case kindLocalhost:
		addrs, _ := g.loopback(port)
		return addrs, nil
	case kindName:
	}
	// The final dot makes the name absolute. Without it, a resolver may append a
	// search domain, and then the subscriber's `api.internal` is answered by the
	// platform's own zone.
	answer, err := g.resolver.LookupNetIP(ctx, "ip", h.name+".")
	if err != nil {
		return nil, fmt.Errorf("resolve %s: %w", quoteHost(host), err)
	}
	if len(answer) == 0 {
		return nil, fmt.Errorf("resolve %s: %w", quoteHost(host), ErrNoAddress)
	}
	if err := g.checkAnswer(StageResolve, host, answer, port); err != nil {
		return nil, err
	}
	return dialOrder(answer), nil
}

// dialOrder normalises, removes duplicates, interleaves and bounds.
func dialOrder(answer []netip.Addr) []netip.Addr {
	var family [2][]netip.Addr // the first address's family, the other one
	first := answer[0].Unmap().Is4()
	seen := make(map[netip.Addr]bool, len(answer))
	for _, addr := range answer {
		addr = addr.WithZone("").Unmap()
		if seen[addr] {
			continue
		}
		seen[addr] = true
		i := 0
		if addr.Is4() != first {
			i = 1
		}
		family[i] = append(family[i], addr)
	}
	var out []netip.Addr
	for i := range max(len(family[0]), len(family[1])) {
		for _, addrs := range family {
			if i < len(addrs) {
				out = append(out, addrs[i])
			}
		}
	}
	return slices.Clip(out[:min(len(out), maxAddrs)])
}
