package config

import (
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]ByteSize{
		"0": 0, "1": 1, "4096": 4096, "1B": 1, "64KiB": 64 * KiB, "64kib": 64 * KiB, "1.5GiB": 3 * GiB / 2, "25 MiB": 25 * MiB,
		"10MB": 10_000_000, "0.5KiB": 512, "2TiB": 2 * TiB, " 1MiB ": MiB,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "not a size", "MiB": "not a size", "x": `"x" is no unit`, "1.3KiB": "whole number", "-1MiB": "negative", "64M": "two sizes", "5k": "two sizes",
		"1e3": "is no unit", "1_000": "not a size", "9999999TiB": "larger", "1MiBs": "no unit", "0x10": "no unit", "1,5MiB": "not a size", "NaN": "no unit", "+1": "not a size",
	} {
		if got, err := parseSize(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %d, %v, want an error with %q", text, got, err, want)
		}
	}
	for size, want := range map[ByteSize]string{0: "0B", 1: "1B", 1023: "1023B", KiB: "1KiB", 1536: "1536B", 3 * GiB / 2: "1536MiB", TiB: "1TiB", 10_000_000: "10000000B"} {
		if got := size.String(); got != want {
			t.Errorf("%d is %q, want %q", int64(size), got, want)
		}
	}
}

