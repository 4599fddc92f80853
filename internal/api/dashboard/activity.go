package dashboard

import (
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/telemetry"
)

const (
	// window is what charts, percentiles and shares are about.
	window = 15 * time.Minute
	// nowWindow is what the rates of this moment are taken over.
	nowWindow = 10 * time.Second
	// chartPoints is how many points a chart has at most.
	chartPoints = 60
	// chartLeast is the least time that a chart's axis covers: a young node's begins
	// in it.
	chartLeast = time.Minute
)

// activity answers questions about readings of the counters.
type activity struct {
	samples []telemetry.Totals
	bounds  []float64
}

func newActivity(samples []telemetry.Totals) activity {
	for len(samples) > 1 && samples[len(samples)-1].At.Sub(samples[0].At) > window {
		samples = samples[1:]
	}
	return activity{samples: samples, bounds: telemetry.LatencyBounds()}
}

// last is the newest reading.
func (a activity) last() telemetry.Totals {
	if len(a.samples) == 0 {
		return telemetry.Totals{}
	}
	return a.samples[len(a.samples)-1]
}

// first is the oldest one in the window.
func (a activity) first() telemetry.Totals {
	if len(a.samples) == 0 {
		return telemetry.Totals{}
	}
	return a.samples[0]
}

// axis is the time that charts cover.
func (a activity) axis() time.Duration {
	return min(window, max(chartLeast, a.last().At.Sub(a.first().At)))
}

// counter picks one counter of a reading.
type counter func(*telemetry.Totals) uint64

func publishedOf(t *telemetry.Totals) uint64 { return t.Published }
func deliveredOf(t *telemetry.Totals) uint64 { return t.Delivered }
func retriedOf(t *telemetry.Totals) uint64   { return t.Retried }
func deadOf(t *telemetry.Totals) uint64      { return t.Dead }

// sum is what a counter counted in the window.
func (a activity) sum(of counter) uint64 {
	first, last := a.first(), a.last()
	return of(&last) - of(&first)
}

// rate is what a counter counts in a second, over the last moments.
func (a activity) rate(of counter) (float64, bool) {
	last := a.last()
	for i := len(a.samples) - 2; i >= 0; i-- {
		apart := last.At.Sub(a.samples[i].At)
		if apart >= nowWindow || (i == 0 && apart >= time.Second) {
			return float64(of(&last)-of(&a.samples[i])) / apart.Seconds(), true
		}
	}
	return 0, false
}

// steps calls fn with pairs of readings that are a chart's step apart.
func (a activity) steps(fn func(from, to *telemetry.Totals)) {
	from, step := 0, max(telemetry.HistoryStep, a.axis()/chartPoints)-time.Second/2 // a reading may be early
	for i := range a.samples {
		if a.samples[i].At.Sub(a.samples[from].At) >= step || (i == len(a.samples)-1 && i > from) {
			fn(&a.samples[from], &a.samples[i])
			from = i
		}
	}
}

// series is a counter's rate over the window.
func (a activity) series(of counter) []point {
	var out []point
	a.steps(func(from, to *telemetry.Totals) {
		apart := to.At.Sub(from.At).Seconds()
		if apart < 1 {
			return // the newest reading is too close to the one before to say a rate
		}
		out = append(out, point{to.At, float64(of(to)-of(from)) / apart})
	})
	return out
}

// quantiles is a percentile of the attempts' duration over the window.
func (a activity) quantiles(q float64) []point {
	var out []point
	a.steps(func(from, to *telemetry.Totals) {
		d, _ := a.quantile(q, from, to)
		out = append(out, point{to.At, d.Seconds()})
	})
	return out
}

// quantile interpolates a percentile between two readings inside a bucket of the
// histogram; false without an attempt. It is as exact as the buckets are wide.
func (a activity) quantile(q float64, from, to *telemetry.Totals) (time.Duration, bool) {
	total := uint64(0)
	counts := make([]uint64, len(to.Latency))
	for i := range counts {
		counts[i] = to.Latency[i]
		if i < len(from.Latency) {
			counts[i] -= from.Latency[i]
		}
		total += counts[i]
	}
	if total == 0 {
		return 0, false
	}
	rank, below := q*float64(total), 0.0
	for i, n := range counts {
		if below+float64(n) < rank || n == 0 {
			below += float64(n)
			continue
		}
		if i >= len(a.bounds) {
			break
		}
		lower := 0.0
		if i > 0 {
			lower = a.bounds[i-1]
		}
		at := lower + (a.bounds[i]-lower)*(rank-below)/float64(n)
		return time.Duration(at * float64(time.Second)), true
	}
	return time.Duration(a.bounds[len(a.bounds)-1] * float64(time.Second)), true
}

// failures are the attempts of the window that did not deliver, by reason, the
// most frequent first.
func (a activity) failures() []share {
	first, last := a.first(), a.last()
	var out []share
	for _, r := range delivery.Reasons() {
		n := last.Reasons[r] - first.Reasons[r]
		if n > 0 && r != delivery.ReasonDelivered {
			out = append(out, share{Name: r.String(), N: n})
		}
	}
	return largestFirst(out)
}

// perSecond writes a rate.
func perSecond(rate float64, known bool) string {
	switch {
	case !known:
		return "–"
	case rate == 0:
		return "0"
	case rate < 10:
		return strconv.FormatFloat(rate, 'f', 1, 64)
	default:
		return grouped(int64(rate + 0.5))
	}
}
