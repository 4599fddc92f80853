package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Resolver is what the guard needs of DNS. [net.Resolver] has it.
type Resolver interface {
	// LookupNetIP returns the addresses of host, which ends in a dot, for
	// network "ip".
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer opens one TCP connection to a vetted literal. [net.Dialer] has it.
type Dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Config is everything that can be set. The zero value is the strict policy:
// https only, global addresses only, no proxy.
type Config struct {
	// AllowPrivate names the exceptions (`--allow-private`): ranges that may be
	// dialled although a rule denies them. Metadata services and the
	// unspecified address need a prefix that names exactly that address; no
	// prefix lifts multicast, broadcast, Teredo or an own listener. An IPv4
	// prefix also covers the address inside an IPv6 one. Default: none.
	AllowPrivate []netip.Prefix
	// NAT64Prefixes names the prefixes that this network translates (RFC 6052:
	// a length of 32, 40, 48, 56, 64 or 96), well-known or its own. Addresses
	// in them are judged by the IPv4 address inside. Default: none, and then
	// 64:ff9b::/96 and 64:ff9b:1::/48 are denied. A network that translates a
	// prefix of its own MUST name it, since no address shows that it is one.
	NAT64Prefixes []netip.Prefix
	// DenyExtra names further ranges that are never dialled, also as an IPv4
	// address inside an IPv6 one. It beats AllowPrivate. Default: none.
	DenyExtra []netip.Prefix
	// AllowHTTP admits http URLs (`--allow-http`). Default: false.
	AllowHTTP bool
	// AllowSingleLabel admits names without a dot, as container networks use.
	// They are still looked up as absolute names. Default: false; `localhost`
	// does not need it, it needs loopback in AllowPrivate.
	AllowSingleLabel bool
	// OwnListeners are the addresses this process listens on. An unspecified
	// address stands for every address of this machine. They are denied
	// whatever AllowPrivate says. Default: none; see also
	// [Guard.SetOwnListeners].
	OwnListeners []netip.AddrPort
	// Proxy is the URL of an egress proxy that is asked to CONNECT, http or
	// https, possibly with credentials. The proxy is the operator's choice and
	// its own address is not judged. Default: none.
	Proxy string
	// NoProxy lists targets that are dialled without the proxy, as
	// [ParseNoProxy] reads them. Default: none. Loopback never goes to the
	// proxy: it would be the proxy's own.
	NoProxy []string
	// ProxyRemoteDNS hands names to the proxy instead of vetted addresses, for
	// networks whose resolver does not know the outside. Then the proxy alone
	// decides which addresses a name may lead to; literals and the spelling of
	// names are still judged here. Default: false.
	ProxyRemoteDNS bool
	// Resolver answers for names, which it is given with a trailing dot.
	// Default: net.DefaultResolver.
	Resolver Resolver
	// Dialer opens TCP connections for [Guard.DialContext]. A Dialer of one's own
	// should set ControlContext to [Guard.DialControl] if it can; the addresses
	// it is given have been judged. Default: a net.Dialer that has it.
	Dialer Dialer
	// DialStagger is the pause between the starts of two connection attempts in
	// DialContext (RFC 8305 section 5). Default: 250 ms.
	DialStagger time.Duration
	// LocalAddrs lists this machine's addresses, for own listeners on an
	// unspecified address. Default: from net.InterfaceAddrs.
	LocalAddrs func() ([]netip.Addr, error)
	// Observer is told about denials. Default: nobody.
	Observer Observer
}

// withDefaults returns a copy with every unset field filled in, except Dialer,
// whose default needs the guard.
func (c Config) withDefaults() Config {
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	if c.DialStagger == 0 {
		c.DialStagger = 250 * time.Millisecond
	}
	if c.LocalAddrs == nil {
		c.LocalAddrs = interfaceAddrs
	}
	return c
}

// validate reports everything that is wrong, each with its field.
func (c Config) validate() error {
	errs := []error{c.validatePolicy()}
	if c.DialStagger < 0 {
		errs = append(errs, fmt.Errorf("dial_stagger: %v: must not be negative", c.DialStagger))
	}
	if _, err := parseProxy(c.Proxy); err != nil {
		errs = append(errs, err)
	}
	if _, err := ParseNoProxy(c.NoProxy); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (c Config) validatePolicy() error {
	errs := slices.Concat(
		checkPrefixes(SettingAllowPrivate, c.AllowPrivate),
		checkPrefixes(SettingNAT64Prefixes, c.NAT64Prefixes),
		checkPrefixes(SettingDenyExtra, c.DenyExtra),
	)
	for i, p := range c.NAT64Prefixes {
		if err := checkNAT64Prefix(p); err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %v: %w", SettingNAT64Prefixes, i, p, err))
		}
	}
	return errors.Join(errs...)
}

func checkPrefixes(field string, prefixes []netip.Prefix) (errs []error) {
	for i, p := range prefixes {
		if err := checkPrefix(p); err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %v: %w", field, i, p, err))
		}
	}
	return errs
}

// checkPrefix refuses what would match something else than it says. A prefix
// with host bits, `10.1.2.3/8`, is more often a slip for /32 than a wish for all
// of 10.0.0.0/8, and the slip would open a network.
func checkPrefix(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return errors.New("not a prefix")
	case p.Addr().Is4In6():
		return errors.New("write the prefix as IPv4")
	case p != p.Masked():
		return fmt.Errorf("has bits set after its length; write %v or %v",
			p.Masked(), netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
	}
	return nil
}

func checkNAT64Prefix(p netip.Prefix) error {
	if !p.IsValid() {
		return nil // reported as such already
	}
	if !p.Addr().Is6() || !slices.Contains([]int{32, 40, 48, 56, 64, 96}, p.Bits()) {
		return errors.New("must be IPv6 with a length of 32, 40, 48, 56, 64 or 96 (RFC 6052)")
	}
	if p.Addr().As16()[8] != 0 {
		return errors.New("bits 64 to 71 must be zero (RFC 6052)")
	}
	return nil
}

// ParsePrefixes reads a list of prefixes as a setting has them: `10.0.0.0/8`,
// `fd00::/8`, or a single address. The error joins one for each bad entry and
// does not name the setting.
func ParsePrefixes(list []string) ([]netip.Prefix, error) {
	var (
		out  []netip.Prefix
		errs []error
	)
	for _, s := range list {
		p, err := parsePrefix(strings.TrimSpace(s))
		if err != nil {
			errs = append(errs, fmt.Errorf("prefix %q: %w", s, err))
			continue
		}
		out = append(out, p)
	}
	return out, errors.Join(errs...)
}

func parsePrefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		if addr.Zone() != "" {
			return netip.Prefix{}, errors.New("a zone cannot be part of it")
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, errors.New("write an address, or address/length")
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p, checkPrefix(p)
}

// parseProxy reads Config.Proxy; nil stands for none. Its errors never contain
// the URL, which may hold credentials.
func parseProxy(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("proxy: not a URL (value not shown)")
	}
	port := u.Port()
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("proxy: scheme must be http or https (value not shown)")
	case u.Hostname() == "":
		return nil, errors.New("proxy: has no host (value not shown)")
	case port != "" && !validPort(port):
		return nil, errors.New("proxy: port must be from 1 to 65535 (value not shown)")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("proxy: must end after the port (value not shown)")
	}
	return u, nil
}
