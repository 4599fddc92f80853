package bench

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/report"
)

// Run is what all benchmarks are told.
type Run struct {
	// Data is the directory in which the run makes one of its own, removed at its
	// end. "" = the first of the system's temporary directory and /var/tmp that is
	// on a disk.
	Data string
	// Seed is what chance is drawn from. The same seed repeats the run.
	Seed uint64
	// Cores bounds the cores that node, load and receiver share; 0 = all.
	Cores int
	// Out is the directory that reports are written to; "" = none are.
	Out string
	// JSON is a file that gets the JSON report besides; "" = none.
	JSON string
	// Command is the command line as a report names it.
	Command string
	// Progress is told what goes on while it does; nil = nobody.
	Progress io.Writer `json:"-"`
}

// ErrFailed says that a promise did not hold in a run; the report says which.
var ErrFailed = errors.New("the run found failures; see the report")

// progress writes lines with the time since the run began.
type progress struct {
	mu      sync.Mutex
	out     io.Writer
	started time.Time
}

func newProgress(out io.Writer) *progress {
	if out == nil {
		out = io.Discard
	}
	return &progress{out: out, started: time.Now()}
}

func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.out, "%7.1fs  %s\n", time.Since(p.started).Seconds(), fmt.Sprintf(format, args...))
}

// open makes the run's directory and says what an earlier run left.
func (r *Run) open(p *progress) (*host.RunDir, error) {
	dir, removed, err := host.NewRunDir(r.Data)
	for _, stale := range removed {
		p.say("removed %s, left by a run that was killed", stale)
	}
	return dir, err
}

// begin makes a report of a run that begins now.
func (r *Run) begin(title string) (*report.Report, host.Machine) {
	machine := host.Describe()
	return &report.Report{
		Title: title, Command: r.Command, Seed: r.Seed, Started: time.Now(),
		Facts: machine.Facts(), Warnings: machine.Warnings(),
	}, machine
}

// Write writes a report's files, NAME.json, NAME.md and NAME.html, and prints it.
// The error is ErrFailed if the report names failures.
func (r *Run) Write(name string, rep *report.Report, stdout io.Writer) error {
	if r.JSON != "" {
		if err := writeFile(r.JSON, rep.WriteJSON); err != nil {
			return err
		}
	}
	if r.Out != "" {
		if err := os.MkdirAll(r.Out, 0o750); err != nil {
			return fmt.Errorf("reports: %w", err)
		}
		for ext, write := range map[string]func(io.Writer) error{".json": rep.WriteJSON, ".md": rep.WriteMarkdown, ".html": rep.WriteHTML} {
			if err := writeFile(filepath.Join(r.Out, name+ext), write); err != nil {
				return err
			}
		}
		newProgress(r.Progress).say("reports are in %s", filepath.Join(r.Out, name+".{json,md,html}"))
	}
	// Last: whoever reads from a pipe may leave early, and the files are written.
	if err := rep.WriteMarkdown(stdout); err != nil {
		return err
	}
	if len(rep.Failures) > 0 {
		return ErrFailed
	}
	return nil
}

func writeFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644) //nolint:gosec // a report is to be read by others
	if err != nil {
		return fmt.Errorf("reports: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f)
}
