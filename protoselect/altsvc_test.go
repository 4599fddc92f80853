package protoselect

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

const day = 24 * time.Hour

func TestAltSvcParses(t *testing.T) {
	h3 := func(port uint16, ma time.Duration) AltSvcEntry { return AltSvcEntry{Port: port, MaxAge: ma} }
	tests := []struct {
		name  string
		lines []string
		want  []AltSvcEntry
		clear bool
		well  int
	}{
		{name: "several lines are one list", lines: []string{`h3=":443"`, `h3=":8443"`}, want: []AltSvcEntry{h3(443, day), h3(8443, day)}, well: 2},
		{name: "empty elements", lines: []string{` , h3=":443" ,, `}, want: []AltSvcEntry{h3(443, day)}, well: 1},
		{name: "clear beside entries wins", lines: []string{`h3=":443"`, `clear`}, want: []AltSvcEntry{h3(443, day)}, clear: true, well: 1},
		{name: "clear is case-sensitive", lines: []string{`CLEAR`}},
		{name: "clear= is a protocol", lines: []string{`clear=":443"`}, well: 1},
		{name: "protocol is case-sensitive", lines: []string{`H3=":443"`}, well: 1},
		{name: "unquoted authority", lines: []string{`h3=:443, h3=":8443"`}, want: []AltSvcEntry{h3(8443, day)}, well: 1},
		{name: "comma inside quotes", lines: []string{`h2="a,b:443"; x="y,z", h3=":443"`}, want: []AltSvcEntry{h3(443, day)}, well: 1},
		{name: "escaped quote", lines: []string{`h3="\:443"; x="a\"b, h3=\":1\""`}, want: []AltSvcEntry{h3(443, day)}, well: 1},
		{name: "unclosed quote", lines: []string{`h3=":443`, `h3=":444"`}, want: []AltSvcEntry{h3(444, day)}, well: 1},
		{name: "control character in quotes", lines: []string{"h3=\":4\x0043\", h3=\":444\"", `h3=":445"`}, want: []AltSvcEntry{h3(445, day)}, well: 1},
		{name: "no port", lines: []string{`h3="h.example"`}},
		{name: "ports out of range", lines: []string{`h3=":0", h3=":65536", h3=":-1", h3=":+1", h3=":", h3=":1e3"`}},
		{name: "host is lower-cased", lines: []string{`h3="Alt.Example.:443"`}, want: []AltSvcEntry{{Host: "alt.example", Port: 443, MaxAge: day}}, well: 1},
		{name: "host with odd characters", lines: []string{`h3="a b:443", h3="ä:443", h3="a@b:443", h3="[::1:443", h3="::1:443"`}},
		{name: "unknown parameters", lines: []string{`h3=":443"; v="46"; quic=1; ma=60`}, want: []AltSvcEntry{h3(443, time.Minute)}, well: 1},
		{name: "first ma counts", lines: []string{`h3=":443"; ma=60; ma=3600`}, want: []AltSvcEntry{h3(443, time.Minute)}, well: 1},
		{name: "unreadable ma drops the entry", lines: []string{`h3=":443"; ma=-1, h3=":444"; ma=1.5, h3=":445"; ma=, h3=":446"; ma=x`}},
		{name: "huge ma is capped", lines: []string{`h3=":443"; ma=99999999999999999999`}, want: []AltSvcEntry{h3(443, 1<<31*time.Second)}, well: 1},
		{name: "persist only when 1", lines: []string{`h3=":443"; persist=2`}, want: []AltSvcEntry{h3(443, day)}, well: 1},
		{name: "trailing semicolons", lines: []string{`h3=":443"; ; ma=60;`}, want: []AltSvcEntry{h3(443, time.Minute)}, well: 1},
		{name: "space around =", lines: []string{`h3 =":443", h3= ":443"`}},
		{name: "garbage after the authority", lines: []string{`h3=":443" x, h3=":444"`}, want: []AltSvcEntry{h3(444, day)}, well: 1},
		{name: "nothing", lines: nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := ParseAltSvc(tt.lines)
			if !reflect.DeepEqual(got.Entries, tt.want) || got.Clear != tt.clear || got.WellFormed != tt.well {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestAltSvcIsBounded(t *testing.T) {
	many := strings.Repeat(`h3=":443", `, 100)
	if got := ParseAltSvc([]string{many}); len(got.Entries) != 8 {
		t.Errorf("%d entries kept, want 8", len(got.Entries))
	}
	huge := strings.Repeat(" ", 8<<10) + `h3=":443"`
	if got := ParseAltSvc([]string{`h3=":1"`, huge, `h3=":2"`}); len(got.Entries) != 1 {
		t.Errorf("entries beyond the bound were read: %+v", got.Entries)
	}
}

func FuzzAltSvc(f *testing.F) {
	for _, s := range []string{
		`h3=":443"; ma=3600; persist=1, h3-29="alt.example:8443"`, `clear`, `h3="[2001:db8::1]:443"`, `h3="\":443`, `=;,"\`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h := ParseAltSvc([]string{s})
		if len(h.Entries) > 8 || h.WellFormed < len(h.Entries) {
			t.Fatalf("%+v", h)
		}
		for _, e := range h.Entries {
			host, ok := cleanHost(e.Host)
			if e.Port == 0 || !ok || host != e.Host || e.MaxAge < 0 {
				t.Fatalf("entry %+v", e)
			}
			if life := e.lifetime(0); life != 0 && (life < minAdvert || life > maxAdvert) {
				t.Fatalf("lifetime %v", life)
			}
		}
	})
}
