package netguard

import (
	"encoding/binary"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// nat64Prefixes has one prefix of each length that RFC 6052 knows.
var nat64Prefixes = prefixes("64:ff9b::/96", "64:ff9b:1::/48", "2a00:6432::/32", "2a00:6440::/40", "2a00:6456::/56", "2a00:6464::/64")

// embed writes v4 into filler in one of the forms, without the code under test.
func embed(form uint8, v4 [4]byte, filler [16]byte) netip.Addr {
	b := filler
	put := func(at int) { copy(b[at:], v4[:]) }
	prefix := func(p netip.Prefix, at ...int) {
		head := p.Addr().As16()
		copy(b[:p.Bits()/8], head[:])
		if p.Bits() < 96 {
			b[8] = 0
		}
		for i, to := range at {
			b[to] = v4[i]
		}
	}
	switch form % 12 {
	case 0: // mapped
		b = [16]byte{10: 0xff, 11: 0xff}
		put(12)
	case 1: // compatible
		b = [16]byte{}
		put(12)
	case 2: // translated
		b = [16]byte{8: 0xff, 9: 0xff}
		put(12)
	case 3: // 6to4, with anything as subnet and interface
		b[0], b[1] = 0x20, 0x02
		put(2)
	case 4, 5: // ISATAP, under any prefix
		b[8], b[9], b[10], b[11] = 2*(form%12-4), 0, 0x5e, 0xfe
		put(12)
	case 6:
		prefix(nat64Prefixes[0], 12, 13, 14, 15)
	case 7:
		prefix(nat64Prefixes[1], 6, 7, 9, 10)
	case 8:
		prefix(nat64Prefixes[2], 4, 5, 6, 7)
	case 9:
		prefix(nat64Prefixes[3], 5, 6, 7, 9)
	case 10:
		prefix(nat64Prefixes[4], 7, 9, 10, 11)
	case 11:
		prefix(nat64Prefixes[5], 9, 10, 11, 12)
	}
	return netip.AddrFrom16(b)
}

// FuzzNoDeniedIPv4AddressIsReachableThroughAnEmbedding is the property that the
// whole of embed.go is for. It holds with every exception for IPv6 granted, too.
func FuzzNoDeniedIPv4AddressIsReachableThroughAnEmbedding(f *testing.F) {
	strict := newPolicyT(f, Config{})
	lax := newPolicyT(f, Config{NAT64Prefixes: nat64Prefixes, AllowPrivate: prefixes("::/0")})
	for form := range uint8(12) {
		for _, a := range addrs("127.0.0.1", "10.0.0.5", "169.254.169.254", "8.8.8.8", "0.0.0.0", "0.0.0.1", "255.255.255.255", "168.63.129.16") {
			b := a.As4()
			f.Add(form, binary.BigEndian.Uint32(b[:]), uint64(0x2606_4700_0000_0000), uint64(1))
		}
	}
	f.Fuzz(func(t *testing.T, form uint8, v4 uint32, high, low uint64) {
		var b4 [4]byte
		var filler [16]byte
		binary.BigEndian.PutUint32(b4[:], v4)
		binary.BigEndian.PutUint64(filler[:8], high)
		binary.BigEndian.PutUint64(filler[8:], low)
		inner, outer := netip.AddrFrom4(b4), embed(form, b4, filler)
		for _, p := range []*Policy{strict, lax} {
			// Forms from 8 on are prefixes of one network's own, which only the
			// policy that names them can know.
			if p.CheckAddr(inner).Allowed || p == strict && form%12 >= 8 {
				continue
			}
			// :: and ::1 are addresses of their own, and 0.0.0.0 or 0.0.0.1 inside
			// them is nobody's.
			if outer == netip.IPv6Unspecified() || outer == netip.IPv6Loopback() {
				continue
			}
			if v := p.CheckAddr(outer); v.Allowed {
				t.Errorf("%v is denied, %v (form %d) is not: %+v", inner, outer, form, v)
			}
		}
	})
}

func FuzzCheckAddr(f *testing.F) {
	p := newPolicyT(f, Config{})
	for _, a := range addrs("8.8.8.8", "::1", "fe80::1", "2001::1", "64:ff9b::1", "::ffff:1.2.3.4", "2606:4700::1", "2002:a00:5::") {
		f.Add(a.AsSlice(), "")
	}
	f.Add([]byte(nil), "eth0")
	rules := Rules()
	f.Fuzz(func(t *testing.T, raw []byte, zone string) {
		addr, _ := netip.AddrFromSlice(raw)
		v := p.CheckAddr(addr)
		if addr.Is6() && zone != "" && p.CheckAddr(addr.WithZone(zone)) != v {
			t.Errorf("%v: the zone %q changes the verdict", addr, zone)
		}
		if !v.Allowed {
			if !slices.Contains(rules, v.Rule) {
				t.Errorf("%v: denied by the unknown rule %q", addr, v.Rule)
			}
			return
		}
		a := v.Addr
		if v.Rule != "" || a != addr.Unmap() || a.Zone() != "" || a.Is4In6() {
			t.Errorf("%v: %+v", addr, v)
		}
		if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified() {
			t.Errorf("%v is allowed", a)
		}
		if a.Is6() && a.As16()[0]>>5 != 1 && !v.Embedded.IsValid() {
			t.Errorf("%v is allowed outside 2000::/3 and carries nothing", a)
		}
		if again := p.CheckAddr(v.Addr); !again.Allowed {
			t.Errorf("%v is allowed, and %v, which would be dialled, is not", addr, v.Addr)
		}
	})
}

// urlSeeds are the spellings that the tables try, in short.
var urlSeeds = []string{
	"https://h.example/hook?a=b", "https://[::ffff:127.0.0.1]:443/h", "https://u:p@h.example/", "https://127.1/",
	"https://１２７.０.０.１/", "https://bücher.example:8443/a%2Fb/ü", `https://h.example\@evil.example/`, "http://h.example/",
	"https://%31/", "https://[fe80::1%25eth0]/", "https://h.example:99999/", "https://h.example/#x", "https://loc\u00adalhost/",
	"https://xn--n3h.example./", "HTTPS://8.8.8.8:0443", "https://0x7f.example", "https://a.b.0x1", "https://?@/",
}

func FuzzParseTarget(f *testing.F) {
	for _, s := range urlSeeds {
		f.Add(s)
	}
	g := newGuard(f, Config{})
	rules := append(Rules(), URLRules()...)
	f.Fuzz(func(t *testing.T, raw string) {
		target, err := g.ParseTarget(raw)
		if err != nil {
			refused, ok := errors.AsType[*FieldError](err)
			if !ok || !slices.Contains(rules, refused.Rule) || refused.Value == "" || refused.Hint == "" {
				t.Fatalf("%q: %#v", raw, err)
			}
			return
		}
		checkAccepted(t, g, raw, target)
	})
}

// number is what the WHATWG URL standard takes for one at the end of a host.
var number = regexp.MustCompile(`^([0-9]+|0x[0-9a-f]*)$`)

// checkAccepted holds an accepted target against what it promises, by means
// other than the parser's.
func checkAccepted(t *testing.T, g *Guard, raw string, target Target) {
	text := target.URL.String()
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.User != nil || u.Fragment != "" || u.Hostname() != target.Host {
		t.Fatalf("%q: %q, %v", raw, text, err)
	}
	if port := u.Port(); port != "" && port != strconv.Itoa(int(target.Port)) || port == "" && target.Port != 443 || target.Port == 0 {
		t.Fatalf("%q: port %d of %q", raw, target.Port, text)
	}
	again, err := g.ParseTarget(text)
	if err != nil || again.URL.String() != text || again.Origin() != target.Origin() {
		t.Fatalf("%q: %q is not stable: %v, %v", raw, text, again, err)
	}
	req, err := http.NewRequest(http.MethodPost, text, nil)
	if err != nil || req.URL.Hostname() != target.Host {
		t.Fatalf("%q: no request can be made: %v", raw, err)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' }) {
		t.Fatalf("%q: %q is not printable ASCII", raw, text)
	}
	if addr, err := netip.ParseAddr(target.Host); err == nil {
		if target.Addr != addr || !g.Policy().CheckAddr(addr).Allowed {
			t.Fatalf("%q: the literal %v is accepted", raw, addr)
		}
		return
	}
	labels := strings.Split(target.Host, ".")
	last := labels[len(labels)-1]
	if number.MatchString(last) || len(labels) < 2 || last == "localhost" || len(target.Host) > 253 {
		t.Fatalf("%q: the host %q is accepted", raw, target.Host)
	}
}

// FuzzAPasswordIsNeverEchoed puts a password wherever one can stand, broken in
// any way, and reads every text that comes out.
func FuzzAPasswordIsNeverEchoed(f *testing.F) {
	f.Add("https://u:", "@h.example/")
	f.Add("https://", "@h.example/")
	f.Add("https://u:p/", "@h.example/")
	f.Add("https://u:p#", "@h.example/")
	f.Add("https://u:12?", "@127.0.0.1/")
	f.Add("https://", ".localhost/@h.example/")
	f.Add("ftp://u:", "@h.example:0/")
	f.Add("u:", "@h.example/")
	f.Add("https://u:", "＠h.example/")
	const password = "hunter2hunter2"
	var texts []string
	g, err := New(Config{Observer: Observer{Denied: func(d Denial) { texts = append(texts, d.Err.Error()) }}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if !strings.ContainsAny(before+after, "@＠﹫") {
			return // nothing says that it is one
		}
		raw := before + password + after
		texts = append(texts[:0], Redact(raw))
		target, err := g.ParseTarget(raw)
		if err != nil {
			refused, _ := errors.AsType[*FieldError](err)
			texts = append(texts, err.Error(), refused.Value, refused.Hint)
			if denied, ok := errors.AsType[*DeniedError](err); ok {
				texts = append(texts, denied.Error())
			}
		} else if target.URL.User != nil {
			t.Errorf("%q: accepted with userinfo", raw)
		} else if !strings.Contains(target.Host, password) {
			texts = append(texts, target.String())
		}
		for _, text := range texts {
			if strings.Contains(text, password) {
				t.Errorf("%q: echoed in %q", raw, text)
			}
		}
	})
}

func FuzzParseNoProxy(f *testing.F) {
	for _, s := range []string{"corp.example", ".corp.example:443", "[fd00::1]:8443", "10.0.0.0/8", "*,a.example", "a b"} {
		f.Add(s, "a.corp.example")
	}
	f.Fuzz(func(t *testing.T, entry, host string) {
		n, err := ParseNoProxy([]string{entry})
		if err != nil {
			return
		}
		if n.Match(host, 443) && !n.all && len(n.entries) == 0 {
			t.Errorf("%q, which has no entry, matches %q", entry, host)
		}
	})
}
