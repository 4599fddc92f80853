package host

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/dispatcher-engine/dispatcher/bench/report"
)

// Machine is what a figure depends on besides the code.
type Machine struct {
	CPU      string  `json:"cpu"`       // model name
	Cores    int     `json:"cores"`     // online
	Memory   int64   `json:"memory"`    // bytes
	Kernel   string  `json:"kernel"`    // release
	Go       string  `json:"go"`        // version and architecture
	Revision string  `json:"revision"`  // of this program; "" = unknown
	Load     float64 `json:"load_1min"` // before the run
}

// Describe looks at the machine.
func Describe() Machine {
	m := Machine{
		CPU: "unknown", Cores: runtime.NumCPU(), Kernel: "unknown",
		Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, Revision: revision(),
	}
	if v := procField("/proc/cpuinfo", "model name"); v != "" {
		m.CPU = v
	}
	if raw, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(raw))
	}
	m.Memory = kib(procField("/proc/meminfo", "MemTotal"))
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(raw), " ")
		m.Load, _ = strconv.ParseFloat(first, 64)
	}
	return m
}

// busy is the load above which a figure says more about the neighbours.
const busy = 0.5

// Facts are the machine's lines of a report.
func (m Machine) Facts() []report.Fact {
	return []report.Fact{
		{Name: "Machine", Value: fmt.Sprintf("%s, %d cores, %s, Linux %s", m.CPU, m.Cores, report.Bytes(m.Memory), m.Kernel)},
		{Name: "Build", Value: strings.TrimSpace(m.Go + " " + m.Revision)},
		{Name: "Load before the run", Value: report.Number(m.Load)},
	}
}

// Warnings say what about the machine makes figures doubtful.
func (m Machine) Warnings() []string {
	if m.Load <= busy {
		return nil
	}
	return []string{fmt.Sprintf("the machine was busy before the run began (load %s): the figures say as much about that as about the program",
		report.Number(m.Load))}
}

// revision names the commit that the program was built from.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	rev, dirty := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = "+changes"
			}
		}
	}
	return rev + dirty
}

// procField returns the value of the first line "name : value" of a file.
func procField(file, name string) string {
	raw, err := os.ReadFile(filepath.Clean(file))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		key, value, ok := strings.Cut(line, ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// kib reads "1234 kB" as bytes.
func kib(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(text, " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}
