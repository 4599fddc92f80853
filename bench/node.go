package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dispatcher-engine/dispatcher/bench/host"
	"github.com/dispatcher-engine/dispatcher/bench/load"
	"github.com/dispatcher-engine/dispatcher/bench/worker"
)

// node is `dispatcher serve` in a process of its own, as users run it.
type node struct {
	proc  *worker.Process
	url   string
	token string
	http  *http.Client
	// ready is how long it took from the process's start to its first answer of
	// /readyz that says yes; started is when that was.
	ready   time.Duration
	started time.Duration // machine clock
}

const (
	tenant          = "bench"
	subscribersPath = "/v1/tenants/" + tenant + "/subscribers"

	startMost = 2 * time.Minute // a start replays the log
	stopMost  = 30 * time.Second
	apiMost   = 3 * time.Minute // a CPU profile takes two
)

// nodeSpec says how to run a node.
type nodeSpec struct {
	data   string // its data directory
	log    string // file for standard error
	config string // configuration file; "" = none
	env    []string
	cores  int
}

// startNode starts a node on a free port and waits until it is ready.
func startNode(ctx context.Context, spec nodeSpec) (*node, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	n := &node{
		url: "http://" + address, token: hex.EncodeToString(random[:]),
		http: &http.Client{Timeout: apiMost, Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
	}
	args := []string{
		"serve", "--data", spec.data, "--listen", address, "--ingress-listen", "127.0.0.1:0",
		"--allow-private", "127.0.0.0/8", "--allow-http",
	}
	if spec.config != "" {
		args = append(args, "--config", spec.config)
	}
	n.started = host.Now()
	n.proc, err = worker.Start(worker.Command{
		Name: "node", Args: args, Cores: spec.cores, Log: spec.log, Env: append(spec.env, "DISPATCHER_API_TOKEN="+n.token),
	})
	if err != nil {
		return nil, err
	}
	if err := n.await(ctx); err != nil {
		n.kill()
		return nil, err
	}
	n.ready = host.Now() - n.started
	return n, nil
}

// freeAddress returns a loopback address that nobody listens on. Somebody may
// take it before the node does; then the node says so and the run ends.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

func (n *node) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startMost, fmt.Errorf("the node was not ready within %s", startMost))
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/readyz", nil)
		if err != nil {
			return err
		}
		if resp, err := n.http.Do(req); err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-n.proc.Done():
			return n.proc.Stop(0) // says how it ended
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", context.Cause(ctx), n.proc.LogTail())
		}
	}
}

func (n *node) stop() error {
	n.http.CloseIdleConnections()
	return n.proc.Stop(stopMost)
}

func (n *node) kill() {
	n.http.CloseIdleConnections()
	n.proc.Kill()
}

// call makes one API request and decodes its answer into out (nil = ignore).
func (n *node) call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(raw)
	}
	resp, err := n.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	} else {
		err = json.NewDecoder(resp.Body).Decode(out)
	}
	if err != nil {
		return fmt.Errorf("node: %s %s: %w", method, path, err)
	}
	return nil
}

func (n *node) send(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, n.url+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+n.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := n.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("node: %s %s: %w", method, path, errors.Unwrap(err))
	}
	if resp.StatusCode >= http.StatusMultipleChoices {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, fmt.Errorf("node: %s %s: %s: %s", method, path, resp.Status, text)
	}
	return resp, nil
}

// subscriber is what is registered for one; ids are "s" and the number.
type subscriber struct {
	ID          string   `json:"id"`
	URL         string   `json:"url"`
	Topics      []string `json:"topics"`
	Secret      string   `json:"secret"`
	Concurrency int      `json:"concurrency,omitempty"`
	Timeout     string   `json:"timeout,omitempty"`
	Protocol    string   `json:"protocol"`
	TLS         *trusted `json:"tls,omitempty"`
}

// trusted is the CA that a subscriber's receiver is verified with.
type trusted struct {
	CAPEM string `json:"ca_pem"`
}

// apiCalls is how many API calls run side by side while a run is being set up.
const apiCalls = 32

// group are subscribers of one kind.
type group struct {
	count       int
	origins     []string // of their URLs, in turns
	secret      string
	protocol    string
	concurrency int    // 0 = the node's default
	timeout     string // "" = the node's default
	ca          string // PEM; "" = the system's
}

// register makes the tenant and its subscribers.
func (n *node) register(ctx context.Context, g group) error {
	if err := n.call(ctx, http.MethodPut, "/v1/tenants/"+tenant, struct{}{}, nil); err != nil {
		return err
	}
	s := subscriber{Secret: g.secret, Concurrency: g.concurrency, Timeout: g.timeout, Protocol: g.protocol}
	if g.ca != "" {
		s.TLS = &trusted{CAPEM: g.ca}
	}
	return n.each(ctx, g.count, func(ctx context.Context, i int) error {
		own := s
		own.ID, own.URL = subscriberID(i), g.origins[i%len(g.origins)]+load.Path(i)
		own.Topics = []string{load.TopicOf(i), load.TopicAll}
		return n.call(ctx, http.MethodPost, subscribersPath, own, nil)
	})
}

func subscriberID(i int) string { return "s" + strconv.Itoa(i) }

// act pauses or resumes all subscribers.
func (n *node) act(ctx context.Context, count int, verb string) error {
	return n.each(ctx, count, func(ctx context.Context, i int) error {
		return n.call(ctx, http.MethodPost, subscribersPath+"/"+subscriberID(i)+"/"+verb, nil, nil)
	})
}

func (n *node) each(ctx context.Context, count int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(apiCalls)
	for i := range count {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}

// save writes what a path answers to a file.
func (n *node) save(ctx context.Context, path, file string) (err error) {
	resp, err := n.send(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	f, err := os.OpenFile(filepath.Clean(file), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = io.Copy(f, resp.Body)
	return err
}

// moment is what a node has used and done so far.
type moment struct {
	usage    host.Usage
	syncs    float64 // fsyncs
	syncTime float64 // s spent in them
	inFlight float64
}

func (n *node) moment(ctx context.Context) (moment, error) {
	resp, err := n.send(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return moment{}, err
	}
	defer resp.Body.Close()
	values, err := parseMetrics(resp.Body, "dispatcher_store_sync_seconds_count", "dispatcher_store_sync_seconds_sum", "dispatcher_attempts_in_flight")
	if err != nil {
		return moment{}, fmt.Errorf("node: metrics: %w", err)
	}
	usage, err := host.UsageOf(n.proc.PID())
	return moment{usage: usage, syncs: values[0], syncTime: values[1], inFlight: values[2]}, err
}

// settled waits until nothing is in flight, so that a workload pays for its own
// outcomes, and returns the moment.
func (n *node) settled(ctx context.Context) (moment, error) {
	const polls, pause = 100, 50 * time.Millisecond
	for range polls {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return moment{}, ctx.Err()
		}
		m, err := n.moment(ctx)
		if err != nil || m.inFlight == 0 {
			return m, err
		}
	}
	return n.moment(ctx)
}

// parseMetrics returns the values of metrics without labels, in the order asked
// for, out of Prometheus' text format.
func parseMetrics(r io.Reader, names ...string) ([]float64, error) {
	raw, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	found := map[string]float64{}
	for line := range strings.Lines(string(raw)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			found[name] = v
		}
	}
	out := make([]float64, len(names))
	for i, name := range names {
		v, ok := found[name]
		if !ok {
			return nil, fmt.Errorf("%s is missing", name)
		}
		out[i] = v
	}
	return out, nil
}
