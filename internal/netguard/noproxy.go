package netguard

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// NoProxy is a parsed list of targets that are dialled without the proxy. The
// zero value matches nothing.
type NoProxy struct {
	all     bool
	entries []noProxyEntry
}

// noProxyEntry is one entry: a domain or a prefix, perhaps with a port.
type noProxyEntry struct {
	domain string       // without leading dot; empty for a prefix
	prefix netip.Prefix // for a literal target
	port   uint16       // 0: any
}

// ParseNoProxy reads a list such as that of NO_PROXY. An entry is
//
//   - `corp.example`, `.corp.example` or `*.corp.example`: all three match
//     corp.example itself and every name below it, and never notcorp.example.
//     Programs differ on whether the dot excludes the apex; a list that is copied
//     from elsewhere must not send half of a domain to the wrong place;
//   - an address or a prefix, which matches literal targets only;
//   - `*`, everything.
//
// A domain or an address may have a port (`corp.example:8443`, `[fd00::1]:8443`).
// Entries may also be separated by commas inside one string.
func ParseNoProxy(list []string) (NoProxy, error) {
	var (
		n    NoProxy
		errs []error
	)
	for _, s := range list {
		for entry := range strings.SplitSeq(s, ",") {
			if entry = strings.TrimSpace(entry); entry == "" {
				continue
			}
			if entry == "*" {
				n.all = true
				continue
			}
			e, err := parseNoProxyEntry(entry)
			if err != nil {
				errs = append(errs, fmt.Errorf("no_proxy: entry %q: %w", entry, err))
				continue
			}
			n.entries = append(n.entries, e)
		}
	}
	return n, errors.Join(errs...)
}

func parseNoProxyEntry(s string) (e noProxyEntry, err error) {
	if e.prefix, err = parsePrefix(unbracket(s)); err == nil {
		return e, nil
	}
	if strings.Contains(s, "/") {
		return e, err
	}
	host := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 {
		port, ok := parsePort(s[i+1:])
		if !ok {
			return e, errors.New("the port must be from 1 to 65535")
		}
		host, e.port = s[:i], port
		if e.prefix, err = parsePrefix(unbracket(host)); err == nil {
			return e, nil
		}
	}
	host = strings.TrimPrefix(strings.TrimPrefix(host, "*."), ".")
	// Every spelling of a name that a URL may have, and single labels too: whole
	// top-level domains are listed here (`.internal`).
	h, rule := (&Policy{allowSingleLabel: true}).parseHost(host)
	if rule != "" || h.kind == kindLiteral {
		return e, errors.New("not a domain, an address or a prefix")
	}
	e.domain = h.name
	return e, nil
}

// unbracket takes the brackets off an IPv6 literal.
func unbracket(s string) string {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		if inner, ok = strings.CutSuffix(inner, "]"); ok {
			return inner
		}
	}
	return s
}

// Match reports whether a target is dialled directly. host is a canonical name
// or literal, as in [Target.Host].
func (n NoProxy) Match(host string, port uint16) bool {
	if n.all {
		return true
	}
	addr, err := netip.ParseAddr(host)
	literal := err == nil
	addr = addr.WithZone("").Unmap()
	for _, e := range n.entries {
		if e.port != 0 && e.port != port {
			continue
		}
		switch {
		case literal:
			if e.prefix.IsValid() && e.prefix.Contains(addr) {
				return true
			}
		case e.domain != "":
			if below(host, e.domain) {
				return true
			}
		}
	}
	return false
}

// below reports whether name is domain or a name in it.
func below(name, domain string) bool {
	rest, ok := strings.CutSuffix(name, domain)
	return ok && (rest == "" || strings.HasSuffix(rest, "."))
}
