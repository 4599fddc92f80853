package bench

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/link"
	"github.com/dispatcher-engine/dispatcher/bench/stats"
	"github.com/dispatcher-engine/dispatcher/delivery"
)

func TestNetworksAreNamedOrDescribed(t *testing.T) {
	for _, n := range Networks() {
		got, err := ParseNetwork(n.Name)
		if err != nil || got != n || n.Validate() != nil || !strings.HasPrefix(n.String(), "RTT ") {
			t.Errorf("%s: %+v %v", n.Name, got, err)
		}
	}
	got, err := ParseNetwork("mine:rtt=80ms,jitter=2ms,loss=1.5%,burst=4,rate=20M,queue=256K")
	want := Network{Name: "mine", RTT: 80 * time.Millisecond, Jitter: 2 * time.Millisecond, Loss: 0.015, Burst: 4, Bits: 20e6, Queue: 256 << 10}
	if err != nil || got != want {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := ParseNetwork("x:loss=0.02,rate=1.5g"); err != nil || got.Loss != 0.02 || got.Bits != 1.5e9 {
		t.Errorf("%+v %v", got, err)
	}
	for _, bad := range []string{"", "nowhere", ":rtt=1ms", "x:rtt", "x:speed=1", "x:loss=101%", "x:rtt=-1s", "x:rate=1", "x:queue=x"} {
		if n, err := ParseNetwork(bad); err == nil {
			t.Errorf("%q: %+v", bad, n)
		}
	}
	for n, want := range map[Network]string{
		loopback: "loopback", {Loss: 0.02}: "uniformly", {Loss: 0.02, Burst: 5}: "bursts of 5.00", {Queue: 2048, Jitter: time.Millisecond}: "queue of 2.00 KiB",
	} {
		if !strings.Contains(n.String(), want) {
			t.Errorf("%v does not say %q", n, want)
		}
	}
}

func TestALinkThatIsNotWhatWasAskedForIsFound(t *testing.T) {
	asked := Network{Name: "n", RTT: 50 * time.Millisecond, Loss: 0.02, Bits: 10e6}
	good := NetworkCheck{Network: asked, RTT: stats.Latency{N: 40, P50: 50.4}, Loss: 0.021, Sent: 20_000, Bits: 9.8e6, Queue: 66_000, Late: stats.Latency{P99: 0.5}}
	if faults := good.judge(); len(faults) > 0 {
		t.Errorf("%v", faults)
	}
	for want, spoil := range map[string]func(*NetworkCheck){
		"round trip": func(c *NetworkCheck) { c.RTT.P50 = 60 },
		"came back":  func(c *NetworkCheck) { c.RTT.N = 3 },
		"are lost":   func(c *NetworkCheck) { c.Loss = 0.05 },
		"Mbit/s":     func(c *NetworkCheck) { c.Bits = 5e6 },
		"queue":      func(c *NetworkCheck) { c.Queue = 30_000 },
		"late":       func(c *NetworkCheck) { c.Late.P99 = 20 },
	} {
		bad := good
		spoil(&bad)
		if faults := bad.judge(); len(faults) != 1 || !strings.Contains(faults[0], want) {
			t.Errorf("%s: %v", want, faults)
		}
	}
	uniform, bursts := Network{Loss: 0.02}, Network{Loss: 0.02, Burst: 5}
	if n := uniform.probes(); n < 10_000 || bursts.probes() < 8*n || (Network{}).probes() != 10_000 {
		t.Errorf("%d probes, %d of bursts: chance alone would be more than what is allowed", n, bursts.probes())
	}
}

func TestEndpointsLeadToTheServerOfTheirKind(t *testing.T) {
	s := &servers{}
	for k := range kinds {
		s.Addr[k] = netip.AddrPortFrom(serverAddrs[k], 443+uint16(k))
	}
	seen := map[string]bool{}
	for n := range 5 {
		for k := range kinds {
			e := endpointOf(n, k)
			if e.kind() != k || seen[e.host()] {
				t.Errorf("endpoint %d of kind %d is %s", n, k, e.host())
			}
			seen[e.host()] = true
			addrs, err := s.LookupNetIP(t.Context(), "ip", e.host()+".")
			if err != nil || len(addrs) != 1 || addrs[0] != serverAddrs[k] {
				t.Errorf("%s: %v %v", e.host(), addrs, err)
			}
			if o := s.route(e).Route.Origin; o != (delivery.Origin{Scheme: "https", Host: e.host(), Port: s.Addr[k].Port()}) {
				t.Errorf("%+v", o)
			}
		}
	}
	for _, bad := range []string{"x.bench.test.", "e-1.bench.test.", ""} {
		if _, err := s.LookupNetIP(t.Context(), "ip", bad); err == nil {
			t.Errorf("%q was found", bad)
		}
	}
}

func TestAnEstateHasItsShares(t *testing.T) {
	got := map[kind]float64{}
	for _, e := range (Estate{Endpoints: 10_000, H3: 0.4, Blocked: 0.1, Dying: 0.05}).draw(rand.New(rand.NewPCG(1, 1))) {
		got[e.kind()] += 1.0 / 10_000
	}
	for k, want := range map[kind]float64{kindH3: 0.4, kindTCP: 0.45, kindBlocked: 0.1, kindDying: 0.05} {
		if math.Abs(got[k]-want) > 0.02 {
			t.Errorf("%s: %v, want %v", kindNames[k], got[k], want)
		}
	}
}

func TestPlansGiveEveryVariantTheSameRequests(t *testing.T) {
	c := TransportsConfig{Samples: 250, LargeSamples: 30, BurstSize: 50, Estate: Estate{Endpoints: 40, H3: 1}, BlockedEndpoints: 10, CongestionSamples: 10, Visits: 3}.WithDefaults()
	r := &transportsRun{c: c, congestion: []string{"cubic", "bbr"}, repeat: repetition{seed: 1}}
	wanted := map[string]struct{ samples, variants int }{
		"sporadic": {250, 4}, "burst": {250, 4}, "steady": {250, 4}, "large": {30, 7}, "mixed": {120, 3}, "blocked": {30, 2},
	}
	for _, name := range TransportsScenarios() {
		p := r.plan(name, r.repeat.rng(name))
		total := 0
		for _, b := range p.blocks {
			total += len(b.Endpoints)
		}
		if want := wanted[name]; total != want.samples || len(p.variants) != want.variants {
			t.Errorf("%s: %d samples of %d variants, want %+v", name, total, len(p.variants), want)
		}
		for _, v := range p.variants {
			if v.Cold == (name == "steady") || v.Congestion == "" {
				t.Errorf("%s: %+v", name, v)
			}
		}
		if again := r.plan(name, r.repeat.rng(name)); !slices.EqualFunc(p.blocks, again.blocks, func(a, b block) bool { return slices.Equal(a.Endpoints, b.Endpoints) }) {
			t.Errorf("%s: the seed does not repeat the plan", name)
		}
	}
	large := r.plan("large", r.repeat.rng("large"))
	if !large.takesPart(3, len(large.blocks)) || !large.takesPart(6, large.extra-1) || large.takesPart(4, large.extra) || large.extra == 0 {
		t.Errorf("%d variants in %d blocks, all of them in %d", large.core, len(large.blocks), large.extra)
	}
	r.c.Link = linkLoopback
	r.c.Estate = Estate{Endpoints: 50, Dying: 1}
	for _, b := range r.plan("mixed", r.repeat.rng("x")).blocks {
		for _, e := range b.Endpoints {
			if e.kind() == kindDying {
				t.Fatal("an endpoint dies on loopback, where nobody can kill it")
			}
		}
	}
}

func TestRegretLeavesOutWhatFailed(t *testing.T) {
	r := &transportsRun{c: TransportsConfig{Draws: 10}.WithDefaults()}
	fast := variantResult("h3", "h3", "", 50, 100)
	fast.Failed = 1
	other := variantResult("h2/bbr", "h2", "bbr", 50, 10)
	s := ScenarioResult{Variants: []VariantResult{variantResult("h2", "h2", "cubic", 50, 200), fast, other, variantResult("auto", "auto", "cubic", 50, 220)}}
	got := r.regrets(s)
	if len(got) != 3 || got[0].Best != "h2" || math.Abs(got[0].Ratio.Value-1.1) > 0.01 {
		t.Errorf("%+v", got)
	}
}

func TestWrittenTwiceFailsTheRunAndALateEmulatorIsDoubtful(t *testing.T) {
	r := &transportsRun{}
	r.judge(ScenarioResult{Scenario: "burst", Network: "wan", Variants: []VariantResult{{Variant: Variant{Name: "h3"}, Resent: 2, Wire: link.Counts{Late: stats.Latency{P99: 5}}}}})
	if said := r.doubtful(); len(r.failures) != 1 || len(said) != 1 || !strings.Contains(said[0], "5.00 ms in wan, burst, h3") {
		t.Errorf("%v %v", r.failures, said)
	}
}

func TestTransportsConfigNamesWhatIsWrong(t *testing.T) {
	for _, good := range []TransportsConfig{{}, TransportsQuick(), {Link: "loopback"}} {
		if err := good.WithDefaults().Validate(); err != nil {
			t.Errorf("%v", err)
		}
	}
	bad := TransportsConfig{
		Link: "wire", Networks: []Network{{Name: "x", Loss: 2}}, Scenarios: []string{"y"}, Protocols: []string{"h4"}, Samples: -1, Body: -1,
		Parallel: -1, BurstSize: -1, SteadyRate: -1, Estate: Estate{Endpoints: 1, H3: 2}, Visits: -1, CongestionSamples: -1, BlockedEndpoints: -1, Pause: -1, Tries: -1, Timeout: -1, Draws: -1,
	}
	err := bad.WithDefaults().Validate()
	for _, want := range []string{"link", "network x", "scenario", "protocol", "samples", "body", "parallel", "burst-size", "steady-rate", "estate", "visits", "congestion-samples", "blocked-endpoints", "pause", "tries", "timeout", "draws"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named: %v", want, err)
		}
	}
}

