package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
)

func TestResolveOrdersAddressesForHappyEyeballs(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer []string
		want   []string
	}{
		{"the resolver's first family leads", []string{"2606::1", "2606::2", "8.8.8.1", "8.8.8.2"}, []string{"2606::1", "8.8.8.1", "2606::2", "8.8.8.2"}},
		{"IPv4 first", []string{"8.8.8.1", "2606::1", "2606::2"}, []string{"8.8.8.1", "2606::1", "2606::2"}},
		{"one family", []string{"8.8.8.2", "8.8.8.1"}, []string{"8.8.8.2", "8.8.8.1"}},
		{"mapped is IPv4, once", []string{"::ffff:8.8.8.1", "8.8.8.1", "2606::1"}, []string{"8.8.8.1", "2606::1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGuard(t, Config{Resolver: resolver(map[string][]string{"h.example.": c.answer})})
			got, err := g.Resolve(t.Context(), "h.example")
			if err != nil || !slices.Equal(got, addrs(c.want...)) {
				t.Errorf("%v, %v, want %v", got, err, c.want)
			}
		})
	}
}

func TestAHugeAnswerIsJudgedWholeAndDialledInPart(t *testing.T) {
	var answer []string
	for i := range 4000 {
		answer = append(answer, fmt.Sprintf("8.8.%d.%d", i/256, i%256))
	}
	names := resolver(nil).then("h.example.", answer...).then("h.example.", append(answer, "10.0.0.1")...)
	g := newGuard(t, Config{Resolver: names})
	if got, err := g.Resolve(t.Context(), "h.example"); err != nil || len(got) != maxAddrs {
		t.Errorf("%d addresses, %v", len(got), err)
	}
	_, err := g.Resolve(t.Context(), "h.example")
	wantDenied(t, err, RulePrivate)
}

func TestResolveAsksForTheAbsoluteCanonicalNameOnce(t *testing.T) {
	for host, want := range map[string]string{
		"h.example": "h.example.", "h.example.": "h.example.", "H.EXAMPLE": "h.example.",
		"bücher.example": "xn--bcher-kva.example.", "ｈ。example": "h.example.",
	} {
		names := resolver(map[string][]string{want: {"8.8.8.8"}})
		if _, err := newGuard(t, Config{Resolver: names}).Resolve(t.Context(), host); err != nil {
			t.Error(err)
		}
		if got := names.lookups(); !slices.Equal(got, []string{"ip " + want}) {
			t.Errorf("%q: %v", host, got)
		}
	}
}

func TestResolveRefusesWithoutALookup(t *testing.T) {
	names := resolver(nil)
	g := newGuard(t, Config{Resolver: names})
	for host, rule := range map[string]Rule{
		"intranet": RuleSingleLabel, "intranet.": RuleSingleLabel, "": RuleHost, ".": RuleHost, "a b.example": RuleHost,
		"h.example:443": RuleHost, "[::1]": RuleHost, "127.1": RuleNumericHost, "127.0.0.1": RuleLoopback,
		"::1": RuleLoopback, "fe80::1%eth0": RuleLinkLocal, "localhost": RuleLoopback, "localhost.": RuleLoopback,
		"h.example\x00.evil.example": RuleHost, "u@h.example": RuleHost, "h.example/": RuleHost,
	} {
		_, err := g.Resolve(t.Context(), host)
		if d := deniedAs(t, err, rule); !d.Literal || d.Host != host {
			t.Errorf("%q: %+v", host, d)
		}
	}
	if got := names.lookups(); len(got) != 0 {
		t.Errorf("asked for %v", got)
	}
}

func TestSingleLabelsAreLookedUpAbsoluteWhereAllowed(t *testing.T) {
	names := resolver(map[string][]string{"receiver.": {"10.0.0.9"}})
	g := newGuard(t, Config{Resolver: names, AllowSingleLabel: true, AllowPrivate: prefixes("10.0.0.0/8")})
	got, err := g.Resolve(t.Context(), "receiver")
	if err != nil || !slices.Equal(got, addrs("10.0.0.9")) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestLocalhostIsAnsweredHereWithWhatIsAllowed(t *testing.T) {
	names := resolver(map[string][]string{"localhost.": {"8.8.8.8"}})
	for _, c := range []struct {
		allow []netip.Prefix
		want  []string
	}{
		{prefixes("127.0.0.0/8"), []string{"127.0.0.1"}},
		{prefixes("::1/128"), []string{"::1"}},
		{prefixes("127.0.0.1/32", "::1/128"), []string{"::1", "127.0.0.1"}},
	} {
		g := newGuard(t, Config{Resolver: names, AllowPrivate: c.allow})
		for _, host := range []string{"localhost", "LOCALHOST.", "a.localhost"} {
			got, err := g.Resolve(t.Context(), host)
			if err != nil || !slices.Equal(got, addrs(c.want...)) {
				t.Errorf("%s: %v, %v, want %v", host, got, err, c.want)
			}
		}
	}
	if got := names.lookups(); len(got) != 0 {
		t.Errorf("asked for %v", got)
	}
}

func TestResolverErrorsAreWrappedAndNotDenials(t *testing.T) {
	g := newGuard(t, Config{Resolver: resolver(map[string][]string{"empty.example.": {}})})
	_, err := g.Resolve(t.Context(), "missing.example")
	if dns, ok := errors.AsType[*net.DNSError](err); !ok || !dns.IsNotFound {
		t.Errorf("%v, want the resolver's error inside", err)
	}
	if _, ok := errors.AsType[*DeniedError](err); ok {
		t.Errorf("%v is no denial", err)
	}
	if _, err := g.Resolve(t.Context(), "empty.example"); !errors.Is(err, ErrNoAddress) {
		t.Errorf("%v, want ErrNoAddress", err)
	}
	names := resolver(nil)
	names.err = context.DeadlineExceeded
	_, err = newGuard(t, Config{Resolver: names}).Resolve(t.Context(), "h.example")
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the deadline inside", err)
	}
}

func TestAnInvalidAddressInAnAnswerDeniesTheName(t *testing.T) {
	names := &fakeResolver{answers: map[string][][]netip.Addr{"h.example.": {{netip.MustParseAddr("8.8.8.8"), {}}}}}
	_, err := newGuard(t, Config{Resolver: names}).Resolve(t.Context(), "h.example")
	wantDenied(t, err, RuleInvalid)
}

func TestResolvePortKeepsANameFromOwnListeners(t *testing.T) {
	g := newGuard(t, Config{
		Resolver:     resolver(map[string][]string{"h.example.": {"93.184.216.34"}}),
		OwnListeners: []netip.AddrPort{netip.MustParseAddrPort("93.184.216.34:443")},
	})
	_, err := g.ResolvePort(t.Context(), "h.example", 443)
	if d := deniedAs(t, err, RuleOwnListener); d.Literal {
		t.Errorf("%+v", d)
	}
	got, err := g.ResolvePort(t.Context(), "h.example", 8443)
	if want := netip.MustParseAddrPort("93.184.216.34:8443"); err != nil || !slices.Equal(got, []netip.AddrPort{want}) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestTheDefaultResolverIsTheSystems(t *testing.T) {
	if got := (Config{}).withDefaults().Resolver; got != net.DefaultResolver {
		t.Errorf("%v", got)
	}
}
