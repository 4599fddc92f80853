package host

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStatIsReadBehindAnyCommandName(t *testing.T) {
	tail := " S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 1 0 5"
	for _, name := range []string{"go", "a b", "evil) S 9 (x", ""} {
		got, err := parseStat("42 (" + name + ")" + tail)
		if err != nil || got != 2*time.Second {
			t.Errorf("%q: %v %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "42 no command", "42 (x) S 1 2", "42 (x) S 1 2 3 4 5 6 7 8 9 10 a b c"} {
		if _, err := parseStat(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestAProcessUsesTimeAndMemory(t *testing.T) {
	u, err := UsageOf(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if u.RSS < 1<<20 || u.Peak < u.RSS/2 {
		t.Errorf("%+v", u)
	}
	if err := ResetPeak(os.Getpid()); err != nil {
		t.Error(err)
	}
	if _, err := UsageOf(-1); err == nil {
		t.Error("a process that cannot exist was measured")
	}
}

func TestTheMachineIsDescribed(t *testing.T) {
	m := Describe()
	if m.Cores < 1 || m.Memory == 0 || m.Kernel == "unknown" || !strings.HasPrefix(m.Go, "go1.") || len(m.Facts()) == 0 {
		t.Errorf("%+v", m)
	}
	if (Machine{Load: 3}).Warnings() == nil || (Machine{Load: 0.1}).Warnings() != nil {
		t.Error("a busy machine is not told from a quiet one")
	}
}

func TestADirectoryInMemoryIsRefused(t *testing.T) {
	const inMemory = "/dev/shm"
	if _, err := os.Stat(inMemory); err != nil {
		t.Logf("%s: %v; nothing to refuse here", inMemory, err)
		return
	}
	if name, err := Disk(inMemory); err == nil {
		t.Errorf("%s on %s was accepted", inMemory, name)
	}
	if _, _, err := NewRunDir(filepath.Join(inMemory, "dispatcher-bench-test")); err == nil {
		t.Error("a run in memory was begun")
	}
	_ = os.Remove(filepath.Join(inMemory, "dispatcher-bench-test"))
}

func TestSyncsAreTimed(t *testing.T) {
	dir := t.TempDir()
	got, err := Syncs(dir, 0, 0)
	if err != nil || got.N != 1 {
		t.Errorf("%+v %v", got, err)
	}
	start := time.Now()
	if got, err = Syncs(dir, 4*time.Millisecond, 2*time.Millisecond); err != nil || got.N > 3 || time.Since(start) < 4*time.Millisecond {
		t.Errorf("at a pace: %+v %v", got, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("the probe left %v", left)
	}
	if _, err := Syncs(filepath.Join(dir, "missing"), 0, 0); err == nil {
		t.Error("a missing directory was probed")
	}
}

func TestWhatAKilledRunLeftIsRemovedAndALivingOneIsNot(t *testing.T) {
	parent := t.TempDir()
	living, _, err := NewRunDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer living.Remove()
	stale := filepath.Join(parent, runPrefix+"stale")
	fresh := filepath.Join(parent, runPrefix+"being-made")
	for _, dir := range []string{stale, fresh} {
		if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(stale, lockName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	next, removed, err := NewRunDir(parent)
	if err != nil {
		t.Fatal(err)
	}
	if len(removed) != 1 || removed[0] != stale {
		t.Errorf("removed %v", removed)
	}
	for _, dir := range []string{living.Path, fresh, next.Path} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("%s is gone: %v", dir, err)
		}
	}
	if err := next.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(next.Path); err == nil {
		t.Error("a removed run is there")
	}
}

func TestCoresBindsTheThreadOnly(t *testing.T) {
	done := make(chan error, 1)
	var got int
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var err error
		got, err = UseCores(1)
		done <- err
	}()
	if err := <-done; err != nil || got != 1 {
		t.Errorf("%d %v", got, err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if n, err := UseCores(0); err != nil || n < 1 || runtime.NumCPU() > 1 && n < 2 {
		t.Errorf("%d %v", n, err)
	}
}

func TestTheClockOfTheMachineGoesOn(t *testing.T) {
	a := Now()
	b := Now()
	if a <= 0 || b < a {
		t.Errorf("%v then %v", a, b)
	}
}
