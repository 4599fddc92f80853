package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Guard applies a [Policy] to everything that is registered, resolved and
// dialled. It owns no goroutine and is safe for concurrent use.
type Guard struct {
	policy     atomic.Pointer[Policy]
	own        ownListeners
	resolver   Resolver
	dialer     Dialer
	stagger    time.Duration
	proxy      *url.URL
	noProxy    NoProxy
	remoteName bool
	observer   Observer
}

// New makes a guard. The error joins everything that is wrong with cfg.
func New(cfg Config) (*Guard, error) {
	cfg = cfg.withDefaults()
	g := &Guard{
		own:        ownListeners{lookup: cfg.LocalAddrs},
		resolver:   cfg.Resolver,
		dialer:     cfg.Dialer,
		stagger:    cfg.DialStagger,
		remoteName: cfg.ProxyRemoteDNS,
		observer:   cfg.Observer,
	}
	g.policy.Store(newPolicy(cfg))
	if err := errors.Join(cfg.validate(), g.own.set(cfg.OwnListeners)); err != nil {
		return nil, fmt.Errorf("netguard config: %w", err)
	}
	g.proxy, _ = parseProxy(cfg.Proxy)       // validated above
	g.noProxy, _ = ParseNoProxy(cfg.NoProxy) // validated above
	if g.dialer == nil {
		g.dialer = &net.Dialer{ControlContext: g.DialControl}
	}
	return g, nil
}

// Policy returns the address policy, for callers that only want to judge.
func (g *Guard) Policy() *Policy { return g.policy.Load() }

// SetPolicy replaces the address policy by that of cfg, of which only the fields that
// concern addresses and URLs are used. What is dialled from now on is judged by it;
// connections that are open are their owner's business.
func (g *Guard) SetPolicy(cfg Config) error {
	policy, err := NewPolicy(cfg)
	if err != nil {
		return fmt.Errorf("address policy: %w", err)
	}
	g.policy.Store(policy)
	return nil
}

// SetOwnListeners replaces the list of own listeners. A listener on port 0
// learns its port only by listening, which can be after the guard was made.
func (g *Guard) SetOwnListeners(listeners []netip.AddrPort) error {
	if err := g.own.set(listeners); err != nil {
		return fmt.Errorf("netguard: %w", err)
	}
	return nil
}

// CheckAddrPort judges an address as [Policy.CheckAddr] does, and then whether
// with this port it is one of the process's own listeners.
func (g *Guard) CheckAddrPort(target netip.AddrPort) Verdict {
	v := g.Policy().CheckAddr(target.Addr())
	if !v.Allowed {
		return v
	}
	if g.own.has(v.Addr, target.Port()) || v.Embedded.IsValid() && g.own.has(v.Embedded, target.Port()) {
		v.Allowed, v.Rule, v.Setting, v.exactly = false, RuleOwnListener, "", false
	}
	return v
}

// CheckAnswer judges a whole answer for host: it returns a *[DeniedError] for the
// first address that is denied, or nil. It is for addresses that were not looked
// up here, such as the hints of an HTTPS record; a candidate with one is dropped.
// A port of 0 leaves the own listeners out of it.
func (g *Guard) CheckAnswer(host string, addrs []netip.Addr, port uint16) error {
	return g.checkAnswer(StageHint, host, addrs, port)
}

func (g *Guard) checkAnswer(stage Stage, host string, addrs []netip.Addr, port uint16) error {
	for _, addr := range addrs {
		if v := g.CheckAddrPort(netip.AddrPortFrom(addr, port)); !v.Allowed {
			return g.refuse(stage, deniedBy(v, host, false))
		}
	}
	return nil
}

// CheckHost judges a host by its spelling and, for a literal, its address,
// without a lookup: for an Alt-Svc host or the target of an HTTPS record, before
// it becomes a candidate.
func (g *Guard) CheckHost(host string, port uint16) error {
	_, err := g.checkHost(StageHint, host, port)
	return err
}

// checkHost parses host and judges what can be judged before a lookup.
func (g *Guard) checkHost(stage Stage, host string, port uint16) (parsedHost, error) {
	h, rule := g.Policy().parseHost(host)
	if rule != "" {
		_, setting := hostHint(rule)
		return h, g.refuse(stage, &DeniedError{Host: host, Rule: rule, Setting: setting, Literal: true})
	}
	switch h.kind {
	case kindLiteral:
		if v := g.CheckAddrPort(netip.AddrPortFrom(h.addr, port)); !v.Allowed {
			return h, g.refuse(stage, deniedBy(v, host, true))
		}
	case kindLocalhost:
		if _, v := g.loopback(port); !v.Allowed {
			return h, g.refuse(stage, deniedBy(v, host, true))
		}
	case kindName:
	}
	return h, nil
}

// loopback returns the loopback addresses that may be dialled; without one, v
// says why. The answer for localhost is made here, as RFC 6761 section 6.3 asks:
// no resolver gets the question, and, since nobody else writes the answer, what
// is denied is left out instead of spoiling the rest.
func (g *Guard) loopback(port uint16) (addrs []netip.Addr, v Verdict) {
	for _, addr := range []netip.Addr{netip.IPv6Loopback(), netip.AddrFrom4([4]byte{127, 0, 0, 1})} {
		if v = g.CheckAddrPort(netip.AddrPortFrom(addr, port)); v.Allowed {
			addrs = append(addrs, addr)
		}
	}
	v.Allowed = len(addrs) > 0
	return addrs, v
}

// DialControl repeats the decision on the address that is about to be connected.
// It has the type of [net.Dialer.ControlContext] and belongs in every dialer that
// a guarded address is given to.
func (g *Guard) DialControl(_ context.Context, network, address string, _ syscall.RawConn) error {
	v := Verdict{Rule: RuleInvalid}
	switch network {
	case "tcp", "tcp4", "tcp6", "udp", "udp4", "udp6":
		// An address that does not parse stays invalid, and so denied.
		if target, err := netip.ParseAddrPort(address); err == nil {
			v = g.CheckAddrPort(target)
		}
	default: // a Unix socket, raw IP: nothing that could be judged
	}
	if v.Allowed {
		return nil
	}
	stage := StageTCP
	if strings.HasPrefix(network, "udp") {
		stage = StageUDP
	}
	return g.refuse(stage, deniedBy(v, address, false))
}

// CheckUDP is the same for a QUIC dial. One UDP socket serves all peers there,
// so no system call comes between; the caller calls this on the very address that
// it passes to Dial, immediately before.
func (g *Guard) CheckUDP(target netip.AddrPort) error {
	if v := g.CheckAddrPort(target); !v.Allowed {
		return g.refuse(StageUDP, deniedBy(v, target.String(), false))
	}
	return nil
}

func (g *Guard) refuse(stage Stage, err *DeniedError) error {
	g.observer.denied(stage, err.Rule, err)
	return err
}
