package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/storage"
)

var floodFor = flag.Duration("flood.for", 300*time.Millisecond, "how long each phase of the flood lasts; figures are for 10s and more on a quiet machine")

const (
	floodDir  = "DISPATCHER_TEST_FLOOD_DIR" // makes this binary the node of the flood
	floodRate = 50                          // genuine events a second
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(floodDir); dir != "" {
		if err := floodNode(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// floodNode is a node in a process of its own, so that its CPU time is not its
// clients'. It prints its URL, and ends when its standard input does.
func floodNode(dir string) error {
	e, err := New(Config{
		Storage: storage.Config{Dir: dir, Watermark: storage.Watermark{Bytes: -1}},
		Ingress: &ingress.Config{
			Addr: "127.0.0.1:0", KernelEvery: -1,
			// A flood comes from many addresses; here they are in X-Forwarded-For.
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		},
	})
	if err != nil {
		return err
	}
	ctx := context.Background()
	if err := e.Start(ctx); err != nil {
		return err
	}
	if _, _, err := e.PutTenant(ctx, "t", TenantInput{}); err != nil {
		return err
	}
	source := fmt.Sprintf(`{"scheme":"github","secrets":[%q],"destination":{"type":"fanout"}}`, githubSecret)
	if _, _, err := e.PutSource(ctx, "t", "gh", json.RawMessage(source)); err != nil {
		return err
	}
	fmt.Println(e.IngressURL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	list, _, err := e.ListEvents(ctx, "t", Page{Limit: 1000})
	if err != nil {
		return err
	}
	for _, event := range list {
		if strings.HasPrefix(event.ID, "gh:forged") {
			return fmt.Errorf("a forgery was stored as %s", event.ID)
		}
	}
	return e.Stop(ctx)
}

// flood is the node and what posts to it.
type flood struct {
	t      *testing.T
	url    string
	pid    int
	client *http.Client
	body   []byte
	serial atomic.Int64
}

func startFlood(t *testing.T) *flood {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute+4**floodFor)
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), floodDir+"="+t.TempDir())
	cmd.Stderr, cmd.WaitDelay = os.Stderr, 20*time.Second
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
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the node did not start: %v", err)
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	t.Cleanup(func() {
		defer cancel()
		transport.CloseIdleConnections()
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("node: %v", err)
		}
	})
	return &flood{
		t: t, url: strings.TrimSpace(line) + "/webhook/t/gh", pid: cmd.Process.Pid, body: realBody().Body,
		client: &http.Client{Transport: transport, Timeout: time.Minute},
	}
}

// post sends one event and returns its status.
func (f *flood) post(header http.Header) int {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, f.url, bytes.NewReader(f.body))
	if err != nil {
		f.t.Error(err)
		return 0
	}
	req.Header = header
	resp, err := f.client.Do(req)
	if err != nil {
		f.t.Error(err)
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// forge sends an event with a signature that is well formed and wrong, from one
// of the addresses.
func (f *flood) forge(addresses int64) int {
	n := f.serial.Add(1)
	a := n % addresses
	return f.post(http.Header{
		"X-Hub-Signature-256": {"sha256=" + strings.Repeat("0", 64)}, "X-Github-Delivery": {fmt.Sprint("forged-", n)},
		"X-Forwarded-For": {fmt.Sprintf("10.%d.%d.%d", a>>16, a>>8&255, a&255)}, "Content-Type": {"application/json"},
	})
}

// cpu is the node's processor time so far.
func (f *flood) cpu() time.Duration {
	f.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.pid))
	if err != nil {
		f.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest) // from the third field of proc(5) on
	var user, system int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		f.t.Fatal(err)
	}
	return time.Duration(user+system) * time.Second / 100 // USER_HZ
}

// capacity sends forgeries as fast as they are refused.
func (f *flood) capacity(name string, want int, addresses int64) (perSecond float64) {
	var refused, other atomic.Int64
	began, cpu := time.Now(), f.cpu()
	var wg sync.WaitGroup
	for range 8 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for time.Since(began) < *floodFor {
				if f.forge(addresses) == want {
					refused.Add(1)
				} else {
					other.Add(1)
				}
			}
		})
	}
	wg.Wait()
	n := refused.Load() + other.Load()
	perSecond = float64(n) / time.Since(began).Seconds()
	f.t.Logf("%-34s %7.0f/s, %v of the node's CPU for each, %.1f %% of them %d", name, perSecond,
		(f.cpu()-cpu)/time.Duration(max(n, 1)), 100*float64(refused.Load())/float64(max(n, 1)), want)
	if refused.Load() == 0 {
		f.t.Errorf("%s: none was refused with %d", name, want)
	}
	return perSecond
}

// genuine sends genuine events at a fixed rate, and returns how long each took
// from the moment it was due.
func (f *flood) genuine() []time.Duration {
	began := time.Now()
	due := make([]time.Time, int(floodFor.Seconds()*floodRate))
	for i := range due {
		due[i] = began.Add(time.Duration(i) * time.Second / floodRate)
	}
	took := make([]time.Duration, len(due))
	var wg sync.WaitGroup
	for i := range due {
		<-time.After(time.Until(due[i]))
		wg.Go(func() {
			h := githubHeaders(f.t, fmt.Sprint("genuine-", f.serial.Add(1)), "push", f.body, githubSecret)
			h.Set("X-Forwarded-For", "192.0.2.1")
			if status := f.post(h); status != http.StatusAccepted {
				f.t.Errorf("a genuine event got %d", status)
			}
			took[i] = time.Since(due[i])
		})
	}
	wg.Wait()
	slices.Sort(took)
	return took
}

// forgeAt sends forgeries at a rate until ctx ends.
func (f *flood) forgeAt(ctx context.Context, rate float64) {
	began := time.Now()
	work := make(chan struct{}, 1024)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range work {
				f.forge(1 << 20)
			}
		})
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for sent := 0; ctx.Err() == nil; {
		for ; float64(sent) < rate*time.Since(began).Seconds(); sent++ {
			work <- struct{}{}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	close(work)
	wg.Wait()
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// A flood of forgeries at 30 % of what the node can refuse, beside genuine
// events: all of these are taken, and none of the others. The figures are
// printed, not asserted: scripts/load-ingress takes them for longer.
func TestFloodOfForgeriesCostsGenuineEventsNothingButTime(t *testing.T) {
	f := startFlood(t)
	capacity := f.capacity("forgeries of many addresses", http.StatusUnauthorized, 1<<20)
	f.capacity("forgeries of one address", http.StatusTooManyRequests, 1)
	alone := f.genuine()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.forgeAt(ctx, 0.3*capacity) })
	flooded := f.genuine()
	cancel()
	wg.Wait()
	for name, took := range map[string][]time.Duration{"alone": alone, "in the flood": flooded} {
		t.Logf("%d genuine events %-13s p50 %v, p99 %v", len(took), name, quantile(took, 0.5), quantile(took, 0.99))
	}
	t.Logf("p99 in a flood of %.0f/s: %.2f times that alone", 0.3*capacity, float64(quantile(flooded, 0.99))/float64(quantile(alone, 0.99)))
}
