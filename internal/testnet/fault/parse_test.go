package fault

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestListIsClosedAndExplained(t *testing.T) {
	seen := map[string]bool{}
	help := List()
	for _, k := range Kinds() {
		switch {
		case seen[k.Name]:
			t.Errorf("%s is there twice", k.Name)
		case k.Name != strings.ToLower(k.Name) || strings.ContainsAny(k.Name, " :,="):
			t.Errorf("%q cannot be a name", k.Name)
		case k.Doc == "" || strings.ContainsAny(k.Doc, "\n"):
			t.Errorf("%s: want one line of documentation", k.Name)
		case len(k.Protocols) == 0:
			t.Errorf("%s applies to nothing", k.Name)
		case !strings.Contains(help, k.Name):
			t.Errorf("the help does not name %s", k.Name)
		}
		seen[k.Name] = true
		for _, p := range k.Params {
			if p.Doc == "" || !strings.Contains(help, p.Name+"=") {
				t.Errorf("%s: parameter %s is not explained", k.Name, p.Name)
			}
		}
		if got, ok := Lookup(k.Name); !ok || got != k {
			t.Errorf("Lookup(%s) is %v, %v", k.Name, got, ok)
		}
		if _, err := ParseFault(k.Name); err != nil {
			t.Errorf("%s without parameters: %v", k.Name, err)
		}
	}
	if len(Names()) != len(seen) {
		t.Errorf("%d names of %d kinds", len(Names()), len(seen))
	}
}

// TestEveryFaultHasACaseOverEveryProtocol: the matrix forgets nothing.
func TestEveryFaultHasACaseOverEveryProtocol(t *testing.T) {
	type pair struct {
		name string
		p    delivery.Protocol
	}
	covered := map[pair]int{}
	names := map[string]bool{}
	for _, row := range Matrix() {
		covered[pair{row.Fault.kind.Name, row.Protocol}]++
		if !row.Fault.Applies(row.Protocol) {
			t.Errorf("%v does not apply there", row)
		}
		if names[row.String()] {
			t.Errorf("%v is there twice", row)
		}
		names[row.String()] = true
		want := row.Want
		switch {
		case want.Sent == delivery.SentNever && (want.Runs > 0 || want.Pool != FateNone):
			t.Errorf("%v: never sent, and still %+v", row, want)
		case want.Sent == delivery.SentProcessed && want.Status == 0:
			t.Errorf("%v: an answer without a status", row)
		case want.Lie && want.Runs == 0:
			t.Errorf("%v: no run to lie about", row)
		case want.Sent == delivery.SentRefused && want.Runs > 0 && !want.Lie:
			t.Errorf("%v: refused after a run is a lie", row)
		}
	}
	for _, k := range Kinds() {
		for _, p := range k.Protocols {
			if covered[pair{k.Name, p}] == 0 {
				t.Errorf("%s has no case over %v", k.Name, p)
			}
		}
	}
}

func TestParseFaultReadsParameters(t *testing.T) {
	f := mustParse(" h3-reset:code=0x10b, when=before,every=3,times=2,p=0.5,seed=7 ")
	if f.kind.Name != "h3-reset" || f.num("code") != 0x10b || !f.is("when", "before") || f.num("every") != 3 ||
		f.count("times") != 2 || f.values["p"].odds != 0.5 || f.num("seed") != 7 || f.Warmup() != 0 {
		t.Errorf("%+v", f)
	}
	if got := f.String(); got != "h3-reset:code=0x10b,when=before,every=3,times=2,p=0.5,seed=7" {
		t.Errorf("prints as %q", got)
	}
	if f := mustParse("h3-reset:code=H3_REQUEST_REJECTED"); f.num("code") != 0x10b || !f.is("when", "after") || f.num("every") != 1 {
		t.Errorf("%+v", f)
	}
	if f := mustParse("h2-reset:code=ENHANCE_YOUR_CALM"); f.num("code") != 11 {
		t.Errorf("%+v", f)
	}
	f = mustParse(`alt-svc:form=value,value=h3%3D%22:443%22%3B ma%3D60%2C h2%3D%22:443%22`)
	if f.word("value") != `h3=":443"; ma=60, h2=":443"` {
		t.Errorf("%q", f.word("value"))
	}
	if again := mustParse(f.String()); again.word("value") != f.word("value") {
		t.Errorf("%q does not come back from %q", f.word("value"), f.String())
	}
	if f := mustParse("h1-close-reuse:after=2"); f.Warmup() != 3 {
		t.Errorf("warm-up is %d", f.Warmup())
	}
}

