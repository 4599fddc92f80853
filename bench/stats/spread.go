package stats

// Spread is a figure that was measured in several rounds.
type Spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"rounds"`
}

// SpreadOf summarises rounds; the median of an even number of them is the mean
// of the two in the middle.
func SpreadOf(rounds []float64) Spread {
	n := len(rounds)
	if n == 0 {
		return Spread{}
	}
	sorted := Sorted(rounds)
	return Spread{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1], N: n}
}

// Ratios divides two series of rounds one by one: what was measured side by
// side is compared, not the medians of different moments. A zero denominator
// drops its round.
func Ratios(numerators, denominators []float64) []float64 {
	out := make([]float64, 0, len(numerators))
	for i := range min(len(numerators), len(denominators)) {
		if denominators[i] != 0 {
			out = append(out, numerators[i]/denominators[i])
		}
	}
	return out
}

// Jain returns Jain's fairness index of shares: 1 when all are equal, 1/n when
// one has everything, and 1 when there is nothing to share.
func Jain(shares []float64) float64 {
	var sum, squares float64
	for _, x := range shares {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(shares)) * squares)
}
