package netguard

import (
	"net/netip"
	"slices"
)

// Verdict is the answer to "may this address be dialled?".
type Verdict struct {
	// Addr is the address as it would be dialled: without a zone, and as plain
	// IPv4 where an IPv4-mapped address was given.
	Addr netip.Addr
	// Embedded is the IPv4 address inside Addr (or inside the mapped address
	// that was given) that decided the verdict. It is invalid when there is
	// none.
	Embedded netip.Addr
	// Via says how Embedded is carried; empty without Embedded.
	Via Via
	// Allowed is the decision.
	Allowed bool
	// Rule is what denied the address. For an allowed address it is empty, or
	// the rule that a setting has lifted.
	Rule Rule
	// Setting is the name of the setting that would allow the address, or that
	// has lifted Rule. It is empty where no setting can.
	Setting string
	// exactly: the setting must name the single address.
	exactly bool
}

// Decided returns the address that Rule is about: Embedded where there is one,
// else Addr.
func (v Verdict) Decided() netip.Addr {
	if v.Embedded.IsValid() {
		return v.Embedded
	}
	return v.Addr
}

// Policy is the address part of a [Config]: an immutable, pure function from
// address to verdict. It is safe for concurrent use and does not allocate.
type Policy struct {
	allow            []netip.Prefix
	nat64            []netip.Prefix
	denyExtra        []netip.Prefix
	allowHTTP        bool
	allowSingleLabel bool
}

// NewPolicy makes the policy that cfg describes. Only the fields that concern
// addresses and URLs are used.
func NewPolicy(cfg Config) (*Policy, error) {
	if err := cfg.validatePolicy(); err != nil {
		return nil, err
	}
	return newPolicy(cfg), nil
}

// newPolicy copies the slices, so that a caller who keeps and changes his cannot
// change the policy under a running dial.
func newPolicy(cfg Config) *Policy {
	return &Policy{
		allow:            slices.Clone(cfg.AllowPrivate),
		nat64:            slices.Clone(cfg.NAT64Prefixes),
		denyExtra:        slices.Clone(cfg.DenyExtra),
		allowHTTP:        cfg.AllowHTTP,
		allowSingleLabel: cfg.AllowSingleLabel,
	}
}

// CheckAddr judges one address. A zone is stripped first: it selects an
// interface, it does not make an address another one. Every IPv4 address that
// the address carries is judged by the same rules, and one denied is enough.
//
// The own listeners are not part of it, since they are addresses with ports; see
// [Guard.CheckAddrPort].
func (p *Policy) CheckAddr(addr netip.Addr) Verdict {
	if !addr.IsValid() {
		return Verdict{Rule: RuleInvalid}
	}
	addr = addr.WithZone("")
	if addr.Is4In6() {
		addr = addr.Unmap()
		v := p.judge(addr)
		v.Embedded, v.Via = addr, ViaMapped
		return v
	}
	if addr.Is4() {
		return p.judge(addr)
	}
	return p.check6(addr)
}

// check6 judges an IPv6 address: what it carries, then itself.
func (p *Policy) check6(addr netip.Addr) Verdict {
	if contains(p.denyExtra, addr) {
		return Verdict{Addr: addr, Rule: RuleDenyExtra, Setting: SettingDenyExtra}
	}
	allowed, covered, ok := p.checkNAT64(addr)
	if !ok {
		return allowed
	}
	found, n := structural(addr)
	for _, c := range found[:n] {
		v := p.judge(c.addr)
		v.Addr, v.Embedded, v.Via = addr, c.addr, c.via
		if !v.Allowed {
			return v
		}
		if c.whole && !covered {
			allowed, covered = v, true
		}
	}
	if covered {
		return allowed
	}
	return p.judge(addr)
}

// checkNAT64 looks for addr in the configured translation prefixes. ok is false
// when addr is denied, and then v says why; covered reports that a prefix names
// it and that everything it carries is allowed. Where prefixes are nested, each
// has its own idea of what is carried, and all of them must be allowed.
func (p *Policy) checkNAT64(addr netip.Addr) (v Verdict, covered, ok bool) {
	for _, prefix := range p.nat64 {
		if !prefix.Contains(addr) {
			continue
		}
		inner, wellFormed := nat64(prefix, addr)
		if !wellFormed {
			return Verdict{Addr: addr, Rule: RuleNAT64}, false, false
		}
		v = p.judge(inner)
		v.Addr, v.Embedded, v.Via = addr, inner, ViaNAT64
		if !v.Allowed {
			return v, false, false
		}
		covered = true
	}
	if !covered && (nat64WellKnown.Contains(addr) || nat64Local.Contains(addr)) {
		return Verdict{Addr: addr, Rule: RuleNAT64, Setting: SettingNAT64Prefixes}, false, false
	}
	return v, covered, true
}

// judge applies the operator's lists and the table to one address without
// looking inside it. A denial by the operator beats an exception by the
// operator: the narrower wish cannot be told from the order of two lists, and
// the mistake in this direction is the harmless one.
func (p *Policy) judge(addr netip.Addr) Verdict {
	if contains(p.denyExtra, addr) {
		return Verdict{Addr: addr, Rule: RuleDenyExtra, Setting: SettingDenyExtra}
	}
	row := lookup(addr)
	if row == nil {
		return Verdict{Addr: addr, Allowed: true}
	}
	v := Verdict{Addr: addr, Rule: row.rule}
	switch row.waiver {
	case waiveByRange:
		v.Setting = SettingAllowPrivate
		v.Allowed = contains(p.allow, addr)
	case waiveByName:
		v.Setting, v.exactly = SettingAllowPrivate, true
		v.Allowed = slices.Contains(p.allow, netip.PrefixFrom(addr, addr.BitLen()))
	case waiveNever:
	}
	return v
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	for _, p := range prefixes {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}
