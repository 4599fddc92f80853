package netguard

import (
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestOwnListenersAreDeniedWhateverIsAllowed(t *testing.T) {
	g := newGuard(t, Config{
		AllowPrivate: prefixes("0.0.0.0/0", "::/0", "0.0.0.0/32"),
		LocalAddrs:   func() ([]netip.Addr, error) { return addrs("10.0.0.7", "93.184.216.34", "fd00::7"), nil },
		OwnListeners: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:8080"), netip.MustParseAddrPort("[::]:8081")},
	})
	for target, own := range map[string]bool{
		"127.0.0.1:8080":          true,
		"[::ffff:127.0.0.1]:8080": true,
		"[2002:7f00:1::1]:8080":   true,
		"0.0.0.0:8080":            true, // connects to this machine
		"127.0.0.1:9000":          false,
		"127.0.0.2:8080":          false, // listened on at one address only
		"10.0.0.7:8080":           false,
		"127.0.0.2:8081":          true,
		"10.0.0.7:8081":           true,
		"93.184.216.34:8081":      true,
		"[fd00::7]:8081":          true,
		"[fd00::7%eth0]:8081":     true,
		"[::1]:8081":              true,
		"10.0.0.8:8081":           false,
		"10.0.0.7:8082":           false,
	} {
		v := g.CheckAddrPort(netip.MustParseAddrPort(target))
		if v.Allowed == own || own && (v.Rule != RuleOwnListener || v.Setting != "") {
			t.Errorf("%s: %+v, own %v", target, v, own)
		}
	}
}

func TestOwnListenersCanBeSetLater(t *testing.T) {
	g := newGuard(t, Config{AllowPrivate: prefixes("127.0.0.0/8")})
	target := netip.MustParseAddrPort("127.0.0.1:40000")
	if err := g.CheckUDP(target); err != nil {
		t.Fatal(err)
	}
	if err := g.SetOwnListeners([]netip.AddrPort{target}); err != nil {
		t.Fatal(err)
	}
	wantDenied(t, g.CheckUDP(target), RuleOwnListener)
	if err := g.SetOwnListeners([]netip.AddrPort{{}}); err == nil {
		t.Error("an invalid listener is accepted")
	}
	wantDenied(t, g.CheckUDP(target), RuleOwnListener)
	wantRefused(t, newGuardWithOwn(t, target), "https://localhost:40000/", RuleOwnListener)
}

func newGuardWithOwn(t *testing.T, own ...netip.AddrPort) *Guard {
	return newGuard(t, Config{AllowPrivate: prefixes("127.0.0.0/8"), OwnListeners: own})
}

func TestTheMachinesAddressesAreReadAgainAndTheLastReadingStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		g := newGuard(t, Config{
			OwnListeners: []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:443")},
			LocalAddrs: func() ([]netip.Addr, error) {
				switch reads.Add(1) {
				case 1:
					return addrs("93.184.216.34"), nil
				case 2:
					return addrs("93.184.216.35"), nil
				}
				return nil, errors.New("no longer")
			},
		})
		old, moved := netip.MustParseAddrPort("93.184.216.34:443"), netip.MustParseAddrPort("93.184.216.35:443")
		wantDenied(t, g.CheckUDP(old), RuleOwnListener)
		if err := g.CheckUDP(moved); err != nil || reads.Load() != 1 {
			t.Errorf("%v after %d reads", err, reads.Load())
		}
		for range 2 { // the second time the reading fails
			time.Sleep(localAddrsFor + time.Second)
			wantDenied(t, g.CheckUDP(moved), RuleOwnListener)
			if err := g.CheckUDP(old); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestTheDefaultReadsTheInterfaces(t *testing.T) {
	list, err := interfaceAddrs()
	if err != nil || len(list) == 0 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, a := range list {
		if a.Is4In6() || a.Zone() != "" {
			t.Errorf("%v is not normalised", a)
		}
	}
}
