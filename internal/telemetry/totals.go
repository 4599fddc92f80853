package telemetry

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Totals is one reading of the counters that GET /metrics shows, for whoever
// wants to draw them without a Prometheus. Everything but the gauges counts from
// the node's start; the difference of two readings is what happened in between.
type Totals struct {
	At        time.Time
	Published uint64
	Delivered uint64
	Retried   uint64
	Dead      uint64
	// Attempts by protocol: none, h1, h2, h3, in the order of their numbers.
	Attempts [4]uint64
	// Reasons are the attempts by their outcome's reason.
	Reasons map[delivery.Reason]uint64
	// Latency counts attempts with an answer or a failure by duration: one bucket
	// for each of [LatencyBounds], and one for what is longer.
	Latency []uint64
	// BreakerOpens and Disabled count what happened to subscribers.
	BreakerOpens, Disabled uint64
	// Ingress counts the ingress's answers by class: 2xx, 4xx and 5xx.
	IngressAccepted, IngressRefused, IngressFailed uint64
	// DiskFree and DiskTotal are gauges, in bytes; 0 = not known yet.
	DiskFree, DiskTotal uint64
}

// LatencyBounds are the upper bounds of [Totals.Latency]'s buckets in seconds.
func LatencyBounds() []float64 { return slices.Clone(latencyBuckets) }

// Totals reads the counters. It costs a few hundred loads, and locks nobody out.
func (m *Metrics) Totals() Totals {
	t := Totals{
		At: time.Now(), Reasons: map[delivery.Reason]uint64{}, Latency: make([]uint64, len(latencyBuckets)+1),
		Published: whole(m.published), DiskFree: whole(m.diskFree), DiskTotal: whole(m.diskTotal),
	}
	each(m.attempts.vec, func(labels map[string]string, d *dto.Metric) {
		n := uint64(d.GetCounter().GetValue())
		for i, p := range protocols {
			if p.String() == labels["protocol"] {
				t.Attempts[i] += n
			}
		}
		if reason, ok := delivery.ParseReason(labels["reason"]); ok && n > 0 {
			t.Reasons[reason] += n
		}
	})
	each(m.attemptTime, func(_ map[string]string, d *dto.Metric) { addBuckets(t.Latency, d.GetHistogram()) })
	m.readMoves(&t)
	each(m.received.answers, func(labels map[string]string, d *dto.Metric) {
		n := uint64(d.GetCounter().GetValue())
		switch labels["status"][0] {
		case '2':
			t.IngressAccepted += n
		case '5':
			t.IngressFailed += n
		default:
			t.IngressRefused += n
		}
	})
	return t
}

func (m *Metrics) readMoves(t *Totals) {
	each(m.moved.vec, func(labels map[string]string, d *dto.Metric) {
		n := uint64(d.GetCounter().GetValue())
		switch labels["next"] {
		case nexts[delivery.NextDelivered]:
			t.Delivered += n
		case nexts[delivery.NextRetry]:
			t.Retried += n
		case nexts[delivery.NextDead]:
			t.Dead += n
		}
	})
	each(m.breaker, func(labels map[string]string, d *dto.Metric) {
		if labels["to"] == delivery.BreakerOpen.String() {
			t.BreakerOpens += uint64(d.GetCounter().GetValue())
		}
	})
	each(m.disabled, func(_ map[string]string, d *dto.Metric) { t.Disabled += uint64(d.GetCounter().GetValue()) })
}

// addBuckets adds a histogram's buckets, which are cumulative, to counts.
func addBuckets(counts []uint64, h *dto.Histogram) {
	below := uint64(0)
	for i, b := range h.GetBucket() {
		if i < len(counts)-1 {
			counts[i] += b.GetCumulativeCount() - below
			below = b.GetCumulativeCount()
		}
	}
	counts[len(counts)-1] += h.GetSampleCount() - below
}

// whole reads one counter or gauge.
func whole(m prometheus.Metric) uint64 {
	var d dto.Metric
	if m.Write(&d) != nil {
		return 0
	}
	return uint64(max(0, d.GetCounter().GetValue()+d.GetGauge().GetValue()))
}

// each calls fn with every series of a vector.
func each(c prometheus.Collector, fn func(labels map[string]string, d *dto.Metric)) {
	series := make(chan prometheus.Metric, 64)
	go func() {
		defer close(series)
		c.Collect(series)
	}()
	for s := range series {
		var d dto.Metric
		if s.Write(&d) != nil {
			continue
		}
		labels := make(map[string]string, len(d.GetLabel()))
		for _, l := range d.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		fn(labels, &d)
	}
}
