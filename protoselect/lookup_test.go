package protoselect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func origin(host string, port uint16) delivery.Origin {
	return delivery.Origin{Scheme: "https", Host: host, Port: port}
}

// resolveIn looks an origin up in the zone over loopback sockets.
func resolveIn(t *testing.T, z *dnsZone, o delivery.Origin) LookupResult {
	t.Helper()
	cfg := DNSConfig{Servers: []netip.AddrPort{z.serve(t)}, Timeout: 5 * time.Second}.withDefaults()
	if z.garble != nil {
		cfg.Timeout = 20 * time.Millisecond // no answer will do, however long one waits
	}
	return newLookups(cfg).resolve(t.Context(), o)
}

func TestHTTPSRecordsResolve(t *testing.T) {
	tests := []struct {
		name   string
		zone   []string
		origin delivery.Origin
		want   []HTTPSRecord
		ttl    time.Duration
	}{
		{
			name: "one record", zone: []string{"h.example 300 1 . alpn=h2,h3"},
			want: []HTTPSRecord{{Priority: 1, Port: 443}}, ttl: 300 * time.Second,
		},
		{
			name: "priority orders, not the answer", zone: []string{"h.example 300 2 . alpn=h3 port=8443", "h.example 60 1 . alpn=h3"},
			want: []HTTPSRecord{{Priority: 1, Port: 443}, {Priority: 2, Port: 8443}}, ttl: 60 * time.Second,
		},
		{
			name: "no h3", zone: []string{"h.example 300 1 . alpn=h2"}, ttl: 300 * time.Second,
		},
		{
			name: "no record", ttl: 60 * time.Second,
		},
		{
			name: "other port asks under its own name", origin: origin("h.example", 8443),
			zone: []string{"_8443._https.h.example 300 1 h.example alpn=h3", "h.example 300 1 . alpn=h3 port=1"},
			want: []HTTPSRecord{{Priority: 1, Port: 8443}}, ttl: 300 * time.Second,
		},
		{
			name: "hints", zone: []string{"h.example 300 1 . alpn=h3 ipv4hint=192.0.2.1,192.0.2.2 ipv6hint=2001:db8::9"},
			want: []HTTPSRecord{{Priority: 1, Port: 443, Hints: []netip.Addr{
				netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::9"),
			}}}, ttl: 300 * time.Second,
		},
		{
			name: "the origin's CNAME is the origin", zone: []string{"h.example 300 CNAME e.cdn.example", "e.cdn.example 20 1 . alpn=h3"},
			want: []HTTPSRecord{{Priority: 1, Port: 443}}, ttl: 20 * time.Second,
		},
		{
			name: "an alias leads to another host", zone: []string{"h.example 300 0 c.example", "c.example 30 1 . alpn=h3"},
			want: []HTTPSRecord{{Priority: 1, Host: "c.example", Port: 443}}, ttl: 30 * time.Second,
		},
		{
			name: "a CNAME behind an alias is not the origin's", zone: []string{
				"h.example 300 0 c.example", "c.example 30 CNAME d.example", "d.example 30 1 . alpn=h3",
			},
			want: []HTTPSRecord{{Priority: 1, Host: "d.example", Port: 443}}, ttl: 30 * time.Second,
		},
		{
			name: "alias to nothing", zone: []string{"h.example 300 0 ."}, ttl: 60 * time.Second,
		},
		{
			name: "alias to a name without records", zone: []string{"h.example 300 0 c.example"}, ttl: 60 * time.Second,
		},
		{
			name: "no-default-alpn without alpn", zone: []string{"h.example 300 1 . no-default-alpn", "h.example 300 2 . alpn=h3"},
			want: []HTTPSRecord{{Priority: 2, Port: 443}}, ttl: 300 * time.Second,
		},
		{
			name: "mandatory keys that are understood", zone: []string{"h.example 300 1 . mandatory=alpn,port alpn=h3 port=8443"},
			want: []HTTPSRecord{{Priority: 1, Port: 8443}}, ttl: 300 * time.Second,
		},
		{
			name: "port 0 cannot be dialled", zone: []string{"h.example 300 1 . alpn=h3 port=0"}, ttl: 300 * time.Second,
		},
		{
			name: "TTL 0 is not asked for every delivery", zone: []string{"h.example 0 1 . alpn=h3"},
			want: []HTTPSRecord{{Priority: 1, Port: 443}}, ttl: 5 * time.Second,
		},
		{
			name: "a week is an hour", zone: []string{"h.example 604800 1 . alpn=h3"},
			want: []HTTPSRecord{{Priority: 1, Port: 443}}, ttl: time.Hour,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.origin == (delivery.Origin{}) {
				tt.origin = origin("h.example", 443)
			}
			got := resolveIn(t, zone(t, tt.zone...), tt.origin)
			if got.Err != nil || !reflect.DeepEqual(got.Records, tt.want) || got.TTL != tt.ttl {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestMalformedRecordsMeanNoRecord: one malformed record spoils its whole set
// (RFC 9460 §2.2).
func TestMalformedRecordsMeanNoRecord(t *testing.T) {
	good := svcbData(t, "1", ".", "alpn=h3")
	bad := map[string][]byte{
		"empty":                     {},
		"half a priority":           {0},
		"no target":                 {0, 1},
		"target beyond the record":  {0, 1, 200, 'a'},
		"keys out of order":         append(svcbData(t, "1", ".", "port=443"), svcbData(t, "1", ".", "alpn=h3")[3:]...),
		"key twice":                 append(svcbData(t, "1", ".", "port=443"), svcbData(t, "1", ".", "port=444")[3:]...),
		"value beyond the record":   append(svcbData(t, "1", "."), 0, 1, 0, 9, 2, 'h'),
		"half a key":                append(svcbData(t, "1", "."), 0),
		"empty alpn":                append(svcbData(t, "1", "."), 0, 1, 0, 0),
		"empty alpn id":             append(svcbData(t, "1", "."), 0, 1, 0, 1, 0),
		"alpn id too long":          append(svcbData(t, "1", "."), 0, 1, 0, 2, 9, 'h'),
		"port of three bytes":       append(svcbData(t, "1", "."), 0, 3, 0, 3, 1, 2, 3),
		"no-default-alpn with more": append(svcbData(t, "1", "."), 0, 2, 0, 1, 7),
		"ipv4hint of three bytes":   append(svcbData(t, "1", "."), 0, 4, 0, 3, 1, 2, 3),
		"empty ipv6hint":            append(svcbData(t, "1", "."), 0, 6, 0, 0),
		"empty mandatory":           append(svcbData(t, "1", "."), 0, 0, 0, 0),
		"mandatory of one byte":     append(svcbData(t, "1", "."), 0, 0, 0, 1, 1),
		"mandatory names itself":    append(svcbData(t, "1", "."), 0, 0, 0, 2, 0, 0),
		"mandatory out of order":    svcbData(t, "1", ".", "mandatory=port,alpn", "alpn=h3", "port=443"),
		"mandatory key is absent":   svcbData(t, "1", ".", "mandatory=port", "alpn=h3"),
	}
	for name, rdata := range bad {
		t.Run(name, func(t *testing.T) {
			z := zone(t)
			z.records["h.example"] = []dnsRecord{{ttl: 60, rdata: good}, {ttl: 60, rdata: rdata}}
			got := resolveIn(t, z, origin("h.example", 443))
			if got.Err == nil || len(got.Records) != 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestTruncatedAnswersAreAskedForOverTCP(t *testing.T) {
	z := zone(t, "h.example 300 1 . alpn=h3")
	z.tcpOnly = true
	got := resolveIn(t, z, origin("h.example", 443))
	if got.Err != nil || len(got.Records) != 1 || !slices.Equal(z.questions(), []string{"udp h.example", "tcp h.example"}) {
		t.Errorf("got %+v after %v", got, z.questions())
	}
}

func TestForeignDatagramsAreNoAnswer(t *testing.T) {
	garble := map[string]func([]byte) []byte{
		"wrong id":       func(m []byte) []byte { m[0] ^= 1; return m },
		"not a response": func(m []byte) []byte { m[2] &^= 0x80; return m },
		"other question": func(m []byte) []byte { m[13] ^= 1; return m },
		"too short":      func(m []byte) []byte { return m[:11] },
		"no question":    func(m []byte) []byte { m[5] = 0; return m },
		"two questions":  func(m []byte) []byte { m[5] = 2; return m },
	}
	for name, f := range garble {
		t.Run(name, func(t *testing.T) {
			z := zone(t, "h.example 300 1 . alpn=h3")
			z.garble = func(m []byte, _ string) []byte { return f(m) }
			if got := resolveIn(t, z, origin("h.example", 443)); got.Err == nil {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestResolverFailuresAreErrors(t *testing.T) {
	for _, code := range []dnsmessage.RCode{dnsmessage.RCodeServerFailure, dnsmessage.RCodeRefused, dnsmessage.RCodeFormatError, dnsmessage.RCodeNotImplemented} {
		z := zone(t, "h.example 300 1 . alpn=h3")
		z.rcode["h.example"] = code
		if got := resolveIn(t, z, origin("h.example", 443)); !errors.Is(got.Err, errServer) {
			t.Errorf("%v: got %+v", code, got)
		}
	}
	z := zone(t)
	z.rcode["h.example"] = dnsmessage.RCodeNameError
	if got := resolveIn(t, z, origin("h.example", 443)); got.Err != nil || got.TTL != time.Minute {
		t.Errorf("NXDOMAIN: got %+v", got)
	}
}

func TestDeadServerIsFollowedByTheNext(t *testing.T) {
	dead, live := zone(t), zone(t, "h.example 300 1 . alpn=h3")
	dead.drop = true
	cfg := DNSConfig{Servers: []netip.AddrPort{dead.serve(t), live.serve(t)}, Timeout: 300 * time.Millisecond, Attempts: 5}.withDefaults()
	got := newLookups(cfg).resolve(t.Context(), origin("h.example", 443))
	if got.Err != nil || len(got.Records) != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestLookupEndsWithItsContext(t *testing.T) {
	z := zone(t)
	z.drop = true
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	cfg := DNSConfig{Servers: []netip.AddrPort{z.serve(t)}, Timeout: 5 * time.Second}.withDefaults()
	start := time.Now()
	if got := newLookups(cfg).resolve(ctx, origin("h.example", 443)); got.Err == nil || time.Since(start) > 2*time.Second {
		t.Errorf("got %+v after %v", got, time.Since(start))
	}
}

func TestAliasChainsAreBounded(t *testing.T) {
	var lines []string
	for i := range 12 {
		lines = append(lines, fmt.Sprintf("a%d.example 300 0 a%d.example", i, i+1))
	}
	lines = append(lines, "a12.example 300 1 . alpn=h3")
	z := zone(t, lines...)
	if got := resolveIn(t, z, origin("a0.example", 443)); got.Err != nil || len(got.Records) != 0 || len(z.questions()) != maxAliases+1 {
		t.Errorf("got %+v after %d questions", got, len(z.questions()))
	}
	if got := resolveIn(t, zone(t, lines...), origin("a5.example", 443)); len(got.Records) != 1 {
		t.Errorf("a chain of seven was not followed: %+v", got)
	}
}

func TestCNAMELoopsEnd(t *testing.T) {
	z := zone(t, "h.example 300 CNAME b.example", "b.example 300 CNAME h.example")
	if got := resolveIn(t, z, origin("h.example", 443)); got.Err != nil || len(got.Records) != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestFloodOfRecordsIsRefused(t *testing.T) {
	z := zone(t)
	z.tcpOnly = true
	for range maxRecords + 1 {
		z.records["h.example"] = append(z.records["h.example"], dnsRecord{ttl: 60, rdata: svcbData(t, "1", ".", "alpn=h3")})
	}
	if got := resolveIn(t, z, origin("h.example", 443)); got.Err == nil {
		t.Errorf("got %d records", len(got.Records))
	}
}

func TestResolvConfParses(t *testing.T) {
	got := parseResolvConf(strings.NewReader(strings.Join([]string{
		"# nameserver 192.0.2.9", "search example", "nameserver 192.0.2.1", "nameserver\t2001:db8::1 # two", "nameserver nonsense",
		"options edns0", "nameserver fe80::1%eth0 ; three", "nameserver 192.0.2.4",
	}, "\n")))
	want := []netip.AddrPort{
		netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("[2001:db8::1]:53"), netip.MustParseAddrPort("[fe80::1%eth0]:53"),
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

func FuzzHTTPSAnswer(f *testing.F) {
	q, _, err := buildQuery("h.example")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(q)
	t := new(testing.T)
	z := zone(t, "h.example 300 CNAME c.example", "c.example 300 1 . alpn=h3 port=8443 ipv4hint=192.0.2.1", "c.example 300 0 d.example")
	f.Add(z.answer(t, q, "udp"))
	f.Fuzz(func(t *testing.T, msg []byte) {
		a, err := readAnswer(msg, "h.example")
		if err != nil {
			return
		}
		if len(a.records) > maxRecords || len(a.chain) > maxAliases {
			t.Fatalf("unbounded: %+v", a)
		}
		for _, rec := range selectH3(origin("h.example", 443), a.records, a.chain) {
			if rec.Port == 0 || rec.Priority == 0 && !hasAlias(a.records) || len(rec.Hints) > maxHints {
				t.Fatalf("record %+v", rec)
			}
		}
	})
}

func hasAlias(records []svcb) bool {
	_, alias := aliasTarget(records)
	return alias
}
