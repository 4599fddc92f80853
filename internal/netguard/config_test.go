package netguard

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestABadConfigIsRefusedWithEveryFieldNamed(t *testing.T) {
	_, err := New(Config{
		AllowPrivate:  []netip.Prefix{{}, netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("::ffff:10.0.0.0/104")},
		NAT64Prefixes: prefixes("64:ff9b::/95", "10.0.0.0/32", "2a00::ff00:0:0:0/96"),
		DenyExtra:     prefixes("192.168.1.1/16"),
		OwnListeners:  []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")},
		DialStagger:   -time.Second,
		Proxy:         "socks5://user:hunter2@proxy.example",
		NoProxy:       []string{"corp.example", "a b"},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{
		"allow_private[0]", "allow_private[1]: 10.1.2.3/8", "10.0.0.0/8 or 10.1.2.3/32", "allow_private[2]",
		"nat64_prefixes[0]", "nat64_prefixes[1]", "nat64_prefixes[2]", "egress.deny[0]", "own_listeners[0]",
		"dial_stagger", "proxy: scheme", `no_proxy: entry "a b"`,
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in:\n%v", part, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the proxy's password is in: %v", err)
	}
	if _, err := NewPolicy(Config{AllowPrivate: prefixes("10.1.2.3/8")}); err == nil {
		t.Error("NewPolicy accepts what New refuses")
	}
}

func TestABadProxyURLIsNeverEchoed(t *testing.T) {
	for _, raw := range []string{
		"http://u:hunter2@", "http://u:hunter2@proxy:99999", "http://u:hunter2@proxy/path", "http://u:hunter2@proxy?x",
		"://hunter2", "http://u:hunter2@pro xy", "hunter2", "http://u:hunter2@proxy:0", "http://u:hunter2",
	} {
		_, err := New(Config{Proxy: raw})
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "proxy:") {
			t.Errorf("%q: %v", raw, err)
		}
	}
	for _, raw := range []string{"http://proxy:3128", "https://u:p@proxy.example/", "http://[fd00::1]:3128", "http://10.0.0.1"} {
		if _, err := New(Config{Proxy: raw}); err != nil {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func TestParsePrefixes(t *testing.T) {
	got, err := ParsePrefixes([]string{"127.0.0.0/8", " 10.1.2.3 ", "::1", "fd00::/8", "::ffff:10.0.0.0/104", "::ffff:10.0.0.1", "::/0"})
	want := prefixes("127.0.0.0/8", "10.1.2.3/32", "::1/128", "fd00::/8", "10.0.0.0/8", "10.0.0.1/32", "::/0")
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	got, err = ParsePrefixes([]string{"10.0.0.1/8", "localhost", "", "10/8", "fe80::1%eth0", "1.2.3.4/33", "10.0.0.0/8"})
	if !slices.Equal(got, prefixes("10.0.0.0/8")) {
		t.Errorf("%v", got)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 6 {
		t.Errorf("want six errors, got %v", err)
	}
}

func TestOwnListenersNeedTheMachinesAddressesAtTheStart(t *testing.T) {
	broken := errors.New("no netlink here")
	cfg := Config{
		LocalAddrs:   func() ([]netip.Addr, error) { return nil, broken },
		OwnListeners: []netip.AddrPort{netip.MustParseAddrPort("[::]:8081")},
	}
	if _, err := New(cfg); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	cfg.OwnListeners[0] = netip.MustParseAddrPort("127.0.0.1:8081")
	if _, err := New(cfg); err != nil {
		t.Errorf("a listener on one address needs none: %v", err)
	}
}
