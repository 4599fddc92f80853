package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain lets the test binary be the dispatcher: with the variable set it runs
// main, so that tests start, kill and restart a real process.
func TestMain(m *testing.M) {
	if os.Getenv("DISPATCHER_TEST_AS_MAIN") != "" {
		os.Exit(run())
	}
	os.Exit(m.Run())
}

// process is a dispatcher that runs as a process of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string
	token string

	mu  sync.Mutex
	log bytes.Buffer
	eof chan struct{}
}

var apiAddress = regexp.MustCompile(`api=(http://[0-9.:]+)`)

// serve starts "dispatcher serve" on a data directory and waits until it
// listens.
func serve(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	args = append([]string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--ingress-listen", "127.0.0.1:0"}, args...)
	p := &process{t: t, cmd: exec.CommandContext(context.Background(), os.Args[0], args...), eof: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "DISPATCHER_TEST_AS_MAIN=1", "DISPATCHER_API_TOKEN=")
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	address := make(chan string, 1)
	go p.read(stderr, address)
	select {
	case p.url = <-address:
	case <-p.eof:
		t.Fatalf("the node ended: %v\n%s", p.cmd.Wait(), p.logged())
	case <-time.After(30 * time.Second):
		t.Fatalf("the node does not listen\n%s", p.logged())
	}
	raw, err := os.ReadFile(filepath.Join(dir, "api-token"))
	if err != nil {
		t.Fatal(err)
	}
	p.token = strings.TrimSpace(string(raw))
	return p
}

func (p *process) read(stderr io.Reader, address chan<- string) {
	defer close(p.eof)
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		p.mu.Lock()
		p.log.Write(lines.Bytes())
		p.log.WriteByte('\n')
		p.mu.Unlock()
		if m := apiAddress.FindSubmatch(lines.Bytes()); m != nil {
			select {
			case address <- string(m[1]):
			default:
			}
		}
	}
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// kill is kill -9.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.eof
	_ = p.cmd.Wait()
}

// call makes one API request; a status of 300 or more fails the test.
func (p *process) call(method, path string, in any, out any) {
	p.t.Helper()
	status, body := p.try(method, path, in)
	if status >= 300 {
		p.t.Fatalf("%s %s: %d %s\n%s", method, path, status, body, p.logged())
	}
	if out != nil {
		if err := json.Unmarshal(body, out); err != nil {
			p.t.Fatalf("%s %s: %v: %s", method, path, err, body)
		}
	}
}

func (p *process) try(method, path string, in any) (int, []byte) {
	p.t.Helper()
	var body io.Reader
	switch v := in.(type) {
	case nil:
	case string:
		body = strings.NewReader(v)
	default:
		raw, err := json.Marshal(v)
		if err != nil {
			p.t.Fatal(err)
		}
		body = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, body)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatalf("%s %s: %v\n%s", method, path, err, p.logged())
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, raw
}

// publish publishes n events in batches and returns their ids.
func (p *process) publish(tenant, prefix string, n int) []string {
	p.t.Helper()
	ids := make([]string, 0, n)
	for from := 0; from < n; from += 1000 {
		var lines strings.Builder
		for i := from; i < min(from+1000, n); i++ {
			id := fmt.Sprintf("%s-%06d", prefix, i)
			ids = append(ids, id)
			fmt.Fprintf(&lines, `{"id":%q,"topic":"t.x","payload":{"i":%d}}`+"\n", id, i)
		}
		status, body := p.try(http.MethodPost, "/v1/tenants/"+tenant+"/events/batch", lines.String())
		if status != http.StatusOK || bytes.Contains(body, []byte(`"error"`)) {
			p.t.Fatalf("batch: %d %.500s", status, body)
		}
	}
	return ids
}

// eventually polls a condition of the outside world until it holds.
func eventually(t *testing.T, within time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(within)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("not within %v: %s", within, what)
		case <-tick.C:
		}
	}
}
