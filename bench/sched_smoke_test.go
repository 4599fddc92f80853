package bench_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench"
)

func TestSchedMeasuresLatenessAndFairnessEndToEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := bench.SchedConfig{
		Run:         bench.Run{Seed: 7, Out: filepath.Join(dir, "out"), JSON: filepath.Join(dir, "again.json"), Command: "test", Progress: t.Output()},
		Subscribers: 300, Tenants: 10, Rate: 500, For: 300 * time.Millisecond, Failing: 0.1, Slow: 0.1, Hanging: 0.1,
		Rivals: 3, Slots: 6, Window: 200 * time.Millisecond,
	}
	rep, err := bench.Sched(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	data, ok := rep.Data.(bench.SchedData)
	if !ok || len(rep.Failures) > 0 {
		t.Fatalf("%v %+v", rep.Failures, data)
	}
	z := data.Zipf
	if z.Published != 150 || len(z.Natures) != 4 || z.SettledS < 0 || z.PeakFlight == 0 || z.Natures[0].Attempts == 0 {
		t.Errorf("%+v", z)
	}
	offered := int64(0)
	for _, n := range z.Natures {
		offered += n.Offered
	}
	if offered != 150 {
		t.Errorf("%d events were offered", offered)
	}
	if m := data.Contention; len(m.Tenants) != 3 || m.Rate <= 0 || m.JainTenant <= 0 || m.JainTenant > 1 {
		t.Errorf("%+v", m)
	}
	var out bytes.Buffer
	if err := c.Run.Write("sched", rep, &out); err != nil {
		t.Error(err)
	}
	checkReports(t, c.Run, "sched", out.String())
}

func TestSchedConfigNamesWhatIsWrong(t *testing.T) {
	for _, good := range []bench.SchedConfig{{}, bench.SchedQuick(), {Failing: -1, Slow: -1, Hanging: -1}} {
		if err := good.WithDefaults().Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	err := bench.SchedConfig{Parts: []string{"x"}, Subscribers: -1, Zipf: 0.5, Rate: -1, For: -1, Failing: 2, Rivals: 1, Slots: -1}.WithDefaults().Validate()
	for _, want := range []string{"part", "subscribers", "zipf", "rate", "for", "failing", "rivals", "slots"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named: %v", want, err)
		}
	}
}
