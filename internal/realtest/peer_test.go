//go:build real

package realtest

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// peer is a Node.js process that answers for the libraries (node/peer.mjs).
type peer struct {
	dir string // where the libraries are installed
	in  io.WriteCloser
	out *bufio.Scanner
}

// request is one line to the peer.
type request struct {
	Library string            `json:"library"`
	Action  string            `json:"action"`
	Secret  string            `json:"secret"`
	ID      string            `json:"id,omitempty"`
	Now     int64             `json:"now"`
	Headers map[string]string `json:"headers,omitempty"`
	URL     string            `json:"url,omitempty"`
	Body    []byte            `json:"body"`
}

// answer is the line that it sends back.
type answer struct {
	OK      bool              `json:"ok"`
	Error   string            `json:"error"`
	Headers map[string]string `json:"headers"`
	URL     string            `json:"url"`
}

// start runs the peer until the test ends.
func start(t *testing.T) *peer {
	t.Helper()
	dir := environment(t, "DISPATCHER_REAL_NODE")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, "node", filepath.Join(dir, "peer.mjs"))
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = dir, os.Stderr, 5*time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // ends the peer's loop, and so the process
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			t.Errorf("peer: %v", err)
		}
		cancel()
	})
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	return &peer{dir: dir, in: in, out: lines}
}

// ask sends one request and waits for its answer.
func (p *peer) ask(t *testing.T, r request) answer {
	t.Helper()
	line, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	if !p.out.Scan() {
		t.Fatalf("peer ended: %v", p.out.Err())
	}
	var a answer
	if err := json.Unmarshal(p.out.Bytes(), &a); err != nil {
		t.Fatalf("peer said %q: %v", p.out.Text(), err)
	}
	return a
}

// flat turns headers into what Node.js hands to a handler: lower-case names,
// one value each.
func flat(h http.Header) map[string]string {
	out := map[string]string{}
	for name, values := range h {
		out[strings.ToLower(name)] = values[0]
	}
	return out
}
