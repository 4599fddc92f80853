package protoselect

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// AltPolicy says which advertised alternatives may be used at all. The zero
// value is the safe default: the origin's own host and port. Every dial is
// vetted by address again in transport; this is about what an origin, or a
// resolver, may talk a node into.
type AltPolicy struct {
	// Hosts may serve as alternatives beside the origin's own host: "name" or
	// "*.suffix". The certificate must speak for the origin all the same.
	// Default: none.
	Hosts []string
	// Ports may be used beside the origin's own. Naming one lifts the rule that
	// an origin on a privileged port may not move to an unprivileged one
	// (RFC 7838 §9.1: another user of the machine could listen there).
	// Default: none.
	Ports []uint16
	// AnyPort allows every port on the origin's own host, within the rule about
	// privileged ports. For demos and tests on loopback. Default: false.
	AnyPort bool
}

func (p AltPolicy) validate() error {
	for _, h := range p.Hosts {
		name := strings.TrimPrefix(h, "*.")
		if clean, ok := cleanHost(name); !ok || clean == "" || strings.Contains(clean, ":") {
			return fmt.Errorf("alternatives.hosts: %q is not a host name", h)
		}
	}
	if slices.Contains(p.Ports, 0) {
		return fmt.Errorf("alternatives.ports: port 0 cannot be dialled")
	}
	return nil
}

// Refusal names the rule that refused an advertised alternative.
type Refusal string

// Rules.
const (
	RefusedNot        Refusal = ""
	RefusedIPLiteral  Refusal = "ip_literal"
	RefusedHost       Refusal = "host_not_allowed"
	RefusedPort       Refusal = "port_not_allowed"
	RefusedPrivileged Refusal = "unprivileged_port"
	RefusedUnverified Refusal = "unverified_origin"
)

const firstUnprivileged = 1024

// check judges an alternative for an origin and returns the key under which it
// is remembered.
func (p AltPolicy) check(o delivery.Origin, host string, port uint16) (altKey, Refusal) {
	own := host == "" || strings.EqualFold(host, o.Host)
	switch {
	case own:
		host = ""
	case isIPLiteral(host):
		return altKey{}, RefusedIPLiteral
	case !p.hostAllowed(host):
		return altKey{}, RefusedHost
	}
	if port == o.Port || slices.Contains(p.Ports, port) {
		return altKey{host, port}, RefusedNot
	}
	if !p.AnyPort || !own {
		return altKey{}, RefusedPort
	}
	if o.Port < firstUnprivileged && port >= firstUnprivileged {
		return altKey{}, RefusedPrivileged
	}
	return altKey{host, port}, RefusedNot
}

func (p AltPolicy) hostAllowed(host string) bool {
	for _, allowed := range p.Hosts {
		if suffix, ok := strings.CutPrefix(allowed, "*"); ok {
			if len(host) > len(suffix) && strings.EqualFold(host[len(host)-len(suffix):], suffix) {
				return true
			}
		} else if strings.EqualFold(allowed, host) {
			return true
		}
	}
	return false
}

// isIPLiteral recognises addresses, and the numeric spellings that resolvers
// turn into addresses ("127.1", "0x7f000001").
func isIPLiteral(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := strconv.ParseUint(last, 0, 64)
	return err == nil || strings.Contains(host, ":")
}

// String returns the alternative's authority for logs and operators.
func (k altKey) String(r delivery.Route) string {
	return net.JoinHostPort(k.dialHost(r), strconv.Itoa(int(k.port)))
}
