package bench_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench"
)

// TestIsolationRunsEveryPartEndToEnd runs real processes with tiny sizes. It
// asserts that both sides of every pair were measured and nothing was lost, and
// no speed.
func TestIsolationRunsEveryPartEndToEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := bench.IsolationConfig{
		Run:   bench.Run{Data: filepath.Join(onDisk(t), "data"), Seed: 7, Out: filepath.Join(dir, "out"), JSON: filepath.Join(dir, "again.json"), Command: "test", Progress: t.Output()},
		Pairs: 2, Healthy: 4, Rate: 100, For: 400 * time.Millisecond, Body: 256, Connections: 4,
		Hanging: 6, HangFor: time.Second, HangBacklog: 2, HangWindow: 300 * time.Millisecond,
		Tenants: 2, Noise: 5, NoiseBatch: 5, Slots: 2, Delay: 5 * time.Millisecond,
	}
	rep, err := bench.Isolation(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Failures) > 0 {
		t.Errorf("%v", rep.Failures)
	}
	data, ok := rep.Data.(bench.IsolationData)
	if !ok {
		t.Fatalf("%T", rep.Data)
	}
	if want := c.Pairs * len(bench.IsolationParts()); len(data.Pairs) != want {
		t.Errorf("%d pairs, want %d", len(data.Pairs), want)
	}
	for _, p := range data.Pairs {
		for _, side := range []bench.IsolationSide{p.Without, p.With} {
			if side.Seen.Arrived == 0 || side.Seen.Latency.N != side.Seen.Arrived || side.Ack.N == 0 {
				t.Errorf("%s, pair %d: %+v", p.Part, p.Round, side)
			}
		}
		switch {
		case p.Part == "hanging" && p.With.Hanging != c.Hanging:
			t.Errorf("%d requests hung, want %d", p.With.Hanging, c.Hanging)
		case p.Part != "hanging" && (p.With.Others == 0 || p.Without.Others != 0):
			t.Errorf("%s, pair %d: the others got %v and %v a second", p.Part, p.Round, p.Without.Others, p.With.Others)
		}
	}
	var out bytes.Buffer
	if err := c.Run.Write("isolation", rep, &out); err != nil {
		t.Error(err)
	}
	checkReports(t, c.Run, "isolation", out.String())
	if left, err := os.ReadDir(c.Run.Data); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestIsolationConfigNamesWhatIsWrong(t *testing.T) {
	for _, good := range []bench.IsolationConfig{{}, bench.IsolationQuick()} {
		if err := good.WithDefaults().Validate(); err != nil {
			t.Error(err)
		}
	}
	bad := bench.IsolationConfig{
		Parts: []string{"nonsense"}, Pairs: -1, Healthy: -1, Rate: -1, For: -1, Body: 1, Connections: -1, Hanging: -1, HangFor: 1, HangBacklog: -1,
		HangWindow: -1, Tenants: -1, Noise: -1, NoiseBatch: -1, Slots: -1, Delay: 1,
	}
	err := bad.WithDefaults().Validate()
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, want := range []string{
		`nonsense`, "pairs", "healthy", "rate", "for:", "body", "connections", "hanging:", "hang-for", "hang-backlog", "hang-window", "tenants", "noise:", "noise-batch", "slots", "delay",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named: %v", want, err)
		}
	}
}
