package stats

import (
	"math/rand/v2"
	"slices"
)

// Interval is an estimate with the bounds of its confidence interval.
type Interval struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Bootstrap estimates the interval that holds a statistic of n samples with the
// given confidence (percentile bootstrap). statistic gets the indices of a
// sample drawn with replacement, sorted; paired data stays paired, because it
// is indexed with the same numbers. The estimate itself is of all samples.
//
// cluster consecutive samples are drawn together (block bootstrap): what shares
// its fate, like the requests of one burst, is one observation. 0 and 1 = each
// sample is one.
func Bootstrap(n, draws, cluster int, confidence float64, rng *rand.Rand, statistic func(indices []int) float64) Interval {
	if n == 0 || draws < 1 {
		return Interval{}
	}
	indices := make([]int, n)
	for i := range indices {
		indices[i] = i
	}
	result := Interval{Value: statistic(indices)}
	values := make([]float64, draws)
	for d := range values {
		resample(indices, cluster, rng)
		values[d] = statistic(indices)
	}
	slices.Sort(values)
	tail := (1 - confidence) / 2
	result.Low, result.High = Quantile(values, tail), Quantile(values, 1-tail)
	return result
}

// resample fills indices with clusters drawn with replacement, sorted. The last
// cluster may be cut off at the end of the data or of the sample.
func resample(indices []int, cluster int, rng *rand.Rand) {
	n := len(indices)
	cluster = min(max(cluster, 1), n)
	for at := 0; at < n; {
		from := rng.IntN((n+cluster-1)/cluster) * cluster
		for i := from; i < min(from+cluster, n) && at < n; i++ {
			indices[at] = i
			at++
		}
	}
	slices.Sort(indices)
}

// Series is one competitor's paired measurements: index i of all series was
// measured under the same conditions.
type Series struct {
	Name   string
	Values []float64
}

// Regret is how much worse a choice did than the best fixed alternative.
type Regret struct {
	// Best is the alternative that did best over all samples.
	Best string `json:"best"`
	// Ratio is the choice's quantile over the best alternative's: 1 = as good as
	// the best, below 1 = better than any fixed one.
	Ratio Interval `json:"ratio"`
	// Quantile is which one was compared.
	Quantile float64 `json:"quantile"`
	N        int     `json:"n"`
}

// RegretOf compares a quantile of chosen with the same quantile of the best of
// the alternatives. In each bootstrap draw the best is looked for anew: that it
// is known only afterwards is part of the comparison. Samples beyond the
// shortest series are not used. cluster is that of [Bootstrap].
func RegretOf(chosen Series, alternatives []Series, q float64, draws, cluster int, rng *rand.Rand) Regret {
	n := len(chosen.Values)
	for _, s := range alternatives {
		n = min(n, len(s.Values))
	}
	if n == 0 || len(alternatives) == 0 {
		return Regret{Quantile: q}
	}
	scratch := make([]float64, n)
	quantile := func(values []float64, indices []int) float64 {
		for i, at := range indices {
			scratch[i] = values[at]
		}
		slices.Sort(scratch)
		return Quantile(scratch, q)
	}
	best := ""
	ratio := func(indices []int) float64 {
		lowest := 0.0
		for i, s := range alternatives {
			if v := quantile(s.Values, indices); i == 0 || v < lowest {
				lowest, best = v, s.Name
			}
		}
		if lowest == 0 {
			return 1
		}
		return quantile(chosen.Values, indices) / lowest
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	ratio(all)
	r := Regret{Best: best, Quantile: q, N: n}
	r.Ratio = Bootstrap(n, draws, cluster, 0.95, rng, ratio)
	return r
}
