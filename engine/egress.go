package engine

import (
	"net"
	"net/netip"
)

// Egress is how requests leave this machine, beside the proxy: that is
// [netguard.Config.Proxy], since it changes what the address policy has to ask.
type Egress struct {
	// Source4 and Source6 are the local addresses that connections to receivers,
	// and to the proxy, are made from, over TCP and UDP. Default: the system's
	// choice.
	Source4, Source6 netip.Addr
}

// udpLeaves returns what the selector asks for each egress. Over a CONNECT
// proxy there is no UDP, so nothing is looked up, advertised or dialled for
// HTTP/3; what bypasses the proxy by no_proxy shares that, because protocol
// memory is kept for an egress and not for a way.
func (c Config) udpLeaves() func(egress string) bool {
	own := c.Selector.EgressHTTP3
	return func(egress string) bool {
		if egress == "" && c.Guard.Proxy != "" {
			return false
		}
		return own == nil || own(egress)
	}
}

// checkSources warns of source addresses that this machine has not got. It is
// no error: a floating address may come later, and until then the node's API
// and its queue are of use.
func (e *Engine) checkSources() {
	for _, source := range []netip.Addr{e.config.Egress.Source4, e.config.Egress.Source6} {
		if !source.IsValid() {
			continue
		}
		// A bind is the system's own answer, with its rules for non-local ones.
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0)))
		if err != nil {
			e.logger.Warn("egress_source_missing", "source", source.String(), "err", err)
			continue
		}
		_ = conn.Close()
	}
}
