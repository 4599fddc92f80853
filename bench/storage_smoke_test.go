package bench_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench"
)

func TestStorageMeasuresPublishesAndABacklogEndToEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := bench.StorageConfig{
		Run:    bench.Run{Data: filepath.Join(onDisk(t), "data"), Seed: 7, Out: filepath.Join(dir, "out"), JSON: filepath.Join(dir, "again.json"), Command: "test", Progress: t.Output()},
		Rounds: 1, Publishers: []int{1, 3}, Events: 40, Rows: 500, Subscribers: 20, FanOut: 3, Consume: 300, Reads: 30, Writers: 2, NodeFor: 100 * time.Millisecond,
	}
	rep, err := bench.Storage(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	data, ok := rep.Data.(bench.StorageData)
	if !ok || len(rep.Failures) > 0 || len(data.Publish) != 2 {
		t.Fatalf("%v %+v", rep.Failures, data)
	}
	for _, m := range data.Publish {
		if m.Rate <= 0 || m.Raw <= 0 || m.Syncs <= 0 || m.Syncs > 1.5 || m.Latency.N != 40 || m.RawLatency.N != 40 {
			t.Errorf("%+v", m)
		}
	}
	b := data.Backlog
	if b.Cold.Found != 20 || b.Warm.Found != 20 || b.Warm.FirstRow <= 0 || b.Warm.RSS == 0 || b.Consumed != 300 || b.Before.N != 30 || b.After.N != 30 {
		t.Errorf("%+v", b)
	}
	if b.Killed.Found != 20 || b.FloorAfter.N != 30 || b.Node == nil || b.Node.Rows != 200 || b.Node.First <= 0 || b.Node.Delivered == 0 || b.Node.RSS == 0 {
		t.Errorf("%+v %+v", b, b.Node)
	}
	var out bytes.Buffer
	if err := c.Run.Write("storage", rep, &out); err != nil {
		t.Error(err)
	}
	checkReports(t, c.Run, "storage", out.String())
}

func TestStorageConfigNamesWhatIsWrong(t *testing.T) {
	for _, good := range []bench.StorageConfig{{}, bench.StorageQuick(), {Rows: 10_000_000, Subscribers: 100_000, Consume: 1_000_000}} {
		if err := good.WithDefaults().Validate(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	err := bench.StorageConfig{Parts: []string{"x"}, Rounds: -1, Rows: 10, Consume: 11, FanOut: -1, Publishers: []int{0}}.WithDefaults().Validate()
	for _, want := range []string{`part "x"`, "rounds", "consume", "fan-out", "publishers", "subscribers"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named: %v", want, err)
		}
	}
}
