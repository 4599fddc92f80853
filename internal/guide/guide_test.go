package guide

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dispatcher-engine/dispatcher/internal/cli"
	"github.com/dispatcher-engine/dispatcher/internal/config"
)

// root of the repository, seen from this package.
const root = "../.."

// TestMain lets the test binary be what the guides call, by the name that it is
// called with: the dispatcher, and a make that only knows which targets exist.
func TestMain(m *testing.M) {
	switch filepath.Base(os.Args[0]) {
	case "dispatcher":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		status := cli.Run(ctx, "guide", os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
		stop()
		os.Exit(status)
	case "make":
		if err := checkTargets(os.Getenv("GUIDE_ROOT"), os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// substitutions are everything in which a run differs from what the guides say:
// the ports, which may be taken here.
func substitutions(t *testing.T) (names []string, env []string) {
	api, ingress := freePort(t), freePort(t)
	return []string{
			"127.0.0.1:8080", api, "127.0.0.1:8081", ingress, "127.0.0.1:9100", freePort(t),
			"127.0.0.1:9000", freePort(t), "127.0.0.1:9001", freePort(t), "127.0.0.1:8090", freePort(t),
		},
		[]string{"DISPATCHER_ADDR=http://" + api, "DISPATCHER_LISTEN=" + api, "DISPATCHER_INGRESS_LISTEN=" + ingress, "DISPATCHER_SHUTDOWN_DELAY=0s"}
}

// freePort returns an address below the range from which the kernel takes ports
// for outgoing connections, so that nothing takes it before it is used.
func freePort(t *testing.T) string {
	t.Helper()
	for port := 21000 + os.Getpid()%3000; port < 29000; port++ {
		if slices.Contains(given, port) {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		given = append(given, port)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("127.0.0.1:%d", port)
	}
	t.Fatal("no port is free")
	return ""
}

var given []int // ports that freePort returned

func documents(t *testing.T) []*Document {
	t.Helper()
	docs, err := Documents(root)
	if err != nil {
		t.Fatal(err)
	}
	return docs
}

// TestEveryCommandOfTheGuidesRuns runs the documents that need nothing but a
// shell.
func TestEveryCommandOfTheGuidesRuns(t *testing.T) {
	ran := 0
	for _, d := range documents(t) {
		if d.Needs() || d.Script() == "" {
			continue
		}
		ran++
		t.Run(strings.TrimSuffix(d.Path, ".md"), func(t *testing.T) { play(t, d) })
	}
	if ran < 4 {
		t.Errorf("%d documents were run: the guides moved, or the way to find them is broken", ran)
	}
}

// play runs a document in a directory of its own.
func play(t *testing.T, d *Document) {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dispatcher", "make"} {
		if err := os.Symlink(self, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(checkout, "deploy"), filepath.Join(dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	names, env := substitutions(t)
	script := strings.NewReplacer(names...).Replace(d.Script())
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = slices.Concat([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "GUIDE_ROOT=" + checkout}, env)
	// Everything that a document starts is in one process group, and ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	output := filepath.Join(dir, "output")
	file, err := os.Create(output)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	}
	if err != nil {
		said, _ := os.ReadFile(output)
		t.Errorf("%s: %v; what it said, the last command last:\n%s", d.Path, err, said)
	}
}

// TestEveryCommandThatIsNotRunExists checks what a run cannot reach: blocks that
// need root or other machines, and commands in running text.
func TestEveryCommandThatIsNotRunExists(t *testing.T) {
	inline := regexp.MustCompile("`dispatcher ([a-z][^`]*)`")
	for _, d := range documents(t) {
		for _, b := range d.Blocks {
			if b.Shell() {
				checkBlock(t, d, b)
			}
		}
		if _, generated := References[d.Path]; generated {
			continue
		}
		for _, m := range inline.FindAllStringSubmatch(strings.ReplaceAll(d.Text, "\n", " "), -1) {
			checkWords(t, d.Path, strings.Fields(m[1]))
		}
	}
}

// checkWords checks a command that running text mentions, perhaps without its
// arguments.
func checkWords(t *testing.T, where string, words []string) {
	t.Helper()
	words = slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, "…") })
	if err := cli.Check(append(words, "--help")); err != nil {
		t.Errorf("%s: `dispatcher %s`: %v", where, strings.Join(words, " "), err)
	}
}

func checkBlock(t *testing.T, d *Document, b Block) {
	t.Helper()
	for _, c := range b.Commands() {
		where := fmt.Sprintf("%s:%d", d.Path, c.Line)
		if args, ok := c.Of("dispatcher"); ok {
			if err := cli.Check(args); err != nil {
				t.Errorf("%s: %v", where, err)
			}
		}
		if args, ok := c.Of("make"); ok {
			if err := checkTargets(root, args); err != nil {
				t.Errorf("%s: %v", where, err)
			}
		}
		for _, w := range c.Words {
			if w, ok := strings.CutPrefix(w, "deploy/"); ok {
				if _, err := os.Stat(filepath.Join(root, "deploy", filepath.FromSlash(w))); err != nil {
					t.Errorf("%s: %v", where, err)
				}
			}
		}
	}
}

// checkTargets checks the arguments of make against the Makefile.
func checkTargets(root string, args []string) error {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return err
	}
	for _, arg := range args {
		pattern := "(?m)^" + regexp.QuoteMeta(arg) + ":"
		if name, _, isVariable := strings.Cut(arg, "="); isVariable {
			pattern = "(?m)^" + regexp.QuoteMeta(name) + ` +\?=`
		}
		if !regexp.MustCompile(pattern).Match(text) {
			return fmt.Errorf("make %s: the Makefile has no such target or variable", arg)
		}
	}
	return nil
}

func TestEveryConfigurationInTheGuidesLoads(t *testing.T) {
	found := 0
	for _, d := range documents(t) {
		for _, b := range d.Blocks {
			if b.Info != "yaml config" {
				continue
			}
			found++
			file := filepath.Join(t.TempDir(), "dispatcher.yaml")
			if err := os.WriteFile(file, []byte(b.Text), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := config.Load(config.Options{File: file}); err != nil {
				t.Errorf("%s:%d: %v", d.Path, b.Line, err)
			}
		}
	}
	if found == 0 {
		t.Error("no guide shows a configuration")
	}
}
