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
		Procs: []int{1, 2}, InFlight: 20,
		FloorPosts: 50, FloorConcurrency: []int{2, 4}, FloorConns: []int{1, 2}, FloorKeep: 1,
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
		if m.Kill == nil && (m.SyncsPerEvent <= 0 || m.RSS <= m.File || m.File == 0) {
			t.Errorf("%s: nothing is known about the node: %+v", m.Workload, m)
		}
		if m.Deliveries > 0 && (m.Seen.Arrived != m.Deliveries || m.Seen.Verified == 0) {
			t.Errorf("%s: %+v", m.Workload, m.Seen)
		}
	}
	want := map[string]int{"scale": len(c.Scale), "cores": 0, "cores-drain": len(c.Procs), "cores-single": len(c.Procs), "in-flight": 0}
	for _, name := range append(bench.EngineWorkloads(), "cores-drain", "cores-single") {
		want, special := want[name]
		if !special {
			want = 1
		}
		if measured[name] != want {
			t.Errorf("%s was measured %d times, want %d", name, measured[name], want)
		}
	}
	checkFloorsAndMemory(t, c, data)
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

// checkFloorsAndMemory looks at what only some workloads have: floors of their
// own, nodes that differ, deliveries that hang.
func checkFloorsAndMemory(t *testing.T, c bench.EngineConfig, data bench.EngineData) {
	t.Helper()
	for _, m := range data.Measures {
		switch m.Workload {
		case "drain-h2", "drain-h3":
			if m.Ratio <= 0 || m.Floor.Conns == 0 || m.RatioConn != 0 {
				t.Errorf("%s: not beside the floor of its protocol: %+v", m.Workload, m.Floor)
			}
		case "cores-drain", "cores-single":
			if m.Procs == 0 || m.Ratio != 0 {
				t.Errorf("%s: GOMAXPROCS %d, ratio %v", m.Workload, m.Procs, m.Ratio)
			}
		}
	}
	// Over HTTP/1.1 each that hangs has a connection, over the others they share: a
	// burst over HTTP/3 has up to four. What twenty deliveries add to a node's memory
	// is less than what its garbage collector gives back meanwhile. Each of them has
	// its goroutine, but the count before may hold some that were about to end.
	connections := map[string]int{}
	for _, f := range data.InFlight {
		connections[f.Protocol] = f.Connections
		if f.Deliveries != c.InFlight || 2*f.Cold.Goroutines < int64(c.InFlight) || 2*f.Warm.Goroutines < int64(c.InFlight) {
			t.Errorf("in-flight over %s: %+v", f.Protocol, f)
		}
	}
	if connections["h1"] < c.InFlight || connections["h2"] == 0 || connections["h2"] > 2 || connections["h3"] == 0 || connections["h3"] > 4 {
		t.Errorf("connections while %d deliveries hang: %v", c.InFlight, connections)
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
	bad := bench.EngineConfig{Workloads: []string{"nonsense"}, Rounds: -1, Body: 1, Rate: -1, HangFor: -1, Scale: []int{0}, Procs: []int{-1}, FloorConns: []int{0}, InFlight: -1}.WithDefaults()
	err := bad.Validate()
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, want := range []string{`workload "nonsense"`, "rounds", "body", "rate", "durations", "scale", "procs", "floor-conns", "in-flight"} {
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
