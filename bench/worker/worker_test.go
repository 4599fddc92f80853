package worker

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const asWorker = "BENCH_TEST_AS_WORKER"

// TestMain lets the test binary be the worker.
func TestMain(m *testing.M) {
	switch os.Getenv(asWorker) {
	case "":
		goleak.VerifyTestMain(m)
	case "serve":
		_, _ = os.Stderr.WriteString("worker speaks\n")
		if err := Serve(context.Background(), os.Stdin, os.Stdout, methods()); err != nil {
			os.Exit(7)
		}
	case "deaf":
		signal.Ignore(syscall.SIGTERM)
		<-time.After(5 * time.Minute)
	case "parent":
		w, err := StartWorker(Command{Name: "grandchild", Env: []string{asWorker + "=deaf"}})
		if err != nil {
			os.Exit(8)
		}
		_, _ = os.Stdout.WriteString(itoa(w.PID()) + "\n")
		<-time.After(5 * time.Minute)
	}
}

func itoa(n int) string { raw, _ := json.Marshal(n); return string(raw) }

func methods() map[string]Method {
	return map[string]Method{
		"double": Handle(func(_ context.Context, n int) (int, error) { return 2 * n, nil }),
		"fail":   Handle(func(context.Context, struct{}) (int, error) { return 0, errors.New("as told") }),
		"wait":   Handle(func(ctx context.Context, _ struct{}) (int, error) { <-ctx.Done(); return 0, ctx.Err() }),
		"exit":   Handle(func(context.Context, struct{}) (int, error) { os.Exit(3); return 0, nil }),
		"noise": Handle(func(context.Context, struct{}) (int, error) {
			_, err := os.Stdout.WriteString("noise\n")
			return 0, err
		}),
		"bad":   Handle(func(context.Context, struct{}) (func(), error) { return func() {}, nil }),
		"cores": Handle(func(context.Context, struct{}) (int, error) { return runtime.NumCPU(), nil }),
	}
}

func start(t *testing.T, mode string, c Command) *Worker {
	t.Helper()
	c.Name, c.Env, c.Log = "test worker", []string{asWorker + "=" + mode}, filepath.Join(t.TempDir(), "log")
	w, err := StartWorker(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Kill)
	return w
}

const patience = 10 * time.Second

func TestCallsAreAnsweredSideBySide(t *testing.T) {
	w := start(t, "serve", Command{Cores: 1})
	waiting := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { waiting <- w.Call(ctx, "wait", nil, nil) }()
	var got int
	if err := w.Call(t.Context(), "double", 21, &got); err != nil || got != 42 {
		t.Errorf("%d %v", got, err)
	}
	if err := w.Call(t.Context(), "cores", nil, &got); err != nil || got != 1 {
		t.Errorf("%d cores, %v", got, err)
	}
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := w.Stop(patience); err != nil {
		t.Error(err)
	}
}

func TestErrorsNameTheWorkerAndTheMethod(t *testing.T) {
	w := start(t, "serve", Command{})
	for method, want := range map[string]string{"fail": "as told", "nonsense": "no such method", "bad": "unsupported type"} {
		err := w.Call(t.Context(), method, nil, nil)
		if err == nil || !strings.Contains(err.Error(), "test worker: "+method) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", method, err)
		}
	}
	if err := w.Call(t.Context(), "double", "text", nil); err == nil || !strings.Contains(err.Error(), "read arguments") {
		t.Errorf("%v", err)
	}
	if err := w.Call(t.Context(), "double", func() {}, nil); err == nil {
		t.Error("a func was sent")
	}
	if err := w.Call(t.Context(), "double", 1, &struct{}{}); err == nil {
		t.Error("a number became a struct")
	}
}

func TestAWorkerThatDiesFailsItsCallsWithItsLastWords(t *testing.T) {
	w := start(t, "serve", Command{})
	err := w.Call(t.Context(), "exit", nil, nil)
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "worker speaks") {
		t.Errorf("%v", err)
	}
	if err := w.Call(t.Context(), "double", 1, nil); err == nil {
		t.Error("a dead worker was called")
	}
	if err := w.Stop(patience); err == nil || !strings.Contains(err.Error(), "before it was stopped") {
		t.Errorf("%v", err)
	}
}

func TestAWorkerThatTalksNonsenseIsGivenUp(t *testing.T) {
	w := start(t, "serve", Command{})
	if err := w.Call(t.Context(), "noise", nil, nil); !errors.Is(err, errGone) {
		t.Errorf("%v", err)
	}
}

func TestAProcessThatDoesNotEndIsKilled(t *testing.T) {
	w := start(t, "deaf", Command{})
	if err := w.Stop(50 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("%v", err)
	}
}

func TestServeEndsWithItsInputAndRefusesNonsense(t *testing.T) {
	if err := Serve(t.Context(), strings.NewReader(""), io.Discard, nil); err != nil {
		t.Error(err)
	}
	if err := Serve(t.Context(), strings.NewReader("{\n"), io.Discard, nil); err == nil {
		t.Error("half a call was read")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, out := io.Pipe()
	defer out.Close()
	if err := Serve(ctx, in, io.Discard, nil); err != nil {
		t.Error(err)
	}
	_ = in.Close()
}
