package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// replayNode is a node with one replay, which takes a step each time it is looked
// at.
type replayNode struct {
	*httptest.Server
	mu       sync.Mutex
	steps    []string // its answers to a look; the last one stays
	asked    []string
	made     map[string]any
	canceled bool
	looked   chan struct{} // a look at a replay that has not ended; nil = nobody waits for it
}

func newReplayNode(t *testing.T, steps ...string) *replayNode {
	t.Helper()
	n := &replayNode{steps: steps}
	n.Server = httptest.NewServer(n)
	t.Cleanup(n.Close)
	t.Setenv("DISPATCHER_ADDR", n.URL)
	t.Setenv("DISPATCHER_API_TOKEN", "good")
	return n
}

func (n *replayNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked = append(n.asked, r.Method+" "+r.URL.RequestURI())
	answer := func(status int, text string) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v1/replays":
		_ = json.NewDecoder(r.Body).Decode(&n.made)
		answer(202, `{"id":"r1","state":"pending","replayed":0,"passed_over":0}`)
	case r.Method == http.MethodPost && r.URL.Path == "/v1/replays/r1/cancel":
		n.canceled = true
		answer(200, `{"id":"r1","state":"canceled","replayed":3,"passed_over":0,"total":9}`)
	case r.Method == http.MethodPost && r.URL.Path == "/v1/dlq/replay":
		_ = json.NewDecoder(r.Body).Decode(&n.made)
		answer(202, `{"replayed":2,"next_cursor":"on"}`)
	case r.URL.Path == "/v1/replays/r1":
		step := n.steps[0]
		if len(n.steps) > 1 {
			n.steps = n.steps[1:]
		} else if n.looked != nil {
			close(n.looked)
			n.looked = nil
		}
		if step == "503" {
			answer(503, `{"title":"Service Unavailable","status":503,"detail":"being opened"}`)
			return
		}
		answer(200, step)
	default:
		answer(404, `{"title":"Not Found","status":404}`)
	}
}

const (
	halfReplayed = `{"id":"r1","state":"running","replayed":4,"passed_over":1,"total":10}`
	allReplayed  = `{"id":"r1","state":"done","replayed":9,"passed_over":1,"total":10}`
)

