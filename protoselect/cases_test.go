package protoselect

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestCases holds the rows of the case list that this package answers for,
// under their ids. Each virtual-time case runs in its own bubble.
func TestCases(t *testing.T) {
	for id, test := range map[string]func(*testing.T){
		"A1": caseA1, "A2": caseA2, "A3": caseA3, "A4": caseA4, "A6": caseA6, "A7": caseA7, "A8": caseA8, "A10": caseA10,
		"R5": caseR5, "R8": caseR8, "R9": caseR9, "R11": caseR11, "R14": caseR14, "R15": caseR15,
	} {
		t.Run(id, test)
	}
	for id, test := range map[string]func(*testing.T){
		"A12": caseA12, "A14": caseA14, "A15": caseA15, "A17": caseA17, "A19": caseA19,
		"R1": caseR1, "R3": caseR3, "R4": caseR4, "R7": caseR7, "R13": caseR13, "R17": caseR17,
		"H1": caseH1, "H2": caseH2, "H8": caseH8, "H11": caseH11, "H14": caseH14, "H15": caseH15, "H17": caseH17,
		"421": case421,
	} {
		t.Run(id, func(t *testing.T) { synctest.Test(t, test) })
	}
}

func entries(lines ...string) []AltSvcEntry { return ParseAltSvc(lines).Entries }

func wantEntries(t *testing.T, got []AltSvcEntry, want ...AltSvcEntry) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func caseA1(t *testing.T) {
	wantEntries(t, entries("h3=\":443\"\r\n"), AltSvcEntry{Port: 443, MaxAge: 86400 * time.Second})
}

func caseA2(t *testing.T) {
	wantEntries(t, entries(`h3-29=":443", h3=":8443"`), AltSvcEntry{Port: 8443, MaxAge: day})
}

func caseA3(t *testing.T) {
	wantEntries(t, entries(`h3=":443"; ma=60, h2=":443"; ma=3600`), AltSvcEntry{Port: 443, MaxAge: time.Minute})
	wantEntries(t, entries(`h2=":443"; ma=3600, h3=":443"`), AltSvcEntry{Port: 443, MaxAge: day})
}

func caseA4(t *testing.T) {
	if h := ParseAltSvc([]string{"clear"}); !h.Clear {
		t.Fatal("clear was not understood")
	}
	synctest.Test(t, func(t *testing.T) {
		s, n := setup(t, Config{})
		ep := endpoint("h.example")
		advertise(s, ep.Route, `h3=":443"`)
		n.serve = func(context.Context, *fakeConn, *delivery.Request) (*delivery.Response, error) {
			return withAltSvc("clear"), nil
		}
		mustDo(t, s, ep)
		if st := stateOf(s, ep.Route); st != StateUnknown {
			t.Errorf("state %v after clear", st)
		}
	})
}

func caseA6(t *testing.T) {
	wantEntries(t, entries(`h3=":443"; ma="3600"; persist="1"`), AltSvcEntry{Port: 443, MaxAge: time.Hour, Persist: true})
}

func caseA7(t *testing.T) {
	wantEntries(t, entries(`h3=":443"; persist=1`), AltSvcEntry{Port: 443, MaxAge: day, Persist: true})
}

func caseA8(t *testing.T) {
	got := entries(`h3="[2001:db8::1]:443"`)
	wantEntries(t, got, AltSvcEntry{Host: "2001:db8::1", Port: 443, MaxAge: day})
	if _, rule := (AltPolicy{Hosts: []string{"*.example"}}).check(origin("h.example", 443), got[0].Host, got[0].Port); rule != RefusedIPLiteral {
		t.Errorf("rule %q", rule)
	}
}

