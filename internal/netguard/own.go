package netguard

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"
)

// localAddrsFor is how long this machine's addresses are believed. They are
// asked for only when a target's port is that of a listener on an unspecified
// address, and the answer is a few system calls.
const localAddrsFor = 30 * time.Second

// ownListeners knows what this process listens on. A subscriber that points at
// the dispatcher's own API or ingress would make it its own client: with the
// trust of an inside address, and in a circle.
//
// Invariant: both pointers are replaced, never written through; local is set
// before a list with an unspecified address is.
type ownListeners struct {
	list   atomic.Pointer[[]netip.AddrPort]
	local  atomic.Pointer[localAddrs]
	lookup func() ([]netip.Addr, error)
}

// localAddrs is one reading of the machine's addresses.
type localAddrs struct {
	addrs []netip.Addr
	until time.Time
}

// set replaces the list. If a listener needs this machine's addresses they are
// read here, so that a system that does not tell them is found at the start and
// not by a rule that silently never matches.
func (o *ownListeners) set(listeners []netip.AddrPort) error {
	list := make([]netip.AddrPort, 0, len(listeners))
	for i, l := range listeners {
		if !l.IsValid() || l.Port() == 0 {
			return fmt.Errorf("own_listeners[%d]: %v: needs an address and a port", i, l)
		}
		addr := l.Addr().WithZone("").Unmap()
		if addr.IsUnspecified() && o.local.Load() == nil {
			if err := o.read(time.Now()); err != nil {
				return fmt.Errorf("own_listeners[%d]: %v: read this machine's addresses: %w", i, l, err)
			}
		}
		list = append(list, netip.AddrPortFrom(addr, l.Port()))
	}
	o.list.Store(&list)
	return nil
}

// read takes a new reading.
func (o *ownListeners) read(now time.Time) error {
	addrs, err := o.lookup()
	if err != nil {
		return err
	}
	o.local.Store(&localAddrs{addrs: addrs, until: now.Add(localAddrsFor)})
	return nil
}

// has reports whether connecting to addr and port would reach this process.
func (o *ownListeners) has(addr netip.Addr, port uint16) bool {
	list := o.list.Load()
	if list == nil {
		return false
	}
	for _, l := range *list {
		if l.Port() != port {
			continue
		}
		if l.Addr() == addr || addr.IsUnspecified() {
			return true
		}
		if l.Addr().IsUnspecified() && o.isLocal(addr) {
			return true
		}
	}
	return false
}

// isLocal reports whether addr is one of this machine's. When they cannot be
// read again the last reading stands; it is at worst out of date. Concurrent
// readings are harmless.
func (o *ownListeners) isLocal(addr netip.Addr) bool {
	if addr.IsLoopback() {
		return true
	}
	if now := time.Now(); now.After(o.local.Load().until) {
		_ = o.read(now)
	}
	return slices.Contains(o.local.Load().addrs, addr)
}

// interfaceAddrs is the default of Config.LocalAddrs.
func interfaceAddrs() ([]netip.Addr, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	out := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if addr, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, addr.Unmap())
			}
		}
	}
	return out, nil
}
