package telemetry

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/sched"
)

// TestPairsAreTheSeriesOfTheirNames counts each pair of numbers once more often
// than the one before and finds that under its names, and under no other's.
func TestPairsAreTheSeriesOfTheirNames(t *testing.T) {
	m := New()
	n := 0
	reasons := append(delivery.Reasons(), 250) // one that nobody knows
	for p := delivery.ProtocolNone; p <= delivery.ProtocolHTTP3+1; p++ {
		for _, r := range reasons {
			n++
			m.attempts.of(p, r).Add(float64(n))
		}
	}
	for next := range delivery.NextParked + 2 {
		for _, r := range reasons {
			n++
			m.moved.of(next, r).Add(float64(n))
		}
	}
	n = 0
	expect := func(got float64, labels ...string) {
		t.Helper()
		if n++; got != float64(n) {
			t.Errorf("%q: %v, want %d", labels, got, n)
		}
	}
	for p := delivery.ProtocolNone; p <= delivery.ProtocolHTTP3+1; p++ {
		for _, r := range reasons {
			expect(value(t, m.attempts.vec.WithLabelValues(p.String(), r.String())), p.String(), r.String())
		}
	}
	// Numbers that are no Next share a name: 0 and the one after the last.
	invalid := map[delivery.Reason]float64{}
	for _, r := range reasons {
		invalid[r] = value(t, m.moved.vec.WithLabelValues("invalid", r.String()))
	}
	last := n + int(delivery.NextParked+1)*len(reasons)
	for i, r := range reasons {
		if want := float64(n + i + 1 + last + i + 1); invalid[r] != want {
			t.Errorf("invalid, %s: %v, want %v", r, invalid[r], want)
		}
	}
	n += len(reasons)
	for next := delivery.NextDelivered; next <= delivery.NextParked; next++ {
		for _, r := range reasons {
			expect(value(t, m.moved.vec.WithLabelValues(nextName(next), r.String())), nextName(next), r.String())
		}
	}
}

// TestAttemptsAreTimedUnderTheirNames observes attempts of each protocol with
// each end and reads how many observations each histogram has.
func TestAttemptsAreTimedUnderTheirNames(t *testing.T) {
	m := New()
	tell := m.scheduler().AttemptFinished
	finish := func(times int, p delivery.Protocol, next delivery.Next) {
		e := finished()
		e.Attempt.Result.Protocol, e.Next = p, next
		for range times {
			tell(e)
		}
	}
	finish(1, delivery.ProtocolNone, delivery.NextDead)
	finish(2, delivery.ProtocolHTTP1, delivery.NextRetry)
	finish(4, delivery.ProtocolHTTP2, delivery.NextDelivered)
	finish(8, delivery.ProtocolHTTP3, delivery.NextParked)
	finish(16, delivery.ProtocolHTTP3+1, delivery.NextDead)
	f := families(t, m)
	for name, want := range map[string]map[string]string{
		"attempt_seconds":  {`protocol="none`: "1", `protocol="h1`: "2", `protocol="h2`: "4", `protocol="h3`: "8", `protocol="` + (delivery.ProtocolHTTP3 + 1).String(): "16"},
		"state_seconds":    {`state="queued`: "31", `state="attempted`: "31", `state="retrying`: "2"},
		"delivery_seconds": {`end="delivered`: "4", `end="dead`: "17"},
	} {
		full := namespace + "_" + name
		for labels, count := range want {
			key := full + "_count{" + labels + `"`
			if got := f[full].series[key]; got != count {
				t.Errorf("%s: %q, want %s; there are %v", key, got, count, f[full].series)
			}
		}
	}
}

// value reads a counter.
func value(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var d dto.Metric
	if err := c.Write(&d); err != nil {
		t.Fatal(err)
	}
	return d.GetCounter().GetValue()
}

// finished is a delivery by the first attempt.
func finished() sched.AttemptFinished {
	return sched.AttemptFinished{
		Event: &delivery.Event{},
		Attempt: &delivery.Attempt{
			Result:  delivery.Result{Protocol: delivery.ProtocolHTTP1, Phases: delivery.Phases{Total: 3 * time.Millisecond}},
			Outcome: delivery.Outcome{Reason: delivery.ReasonDelivered},
		},
		Next: delivery.NextDelivered, Reason: delivery.ReasonDelivered, Lateness: time.Millisecond,
	}
}

// BenchmarkAttemptFinished is what metrics cost each delivery.
func BenchmarkAttemptFinished(b *testing.B) {
	tell, e := New().scheduler().AttemptFinished, finished()
	b.ReportAllocs()
	for b.Loop() {
		tell(e)
	}
}
