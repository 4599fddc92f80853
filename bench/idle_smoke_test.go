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

// TestIdleMeasuresBothNodes runs real nodes with tiny sizes, and asserts no
// figure that noise can change.
func TestIdleMeasuresBothNodes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := bench.IdleConfig{
		Run:         bench.Run{Data: filepath.Join(onDisk(t), "data"), Seed: 7, Out: filepath.Join(dir, "out"), JSON: filepath.Join(dir, "again.json"), Command: "test", Progress: t.Output()},
		Subscribers: 2500, Waiting: 1500, Rounds: 1, Settle: time.Millisecond, For: 100 * time.Millisecond,
	}
	rep, err := bench.Idle(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	data, ok := rep.Data.(bench.IdleData)
	if !ok || len(data.Measures) != 2 {
		t.Fatalf("%T %+v", rep.Data, rep.Data)
	}
	for _, m := range data.Measures {
		if m.RSS == 0 || m.Ready <= 0 || m.Share < 0 {
			t.Errorf("%+v", m)
		}
	}
	var out bytes.Buffer
	if err := c.Run.Write("idle", rep, &out); err != nil {
		t.Error(err)
	}
	checkReports(t, c.Run, "idle", out.String())
	if left, err := os.ReadDir(c.Run.Data); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestIdleConfigNamesWhatIsWrong(t *testing.T) {
	if err := (bench.IdleConfig{}).WithDefaults().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	err := bench.IdleConfig{Subscribers: -1, Waiting: -1, Rounds: -1, Settle: -1, For: 1}.Validate()
	for _, want := range []string{"subscribers", "waiting", "rounds", "settle", "for"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named: %v", want, err)
		}
	}
}
