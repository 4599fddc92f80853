package config

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// validate checks what several settings say together; each alone was checked
// when it was set. A check that involves a setting with a problem is left out.
func (l *loader) validate() {
	c := l.config
	l.validateListeners()
	l.require(c.Limits.SlowInFlight <= c.Limits.InFlight, "limits.slow_in_flight",
		"is above limits.in_flight", fmt.Sprintf("use at most %d, or 0 for half", c.Limits.InFlight), "limits.in_flight")
	l.require(c.API.MaxBatch >= c.API.MaxPayload, "api.max_batch",
		"is below api.max_payload, so the largest event fits no batch", fmt.Sprintf("use at least %v", c.API.MaxPayload), "api.max_payload")
	l.require(c.Breaker.OpenMax >= c.Breaker.OpenFor, "breaker.open_max",
		"is below breaker.open_for", "use at least "+formatDuration(c.Breaker.OpenFor), "breaker.open_for")
	l.require(c.Timeouts.Dial <= c.Timeouts.Attempt || c.origins["timeouts.dial"].Source == FromDefault, "timeouts.dial",
		"is above timeouts.attempt, which would end the attempt first", "use at most "+formatDuration(c.Timeouts.Attempt), "timeouts.attempt")
	l.require(c.HTTP3.Mode != HTTP3Allowlist || len(c.HTTP3Origins) > 0, "http3",
		"is allowlist, and http3_origins names none", "name origins there, or write off", "http3_origins")
	l.require(c.Qlog.Dir == "" || len(c.Qlog.Origins) > 0, "qlog.dir",
		"has no effect, since qlog.origins names none", "name origins there", "qlog.origins")
	l.validatePrefixes()
	l.validateIngress()
}

// require reports a setting whose rule does not hold, unless it or one that the
// rule is about has a problem already.
func (l *loader) require(holds bool, path, rule, mend string, about ...string) {
	if holds || l.failed[path] {
		return
	}
	for _, other := range about {
		if l.failed[other] {
			return
		}
	}
	f := l.byPath[path]
	l.problem(&FieldError{Field: path, Value: strings.Join(f.display(), ","), Origin: l.config.origins[path].String(), Rule: rule, Mend: mend})
}

// validateListeners refuses one address for two listeners.
func (l *loader) validateListeners() {
	paths := []string{"listen", "ingress_listen", "metrics_listen"}
	addresses := []string{l.config.Listen, l.config.IngressListen, l.config.MetricsListen}
	for i := range addresses {
		for j := range i {
			if l.failed[paths[j]] || !collide(addresses[i], addresses[j]) {
				continue
			}
			l.require(false, paths[i], "is the address of "+paths[j]+" as well", "choose another port")
		}
	}
}

// collide reports whether two listeners cannot exist side by side.
func collide(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB || portA == "0" {
		return false
	}
	return hostA == hostB || isWildcard(hostA) || isWildcard(hostB)
}

func isWildcard(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || err == nil && a.IsUnspecified()
}

func (l *loader) validatePrefixes() {
	for _, p := range l.config.NAT64Prefixes {
		switch p.Bits() {
		case 32, 40, 48, 56, 64, 96:
			l.require(p.Addr().Is6(), "nat64_prefixes", strconv.Quote(p.String())+" is not an IPv6 prefix", "remove it")
		default:
			l.require(false, "nat64_prefixes", strconv.Quote(p.String())+" has a length that RFC 6052 does not know", "use one of 32, 40, 48, 56, 64 and 96")
		}
	}
}

func (l *loader) validateIngress() {
	i := &l.config.Ingress
	l.require((i.TLSCert == "") == (i.TLSKey == ""), "ingress.tls_cert", "certificate and key come together", "set ingress.tls_cert and ingress.tls_key", "ingress.tls_key")
	l.require(i.MemoryBody <= i.MaxBody, "ingress.memory_body", "is above ingress.max_body", fmt.Sprintf("use at most %v", i.MaxBody), "ingress.max_body")
	l.require(i.MaxSpool >= i.MaxBody, "ingress.max_spool", "is below ingress.max_body, so the largest body fits nowhere", fmt.Sprintf("use at least %v", i.MaxBody), "ingress.max_body")
	l.require(i.MaxMemory >= i.MemoryBody, "ingress.max_memory", "is below ingress.memory_body", fmt.Sprintf("use at least %v", i.MemoryBody), "ingress.memory_body")
	l.require(i.MaxConnectionsPerClient <= i.MaxConnections || l.config.origins["ingress.max_connections_per_client"].Source == FromDefault,
		"ingress.max_connections_per_client", "is above ingress.max_connections", fmt.Sprintf("use at most %d", i.MaxConnections), "ingress.max_connections")
	l.require(i.MaxBodiesPerClient <= i.MaxBodies || l.config.origins["ingress.max_bodies_per_client"].Source == FromDefault,
		"ingress.max_bodies_per_client", "is above ingress.max_bodies", fmt.Sprintf("use at most %d", i.MaxBodies), "ingress.max_bodies")
	l.require(i.TenantBurst == 0 || i.TenantPerSecond > 0, "ingress.tenant_burst", "has no effect without ingress.tenant_per_second", "set that as well")
	l.require((i.ControlPlaneURL == "") == !i.ControlPlaneToken.IsSet(), "ingress.control_plane_url",
		"URL and token come together", "set ingress.control_plane_url and ingress.control_plane_token", "ingress.control_plane_token")
}

// warn adds what is allowed and probably not meant.
func (c *Config) warn() {
	warn := func(format string, args ...any) { c.warnings = append(c.warnings, fmt.Sprintf(format, args...)) }
	for _, listener := range []struct{ path, address, what string }{
		{"listen", c.Listen, "the API and its token"}, {"ingress_listen", c.plainIngress(), "webhooks"},
	} {
		host, _, err := net.SplitHostPort(listener.address)
		if err == nil && !isLoopback(host) {
			warn("%s is %s: %s can be read on the way unless a proxy ends TLS before it", listener.path, listener.address, listener.what)
		}
	}
	if c.HTTP3.Mode != HTTP3Allowlist && len(c.HTTP3Origins) > 0 {
		warn("http3_origins has no effect, since http3 is %v and not allowlist", c.HTTP3)
	}
	if c.Limits.PerTenant > c.Limits.InFlight {
		warn("limits.per_tenant is above limits.in_flight and has no effect")
	}
	if least := 4 * day; c.Retention.Dedupe < least {
		warn("retention.dedupe is %s: a provider or publisher that retries for longer, as some do for %s, is taken for a new one",
			formatDuration(c.Retention.Dedupe), formatDuration(least))
	}
	if most := 30 * time.Second; c.Timeouts.IdleQUIC > most {
		warn("timeouts.idle_quic is %s: many NATs forget a UDP mapping after %s, and a request into a forgotten one is lost or not, nobody knows",
			formatDuration(c.Timeouts.IdleQUIC), formatDuration(most))
	}
	for _, p := range c.AllowPrivate {
		if p.Bits() == 0 {
			warn("allow_private has %v: every tenant can make this node call any address it reaches", p)
		}
	}
}

// plainIngress returns the ingress's address if it has no TLS.
func (c *Config) plainIngress() string {
	if c.Ingress.TLSCert != "" {
		return ""
	}
	return c.IngressListen
}