func TestPresetsRunEveryScenarioSomewhereAndSelectionsNarrowThem(t *testing.T) {
	for name, c := range map[string]TransportsConfig{"full": {}, "quick": TransportsQuick()} {
		c = c.WithDefaults()
		seen := map[string]bool{}
		for _, n := range c.Networks {
			if len(c.casesOf(n)) == 0 {
				t.Errorf("%s: %s is set up for nothing", name, n.Name)
			}
			for _, at := range c.casesOf(n) {
				seen[at.Scenario] = true
			}
		}
		if len(seen) != len(TransportsScenarios()) || len(c.Networks) < 2 {
			t.Errorf("%s: %v on %d networks", name, seen, len(c.Networks))
		}
		if again := c.WithDefaults(); len(again.Networks) != len(c.Networks) || len(again.Cases) != len(c.Cases) {
			t.Errorf("%s: defaults of defaults differ", name)
		}
	}
	one := TransportsConfig{Scenarios: []string{"burst"}}.WithDefaults()
	for _, n := range one.Networks {
		if got := one.casesOf(n); len(got) != 1 || got[0].Scenario != "burst" {
			t.Errorf("%s: %v", n.Name, got)
		}
	}
	lan := TransportsConfig{Networks: named("lan")}.WithDefaults()
	if got := lan.casesOf(lan.Networks[0]); len(lan.Networks) != 1 || len(got) != len(TransportsScenarios()) {
		t.Errorf("%v", got)
	}
	if got := WithoutSamples(fullCases); got[3].Samples != 0 || fullCases[3].Samples == 0 {
		t.Error("samples of the preset's own were kept, or the preset was changed")
	}
	if few, many := lan.parallel(Network{RTT: time.Millisecond}), lan.parallel(Network{RTT: time.Second}); few != 8 || many != 64 {
		t.Errorf("%d and %d at once", few, many)
	}
}

func TestAnEstateIsSplitByKindAndVisit(t *testing.T) {
	p := plan{blocks: []block{
		{Endpoints: []endpoint{endpointOf(0, kindH3), endpointOf(1, kindBlocked)}},
		{Endpoints: []endpoint{endpointOf(1, kindBlocked), endpointOf(0, kindH3)}},
	}}
	auto := VariantResult{Variant: Variant{Name: "auto"}}
	auto.keep(blockResult{Took: []float64{1, 2, 3, 4}, Vain: []int{2, 2}})
	s := ScenarioResult{Variants: []VariantResult{auto}, Groups: groupsOf(&p, []VariantResult{auto})}
	if g := s.group("blocked", 2, "auto"); len(s.Groups) != 4 || g.Latency.P50 != 3 || g.Vain != 1 {
		t.Errorf("%+v", s.Groups)
	}
	if g := s.group("h3", 2, "auto"); g.Latency.P50 != 4 || g.Vain != 0 {
		t.Errorf("%+v", g)
	}
	if found, remembered := auto.vain(); !slices.Equal(found, []float64{3}) || !slices.Equal(remembered, []float64{1, 2, 4}) {
		t.Errorf("%v %v", found, remembered)
	}
}
