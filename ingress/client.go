package ingress

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxHops bounds how much of X-Forwarded-For is read.
const maxHops = 32

// clientAddr returns the address that a request came from: the peer's, or what
// trusted proxies in front say it is. Headers of anybody else are never looked
// at, since they are the sender's to write. The zero Addr means unknown.
func clientAddr(r *http.Request, trusted []netip.Prefix) netip.Addr {
	peer := parseAddr(r.RemoteAddr)
	if len(trusted) == 0 || !contains(trusted, peer) {
		return peer
	}
	// From the right: each trusted proxy vouches for the entry before its own.
	client := peer
	for hop, entry := range hops(r.Header) {
		if hop == maxHops {
			return netip.Addr{}
		}
		addr := parseAddr(entry)
		if !addr.IsValid() {
			return netip.Addr{} // a proxy that is trusted wrote it, but not what it means
		}
		client = addr
		if !contains(trusted, addr) {
			break
		}
	}
	return client
}

// hops yields the entries of X-Forwarded-For, last first.
func hops(h http.Header) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		n := 0
		for _, value := range slices.Backward(h["X-Forwarded-For"]) {
			for {
				i := strings.LastIndexByte(value, ',')
				if !yield(n, strings.Trim(value[i+1:], " \t")) || n == maxHops {
					return
				}
				n++
				if i < 0 {
					break
				}
				value = value[:i]
			}
		}
	}
}

// parseAddr reads "addr", "addr:port" or "[addr]:port", without zone and with
// IPv4 as IPv4.
func parseAddr(text string) netip.Addr {
	addr, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		pair, err := netip.ParseAddrPort(text)
		if err != nil {
			return netip.Addr{}
		}
		addr = pair.Addr()
	}
	return addr.Unmap().WithZone("")
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
