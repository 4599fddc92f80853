package protoselect

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestTimelines replays event scripts against the pure state machine and holds
// plans and state changes against testdata/timelines. Every line is
//
//	<instant> <event> [key=value …]
//
// Run with -rewrite to regenerate; read the diff as a change of specification.
func TestTimelines(t *testing.T) {
	datadriven.Walk(t, "testdata/timelines", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "timeline" {
				t.Fatalf("unknown command %q", d.Cmd)
			}
			tl := newTimeline(t, d)
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				tl.run(strings.TrimSpace(line), &out)
			}
			return out.String()
		})
	})
}

// timeline is one machine with a script's clock.
type timeline struct {
	t     *testing.T
	m     *machine
	start time.Time
	now   time.Time
	route delivery.Route
}

func newTimeline(t *testing.T, d *datadriven.TestData) *timeline {
	cfg := Config{Random: func() float64 { return 0.5 }}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "dns":
			cfg.DNS.Disabled = arg.Vals[0] == "off"
		case "hosts":
			cfg.Alternatives.Hosts = arg.Vals
		case "ports":
			for _, v := range arg.Vals {
				n, _ := strconv.ParseUint(v, 10, 16)
				cfg.Alternatives.Ports = append(cfg.Alternatives.Ports, uint16(n))
			}
		case "random":
			r, _ := strconv.ParseFloat(arg.Vals[0], 64)
			cfg.Random = func() float64 { return r }
		case "proxy":
			cfg.EgressHTTP3 = func(egress string) bool { return egress != arg.Vals[0] }
		default:
			t.Fatalf("unknown argument %q", arg.Key)
		}
	}
	dnsOff := cfg.DNS.Disabled
	cfg = cfg.withDefaults()
	cfg.DNS.Disabled = dnsOff // whatever this machine's resolv.conf says
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return &timeline{t: t, m: newMachine(cfg), start: start, now: start, route: endpoint("h.example").Route}
}

// run executes one line and writes it, its result and the reports it caused.
func (tl *timeline) run(line string, out *strings.Builder) {
	if line == "" || strings.HasPrefix(line, "#") {
		fmt.Fprintln(out, line)
		return
	}
	fields := strings.Fields(line)
	at, err := time.ParseDuration(fields[0])
	if err != nil {
		tl.t.Fatalf("line %q: %v", line, err)
	}
	tl.now = tl.start.Add(at)
	args := map[string]string{}
	for _, f := range fields[2:] {
		k, v, _ := strings.Cut(f, "=")
		args[k] = v
	}
	result := tl.event(fields[1], args)
	if result != "" {
		result = " -> " + result
	}
	fmt.Fprintf(out, "%-8s %s%s\n", fields[0], strings.Join(fields[1:], " "), result)
	tl.reports(out)
}

func (tl *timeline) event(name string, args map[string]string) string {
	r, k := tl.routeOf(args), altKey{host: args["host"], port: 443}
	if p, ok := args["port"]; ok {
		n, _ := strconv.ParseUint(p, 10, 16)
		k.port = uint16(n)
	}
	m, now := tl.m, tl.now
	switch name {
	case "deliver":
		policy, _ := delivery.ParseProtocolPolicy(cmpOr(args["policy"], "auto"))
		p := m.decide(now, r, policy)
		return tl.describe(r, &p)
	case "quic-up":
		m.quicUp(now, r, k, duration(args["rtt"]))
	case "quic-fail":
		m.quicFailed(now, r, k, broken(args["class"]), "handshake: "+args["class"])
	case "died":
		m.requestFailed(now, r, k, broken(cmpOr(args["class"], "death_after_handshake")), tl.start.Add(duration(args["started"])), "connection died")
	case "stalled":
		m.stalled(now, r, k)
	case "tcp-up":
		m.tcpUp(now, r, duration(args["rtt"]))
	case "answer":
		tl.answer(r, k, args)
	case "421":
		m.misdirected(now, r, k)
	case "record":
		m.memory(r)
		m.lookedUp(now, r, records(args))
	case "pin":
		protocol, ok := ParsePin(args["to"])
		if !ok {
			delete(m.pins, r.Origin)
		} else {
			pin := Pin{Protocol: protocol}
			if ttl := duration(args["ttl"]); ttl > 0 {
				pin.Until = now.Add(ttl)
			}
			m.pins[r.Origin] = pin
		}
		m.policyGen++
	case "mode":
		kind, _ := ParseModeKind(args["kind"])
		percent, _ := strconv.Atoi(args["percent"])
		m.mode = Mode{Kind: kind, Percent: percent, Origins: strings.Split(args["origins"], ",")}
		m.policyGen++
	case "state":
		return tl.state(r)
	default:
		tl.t.Fatalf("unknown event %q", name)
	}
	return ""
}

