package bench

import (
	"slices"
	"time"
)

// Case is one scenario on one network.
type Case struct {
	Network  string `json:"network"`
	Scenario string `json:"scenario"`
	// Samples instead of the scenario's; 0 = those.
	Samples int `json:"samples,omitempty"`
}

// fullCases are chosen so that each question is answered where it arises, in
// half an hour.
var fullCases = []Case{
	{"wan", "sporadic", 0}, {"wan", "burst", 0}, {"wan", "steady", 0}, {"wan", "large", 400}, {"wan", "mixed", 0}, {"wan", "blocked", 0},
	{"lossy", "sporadic", 0}, {"lossy", "burst", 0}, {"lossy", "steady", 0}, {"lossy", "large", 0},
	{"bursty", "sporadic", 0}, {"bursty", "steady", 0},
	{"far", "sporadic", 0},
	{"slow", "burst", 0},
}

var quickCases = []Case{
	{"wan", "sporadic", 0}, {"wan", "burst", 0}, {"wan", "steady", 0}, {"wan", "large", 0}, {"wan", "mixed", 0}, {"wan", "blocked", 0},
	{"lossy", "sporadic", 0}, {"lossy", "steady", 0}, {"lossy", "large", 0},
}

// TransportsQuick returns the quick preset: a minute, enough to see the shape of
// things, too little for a tail.
func TransportsQuick() TransportsConfig {
	return TransportsConfig{
		Cases: quickCases, Samples: 200, LargeSamples: 24, CongestionSamples: 24, Visits: 4, Draws: 200,
		Estate: Estate{Endpoints: 80, H3: 0.4, Blocked: 0.15, Dying: 0.07, Wrong: 0.07}, BlockedEndpoints: 40,
	}
}

// chooseCases fills in networks, scenarios and what runs where.
func (c *TransportsConfig) chooseCases() {
	if c.Link == linkLoopback {
		c.Networks, c.Cases = []Network{loopback}, nil
	}
	if len(c.Networks) == 0 && len(c.Cases) == 0 {
		c.Cases = fullCases
	}
	if len(c.Scenarios) > 0 {
		c.Cases = slices.DeleteFunc(slices.Clone(c.Cases), func(at Case) bool { return !slices.Contains(c.Scenarios, at.Scenario) })
	} else {
		c.Scenarios = TransportsScenarios()
	}
	if len(c.Networks) == 0 {
		c.Networks = slices.DeleteFunc(Networks(), func(n Network) bool { return len(c.casesOf(n)) == 0 })
	}
}

// WithoutSamples returns cases that take the scenarios' numbers of samples.
func WithoutSamples(cases []Case) []Case {
	out := slices.Clone(cases)
	for i := range out {
		out[i].Samples = 0
	}
	return out
}

// casesOf lists what runs on a network.
func (c *TransportsConfig) casesOf(n Network) []Case {
	var out []Case
	if len(c.Cases) == 0 {
		for _, s := range c.Scenarios {
			out = append(out, Case{Network: n.Name, Scenario: s})
		}
		return out
	}
	for _, at := range c.Cases {
		if at.Network == n.Name {
			out = append(out, at)
		}
	}
	return out
}

// parallel is how many cold requests are on their way at once on a network.
func (c *TransportsConfig) parallel(n Network) int {
	if c.Parallel > 0 {
		return c.Parallel
	}
	const least, most = 8, 64
	return min(most, max(least, int(n.RTT/(3*time.Millisecond))))
}
