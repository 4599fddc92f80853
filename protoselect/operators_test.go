package protoselect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestListPagesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := setup(t, Config{})
		for i := range 25 {
			advertise(s, endpoint(fmt.Sprintf("h%02d.example", 24-i)).Route, `h3=":443"`)
		}
		var hosts []string
		after, pages := "", 0
		for {
			rows, next := s.List(after, 10)
			for _, r := range rows {
				hosts = append(hosts, r.Route.Origin.Host)
			}
			pages++
			if next == "" {
				break
			}
			after = next
		}
		if pages != 3 || len(hosts) != 25 || hosts[0] != "h00.example" || hosts[24] != "h24.example" {
			t.Errorf("%d pages: %v", pages, hosts)
		}
	})
}

func TestRowTellsWhatHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n, ep := confirmed(t)
		mustDo(t, s, ep)
		n.cool()
		n.quic = blackHole
		mustDo(t, s, ep)
		time.Sleep(4 * time.Second)
		rows, pin := s.Get(ep.Route.Origin)
		row := rows[0]
		if len(rows) != 1 || pin.Protocol != PinNone || row.State != StateBroken || row.HTTP3 != 2 || row.HTTP2 != 1 || row.TCPRTT != 30*time.Millisecond {
			t.Errorf("row %+v", row)
		}
		a := row.Alternatives[0]
		if a.Source != SourceAltSvc || a.Wins != 1 || a.Losses != 1 || a.Answers != 2 || a.Failures != 1 || a.Reason != "quic: timeout" || a.Class != delivery.BrokenTimeout {
			t.Errorf("alternative %+v", a)
		}
	})
}

func TestPinsExpireAndAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := setup(t, Config{})
		ep := endpoint("h.example")
		o := ep.Route.Origin
		for _, bad := range []struct {
			p   PinProtocol
			ttl time.Duration
		}{{PinNone, 0}, {PinProtocol(9), 0}, {PinH3, -time.Second}} {
			if err := s.Pin(o, bad.p, bad.ttl); !errors.Is(err, ErrBadPin) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		if err := s.Pin(o, PinH3, time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP3 {
			t.Errorf("trace %+v", tr)
		}
		if _, pin := s.Get(o); pin.Protocol != PinH3 {
			t.Errorf("pin %+v", pin)
		}
		time.Sleep(time.Minute)
		if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP2 || len(s.Pins()) != 0 {
			t.Errorf("an expired pin holds: %+v, %v", tr, s.Pins())
		}
		for i := range maxPins {
			if err := s.Pin(origin(fmt.Sprintf("h%d.example", i), 443), PinTCP, 0); err != nil {
				t.Fatalf("pin %d: %v", i, err)
			}
		}
		if err := s.Pin(o, PinTCP, 0); !errors.Is(err, ErrTooManyPins) {
			t.Errorf("got %v", err)
		}
		s.Unpin(origin("h0.example", 443))
		if err := s.Pin(o, PinTCP, 0); err != nil {
			t.Error(err)
		}
	})
}

func TestModeChangesAtRunTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, ep := confirmed(t)
		if err := s.SetMode(Mode{Kind: ModePercent, Percent: 101}); err == nil {
			t.Error("101 percent was accepted")
		}
		if err := s.SetMode(Mode{Kind: ModeKind(9)}); err == nil {
			t.Error("an unknown mode was accepted")
		}
		if err := s.SetMode(Mode{Kind: ModeOff}); err != nil || s.Mode().Kind != ModeOff {
			t.Fatal(err)
		}
		if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP2 || tr.State != StateDisabled {
			t.Errorf("trace %+v", tr)
		}
		if rows, _ := s.Get(ep.Route.Origin); rows[0].State != StateDisabled {
			t.Errorf("row %+v", rows[0])
		}
		if err := s.SetMode(Mode{}); err != nil {
			t.Fatal(err)
		}
		if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP3 {
			t.Errorf("trace %+v", tr)
		}
	})
}

// TestPercentIsAStableShare: about that many of a hundred thousand origins, the
// same ones each time, and raising it only adds.
func TestPercentIsAStableShare(t *testing.T) {
	counts := map[int]int{}
	for i := range 100_000 {
		o := origin(fmt.Sprintf("h%d.example", i), 443)
		was := false
		for _, percent := range []int{0, 1, 10, 50, 100} {
			is := Mode{Kind: ModePercent, Percent: percent}.allows(o, originBucket(o))
			if was && !is {
				t.Fatalf("%s left when the share grew to %d", o.Host, percent)
			}
			if was = is; is {
				counts[percent]++
			}
		}
	}
	if counts[0] != 0 || counts[100] != 100_000 || counts[1] < 800 || counts[1] > 1200 || counts[50] < 49_000 || counts[50] > 51_000 {
		t.Errorf("shares %v", counts)
	}
}

func TestProbeShakesHandsWithEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := zone(t, "h.example 300 1 . alpn=h3 port=8443")
		s, n := allowing(t, z)
		ep := endpoint("h.example")
		advertise(s, ep.Route, `h3=":443"`)
		n.quic = func(ctx context.Context, alt delivery.Alternative) error {
			if alt.Port == 443 {
				return blackHole(ctx, alt)
			}
			return wait(ctx, 20*time.Millisecond)
		}
		n.tcp = tcpAfter(30 * time.Millisecond)
		start := time.Now()
		got := s.Probe(t.Context(), ep)
		if time.Since(start) != 3*time.Second || len(got.HTTP3) != 2 || len(got.HTTPSRecord.Records) != 1 {
			t.Fatalf("probe %+v after %v", got, time.Since(start))
		}
		byAuthority := map[string]ProbeDial{}
		for _, d := range got.HTTP3 {
			byAuthority[d.Authority] = d
		}
		if d := byAuthority["h.example:443"]; d.Verdict != VerdictTimeout || d.Protocol != delivery.ProtocolNone || d.Source != SourceAltSvc || d.Detail == "" {
			t.Errorf("%+v", d)
		}
		if d := byAuthority["h.example:8443"]; d.Verdict != VerdictUp || d.Took != 20*time.Millisecond || d.Source != SourceHTTPSRecord {
			t.Errorf("%+v", d)
		}
		if got.TCP.Verdict != VerdictUp || got.TCP.Protocol != delivery.ProtocolHTTP2 {
			t.Errorf("%+v", got.TCP)
		}
		// It taught the memory, wrote no request, and left what came up warm.
		if _, _, writes, held := n.counts(); writes != 0 || held != 0 {
			t.Errorf("%d writes, %d slots held", writes, held)
		}
		if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP3 || tr.Alternative != "h.example:8443" || !tr.Reused {
			t.Errorf("trace %+v", tr)
		}
	})
}

func TestProbeOfAnUnknownOriginTriesItsOwnPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := setup(t, Config{EgressHTTP3: func(egress string) bool { return egress == "" }})
		got := s.Probe(t.Context(), endpoint("h.example"))
		if len(got.HTTP3) != 1 || got.HTTP3[0].Source != SourceAssumed || n.quicDials[0].Port != 443 {
			t.Errorf("probe %+v", got)
		}
		ep := endpoint("h.example")
		ep.Route.Egress = "proxy"
		if got = s.Probe(t.Context(), ep); len(got.HTTP3) != 0 || got.TCP.Verdict != VerdictUp {
			t.Errorf("probe through a proxy %+v", got)
		}
		if got.HTTPSRecord.String() != "not asked" {
			t.Errorf("nobody was asked, and yet: %q", got.HTTPSRecord)
		}
	})
}