func (tl *timeline) answer(r delivery.Route, k altKey, args map[string]string) {
	proto := delivery.ProtocolHTTP2
	if args["over"] == "h3" {
		proto = delivery.ProtocolHTTP3
	}
	e := tl.m.memory(r)
	tl.m.answered(tl.now, e, proto, k)
	if v, ok := args["alt-svc"]; ok {
		h := http.Header{"Alt-Svc": {strings.ReplaceAll(v, "_", " ")}}
		if age, ok := args["age"]; ok {
			h["Age"] = []string{age}
		}
		tl.m.altSvcSeen(tl.now, e, r.Origin.Scheme == "https", h)
	}
}

func (tl *timeline) routeOf(args map[string]string) delivery.Route {
	r := tl.route
	if o, ok := args["origin"]; ok {
		r.Origin.Host = o
	}
	if s, ok := args["scheme"]; ok {
		r.Origin.Scheme = s
	}
	r.Egress = args["egress"]
	return r
}

var planNames = map[planKind]string{planTCP: "tcp", planWarmFirst: "warm first, else race", planRace: "warm h3, else race", planH3Only: "h3 only"}

func (tl *timeline) describe(r delivery.Route, p *plan) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%v: %s", p.state, planNames[p.kind])
	for _, c := range p.candidates() {
		s.WriteString(" " + c.key.String(r))
	}
	if p.kind == planWarmFirst || p.kind == planRace {
		fmt.Fprintf(&s, " stagger=%v", p.stagger)
	}
	for _, flag := range []struct {
		on   bool
		name string
	}{{p.warmH3, "warm-h3"}, {p.probe, "probe"}, {p.ask, "ask"}, {p.wait, "wait"}} {
		if flag.on {
			s.WriteString(" " + flag.name)
		}
	}
	return s.String()
}

func (tl *timeline) state(r delivery.Route) string {
	row := tl.m.row(tl.m.memory(r), tl.now)
	var s strings.Builder
	s.WriteString(row.State.String())
	for _, a := range row.Alternatives {
		fmt.Fprintf(&s, "; %s %v %v n=%d", a.Authority, a.State, a.Source, a.Breakages)
		if !a.ExpiresAt.IsZero() {
			fmt.Fprintf(&s, " expires=%v", a.ExpiresAt.Sub(tl.start))
		}
		if !a.BrokenUntil.IsZero() {
			fmt.Fprintf(&s, " until=%v", a.BrokenUntil.Sub(tl.start))
		}
	}
	return s.String()
}

func (tl *timeline) reports(out *strings.Builder) {
	for _, c := range tl.m.out.states {
		fmt.Fprintf(out, "         | %s %v -> %v (%s)", c.Alternative, c.From, c.To, c.Why)
		if c.To == StateBroken {
			fmt.Fprintf(out, " n=%d for %v", c.Breakages, c.Until.Sub(tl.now))
		}
		fmt.Fprintln(out)
	}
	for _, c := range tl.m.out.egress {
		if c.Open {
			fmt.Fprintf(out, "         | egress %q: HTTP/3 off for %v\n", c.Egress, c.Until.Sub(tl.now))
		} else {
			fmt.Fprintf(out, "         | egress %q: HTTP/3 works again\n", c.Egress)
		}
	}
	for _, c := range tl.m.out.refused {
		fmt.Fprintf(out, "         | refused %s: %s\n", c.Alternative, c.Rule)
	}
	tl.m.out = reports{}
}

func records(args map[string]string) LookupResult {
	if msg, ok := args["err"]; ok {
		return LookupResult{Err: fmt.Errorf("%w: %s", errServer, msg)}
	}
	res := LookupResult{TTL: duration(args["ttl"])}
	if h3, ok := args["h3"]; ok {
		for i, port := range strings.Split(h3, ",") {
			n, _ := strconv.ParseUint(port, 10, 16)
			res.Records = append(res.Records, HTTPSRecord{Priority: uint16(i + 1), Port: uint16(n), Host: args["host"]})
		}
	}
	return res
}

func broken(name string) delivery.Broken {
	all := []delivery.Broken{0, 1, 2, 3, 4, 5, 6}
	i := slices.IndexFunc(all, func(b delivery.Broken) bool { return b.String() == name })
	return all[i]
}

func duration(s string) time.Duration {
	d, _ := time.ParseDuration(s)
	return d
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}