func TestParseFaultErrorsNameWhatIsKnown(t *testing.T) {
	for spec, want := range map[string]string{
		"":                                 "h3-reset",
		"explode":                          "known are black-hole",
		"h3-reset:kode=1":                  "it has code, when, after",
		"h3-reset:code=high":               "H3_REQUEST_REJECTED",
		"h3-reset:code=-1":                 "want a number",
		"h3-reset:code=0x7fffffffffffffff": "want a number",
		"h3-reset:when=never":              "before, after",
		"h3-reset:code=1,code=2":           "given twice",
		"hang:p=2":                         "from 0 to 1",
		"hang:p=NaN":                       "from 0 to 1",
		"hang:p=x":                         "p=x",
		"drip-body:interval=soon":          "interval=soon",
		"drip-body:interval=-1s":           "must not be negative",
		"redirect:location=%zz":            "location=",
		"closed-port:after=1":              "it has over",
	} {
		_, err := ParseFault(spec)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", spec, err, want)
		}
	}
	faults, err := ParseFaults("hang", "explode", "hang:x=1")
	if len(faults) != 1 || err == nil || !strings.Contains(err.Error(), "explode") || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("%v, %v", faults, err)
	}
}

func TestTriggersCountAsTold(t *testing.T) {
	fired := func(spec string, n int) string {
		a := arm([]Fault{mustParse(spec)})[0]
		var b strings.Builder
		for range n {
			if a.fires() {
				b.WriteByte('x')
			} else {
				b.WriteByte('.')
			}
		}
		return b.String()
	}
	for spec, want := range map[string]string{
		"hang":                         "xxxxxxxx",
		"hang:after=2":                 "..xxxxxx",
		"hang:every=3":                 "..x..x..",
		"hang:after=1,every=2":         "..x.x.x.",
		"hang:times=2":                 "xx......",
		"hang:after=1,every=2,times=1": "..x.....",
		"hang:p=0":                     "........",
	} {
		if got := fired(spec, 8); got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
	one, same, other := fired("hang:p=0.5,seed=1", 200), fired("hang:p=0.5,seed=1", 200), fired("hang:p=0.5,seed=2", 200)
	if one != same || one == other {
		t.Error("a seed does not decide")
	}
	if n := strings.Count(one, "x"); n < 60 || n > 140 {
		t.Errorf("%d of 200 at even odds", n)
	}
}

func TestAFaultOfTheHandshakeKeepsToItsSocket(t *testing.T) {
	for spec, want := range map[string][2]bool{
		"black-hole":          {true, true},
		"black-hole:over=tcp": {true, false},
		"black-hole:over=udp": {false, true},
		"version-negotiation": {false, true},
	} {
		f := mustParse(spec)
		if got := [2]bool{f.onNetwork(overTCP), f.onNetwork(overUDP)}; got != want {
			t.Errorf("%s: %v, want %v", spec, got, want)
		}
	}
}

func TestNamesOfClasses(t *testing.T) {
	var letters []string
	for _, s := range []delivery.Sent{delivery.SentNever, delivery.SentRefused, delivery.SentAmbiguous, delivery.SentProcessed} {
		letters = append(letters, Expect{Sent: s}.Letter())
	}
	if got := strings.Join(letters, ""); got != "NRAP" {
		t.Errorf("letters %s", got)
	}
	if FateGone.String() != "gone" || Fate(99).String() != "invalid" {
		t.Error("names of fates")
	}
}

func FuzzParseFault(f *testing.F) {
	for _, k := range Kinds() {
		f.Add(k.Name)
		for _, c := range k.Cases {
			f.Add(k.Name + ":" + c.Params)
		}
	}
	f.Add("alt-svc:value=%2c%0a,form=value")
	f.Add("hang:p=0x1p-2,seed=0b11")
	f.Fuzz(func(t *testing.T, spec string) {
		first, err := ParseFault(spec)
		if err != nil {
			return
		}
		second, err := ParseFault(first.String())
		if err != nil {
			t.Fatalf("%q printed as %q, which does not parse: %v", spec, first.String(), err)
		}
		same := func(a, b value) bool { // NaN is refused, so values compare
			return a == b
		}
		if first.kind != second.kind || !maps.EqualFunc(first.values, second.values, same) {
			t.Fatalf("%q printed as %q, which is another fault", spec, first.String())
		}
		if n := len(arm(slices.Repeat([]Fault{first}, 2))); n != 2 {
			t.Fatalf("armed %d", n)
		}
	})
}
