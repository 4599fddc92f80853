package bench_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startBench runs `dispatcher bench …` as a process of its own and returns when
// its progress shows a text; nil if it ends because there can be no link here.
func startBench(t *testing.T, until string, args ...string) (cmd *exec.Cmd, data string) {
	t.Helper()
	data = filepath.Join(onDisk(t), "data")
	args = append([]string{"bench"}, append(args, "--data", data, "--out", "")...)
	cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	progress, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines := bufio.NewScanner(progress)
	for lines.Scan() {
		t.Log(lines.Text())
		if strings.Contains(lines.Text(), "no network namespaces") {
			return nil, ""
		}
		if strings.Contains(lines.Text(), until) {
			go func() { _, _ = io.Copy(io.Discard, progress) }()
			return cmd, data
		}
	}
	t.Fatalf("the progress ended before it showed %q", until)
	return nil, ""
}

// children returns the processes whose parent is pid.
func children(t *testing.T, pid int) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, file := range files {
		raw, _ := os.ReadFile(filepath.Clean(file)) // a thread may have ended
		for field := range strings.FieldsSeq(string(raw)) {
			if child, err := strconv.Atoi(field); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

func gone(t *testing.T, pids []int) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for _, pid := range pids {
		for alive(pid) {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("process %d is left", pid)
			}
		}
	}
}

func alive(pid int) bool {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return !strings.HasPrefix(rest, "Z")
}

var endless = []string{"engine", "--workloads", "drain", "--rounds", "1000", "--backlog", "100", "--floor-posts", "100", "--floor-concurrency", "2", "--subscribers", "2"}

func TestCtrlCLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	cmd, data := startBench(t, "round 1: drain", endless...)
	started := children(t, cmd.Process.Pid)
	if len(started) < 3 {
		t.Errorf("%d processes, want node, load and receiver", len(started))
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("a run that was interrupted succeeded")
	}
	gone(t, started)
	if left, err := os.ReadDir(data); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestWhatAKillLeavesIsGoneWithTheNextRun(t *testing.T) {
	t.Parallel()
	cmd, data := startBench(t, "a node with", endless...)
	started := children(t, cmd.Process.Pid)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	gone(t, started)
	stale, err := os.ReadDir(data)
	if err != nil || len(stale) != 1 {
		t.Fatalf("%v %v", stale, err)
	}
	next := exec.CommandContext(t.Context(), os.Args[0], "bench", "engine", "--data", data, "--out", "", "--workloads", "accept", "--rounds", "1",
		"--accept", "10", "--floor-posts", "10", "--floor-concurrency", "1", "--subscribers", "1", "--fan-out", "1")
	if text, err := next.CombinedOutput(); err != nil || !strings.Contains(string(text), "left by a run that was killed") {
		t.Errorf("%v\n%s", err, text)
	}
	if left, err := os.ReadDir(data); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
