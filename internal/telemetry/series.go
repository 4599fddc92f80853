package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// pairs is a counter with two labels whose values have numbers. What is counted
// for each delivery is found by them: by names each would cost two hashes and two
// maps. It is filled before it is used and does not change after that.
type pairs[A, B ~uint8] struct {
	vec   *prometheus.CounterVec
	names func(A, B) (string, string)
	made  [][]prometheus.Counter // by A, then B; nil where fill was not called
}

// fill makes the series of one pair.
func (p *pairs[A, B]) fill(a A, b B) {
	for len(p.made) <= int(a) {
		p.made = append(p.made, nil)
	}
	for len(p.made[a]) <= int(b) {
		p.made[a] = append(p.made[a], nil)
	}
	p.made[a][b] = p.named(a, b)
}

// of returns the counter of one pair, by its names if it was not filled.
func (p *pairs[A, B]) of(a A, b B) prometheus.Counter {
	if int(a) < len(p.made) && int(b) < len(p.made[a]) {
		if c := p.made[a][b]; c != nil {
			return c
		}
	}
	return p.named(a, b)
}

func (p *pairs[A, B]) named(a A, b B) prometheus.Counter {
	first, second := p.names(a, b)
	return p.vec.WithLabelValues(first, second)
}

// times are the histograms that each attempt is observed in.
type times struct {
	attempt   []prometheus.Observer // by protocol
	queued    prometheus.Observer
	attempted prometheus.Observer
	retrying  prometheus.Observer
	delivered prometheus.Observer
	dead      prometheus.Observer
}

// fillTimes makes the series of times.
func (m *Metrics) fillTimes() {
	for _, p := range protocols { // numbered from zero on
		m.times.attempt = append(m.times.attempt, m.attemptTime.WithLabelValues(p.String()))
	}
	m.times.queued = m.stateTime.WithLabelValues(stateQueued)
	m.times.attempted = m.stateTime.WithLabelValues(stateAttempted)
	m.times.retrying = m.stateTime.WithLabelValues(stateRetrying)
	m.times.delivered = m.deliveryTime.WithLabelValues(nextName(delivery.NextDelivered))
	m.times.dead = m.deliveryTime.WithLabelValues(nextName(delivery.NextDead))
}

// attemptTimeOf returns the histogram of a protocol's attempts.
func (m *Metrics) attemptTimeOf(p delivery.Protocol) prometheus.Observer {
	if int(p) < len(m.times.attempt) {
		return m.times.attempt[p]
	}
	return m.attemptTime.WithLabelValues(p.String())
}
