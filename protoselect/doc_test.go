package protoselect

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestDocumentedTableIsTheMachine holds the table of states in doc.go against
// what the machine does in each: the words on the left must be there, the plan
// on the right must come out.
func TestDocumentedTableIsTheMachine(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	r := endpoint("h.example").Route
	fresh := advert{learned: now, expires: now.Add(time.Hour)}
	tests := []struct {
		state State
		row   string
		alt   alternative
		want  plan
	}{
		{StateUnknown, "Unknown     TCP;", alternative{}, plan{kind: planTCP}},
		{StateAdvertised, "Advertised  warm HTTP/3, or warm TCP and a background handshake; cold: race", alternative{altSvc: fresh}, plan{kind: planWarmFirst, warmH3: true, probe: true, stagger: 250 * time.Millisecond}},
		{StateConfirmed, "Confirmed   warm HTTP/3, else race with stagger", alternative{altSvc: fresh, confirmed: true}, plan{kind: planRace, warmH3: true, stagger: 250 * time.Millisecond}},
		{StateSuspect, "Suspect     warm TCP and a background handshake; cold: race, stagger 0", alternative{altSvc: fresh, suspect: true}, plan{kind: planWarmFirst, probe: true}},
		{StateBroken, "Broken      TCP", alternative{altSvc: fresh, broken: breakage{n: 1, until: now.Add(time.Minute)}}, plan{kind: planTCP}},
		{StateHalfOpen, "HalfOpen    TCP and one background handshake;", alternative{altSvc: fresh, broken: breakage{n: 1, until: now}}, plan{kind: planTCP, probe: true}},
		{StateDisabled, "Disabled    TCP:", alternative{altSvc: fresh}, plan{kind: planTCP}},
	}
	if len(tests) != len(States()) {
		t.Fatalf("%d rows for %d states", len(tests), len(States()))
	}
	for _, tt := range tests {
		if !strings.Contains(string(doc), "//\t"+tt.row) {
			t.Errorf("doc.go has no row %q", tt.row)
		}
		m := newMachine(Config{DNS: DNSConfig{Disabled: true}}.withDefaults())
		if tt.state == StateDisabled {
			m.mode.Kind = ModeOff
		}
		tt.alt.key = altKey{port: 443}
		e := m.memory(r)
		e.alts = []*alternative{&tt.alt}
		p := m.decide(now, r, delivery.ProtocolAuto)
		if p.state != tt.state || p.kind != tt.want.kind || p.warmH3 != tt.want.warmH3 || p.probe != tt.want.probe || p.stagger != tt.want.stagger {
			t.Errorf("%v: plan %+v", tt.state, p)
		}
	}
}