func TestSourceAddresses(t *testing.T) {
	var a netip.Addr
	v4, v6 := sourceValue(&a, "IPv4", netip.Addr.Is4), sourceValue(&a, "IPv6", netip.Addr.Is6)
	for text, v := range map[string]value{"192.0.2.10": v4, "2001:db8::10": v6, "": v4} {
		if err := v.set([]string{text}); err != nil || v.texts()[0] != text || a.IsValid() != (text != "") {
			t.Errorf("%q: %v, %q", text, err, v.texts())
		}
	}
	for text, v := range map[string]value{
		"2001:db8::10": v4, "192.0.2.10": v6, "::ffff:192.0.2.10": v6, "192.0.2.10:80": v4, "192.0.2.0/24": v4, "eth0": v4,
		"0.0.0.0": v4, "::": v6, "fe80::1%eth0": v6, "224.0.0.1": v4,
	} {
		if err := v.set([]string{text}); err == nil || !strings.Contains(err.Error(), "address of this machine") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "15s": 15 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * day, "1d12h": 36 * time.Hour, "500ms": 500 * time.Millisecond,
		"1.5h": 90 * time.Minute, " 5s ": 5 * time.Second, "3ms": 3 * time.Millisecond,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "not a duration", "15": "has no unit", "1.5": "has no unit", "-5s": "negative", "5 s": "not a duration", "1w": "not a duration",
		"d": "not a duration", "-1d": "not a duration", "1.5d": "not a duration", "99999999d": "not a duration", "1d1": "has no unit", "1d-5h": "negative",
		"65535d2540000h": "not a duration", "days": "not a duration",
	} {
		if got, err := parseDuration(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want an error with %q", text, got, err, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0s", time.Minute: "1m", time.Hour: "1h", 90 * time.Minute: "1h30m", day: "24h", time.Hour + time.Second: "1h0m1s", 10 * time.Second: "10s", 20 * time.Minute: "20m", 3 * time.Millisecond: "3ms"} {
		if got := formatDuration(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func FuzzUnits(f *testing.F) {
	f.Add("1d2h3m")
	f.Add("1.5GiB")
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := parseDuration(text); err == nil {
			if again, err := parseDuration(formatDuration(d)); d < 0 || err != nil || again != d {
				t.Fatalf("%q is %v, and that is %v, %v", text, d, again, err)
			}
		}
		if b, err := parseSize(text); err == nil {
			if again, err := parseSize(b.String()); b < 0 || err != nil || again != b {
				t.Fatalf("%q is %v, and that is %v, %v", text, b, again, err)
			}
		}
	})
}

func TestListsTakeTextsOrOneTextWithCommas(t *testing.T) {
	var hosts []string
	v := textList(&hosts, "host,…", checkOrigin)
	for _, tc := range []struct {
		texts, want []string
	}{
		{[]string{"a.example,b.example:443"}, []string{"a.example", "b.example:443"}},
		{[]string{"a.example", " b.example , c.example"}, []string{"a.example", "b.example", "c.example"}},
		{[]string{""}, []string{}}, {nil, []string{}},
	} {
		if err := v.set(tc.texts); err != nil || !slices.Equal(hosts, tc.want) {
			t.Errorf("%q: %q, %v", tc.texts, hosts, err)
		}
	}
	hosts = []string{"kept.example"}
	for _, bad := range [][]string{{"a.example,"}, {"a.example", ""}, {"https://a.example"}, {"a.example:0"}, {"a b"}} {
		if err := v.set(bad); err == nil || hosts[0] != "kept.example" {
			t.Errorf("%q: %q, %v", bad, hosts, err)
		}
	}
}

func TestValuesAndTheirRules(t *testing.T) {
	for path, tc := range map[string]struct{ good, bad []string }{
		"listen":                      {[]string{"127.0.0.1:8080", "[::1]:1", ":8080", "localhost:0", "0.0.0.0:65535"}, []string{"", "off", "8080", "127.0.0.1", "::1:80", "h:http", "h:65536", "h:-1", "h:08", "a/b:1", "u@h:1"}},
		"ingress_listen":              {[]string{"off", "", "127.0.0.1:1"}, []string{"none", "x"}},
		"api_token":                   {[]string{"0123456789abcdef", "abc.DEF-ghi_jkl~mno+/="}, []string{"", "short", "with a space in it", "umlaut-ä-0123456789", "line\nfeed0123456789"}},
		"allow_private":               {[]string{"10.0.0.0/8", "::1", "fd00::/8", "192.168.1.1", "::ffff:10.0.0.1"}, []string{"10.0.0.1/8", "10.0.0.0/33", "x", "fe80::1%eth0", "::ffff:10.0.0.0/104"}},
		"http3":                       {[]string{"on", "OFF", "allowlist", "0%", "100%", "false"}, []string{"", "101%", "-1%", "25", "maybe", "%"}},
		"http3_ports":                 {[]string{"443", "1,65535"}, []string{"0", "65536", "x"}},
		"http3_hosts":                 {[]string{"h.example", "*.example"}, []string{"*", "h.example:443", "https://h.example"}},
		"http3_origins":               {[]string{"h.example", "h.example:8443", "192.0.2.1", "[2001:db8::1]:443", "2001:db8::1"}, []string{"h.example:x", "h.example/", "u@h.example"}},
		"log.level":                   {[]string{"debug", "error"}, []string{"DEBUG", "trace", ""}},
		"allow_http":                  {[]string{"true", "no", "1", "On"}, []string{"", "maybe", "2"}},
		"limits.in_flight":            {[]string{"1", "1000000"}, []string{"0", "1000001", "-1", "1.5", "1_000", "", "x"}},
		"storage.min_free_percent":    {[]string{"5", "5%", "0.1%", "99 %"}, []string{"0", "100%", "NaN", "Inf", "x", "%"}},
		"resolver.servers":            {[]string{"192.0.2.1", "192.0.2.1:5353", "2001:db8::1", "[2001:db8::1]:53"}, []string{"dns.example", "192.0.2.1:0", "x"}},
		"egress.proxy":                {[]string{"", "http://proxy.example:3128", "https://u:p@proxy.example/"}, []string{"proxy.example:3128", "socks5://p", "http://", "http://p/x", "http://p?x", "http://[::1"}},
		"redis.url":                   {[]string{"", "redis://h:6379/0", "rediss://u:p@h", "unix:///run/redis.sock"}, []string{"h:6379", "http://h", "redis://", "unix:", "redis://h:x"}},
		"ingress.control_plane_url":   {[]string{"", "https://c.example/v1", "http://127.0.0.1:9", "http://localhost", "http://[::1]:9"}, []string{"c.example", "http://c.example", "https://u:p@c.example", "https://c.example?x", "ftp://c.example"}},
		"retention.events":            {[]string{"1h", "7d", "3650d"}, []string{"59m", "3651d", "0"}},
		"storage.memtable":            {[]string{"256KiB", "1GiB"}, []string{"1KiB", "2GiB"}},
		"data":                        {[]string{"/var/lib/dispatcher"}, []string{"", " "}},
		"ingress.failures_per_second": {[]string{"0.5", "5", "1000000"}, []string{"0", "-1", "1000001", ""}},
	} {
		c := Default()
		i := slices.IndexFunc(c.fields(), func(f *field) bool { return f.path == path })
		f := c.fields()[i]
		for _, text := range tc.good {
			if err := f.value.set([]string{text}); err != nil {
				t.Errorf("%s: %q is refused: %v", path, text, err)
				continue
			}
			first := f.value.texts()
			if err := f.value.set(first); err != nil || !slices.Equal(first, f.value.texts()) {
				t.Errorf("%s: %q becomes %q, and that %q, %v", path, text, first, f.value.texts(), err)
			}
		}
		for _, text := range tc.bad {
			if err := f.value.set([]string{text}); err == nil {
				t.Errorf("%s: %q is taken as %q", path, text, f.value.texts())
			} else if r, ok := errors.AsType[*ruleError](err); !ok || r.rule == "" || r.mend == "" {
				t.Errorf("%s: %q: the error has no rule and mend: %v", path, text, err)
			}
		}
	}
}

// leaves lists the fields of a Config, sections opened.
func leaves(v reflect.Value) []any {
	var out []any
	for i := range v.NumField() {
		f := v.Field(i)
		if !v.Type().Field(i).IsExported() {
			continue
		}
		leaf := []reflect.Type{reflect.TypeFor[Secret](), reflect.TypeFor[HTTP3](), reflect.TypeFor[netip.Addr]()}
		if f.Kind() == reflect.Struct && !slices.Contains(leaf, f.Type()) {
			out = append(out, leaves(f)...)
			continue
		}
		out = append(out, f.Addr().Interface())
	}
	return out
}

// Each field has one setting, and each setting its own names; otherwise one
// would be set by another's.
func TestTheTableCoversTheConfigOnce(t *testing.T) {
	c := Default()
	fields := c.fields()
	bound := map[uintptr]string{}
	for _, f := range fields {
		p := reflect.ValueOf(f.value).FieldByName("p").Pointer()
		if other, ok := bound[p]; ok {
			t.Errorf("%s and %s set the same field", f.path, other)
		}
		bound[p] = f.path
	}
	all := leaves(reflect.ValueOf(c).Elem())
	for _, p := range all {
		if _, ok := bound[reflect.ValueOf(p).Pointer()]; !ok {
			t.Errorf("a %T has no setting", p)
		}
	}
	if len(all) != len(fields) {
		t.Errorf("%d fields, %d settings", len(all), len(fields))
	}
	for _, f := range fields {
		isSecret := reflect.ValueOf(f.value).FieldByName("p").Type() == reflect.TypeFor[*Secret]()
		if isSecret != f.secret() {
			t.Errorf("%s: is a secret %v, is masked %v", f.path, isSecret, f.secret())
		}
	}
}

func TestTheTableIsWellFormed(t *testing.T) {
	c := Default()
	seen := map[string]bool{}
	var order []string
	for _, f := range c.fields() {
		for _, name := range []string{f.path, f.env(), "--" + f.flag()} {
			if seen[name] {
				t.Errorf("%s is taken twice", name)
			}
			seen[name] = true
		}
		if s := f.section(); s != "" && sections[s] == "" {
			t.Errorf("section %s has no text", s)
		}
		if len(order) == 0 || order[len(order)-1] != f.section() {
			order = append(order, f.section())
		}
		if n := len([]rune(f.summary())); n == 0 || n > 120 {
			t.Errorf("%s: help of %d letters: %q", f.path, n, f.summary())
		}
		for line := range strings.SplitSeq(f.doc, "\n") {
			if len([]rune(line)) > 84 {
				t.Errorf("%s: line of %d letters: %q", f.path, len(line), line)
			}
		}
		if !strings.HasSuffix(f.doc, ".") {
			t.Errorf("%s: text ends without a full stop", f.path)
		}
		if f.secret() {
			continue
		}
		if err := f.value.set(f.value.texts()); err != nil {
			t.Errorf("%s: its default %q is refused: %v", f.path, f.value.texts(), err)
		}
	}
	if dup := slices.Sorted(slices.Values(order)); len(slices.Compact(slices.Clone(dup))) != len(order) {
		t.Errorf("a section is torn apart: %v", order)
	}
	want := Default()
	if !reflect.DeepEqual(normal(c), normal(want)) {
		t.Errorf("setting the defaults changed them: %+v", c)
	}
}

// normal makes empty lists nil.
func normal(c *Config) Config {
	out := *c
	for _, p := range leaves(reflect.ValueOf(&out).Elem()) {
		if v := reflect.ValueOf(p).Elem(); v.Kind() == reflect.Slice && v.Len() == 0 {
			v.SetZero()
		}
	}
	return out
}
