// Package stats is the arithmetic of the benchmarks: percentiles, medians with
// their extremes, bootstrap intervals, regret and fairness. It is pure: numbers
// in, numbers out, and a seed where chance is involved, so that a figure of a
// report can be computed again from the report's own data.
//
//	samples ──► Sorted ──► Quantile, Latency, CDF
//	rounds  ──► SpreadOf            median [min … max]
//	pairs   ──► Regret, Bootstrap   ratio and its interval
//	shares  ──► Jain                1 = all equal, 1/n = one has everything
//
// Quantiles are by nearest rank: a reported p99 is a value that was measured.
// It deliberately fits no distribution and removes no outliers.
package stats
