package bench_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench"
)

func tinyTransports(t *testing.T, link string) bench.TransportsConfig {
	t.Helper()
	dir := t.TempDir()
	tiny, err := bench.ParseNetwork("tiny:rtt=10ms,rate=50M")
	if err != nil {
		t.Fatal(err)
	}
	return bench.TransportsConfig{
		Run:  bench.Run{Data: filepath.Join(onDisk(t), "data"), Seed: 7, Out: filepath.Join(dir, "out"), JSON: filepath.Join(dir, "again.json"), Command: "test", Progress: t.Output()},
		Link: link, Networks: []bench.Network{tiny}, Samples: 6, LargeSamples: 2, BurstSize: 3, SteadyRate: 200, LargeBody: 20 << 10,
		Estate: bench.Estate{Endpoints: 6, H3: 0.5, Blocked: 0.2}, Visits: 2, BlockedEndpoints: 3, Pause: time.Millisecond, Draws: 10, Timeout: 10 * time.Second,
	}
}

func checkTransports(t *testing.T, c bench.TransportsConfig) bench.TransportsData {
	t.Helper()
	rep, err := bench.Transports(t.Context(), c)
	if errors.Is(err, bench.ErrNoLink) {
		t.Logf("nothing tested: %v", err)
		return bench.TransportsData{}
	}
	if err != nil {
		t.Fatal(err)
	}
	data, ok := rep.Data.(bench.TransportsData)
	if !ok || len(rep.Failures) > 0 || len(data.Scenarios) != len(bench.TransportsScenarios()) {
		t.Fatalf("%v %+v", rep.Failures, data)
	}
	wanted := map[string]int{"sporadic": 6, "burst": 6, "steady": 6, "large": 2, "mixed": 12, "blocked": 6}
	for _, s := range data.Scenarios {
		for _, v := range s.Variants {
			answers := 0
			for protocol, n := range v.Protocols {
				answers += n
				if p := v.Variant.Protocol; p != "auto" && protocol != p {
					t.Errorf("%s, %s: %d answers over %s", s.Scenario, p, n, protocol)
				}
			}
			if len(v.Samples) != wanted[s.Scenario] || v.Failed > 0 || answers != wanted[s.Scenario] || v.Duplicates > 0 {
				t.Errorf("%s, %s: %+v", s.Scenario, v.Variant.Name, v)
			}
		}
		if len(s.Regrets) == 0 || s.Regrets[0].N != wanted[s.Scenario] {
			t.Errorf("%s: %+v", s.Scenario, s.Regrets)
		}
	}
	var out bytes.Buffer
	if err := c.Run.Write("transports", rep, &out); err != nil {
		t.Error(err)
	}
	checkReports(t, c.Run, "transports", out.String())
	return data
}

func TestTransportsRunsEveryScenarioOnLoopback(t *testing.T) {
	t.Parallel()
	checkTransports(t, tinyTransports(t, "loopback"))
}

// TestTransportsRunsEveryScenarioOverTheEmulatedLink needs to be allowed to make
// network namespaces; they end with the run's processes.
func TestTransportsRunsEveryScenarioOverTheEmulatedLink(t *testing.T) {
	t.Parallel()
	data := checkTransports(t, tinyTransports(t, "tun"))
	for _, s := range data.Scenarios {
		for _, v := range s.Variants {
			const rtt = 10 // ms
			if v.Latency.P50 < rtt {
				t.Errorf("%s, %s: p50 of %v ms is less than the round trip", s.Scenario, v.Variant.Name, v.Latency.P50)
			}
			if v.Wire.Bytes() == 0 {
				t.Errorf("%s, %s: nothing crossed the link", s.Scenario, v.Variant.Name)
			}
		}
	}
}

func TestCtrlCEndsTheLinkWithItsProcesses(t *testing.T) {
	t.Parallel()
	args := []string{"transports", "--network", "tiny:rtt=2ms", "--scenarios", "steady", "--samples", "100000"}
	for _, how := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		cmd, _ := startBench(t, "found RTT", args...)
		if cmd == nil {
			t.Log("nothing tested: no network namespaces here")
			return
		}
		started := children(t, cmd.Process.Pid)
		if len(started) != 2 {
			t.Errorf("%d processes, want client and server", len(started))
		}
		if err := cmd.Process.Signal(how); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err == nil {
			t.Error("a run that was interrupted succeeded")
		}
		// The namespaces have no name: nothing but these processes held them.
		gone(t, started)
	}
}
