package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Usage is what a process has used so far.
type Usage struct {
	CPU  time.Duration `json:"cpu_ns"`   // user and system, all threads
	RSS  int64         `json:"rss"`      // bytes resident now (VmRSS)
	File int64         `json:"rss_file"` // of RSS, pages of files: the program itself (RssFile)
	Peak int64         `json:"rss_max"`  // most bytes resident since the last ResetPeak (VmHWM)
}

// ticks is USER_HZ, in which /proc/PID/stat counts: 100 on every Linux port
// that Go runs on.
const ticks = 100

// UsageOf reads what a process has used.
func UsageOf(pid int) (Usage, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	raw, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return Usage{}, fmt.Errorf("read usage: %w", err)
	}
	cpu, err := parseStat(string(raw))
	if err != nil {
		return Usage{}, fmt.Errorf("read usage of %d: %w", pid, err)
	}
	status := filepath.Join(dir, "status")
	return Usage{CPU: cpu, RSS: kib(procField(status, "VmRSS")), File: kib(procField(status, "RssFile")), Peak: kib(procField(status, "VmHWM"))}, nil
}

// parseStat returns utime plus stime of /proc/PID/stat (proc(5)). The command's
// name may hold blanks and brackets, so fields are counted after its last one.
func parseStat(stat string) (time.Duration, error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, errors.New("stat has no command")
	}
	fields := strings.Fields(stat[end+1:])
	const utime, stime = 11, 12 // after the command; 14 and 15 in the manual
	if len(fields) <= stime {
		return 0, fmt.Errorf("stat has %d fields after the command", len(fields))
	}
	var sum int64
	for _, at := range []int{utime, stime} {
		n, err := strconv.ParseInt(fields[at], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("stat: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * (time.Second / ticks), nil
}

// ResetPeak lets VmHWM begin anew at the present size.
func ResetPeak(pid int) error {
	const resetHWM = "5" // proc(5), clear_refs
	path := filepath.Join("/proc", strconv.Itoa(pid), "clear_refs")
	if err := os.WriteFile(path, []byte(resetHWM), 0); err != nil {
		return fmt.Errorf("reset the peak of %d: %w", pid, err)
	}
	return nil
}