func TestAuthorityParses(t *testing.T) {
	for in, want := range map[string]delivery.Origin{
		"h.example": origin("h.example", 443), "H.Example:8443": origin("h.example", 8443),
		"[2001:db8::1]:443": origin("2001:db8::1", 443), "127.0.0.1:9": origin("127.0.0.1", 9),
	} {
		if got, err := ParseAuthority(in); err != nil || got != want {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "h.example:0", "h.example:65536", "h.example:x", "a b", "h.example/path", ":443"} {
		if got, err := ParseAuthority(in); err == nil {
			t.Errorf("%q: %v", in, got)
		}
	}
}

func TestNamesRoundTrip(t *testing.T) {
	for _, name := range []string{"auto", "h3", "tcp"} {
		if p, ok := ParsePin(name); !ok || p.String() != name {
			t.Errorf("%q: %v", name, p)
		}
	}
	for _, name := range []string{"on", "off", "percent", "allowlist"} {
		if k, ok := ParseModeKind(name); !ok || k.String() != name {
			t.Errorf("%q: %v", name, k)
		}
	}
	if _, ok := ParsePin(""); ok {
		t.Error("an empty pin was accepted")
	}
	if _, ok := ParseModeKind("maybe"); ok {
		t.Error("an unknown mode was accepted")
	}
	for _, s := range States() {
		if s.String() == "invalid" || s.String() == "" {
			t.Errorf("state %d has no name", s)
		}
	}
	if State(99).String() != "invalid" || Source(99).String() != "invalid" || ModeKind(99).String() != "invalid" || PinProtocol(99).String() != "invalid" {
		t.Error("an unknown number has a name")
	}
}

func TestConfigNamesWhatIsWrong(t *testing.T) {
	_, err := New(Config{
		Mode: Mode{Percent: -1}, Stagger: time.Minute, DialTimeout: 1, MaxDials: -1, MaxRoutes: -1, SaveEvery: time.Hour,
		Alternatives: AltPolicy{Hosts: []string{"a b"}, Ports: []uint16{0}},
		DNS:          DNSConfig{Disabled: true, Wait: time.Second, Timeout: time.Minute, Attempts: 9, MaxNames: -1},
	}, nil)
	for _, field := range []string{
		"mode", "stagger", "dial_timeout", "max_dials", "max_routes", "save_every", "alternatives.hosts",
		"dns.wait", "dns.timeout", "dns.attempts", "dns.max_names",
	} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s is not named in: %v", field, err)
		}
	}
	if _, err := New(Config{Alternatives: AltPolicy{Ports: []uint16{0}}}, nil); err == nil || !strings.Contains(err.Error(), "alternatives.ports") {
		t.Errorf("got %v", err)
	}
	s, err := New(Config{}, nil)
	if err != nil || s.cfg.Stagger != 250*time.Millisecond || s.cfg.DNS.Wait != 50*time.Millisecond || !s.cfg.EgressHTTP3("x") {
		t.Errorf("defaults: %+v, %v", s, err)
	}
}

func TestAlternativePolicy(t *testing.T) {
	tests := []struct {
		policy AltPolicy
		origin delivery.Origin
		host   string
		port   uint16
		want   Refusal
	}{
		{AltPolicy{}, origin("h.example", 443), "", 443, RefusedNot},
		{AltPolicy{}, origin("h.example", 443), "H.example", 443, RefusedNot},
		{AltPolicy{}, origin("h.example", 443), "", 444, RefusedPort},
		{AltPolicy{}, origin("h.example", 8443), "", 8443, RefusedNot},
		{AltPolicy{}, origin("h.example", 443), "o.example", 443, RefusedHost},
		{AltPolicy{}, origin("h.example", 443), "192.0.2.1", 443, RefusedIPLiteral},
		{AltPolicy{Hosts: []string{"*.example"}}, origin("h.example", 443), "0x7f000001", 443, RefusedIPLiteral},
		{AltPolicy{Hosts: []string{"*.example"}}, origin("h.example", 443), "o.example", 443, RefusedNot},
		{AltPolicy{Hosts: []string{"*.example"}}, origin("h.example", 443), "example", 443, RefusedHost},
		{AltPolicy{Hosts: []string{"*.example"}}, origin("h.example", 443), "notexample", 443, RefusedHost},
		{AltPolicy{Hosts: []string{"o.example"}}, origin("h.example", 443), "o.example", 8443, RefusedPort},
		{AltPolicy{Hosts: []string{"o.example"}, AnyPort: true}, origin("h.example", 443), "o.example", 444, RefusedPort},
		{AltPolicy{Ports: []uint16{8443}}, origin("h.example", 443), "", 8443, RefusedNot},
		{AltPolicy{AnyPort: true}, origin("h.example", 443), "", 444, RefusedNot},
		{AltPolicy{AnyPort: true}, origin("h.example", 443), "", 1024, RefusedPrivileged},
		{AltPolicy{AnyPort: true}, origin("h.example", 1024), "", 1025, RefusedNot},
		{AltPolicy{AnyPort: true}, origin("127.0.0.1", 40001), "127.0.0.1", 40002, RefusedNot},
	}
	for _, tt := range tests {
		k, got := tt.policy.check(tt.origin, tt.host, tt.port)
		if got != tt.want {
			t.Errorf("%+v: %v -> %s:%d: %q", tt.policy, tt.origin, tt.host, tt.port, got)
		}
		if got == RefusedNot && strings.EqualFold(tt.host, tt.origin.Host) && k.host != "" {
			t.Errorf("the origin's own host is remembered as %q", k.host)
		}
	}
}
