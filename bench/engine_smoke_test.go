package bench_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench"
)

func tinyEngine(t *testing.T) bench.EngineConfig {
	t.Helper()
	dir := t.TempDir()
	return bench.EngineConfig{
		Run:    bench.Run{Data: filepath.Join(onDisk(t), "data"), Seed: 7, Out: filepath.Join(dir, "out"), JSON: filepath.Join(dir, "again.json"), Command: "test", Progress: t.Output()},
		Rounds: 1, Subscribers: 5, Body: 256, Connections: 4, BatchSize: 10,
		Backlog: 200, FanOut: 50, Single: 50, Batch: 100, Accept: 50, Rate: 200, LatencyFor: 100 * time.Millisecond,
		Hang: 50, HangFor: 50 * time.Millisecond, Kill: 1000, Scale: []int{1, 3}, ScaleEvents: 50,
		FloorPosts: 50, FloorConcurrency: []int{2, 4}, FloorKeep: 1,
		CPUProfile: filepath.Join(dir, "cpu.pprof"), MemProfile: filepath.Join(dir, "heap.pprof"), ProfileOf: "single", ProfileFor: time.Second,
	}
}

// TestEngineRunsEveryWorkloadEndToEnd runs real processes with tiny sizes. It
// asserts that everything was measured and nothing lost, and no speed.
func TestEngineRunsEveryWorkloadEndToEnd(t *testing.T) {
	t.Parallel()
	c := tinyEngine(t)
	rep, err := bench.Engine(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(rep.Failures) > 0 {
		t.Errorf("%v", rep.Failures)
	}
	data, ok := rep.Data.(bench.EngineData)
	if !ok {
		t.Fatalf("%T", rep.Data)
	}
	measured := map[string]int{}
	for _, m := range data.Measures {
		measured[m.Workload]++
		if m.Rate <= 0 || m.Disk.N == 0 {
			t.Errorf("%s: %+v", m.Workload, m)
		}
		if m.Kill == nil && (m.SyncsPerEvent <= 0 || m.RSS == 0) {
			t.Errorf("%s: nothing is known about the node: %+v", m.Workload, m)
		}
		if m.Deliveries > 0 && (m.Seen.Arrived != m.Deliveries || m.Seen.Verified == 0) {
			t.Errorf("%s: %+v", m.Workload, m.Seen)
		}
	}
	for _, name := range bench.EngineWorkloads() {
		want := 1
		if name == "scale" {
			want = len(c.Scale)
		}
		if measured[name] != want {
			t.Errorf("%s was measured %d times, want %d", name, measured[name], want)
		}
	}
	var out bytes.Buffer
	if err := c.Run.Write("engine", rep, &out); err != nil {
		t.Error(err)
	}
	checkReports(t, c.Run, "engine", out.String())
	for _, profile := range []string{c.CPUProfile, c.MemProfile} {
		if raw, err := os.ReadFile(profile); err != nil || !bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
			t.Errorf("%s: %v, %d bytes", profile, err, len(raw))
		}
	}
	if left, err := os.ReadDir(c.Run.Data); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// checkReports looks at what Run.Write wrote.
func checkReports(t *testing.T, run bench.Run, name, stdout string) {
	t.Helper()
	if !strings.HasPrefix(stdout, "# dispatcher bench") || !strings.Contains(stdout, "Seed: 7") {
		t.Errorf("stdout:\n%s", stdout)
	}
	for _, file := range []string{run.JSON, filepath.Join(run.Out, name+".json")} {
		raw, err := os.ReadFile(file)
		if err != nil || !json.Valid(raw) {
			t.Errorf("%s: %v", file, err)
		}
	}
	html, err := os.ReadFile(filepath.Join(run.Out, name+".html"))
	if err != nil || !bytes.Contains(html, []byte("<svg")) {
		t.Errorf("HTML: %v, %d bytes", err, len(html))
	}
}

func TestEngineConfigNamesWhatIsWrong(t *testing.T) {
	if err := (bench.EngineConfig{}).WithDefaults().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	if err := bench.EngineQuick().WithDefaults().Validate(); err != nil {
		t.Errorf("the quick preset: %v", err)
	}
	bad := bench.EngineConfig{Workloads: []string{"nonsense"}, Rounds: -1, Body: 1, Rate: -1, HangFor: -1, Scale: []int{0}}.WithDefaults()
	err := bad.Validate()
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, want := range []string{`workload "nonsense"`, "rounds", "body", "rate", "durations", "scale"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named: %v", want, err)
		}
	}
}

func TestEngineRefusesADataDirectoryInMemory(t *testing.T) {
	if _, err := os.Stat("/dev/shm"); err != nil {
		t.Log("nothing in memory here")
		return
	}
	dir := filepath.Join("/dev/shm", "dispatcher-bench-refused")
	defer os.Remove(dir)
	_, err := bench.Engine(t.Context(), bench.EngineConfig{Run: bench.Run{Data: dir}})
	if err == nil || !strings.Contains(err.Error(), "tmpfs") {
		t.Errorf("%v", err)
	}
}
