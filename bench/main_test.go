package bench_test

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/internal/cli"
)

// asMain makes the test binary be the dispatcher: the benchmarks run processes
// of the program that they are in.
const asMain = "DISPATCHER_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) == "" {
		_ = os.Setenv(asMain, "1") // for the processes that tests start
		goleak.VerifyTestMain(m)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	os.Exit(cli.Run(ctx, "test", os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// places are tried for a directory on a disk, in this order.
var places = []string{os.TempDir(), "/var/tmp", "."}

// onDisk returns a directory on a disk, which t.TempDir need not be: the
// benchmarks refuse one in memory.
func onDisk(t *testing.T) string {
	t.Helper()
	for _, parent := range places {
		if _, err := host.Disk(parent); err != nil {
			continue
		}
		dir, err := os.MkdirTemp(parent, "bench-test-") //nolint:usetesting // see above
		if err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return dir
	}
	t.Fatal("there is no directory on a disk")
	return ""
}
