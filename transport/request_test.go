package transport

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestHeaderOfTheStacksIsCompletedWithWhatOnlyWeSay(t *testing.T) {
	const h2, h3 = delivery.ProtocolHTTP2, delivery.ProtocolHTTP3
	origin := delivery.Origin{Scheme: "https", Host: "origin.test", Port: 443}
	v6 := delivery.Origin{Scheme: "https", Host: "2001:db8::1", Port: 443}
	cases := []struct {
		name    string
		proto   delivery.Protocol
		origin  delivery.Origin
		alt     delivery.Alternative
		given   []delivery.Header
		altUsed string // of the request
		want    http.Header
	}{
		{"nothing given", h2, origin, delivery.Alternative{}, nil, "", http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {""}}},
		{"gzip asked for", h2, origin, delivery.Alternative{}, []delivery.Header{{Name: "Accept-Encoding", Value: "gzip"}, {Name: "User-Agent", Value: "x"}}, "", http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {"x"}}},
		{"a name twice", h2, origin, delivery.Alternative{}, []delivery.Header{{Name: "X", Value: "1"}, {Name: "Y", Value: "3"}, {Name: "X", Value: "2"}}, "", http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {""}, "X": {"1", "2"}, "Y": {"3"}}},
		{"Alt-Used stays with HTTP/3", h2, origin, delivery.Alternative{}, []delivery.Header{{Name: "Alt-Used", Value: "x"}}, "o.test", http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {""}}},
		{"own alternative", h3, origin, delivery.Alternative{Port: 443}, nil, "", http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {""}, "Alt-Used": {"origin.test"}}},
		{"other port", h3, origin, delivery.Alternative{Port: 8443}, nil, "", http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {""}, "Alt-Used": {"origin.test:8443"}}},
		{"other host", h3, origin, delivery.Alternative{Host: "alt.test", Port: 443}, nil, "", http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {""}, "Alt-Used": {"alt.test"}}},
		{"IPv6", h3, v6, delivery.Alternative{Port: 443}, nil, "", http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {""}, "Alt-Used": {"[2001:db8::1]"}}},
		{"named by the selector", h3, origin, delivery.Alternative{Port: 443}, nil, "alt.test:99", http.Header{"Accept-Encoding": {"identity"}, "User-Agent": {""}, "Alt-Used": {"alt.test:99"}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			before := slices.Clone(c.given)
			l := &link{proto: c.proto, alt: c.alt, route: delivery.Route{Origin: c.origin}}
			got := stackHeader(&delivery.Request{Headers: c.given, AltUsed: c.altUsed}, l)
			if !equalHeader(got, c.want) {
				t.Fatalf("%v, want %v", got, c.want)
			}
			if !slices.Equal(c.given, before) {
				t.Fatalf("the caller's headers were changed to %v", c.given)
			}
		})
	}
}

func equalHeader(a, b http.Header) bool {
	if len(a) != len(b) {
		return false
	}
	for name, values := range a {
		if !slices.Equal(values, b[name]) {
			return false
		}
	}
	return true
}

func TestHeaderOfTheConnectionIsRefused(t *testing.T) {
	for _, name := range []string{"Connection", "Proxy-Connection", "Keep-Alive", "Upgrade", "Te", "Trailer", "Transfer-Encoding", "Expect"} {
		if checkHeaders([]delivery.Header{{Name: "X", Value: "1"}, {Name: name, Value: "x"}}) == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestRequestTargetIsSentAsRegistered(t *testing.T) {
	origin := delivery.Origin{Scheme: "https", Host: "origin.test", Port: 443}
	for _, target := range []string{
		"/", "/hook", "/hook?", "/hook?a=1&b=%20", "/a%2Fb", "//double", "//host/path?x=//y", "/a//b", "/ä", "/a?q=ä", "/%41", "/a;b=c", "/a:b",
	} {
		u, err := requestURL(origin.Scheme, origin.Authority(), target)
		if err != nil {
			t.Errorf("%q: %v", target, err)
			continue
		}
		if got := u.RequestURI(); got != target && got != asciiOnly(target) {
			t.Errorf("%q would be sent as %q", target, got)
		}
		if u.Host != "origin.test:443" {
			t.Errorf("%q leads to %q", target, u.Host)
		}
	}
	for _, target := range []string{"", "hook", "*", "http://other.test/", "/a b", "/a\r\nHost: x", "/a\tb", "/\x7f", "?x"} {
		if u, err := requestURL(origin.Scheme, origin.Authority(), target); err == nil {
			t.Errorf("%q was accepted as %q", target, u.RequestURI())
		}
	}
}

// asciiOnly is what a target that has to be parsed becomes.
func asciiOnly(target string) string {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return target
	}
	return u.RequestURI()
}

func FuzzRequestTarget(f *testing.F) {
	for _, s := range []string{"/", "//x/y?z", "/a?b#c", "/%zz", "/\\..", "/a b"} {
		f.Add(s)
	}
	origin := delivery.Origin{Scheme: "https", Host: "origin.test", Port: 443}
	f.Fuzz(func(t *testing.T, target string) {
		u, err := requestURL(origin.Scheme, origin.Authority(), target)
		if err != nil {
			return
		}
		got := u.RequestURI()
		if strings.ContainsAny(got, " \r\n\t\x00") || !strings.HasPrefix(got, "/") {
			t.Fatalf("%q would be sent as %q", target, got)
		}
		if !strings.HasPrefix(target, "//") && got != target {
			t.Fatalf("%q would be sent as %q", target, got)
		}
		if u.Host != "origin.test:443" || u.Scheme != "https" {
			t.Fatalf("%q leads to %s://%s", target, u.Scheme, u.Host)
		}
	})
}

func TestKeepAliveHintIsUnderstood(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"timeout=5": 4 * time.Second, "timeout=5, max=1000": 4 * time.Second, "max=7,timeout=60": 59 * time.Second,
		"timeout=0": 500 * time.Millisecond, "timeout=1": 500 * time.Millisecond,
		"": 0, "max=7": 0, "timeout=": 0, "timeout=-1": 0, "timeout=99999999999": 0, "timeout=x": 0,
	} {
		if got := keepAliveTimeout(value); got != want {
			t.Errorf("%q means %v, want %v", value, got, want)
		}
	}
}

func FuzzKeepAliveTimeout(f *testing.F) {
	f.Add("timeout=5, max=1000")
	f.Fuzz(func(t *testing.T, value string) {
		if d := keepAliveTimeout(value); d != 0 && (d < 500*time.Millisecond || d > 65535*time.Second) {
			t.Fatalf("%q means %v", value, d)
		}
	})
}
