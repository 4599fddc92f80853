package stats

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestQuantileIsAValueThatWasMeasured(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	cases := []struct {
		values []int
		q      float64
		want   int
	}{
		{nil, 0.5, 0},
		{[]int{7}, 0, 7}, {[]int{7}, 1, 7},
		{[]int{1, 2}, 0.5, 1}, {[]int{1, 2}, 0.51, 2},
		{hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 0.991, 100}, {hundred, 1, 100}, {hundred, 0, 1}, {hundred, 2, 100},
	}
	for _, c := range cases {
		if got := Quantile(c.values, c.q); got != c.want {
			t.Errorf("Quantile(%d values, %v) = %d, want %d", len(c.values), c.q, got, c.want)
		}
	}
}

func TestLatencyDescribesInMilliseconds(t *testing.T) {
	got := LatencyOf([]time.Duration{4 * time.Millisecond, 1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond})
	want := Latency{N: 4, Mean: 2.5, P50: 2, P90: 4, P99: 4, Max: 4}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if LatencyOf(nil) != (Latency{}) {
		t.Error("nothing measured is not zero")
	}
}

func TestSpreadHasMedianAndExtremes(t *testing.T) {
	cases := []struct {
		rounds []float64
		want   Spread
	}{
		{nil, Spread{}},
		{[]float64{3}, Spread{3, 3, 3, 1}},
		{[]float64{5, 1, 3}, Spread{3, 1, 5, 3}},
		{[]float64{4, 1, 2, 9}, Spread{3, 1, 9, 4}},
	}
	for _, c := range cases {
		if got := SpreadOf(c.rounds); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.rounds, got, c.want)
		}
	}
}

func TestRatiosArePairedAndSkipZero(t *testing.T) {
	got := Ratios([]float64{1, 2, 3, 4}, []float64{2, 0, 6})
	if len(got) != 2 || got[0] != 0.5 || got[1] != 0.5 {
		t.Errorf("%v", got)
	}
}

func TestJainIsOneWhenEqualAndOneNthWhenOneHasAll(t *testing.T) {
	cases := []struct {
		shares []float64
		want   float64
	}{
		{nil, 1}, {[]float64{0, 0}, 1}, {[]float64{2, 2, 2}, 1}, {[]float64{1, 0, 0, 0}, 0.25}, {[]float64{1, 2}, 0.9},
	}
	for _, c := range cases {
		if got := Jain(c.shares); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: %v, want %v", c.shares, got, c.want)
		}
	}
}

func TestCDFKeepsBothEndsAndStaysSmall(t *testing.T) {
	values := make([]float64, 10_000)
	for i := range values {
		values[i] = float64(i)
	}
	points := CDF(values, 50)
	if len(points) > 50 || points[0].X != 0 || points[len(points)-1] != (Point{9999, 1}) {
		t.Errorf("%d points from %v to %v", len(points), points[0], points[len(points)-1])
	}
	for i := 1; i < len(points); i++ {
		if points[i].X <= points[i-1].X || points[i].Y <= points[i-1].Y {
			t.Fatalf("point %d does not rise: %v", i, points[i-1:i+1])
		}
	}
	if got := CDF([]float64{1, 2}, 50); len(got) != 2 || got[1].Y != 1 {
		t.Errorf("%v", got)
	}
	if CDF(nil, 10) != nil {
		t.Error("points of nothing")
	}
}

func TestBootstrapCoversAKnownMean(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, 400)
	for i := range values {
		values[i] = rng.NormFloat64() + 10
	}
	mean := func(indices []int) float64 {
		sum := 0.0
		for _, i := range indices {
			sum += values[i]
		}
		return sum / float64(len(indices))
	}
	got := Bootstrap(len(values), 500, 1, 0.95, rng, mean)
	if got.Low > 10 || got.High < 10 || got.Low > got.Value || got.High < got.Value || got.High-got.Low > 0.4 {
		t.Errorf("%+v", got)
	}
	if Bootstrap(0, 10, 0, 0.95, rng, mean) != (Interval{}) {
		t.Error("an interval of nothing")
	}
}

func TestBootstrapIsRepeatableWithItsSeed(t *testing.T) {
	run := func() Interval {
		rng := rand.New(rand.NewPCG(7, 7))
		return Bootstrap(50, 100, 1, 0.9, rng, func(indices []int) float64 { return float64(indices[0] + indices[len(indices)-1]) })
	}
	if a, b := run(), run(); a != b {
		t.Errorf("%+v and %+v", a, b)
	}
}

func TestRegretIsAgainstTheBestFixedAlternative(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	fast, slow, chosen := make([]float64, 300), make([]float64, 300), make([]float64, 300)
	for i := range fast {
		base := 50 + 10*rng.Float64()
		fast[i], slow[i] = base, 2*base
		chosen[i] = base * 1.1
	}
	r := RegretOf(Series{"auto", chosen}, []Series{{"slow", slow}, {"fast", fast}}, 0.5, 200, 1, rng)
	if r.Best != "fast" || r.N != 300 || math.Abs(r.Ratio.Value-1.1) > 1e-9 {
		t.Errorf("%+v", r)
	}
	if r.Ratio.Low < 1.09 || r.Ratio.High > 1.11 {
		t.Errorf("pairs were torn apart: %+v", r.Ratio)
	}
}

func TestRegretOfNothingIsNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, alternatives := range [][]Series{nil, {{"x", nil}}} {
		if r := RegretOf(Series{"auto", []float64{1}}, alternatives, 0.99, 10, 1, rng); r.N != 0 || r.Ratio != (Interval{}) {
			t.Errorf("%+v", r)
		}
	}
}

func TestClustersThatShareTheirFateWidenTheInterval(t *testing.T) {
	// Ten bursts of a hundred equal values: ten observations, not a thousand.
	values := make([]float64, 1000)
	for i := range values {
		values[i] = float64(i / 100)
	}
	mean := func(indices []int) float64 {
		sum := 0.0
		for _, at := range indices {
			sum += values[at]
		}
		return sum / float64(len(indices))
	}
	width := func(cluster int) float64 {
		i := Bootstrap(len(values), 500, cluster, 0.95, rand.New(rand.NewPCG(1, 2)), mean)
		return i.High - i.Low
	}
	if single, clustered := width(1), width(100); clustered < 5*single {
		t.Errorf("%v wide for single samples, %v for clusters", single, clustered)
	}
	Bootstrap(7, 50, 3, 0.95, rand.New(rand.NewPCG(1, 2)), func(indices []int) float64 {
		if len(indices) != 7 || indices[6] > 6 {
			t.Errorf("a sample of %v", indices)
		}
		return 0
	})
}