func caseA10(t *testing.T) {
	for _, s := range []string{"h3", "h3=", `=":443"`} {
		if h := ParseAltSvc([]string{s}); len(h.Entries) != 0 || h.WellFormed != 0 || h.Clear {
			t.Errorf("%q gave %+v", s, h)
		}
	}
	// Bounded: what is hard to read takes no longer than what is easy.
	for _, s := range []string{`"`, `\`, `,`, `;`, `=`, `h3="`, `h3=":443";`, "h3"} {
		ParseAltSvc([]string{strings.Repeat(s, 8<<10/len(s))})
	}
}

func caseA12(t *testing.T) {
	s, n := setup(t, Config{})
	ep := endpoint("h.example")
	advertise(s, ep.Route, `h3=":443"; ma=60`)
	time.Sleep(61 * time.Second)
	_, tr := mustDo(t, s, ep)
	if quic, _, _, _ := n.counts(); quic != 0 || tr.Protocol != delivery.ProtocolHTTP2 {
		t.Errorf("%d QUIC dials, went over %v", quic, tr.Protocol)
	}
}

func caseA14(t *testing.T) {
	s, n := setup(t, Config{Alternatives: AltPolicy{Ports: []uint16{8443}}})
	ep := endpoint("h.example")
	advertise(s, ep.Route, `h3=":8443"`)
	n.tcp = tcpAfter(time.Second)
	var host string
	n.serve = func(_ context.Context, _ *fakeConn, req *delivery.Request) (*delivery.Response, error) {
		host = req.Host
		return ok200(), nil
	}
	req := request()
	if _, _, err := s.Do(t.Context(), ep, delivery.ProtocolAuto, req); err != nil {
		t.Fatal(err)
	}
	// The alternative's host is the origin's own: transport dials it and puts
	// the origin's name into SNI. The authority of the request stays as it was.
	if want := (delivery.Alternative{Port: 8443}); !reflect.DeepEqual(n.quicDials, []delivery.Alternative{want}) {
		t.Errorf("dialled %+v", n.quicDials)
	}
	if host != "h.example" || n.altUsed[0] != "h.example:8443" {
		t.Errorf("authority %q, Alt-Used %q", host, n.altUsed[0])
	}
}

func caseA15(t *testing.T) {
	s, n := setup(t, Config{Alternatives: AltPolicy{Hosts: []string{"o.example"}}})
	ep := endpoint("h.example")
	advertise(s, ep.Route, `h3="o.example:443"`)
	n.quic = func(context.Context, delivery.Alternative) error { return dialFailure(delivery.BrokenCertificate) }
	_, tr := mustDo(t, s, ep)
	if tr.Protocol != delivery.ProtocolHTTP2 || tr.RaceLoser() != "h3:certificate" || n.quicDials[0].Host != "o.example" {
		t.Errorf("went over %v, loser %q", tr.Protocol, tr.RaceLoser())
	}
	rows, _ := s.Get(ep.Route.Origin)
	if a := rows[0].Alternatives[0]; a.State != StateBroken || time.Until(a.BrokenUntil) != time.Hour {
		t.Errorf("alternative is %v for %v", a.State, time.Until(a.BrokenUntil))
	}
}

