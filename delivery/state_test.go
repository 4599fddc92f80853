package delivery

import (
	"bufio"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// edge is one arrow of the state machine.
type edge struct{ from, to State }

func drawnEdges(t *testing.T) []edge {
	t.Helper()
	f, err := os.Open("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	arrow := regexp.MustCompile(`^//\t([a-z]+)\s+-> ([a-z]+)\s`)
	var out []edge
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := arrow.FindStringSubmatch(lines.Text() + " ")
		if m == nil {
			continue
		}
		from, ok1 := ParseState(m[1])
		to, ok2 := ParseState(m[2])
		if !ok1 || !ok2 {
			t.Errorf("the drawing names an unknown state: %q", lines.Text())
		}
		out = append(out, edge{from, to})
	}
	return out
}

func TestStateMachineMatchesItsDrawing(t *testing.T) {
	drawn := drawnEdges(t)
	var table []edge
	for from, tos := range transitions {
		for _, to := range tos {
			table = append(table, edge{from, to})
		}
	}
	for _, e := range drawn {
		if !e.from.CanMove(e.to) {
			t.Errorf("drawn but not in the table: %v -> %v", e.from, e.to)
		}
	}
	for _, e := range table {
		if !slices.Contains(drawn, e) {
			t.Errorf("in the table but not drawn: %v -> %v", e.from, e.to)
		}
	}
	if len(drawn) != len(table) || len(drawn) == 0 {
		t.Errorf("%d edges drawn, %d in the table", len(drawn), len(table))
	}
}

func TestEveryStateIsReachableAndNamed(t *testing.T) {
	reached := map[State]bool{StateReceived: true}
	for range States() {
		for from, tos := range transitions {
			for _, to := range tos {
				if reached[from] {
					reached[to] = true
				}
			}
		}
	}
	for _, s := range States() {
		if !reached[s] {
			t.Errorf("%v cannot be reached from received", s)
		}
		if back, ok := ParseState(s.String()); !ok || back != s {
			t.Errorf("%v does not parse back", s)
		}
	}
	if State(0).String() != "invalid" || State(99).String() != "invalid" {
		t.Error("an unknown state must print as invalid")
	}
	if _, ok := ParseState(""); ok {
		t.Error("the empty name is no state")
	}
}

func TestTerminalStatesLeaveOnlyByReplay(t *testing.T) {
	for _, s := range States() {
		tos := transitions[s]
		if s.Terminal() && len(tos) > 0 && !slices.Equal(tos, []State{StateLeased}) {
			t.Errorf("terminal %v moves to %v", s, tos)
		}
		if !s.Terminal() && len(tos) == 0 {
			t.Errorf("%v is a dead end but not terminal", s)
		}
	}
}

func TestReasonsAreOneClosedList(t *testing.T) {
	seen := map[string]Reason{}
	for _, r := range Reasons() {
		name := r.String()
		if other, dup := seen[name]; dup {
			t.Errorf("reasons %d and %d share the name %q", r, other, name)
		}
		seen[name] = r
		if back, ok := ParseReason(name); !ok || back != r {
			t.Errorf("reason %q does not parse back", name)
		}
		if strings.ToLower(name) != name || strings.ContainsAny(name, " -") {
			t.Errorf("reason %q is not snake_case", name)
		}
	}
	if got := Reason(200).String(); got != "reason_200" {
		t.Errorf("unknown reason prints %q", got)
	}
}

func TestEnumNamesParseBack(t *testing.T) {
	for p := range Priority(Lanes) {
		if back, ok := ParsePriority(p.String()); !ok || back != p {
			t.Errorf("priority %v", p)
		}
	}
	for o := OrderingKeyed; o <= OrderingNone; o++ {
		if back, ok := ParseOrdering(o.String()); !ok || back != o {
			t.Errorf("ordering %v", o)
		}
	}
	for p := ProtocolAuto; p <= ProtocolH1; p++ {
		if back, ok := ParseProtocolPolicy(p.String()); !ok || back != p {
			t.Errorf("protocol policy %v", p)
		}
	}
	for _, bad := range []string{"", "HIGH", "Key", "h4", "invalid"} {
		_, p := ParsePriority(bad)
		_, o := ParseOrdering(bad)
		_, q := ParseProtocolPolicy(bad)
		if p || o || q {
			t.Errorf("%q was accepted", bad)
		}
	}
}