func TestDlqReplayWaitsForTheEndEvenOverARestartOfTheNode(t *testing.T) {
	n := newReplayNode(t, `{"id":"r1","state":"pending"}`, halfReplayed, "503", allReplayed)
	r := run(t, "", "dlq", "replay", "--tenant", "t", "--signature", "s", "--per-second", "2.5")
	if r.status != ExitOK || !strings.Contains(r.out, "replayed     9") || !strings.Contains(r.out, "passed over  1") {
		t.Errorf("%+v", r)
	}
	if got := fmt.Sprint(n.made); got != "map[per_second:2.5 signature:s tenant:t]" {
		t.Errorf("made %s", got)
	}
	if !strings.Contains(r.err, "being opened") || strings.Contains(r.err, "\x1b") {
		t.Errorf("it told %q", r.err)
	}
	n.steps = []string{halfReplayed, allReplayed}
	r = run(t, "", "dlq", "replay", "--tenant", "t", "--json")
	var out map[string]any
	if err := json.Unmarshal([]byte(r.out), &out); err != nil || out["replayed"] != 9.0 || out["next_cursor"] != "" || r.err != "" {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestDlqReplayInTheBackgroundOrInPartsDoesNotWait(t *testing.T) {
	n := newReplayNode(t, halfReplayed)
	if r := run(t, "", "dlq", "replay", "--tenant", "t", "--background"); r.status != ExitOK || !strings.Contains(r.out, "r1") || !strings.Contains(r.err, "replays watch r1") {
		t.Errorf("%+v", r)
	}
	if r := run(t, "", "dlq", "replay", "--tenant", "t", "--background", "--json"); r.status != ExitOK || !json.Valid([]byte(r.out)) || r.err != "" {
		t.Errorf("%+v", r)
	}
	r := run(t, "", "dlq", "replay", "--tenant", "t", "--limit", "2", "--cursor", "c")
	if r.status != ExitOK || !strings.Contains(r.out, "next cursor  on") || fmt.Sprint(n.made) != "map[cursor:c limit:2 tenant:t]" {
		t.Errorf("%+v, %v", r, n.made)
	}
	if got := strings.Join(n.asked, ", "); got != "POST /v1/replays, POST /v1/replays, POST /v1/dlq/replay" {
		t.Errorf("it asked %s", got)
	}
	if r := run(t, "", "dlq", "replay", "--background", "--limit", "2"); r.status != ExitUsage {
		t.Errorf("%+v", r)
	}
}

func TestAnInterruptEndsAReplayThatWasWaitedForAndNoneThatIsWatched(t *testing.T) {
	for _, c := range []struct {
		args     []string
		canceled bool
		says     string
	}{
		{[]string{"dlq", "replay", "--tenant", "t"}, true, "was canceled"},
		{[]string{"replays", "watch", "r1"}, false, "the replay goes on"},
	} {
		n := newReplayNode(t, halfReplayed)
		looked := make(chan struct{})
		n.looked = looked
		ctx, interrupt := context.WithCancel(t.Context())
		go func() {
			<-looked
			interrupt()
		}()
		var out, errs bytes.Buffer
		status := Run(ctx, "1.2.3", c.args, Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
		interrupt()
		n.mu.Lock()
		if status != ExitFailed || n.canceled != c.canceled || !strings.Contains(errs.String(), c.says) {
			t.Errorf("%v: status %d, canceled %v: %s", c.args, status, n.canceled, errs.String())
		}
		if c.canceled && !strings.Contains(out.String(), "replayed     3") {
			t.Errorf("what was replayed is not told: %s", out.String())
		}
		n.mu.Unlock()
	}
}

func TestReplaysAreShownWatchedAndCanceled(t *testing.T) {
	n := newReplayNode(t, halfReplayed)
	if r := run(t, "", "replays", "show", "r1"); r.status != ExitOK || !strings.Contains(r.out, "running") || !strings.Contains(r.out, "total        10") {
		t.Errorf("%+v", r)
	}
	if r := run(t, "", "replays", "show", "none"); r.status != ExitNotFound {
		t.Errorf("%+v", r)
	}
	if r := run(t, "", "replays", "cancel", "r1"); r.status != ExitOK || !strings.Contains(r.out, "canceled") {
		t.Errorf("%+v", r)
	}
	for state, status := range map[string]int{"done": ExitOK, "failed": ExitFailed, "canceled": ExitFailed} {
		n.steps = []string{`{"id":"r1","state":"` + state + `","failure":"the tenant was deleted"}`}
		if r := run(t, "", "replays", "watch", "r1"); r.status != status || !strings.Contains(r.out, state) {
			t.Errorf("%s: %+v", state, r)
		}
	}
	if r := run(t, "", "replays", "list", "--tenant", "t"); r.status != ExitNotFound || n.asked[len(n.asked)-1] != "GET /v1/replays?limit=50&tenant=t" {
		t.Errorf("%+v; it asked %v", r, n.asked)
	}
}

func TestProgressIsABarOnATerminalAndAFewLinesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines, bar bytes.Buffer
		elsewhere, terminal := newProgress(&lines, "replayed", false), newProgress(&bar, "replayed", true)
		for n := range 13 {
			for _, p := range []*progress{elsewhere, terminal} {
				p.at(0, 0) // not counted yet
				p.at(n, 20)
			}
			time.Sleep(time.Second)
		}
		elsewhere.clear()
		terminal.clear()
		if got := lines.String(); got != "5 of 20 replayed\n10 of 20 replayed\n" {
			t.Errorf("%q", got)
		}
		got := bar.String()
		if !strings.Contains(got, "12/20") || !strings.Contains(got, "60%") || strings.Contains(got, "\n") || !strings.HasSuffix(got, "\r") {
			t.Errorf("%q", got)
		}
		terminal.say("hello")
		if got := bar.String(); !strings.HasSuffix(got, "\rhello\n") {
			t.Errorf("%q", got)
		}
	})
}
