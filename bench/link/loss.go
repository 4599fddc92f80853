package link

import "math/rand/v2"

// Loss says how packets are lost.
type Loss struct {
	// Rate is the share of packets lost, 0 to below 1.
	Rate float64 `json:"rate"`
	// Burst is the mean number of packets lost in a row. At most 1 = each packet
	// is lost independently of the others (uniform); above, the line changes
	// between a good state that loses nothing and a bad one that loses everything
	// (Gilbert–Elliott), so that the average is Rate.
	Burst float64 `json:"burst,omitempty"`
}

// losses draws what becomes of each packet.
type losses struct {
	rng        *rand.Rand
	uniform    float64 // probability of a loss, without states
	enter, end float64 // probabilities to enter and to leave the bad state
	bad        bool
}

func newLosses(l Loss, rng *rand.Rand) *losses {
	if l.Burst <= 1 {
		return &losses{rng: rng, uniform: l.Rate}
	}
	end := 1 / l.Burst
	// In equilibrium enter·(1−rate) = end·rate.
	return &losses{rng: rng, enter: end * l.Rate / (1 - l.Rate), end: end}
}

// lost says whether the next packet is.
func (l *losses) lost() bool {
	if l.end == 0 {
		return l.uniform > 0 && l.rng.Float64() < l.uniform
	}
	if l.bad {
		l.bad = l.rng.Float64() >= l.end
	} else {
		l.bad = l.rng.Float64() < l.enter
	}
	return l.bad
}
