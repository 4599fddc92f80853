package stats

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Sorted returns a sorted copy.
func Sorted[T cmp.Ordered](values []T) []T {
	out := slices.Clone(values)
	slices.Sort(out)
	return out
}

// Quantile returns the smallest value that at least the share q of the sorted
// values does not exceed (nearest rank); zero for an empty slice.
func Quantile[T cmp.Ordered](sorted []T, q float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	// The subtraction keeps 0.99 of 100 at rank 99, where floating point gives a
	// hair more.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Latency describes a distribution of durations, in milliseconds.
type Latency struct {
	N    int     `json:"n"`
	Mean float64 `json:"mean_ms"`
	P50  float64 `json:"p50_ms"`
	P90  float64 `json:"p90_ms"`
	P99  float64 `json:"p99_ms"`
	Max  float64 `json:"max_ms"`
}

// LatencyOf describes durations given in any order.
func LatencyOf(durations []time.Duration) Latency {
	if len(durations) == 0 {
		return Latency{}
	}
	sorted := Sorted(durations)
	var sum time.Duration
	for _, d := range sorted {
		sum += d
	}
	return Latency{
		N:    len(sorted),
		Mean: Millis(sum) / float64(len(sorted)),
		P50:  Millis(Quantile(sorted, 0.50)),
		P90:  Millis(Quantile(sorted, 0.90)),
		P99:  Millis(Quantile(sorted, 0.99)),
		Max:  Millis(sorted[len(sorted)-1]),
	}
}

// Millis returns a duration in milliseconds.
func Millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Point is a point of a curve.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// CDF returns at most points points of the cumulative distribution of sorted
// values: X a value, Y the share of values at or below it. The ends are always
// among them, and the upper tail is sampled more densely, since that is what is
// looked at.
func CDF(sorted []float64, points int) []Point {
	n := len(sorted)
	if n == 0 || points < 2 {
		return nil
	}
	if n <= points {
		out := make([]Point, n)
		for i, v := range sorted {
			out[i] = Point{v, float64(i+1) / float64(n)}
		}
		return out
	}
	out := make([]Point, 0, points)
	last := -1
	for i := range points {
		share := float64(i) / float64(points-1)
		share = 1 - (1-share)*(1-share) // denser towards 1
		at := int(math.Round(share * float64(n-1)))
		if at == last {
			continue
		}
		last = at
		out = append(out, Point{sorted[at], float64(at+1) / float64(n)})
	}
	return out
}
