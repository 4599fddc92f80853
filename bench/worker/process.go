package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/host"
)

// Command describes a process: this program again, with other arguments.
type Command struct {
	// Name is for errors and the log.
	Name string
	// Args are the arguments behind the program's name.
	Args []string
	// Env is added to this process's environment.
	Env []string
	// Cores binds the process to that many cores; 0 = all that the run may use.
	Cores int
	// Log is the file that standard error goes to; "" = nowhere.
	Log string
	// Files are inherited as descriptors 3, 4 …
	Files []*os.File
	// Network gives the process a network namespace of its own (Linux), with a
	// user namespace around it where that is what it takes.
	Network Namespace
}

// Namespace says which namespaces a process gets.
type Namespace uint8

// Namespaces.
const (
	Shared   Namespace = 0 // those of this process
	Network  Namespace = 1 // a network namespace; needs CAP_SYS_ADMIN
	Unshared Namespace = 2 // a network namespace inside a user namespace
)

// Process is a running child.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  io.ReadCloser
	done chan struct{} // closed when the process has ended and was waited for
	err  error         // of Wait; read after done
}

// Start starts a process. The caller calls Stop or Kill.
//
// The goroutine that starts it keeps its thread until the process has ended:
// the kernel ties the parent's death to the thread that forked, and the cores
// are the thread's, too.
func Start(c Command) (*Process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	p := &Process{name: c.Name, log: c.Log, done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.Background(), program, c.Args...) // it is stopped in order, not with a context
	p.cmd.Env = append(os.Environ(), c.Env...)
	p.cmd.ExtraFiles = c.Files
	if p.cmd.SysProcAttr, err = attributes(c.Network); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	if err := p.connect(c); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	started := make(chan error, 1)
	go p.run(c.Cores, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	return p, nil
}

func (p *Process) connect(c Command) error {
	if c.Log != "" {
		log, err := os.OpenFile(filepath.Clean(c.Log), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		p.cmd.Stderr = log
	}
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	p.out, err = p.cmd.StdoutPipe()
	return err
}

func (p *Process) run(cores int, started chan<- error) {
	defer close(p.done)
	runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
	_, err := host.UseCores(cores)
	if err == nil {
		err = p.cmd.Start()
	}
	if log, ok := p.cmd.Stderr.(*os.File); ok {
		_ = log.Close() // the child has its own
	}
	started <- err
	if err != nil {
		return
	}
	// Not Wait at once: it closes the output before it was read.
	state, err := p.cmd.Process.Wait()
	if err == nil && !state.Success() {
		err = errors.New(state.String())
	}
	p.err = err
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop asks the process to end, by the end of its input and SIGTERM, and kills
// it if it does not within the given time. It returns how the process ended; to
// have been killed is an error, and so is to have died before.
func (p *Process) Stop(within time.Duration) error {
	return p.stop(within, func() { _ = p.cmd.Process.Signal(syscall.SIGTERM) })
}

func (p *Process) stop(within time.Duration, ask func()) error {
	select {
	case <-p.done:
		return p.ended("ended before it was stopped")
	default:
	}
	_ = p.in.Close()
	ask()
	select {
	case <-p.done:
		_ = p.out.Close()
		if p.err != nil {
			return p.ended("did not end well")
		}
		return nil
	case <-time.After(within):
		p.Kill()
		return fmt.Errorf("%s did not end within %s and was killed", p.name, within)
	}
}

// Kill is kill -9. It returns when the process is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
	_ = p.in.Close()
	_ = p.out.Close()
}

// ended describes an end that was not asked for, with the end of the log.
func (p *Process) ended(how string) error {
	err := fmt.Errorf("%s %s: %w", p.name, how, orExited(p.err))
	if tail := p.LogTail(); tail != "" {
		err = fmt.Errorf("%w; its last lines:\n%s", err, tail)
	}
	return err
}

func orExited(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// LogTail returns the end of what the process wrote to standard error.
func (p *Process) LogTail() string {
	if p.log == "" {
		return ""
	}
	raw, err := os.ReadFile(filepath.Clean(p.log))
	if err != nil {
		return ""
	}
	const most = 2 << 10
	if len(raw) > most {
		raw = raw[len(raw)-most:]
	}
	return strings.TrimSpace(string(raw))
}