func caseA17(t *testing.T) {
	s, n := setup(t, Config{})
	ep := endpoint("h.example")
	advertise(s, ep.Route, `h3=":443"`)
	n.quic = func(context.Context, delivery.Alternative) error { return dialFailure(delivery.BrokenTimeout) }
	n.serve = func(context.Context, *fakeConn, *delivery.Request) (*delivery.Response, error) {
		return withAltSvc(`h3=":443"`), nil
	}
	mustDo(t, s, ep)
	rows, _ := s.Get(ep.Route.Origin)
	before := rows[0].Alternatives[0]
	for range 10 {
		time.Sleep(5 * time.Second)
		mustDo(t, s, ep)
	}
	rows, _ = s.Get(ep.Route.Origin)
	after := rows[0].Alternatives[0]
	if after.State != StateBroken || !after.BrokenUntil.Equal(before.BrokenUntil) || after.Breakages != 1 {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	if quic, _, _, _ := n.counts(); quic != 1 {
		t.Errorf("%d QUIC dials", quic)
	}
}

func caseA19(t *testing.T) {
	var refused []Refusal
	s, n := setup(t, Config{Observer: Observer{Refused: func(r AlternativeRefused) { refused = append(refused, r.Rule) }}})
	ep := endpoint("h.example")
	ep.Route.Origin.Scheme = "http"
	n.serve = func(context.Context, *fakeConn, *delivery.Request) (*delivery.Response, error) {
		return withAltSvc(`h3=":443"`), nil
	}
	mustDo(t, s, ep)
	mustDo(t, s, ep)
	// From an unverified certificate: the machine's own switch.
	s.mu.Lock()
	s.m.altSvcSeen(time.Now(), s.m.memory(endpoint("v.example").Route), false, http.Header{"Alt-Svc": {`h3=":443"`}})
	s.unlock()
	if stateOf(s, ep.Route) != StateUnknown || stateOf(s, endpoint("v.example").Route) != StateUnknown {
		t.Error("an unverified Alt-Svc was believed")
	}
	if want := []Refusal{RefusedUnverified, RefusedUnverified}; !slices.Equal(refused, want) {
		t.Errorf("reported %v", refused)
	}
}

// allowing returns a selector over a zone, with the ports and hosts of the
// cases allowed.
func allowing(t *testing.T, z *dnsZone) (*Selector, *fakeNet) {
	return setup(t, Config{
		DNS:          z.config(t),
		Alternatives: AltPolicy{Ports: []uint16{8443, 8440, 9443}, Hosts: []string{"*.cdn.example", "c.example"}},
	})
}

func caseR1(t *testing.T) {
	s, n := allowing(t, zone(t, "h.example 300 1 . alpn=h3 port=8443"))
	n.quic = func(context.Context, delivery.Alternative) error { return dialFailure(delivery.BrokenExplicit) }
	_, tr := mustDo(t, s, endpoint("h.example"))
	// TCP is dialled by route: there is no way for a record to move it.
	if len(n.quicDials) != 1 || n.quicDials[0].Port != 8443 || n.tcpDials != 1 || tr.Protocol != delivery.ProtocolHTTP2 {
		t.Errorf("QUIC %+v, TCP %d", n.quicDials, n.tcpDials)
	}
}

// caseR3: a hint is a hint. The alternative is dialled by name, with the hint
// beside it for as long as real answers are pending; an address family that
// does not resolve is dropped where names are resolved, in the dialer.
func caseR3(t *testing.T) {
	z := zone(t, "h.example 5 1 . alpn=h3 ipv6hint=2001:db8::9")
	s, n := allowing(t, z)
	mustDo(t, s, endpoint("h.example"))
	hint := []netip.Addr{netip.MustParseAddr("2001:db8::9")}
	if got := n.quicDials[0]; got.Host != "" || !slices.Equal(got.Hints, hint) {
		t.Errorf("dialled %+v", got)
	}
	// The next record has no hint: the old one is gone.
	z.records["h.example"] = []dnsRecord{{ttl: 5, rdata: svcbData(t, "1", ".", "alpn=h3")}}
	time.Sleep(6 * time.Second)
	n.cool()
	mustDo(t, s, endpoint("h.example"))
	if got := n.quicDials[len(n.quicDials)-1]; got.Hints != nil {
		t.Errorf("dialled %+v", got)
	}
}

// caseR4: connecting by hint, and replacing it when answers come, is the
// dialer's; what it needs for that arrives with the dial.
func caseR4(t *testing.T) {
	s, n := allowing(t, zone(t, "h.example 300 1 . alpn=h3 ipv4hint=192.0.2.1 ipv6hint=2001:db8::9"))
	n.quic = func(ctx context.Context, alt delivery.Alternative) error {
		if len(alt.Hints) == 2 {
			return nil // connected by hint while A and AAAA are pending
		}
		return wait(ctx, time.Minute)
	}
	if _, tr := mustDo(t, s, endpoint("h.example")); tr.Protocol != delivery.ProtocolHTTP3 {
		t.Errorf("went over %v", tr.Protocol)
	}
}

func caseR5(t *testing.T) {
	z := zone(t, "h.example 300 CNAME h.cdn.example",
		"h.cdn.example 60 1 a.cdn.example alpn=h3", "h.cdn.example 60 2 b.cdn.example alpn=h3", "h.cdn.example 60 3 h.cdn.example alpn=h3")
	got := resolveIn(t, z, origin("h.example", 443))
	want := []HTTPSRecord{
		{Priority: 1, Host: "a.cdn.example", Port: 443}, {Priority: 2, Host: "b.cdn.example", Port: 443}, {Priority: 3, Port: 443},
	}
	if !reflect.DeepEqual(got.Records, want) {
		t.Errorf("got %+v", got.Records)
	}
	synctest.Test(t, func(t *testing.T) {
		s, n := allowing(t, z)
		n.quic = func(context.Context, delivery.Alternative) error { return dialFailure(delivery.BrokenNot) }
		n.tcp = tcpAfter(time.Second)
		mustDo(t, s, endpoint("h.example"))
		var hosts []string
		for _, alt := range n.quicDials {
			hosts = append(hosts, alt.Host)
		}
		if !slices.Equal(hosts, []string{"a.cdn.example", "b.cdn.example", ""}) {
			t.Errorf("dialled %v", hosts)
		}
	})
}

func caseR7(t *testing.T) {
	s, n := allowing(t, zone(t, "h.example 300 1 . alpn=h3 no-default-alpn"))
	n.quic, n.tcp = blackHole, tcpAfter(30*time.Millisecond)
	start := time.Now()
	_, tr := mustDo(t, s, endpoint("h.example"))
	if tr.Protocol != delivery.ProtocolHTTP2 || time.Since(start) != 280*time.Millisecond {
		t.Errorf("went over %v in %v", tr.Protocol, time.Since(start))
	}
}

func caseR8(t *testing.T) {
	got := resolveIn(t, zone(t, "h.example 300 1 . mandatory=key65400 key65400=x alpn=h3", "h.example 300 2 . alpn=h3"), origin("h.example", 443))
	if want := []HTTPSRecord{{Priority: 2, Port: 443}}; !reflect.DeepEqual(got.Records, want) {
		t.Errorf("got %+v", got)
	}
}

func caseR9(t *testing.T) {
	z := zone(t, "a.example 300 0 b.example", "b.example 300 0 a.example")
	got := resolveIn(t, z, origin("a.example", 443))
	if got.Err != nil || len(got.Records) != 0 || got.TTL != negativeTTL || len(z.questions()) != 2 {
		t.Errorf("got %+v after %v", got, z.questions())
	}
}

func caseR11(t *testing.T) {
	got := resolveIn(t, zone(t, "h.example 300 0 c.example", "h.example 300 1 . alpn=h3"), origin("h.example", 443))
	if got.Err != nil || len(got.Records) != 0 {
		t.Errorf("got %+v", got)
	}
}

func caseR13(t *testing.T) {
	for name, spoil := range map[string]func(*dnsZone){
		"dropped":  func(z *dnsZone) { z.drop = true },
		"SERVFAIL": func(z *dnsZone) { z.rcode["h.example"] = dnsmessage.RCodeServerFailure },
		"slow":     func(z *dnsZone) { z.delay = 500 * time.Millisecond },
	} {
		z := zone(t, "h.example 300 1 . alpn=h3")
		spoil(z)
		s, n := allowing(t, z)
		start := time.Now()
		_, tr := mustDo(t, s, endpoint("h.example"))
		if took := time.Since(start); took > 50*time.Millisecond || tr.Protocol != delivery.ProtocolHTTP2 || len(n.quicDials) != 0 {
			t.Errorf("%s: went over %v after %v", name, tr.Protocol, took)
		}
		if name == "slow" {
			continue
		}
		// Briefly "no record", and the next cold delivery does not wait again.
		time.Sleep(10 * time.Second)
		asked := len(z.questions())
		n.cool()
		start = time.Now()
		mustDo(t, s, endpoint("h.example"))
		if time.Since(start) != 0 || len(z.questions()) != asked {
			t.Errorf("%s: the second delivery waited %v and asked again: %v", name, time.Since(start), z.questions())
		}
		time.Sleep(lookupFailedBase)
		n.cool()
		start = time.Now()
		mustDo(t, s, endpoint("h.example"))
		synctest.Wait()
		if time.Since(start) != 0 || len(z.questions()) == asked {
			t.Errorf("%s: the negative answer was kept too long, or waited for", name)
		}
	}
}

func caseR14(t *testing.T) {
	got := resolveIn(t, zone(t, "h.example 300 1 . alpn=h3 ech=stale"), origin("h.example", 443))
	if len(got.Records) != 1 {
		t.Errorf("got %+v", got)
	}
	// A record that cannot be used without ECH is not used without it.
	got = resolveIn(t, zone(t, "h.example 300 1 . mandatory=ech alpn=h3 ech=stale"), origin("h.example", 443))
	if len(got.Records) != 0 {
		t.Errorf("got %+v", got)
	}
}

func caseR15(t *testing.T) {
	got := resolveIn(t, zone(t, "h.example 300 100 . alpn=h3 port=8440", "h.example 300 1 . alpn=h3,h3-29"), origin("h.example", 443))
	if want := []HTTPSRecord{{Priority: 1, Port: 443}, {Priority: 100, Port: 8440}}; !reflect.DeepEqual(got.Records, want) {
		t.Fatalf("got %+v", got)
	}
	synctest.Test(t, func(t *testing.T) {
		s, n := allowing(t, zone(t, "h.example 300 100 . alpn=h3 port=8440", "h.example 300 1 . alpn=h3,h3-29"))
		n.tcp = tcpAfter(time.Second)
		n.quic = func(_ context.Context, alt delivery.Alternative) error {
			if alt.Port == 443 {
				return dialFailure(delivery.BrokenExplicit)
			}
			return nil
		}
		mustDo(t, s, endpoint("h.example"))
		if len(n.quicDials) != 2 || n.quicDials[0].Port != 443 || n.quicDials[1].Port != 8440 {
			t.Errorf("dialled %+v", n.quicDials)
		}
	})
}

// caseR17: the documented order (doc.go), from both sources at once.
func caseR17(t *testing.T) {
	s, n := allowing(t, zone(t, "h.example 300 1 . alpn=h3"))
	ep := endpoint("h.example")
	mustDo(t, s, ep) // learns the record
	s.mu.Lock()
	s.m.find(ep.Route, 443).confirmed = false
	s.unlock()
	advertise(s, ep.Route, `h3=":9443"`)
	n.cool()
	n.quicDials = nil
	n.quic = func(context.Context, delivery.Alternative) error { return dialFailure(delivery.BrokenNot) }
	n.tcp = tcpAfter(time.Second)
	mustDo(t, s, ep)
	if len(n.quicDials) != 2 || n.quicDials[0].Port != 9443 || n.quicDials[1].Port != 443 {
		t.Errorf("dialled %+v", n.quicDials)
	}
}

func (m *machine) find(r delivery.Route, port uint16) *alternative {
	return m.memory(r).find(altKey{port: port})
}

func refusedErr() error {
	return &delivery.SendError{Sent: delivery.SentRefused, Cause: delivery.CauseReset, Detail: "H3_REQUEST_REJECTED"}
}

func ambiguousErr(class delivery.Broken) error {
	return &delivery.SendError{Sent: delivery.SentAmbiguous, Cause: delivery.CauseReset, Broken: class, Detail: "reset"}
}

func neverErr(cause delivery.Cause) error {
	return &delivery.SendError{Sent: delivery.SentNever, Cause: cause, Detail: "never sent"}
}

// confirmed returns a selector with a warm HTTP/3 connection that has answered.
func confirmed(t *testing.T) (*Selector, *fakeNet, delivery.Endpoint) {
	s, n := setup(t, Config{})
	ep := endpoint("h.example")
	advertise(s, ep.Route, `h3=":443"`)
	n.tcp = tcpAfter(30 * time.Millisecond)
	if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP3 {
		t.Fatalf("went over %v", tr.Protocol)
	}
	return s, n, ep
}

func caseH1(t *testing.T) {
	s, n, ep := confirmed(t)
	var bodies []string
	n.serve = func(_ context.Context, c *fakeConn, req *delivery.Request) (*delivery.Response, error) {
		bodies = append(bodies, string(req.Body))
		if c.proto == delivery.ProtocolHTTP3 {
			return nil, refusedErr()
		}
		return ok200(), nil
	}
	resp, tr := mustDo(t, s, ep)
	if resp.Status != 200 || tr.Writes != 2 || !tr.Fallback || tr.Resend != ResendRefused || tr.Reused {
		t.Errorf("status %d, trace %+v", resp.Status, tr)
	}
	if !slices.Equal(bodies, []string{"{}", "{}"}) {
		t.Errorf("bodies %q", bodies)
	}
	if st := stateOf(s, ep.Route); st != StateConfirmed {
		t.Errorf("a refusal made the alternative %v", st)
	}
}

func caseH2(t *testing.T) {
	s, n, ep := confirmed(t)
	n.serve = func(context.Context, *fakeConn, *delivery.Request) (*delivery.Response, error) {
		return nil, ambiguousErr(delivery.BrokenNot)
	}
	_, tr, err := s.Do(t.Context(), ep, delivery.ProtocolAuto, request())
	if se := asSend(t, err); se.Sent != delivery.SentAmbiguous || tr.Writes != 1 || tr.Fallback {
		t.Errorf("%v, trace %+v", err, tr)
	}
}

func caseH8(t *testing.T) {
	s, n, ep := confirmed(t)
	time.Sleep(time.Minute)
	n.cool() // the idle connection is gone
	start := time.Now()
	n.quic = after(40 * time.Millisecond)
	_, tr := mustDo(t, s, ep)
	if tr.Protocol != delivery.ProtocolHTTP3 || time.Since(start) != 40*time.Millisecond || tr.Writes != 1 {
		t.Errorf("trace %+v after %v", tr, time.Since(start))
	}
}

func caseH11(t *testing.T) {
	s, n := setup(t, Config{})
	ep := endpoint("h.example")
	advertise(s, ep.Route, `h3=":443"`)
	n.quic, n.tcp = blackHole, tcpAfter(40*time.Millisecond)
	start := time.Now()
	_, tr := mustDo(t, s, ep)
	if took := time.Since(start); took != 290*time.Millisecond || tr.Protocol != delivery.ProtocolHTTP2 {
		t.Errorf("went over %v after %v", tr.Protocol, took)
	}
	time.Sleep(3 * time.Second)
	n.cool()
	start = time.Now()
	if _, tr = mustDo(t, s, ep); time.Since(start) != 40*time.Millisecond || tr.State != StateBroken {
		t.Errorf("the next one started in state %v and took %v", tr.State, time.Since(start))
	}
}

func caseH14(t *testing.T) {
	s, n := setup(t, Config{})
	ep := endpoint("h.example")
	advertise(s, ep.Route, `h3=":443"`)
	n.quic = func(context.Context, delivery.Alternative) error { return dialFailure(delivery.BrokenNot) } // ENETUNREACH
	start := time.Now()
	for range 20 {
		if _, tr := mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP2 || time.Since(start) != 0 {
			t.Fatalf("went over %v after %v", tr.Protocol, time.Since(start))
		}
		n.cool()
	}
	if quic, _, _, _ := n.counts(); quic != 1 {
		t.Errorf("%d dials into an unreachable network at one instant", quic)
	}
}

func caseH15(t *testing.T) {
	s, n, ep := confirmed(t)
	replies := []int{http.StatusTooEarly, http.StatusOK}
	n.serve = func(context.Context, *fakeConn, *delivery.Request) (*delivery.Response, error) {
		r := ok200()
		r.Status = replies[0]
		replies = replies[1:]
		return r, nil
	}
	resp, tr := mustDo(t, s, ep)
	if resp.Status != 200 || tr.Writes != 2 || tr.Resend != ResendTooEarly || tr.Protocol != delivery.ProtocolHTTP3 {
		t.Errorf("status %d, trace %+v", resp.Status, tr)
	}
	replies = []int{http.StatusTooEarly, http.StatusTooEarly, http.StatusOK}
	if resp, tr = mustDo(t, s, ep); resp.Status != http.StatusTooEarly || tr.Writes != 2 {
		t.Errorf("a second 425 was resent again: %d, trace %+v", resp.Status, tr)
	}
}

// caseH17: which address of an alternative comes next is the dialer's business;
// the selector's part is that a dead one costs a delivery no more than the
// stagger.
func caseH17(t *testing.T) {
	s, n := setup(t, Config{})
	ep := endpoint("h.example")
	advertise(s, ep.Route, `h3=":443"`)
	n.quic = after(400 * time.Millisecond) // the first address is dead, the second answers
	n.tcp = tcpAfter(10 * time.Millisecond)
	start := time.Now()
	_, tr := mustDo(t, s, ep)
	if took := time.Since(start); took > 250*time.Millisecond+10*time.Millisecond || tr.Protocol != delivery.ProtocolHTTP2 {
		t.Errorf("went over %v after %v", tr.Protocol, took)
	}
	time.Sleep(time.Second)
	if _, tr = mustDo(t, s, ep); tr.Protocol != delivery.ProtocolHTTP3 || !tr.Reused {
		t.Errorf("the loser was not kept warm: %+v", tr)
	}
}

func case421(t *testing.T) {
	s, n, ep := confirmed(t)
	n.serve = func(_ context.Context, c *fakeConn, _ *delivery.Request) (*delivery.Response, error) {
		r := withAltSvc(`h3=":443"`)
		if c.proto == delivery.ProtocolHTTP3 {
			r.Status = http.StatusMisdirectedRequest
		}
		return r, nil
	}
	resp, tr := mustDo(t, s, ep)
	if resp.Status != 200 || tr.Resend != ResendMisdirected || tr.Protocol != delivery.ProtocolHTTP2 {
		t.Errorf("status %d, trace %+v", resp.Status, tr)
	}
	// Although TCP advertises it again, the next one does not go there.
	if resp, tr = mustDo(t, s, ep); resp.Status != 200 || tr.Writes != 1 || tr.Protocol != delivery.ProtocolHTTP2 {
		t.Errorf("status %d, trace %+v", resp.Status, tr)
	}
	// Over TCP a 421 is an answer, and what it advertises is ignored (RFC 7838 §6).
	n.serve = func(context.Context, *fakeConn, *delivery.Request) (*delivery.Response, error) {
		r := withAltSvc(`h3=":443"`)
		r.Status = http.StatusMisdirectedRequest
		return r, nil
	}
	other := endpoint("other.example")
	if resp, tr = mustDo(t, s, other); resp.Status != http.StatusMisdirectedRequest || tr.Writes != 1 {
		t.Errorf("status %d, trace %+v", resp.Status, tr)
	}
	if st := stateOf(s, other.Route); st != StateUnknown {
		t.Errorf("a 421 advertised: %v", st)
	}
}

func asSend(t *testing.T, err error) *delivery.SendError {
	t.Helper()
	se, ok := err.(*delivery.SendError) //nolint:errorlint // Do's contract is this very type
	if !ok {
		t.Fatalf("error is %s", fmt.Sprintf("%T: %v", err, err))
	}
	return se
}
