package cli

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/api"
	"github.com/dispatcher-engine/dispatcher/internal/api/dashboard"
	"github.com/dispatcher-engine/dispatcher/internal/telemetry"
)

// nodeConfig is a node with its API, ready to be started.
type nodeConfig struct {
	engine        engine.Config
	listen        string
	metricsListen string // "" = none
	token         string // "" = DATA/api-token
	logger        *slog.Logger
	limits        api.Config
	telemetry     *telemetry.Metrics // what the dashboard draws; nil = gauges alone
	shutdown      time.Duration
}

// node is a running node: an engine behind its HTTP API.
type node struct {
	engine    *engine.Engine
	api       *api.Server
	server    *http.Server
	metrics   *http.Server // nil without an address of its own
	addr      net.Addr
	token     string
	tokenFile string             // "" when the token was given
	history   *telemetry.History // nil without metrics
	serving   sync.WaitGroup
	failed    chan error
}

// startNode opens the store, listens and begins to deliver. The API listens
// before the first delivery, so that the address policy knows its address.
func startNode(ctx context.Context, config nodeConfig) (*node, error) {
	n := &node{failed: make(chan error, 1), token: config.token}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", config.listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; choose another address with --listen", config.listen, err)
	}
	n.addr = listener.Addr()
	if err := n.open(ctx, config, listener); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	if err := n.serveMetrics(ctx, config); err != nil {
		n.endDashboard()
		return nil, errors.Join(err, listener.Close(), n.engine.Stop(context.WithoutCancel(ctx)))
	}
	n.serving.Go(func() {
		if err := n.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			n.failed <- fmt.Errorf("serve the API: %w", err)
		}
	})
	return n, nil
}

func (n *node) open(ctx context.Context, config nodeConfig, listener net.Listener) error {
	var err error
	if n.engine, err = engine.New(config.engine); err != nil {
		return err
	}
	if err := n.equip(ctx, config, listener); err != nil {
		return errors.Join(err, n.engine.Stop(context.WithoutCancel(ctx)))
	}
	return nil
}

func (n *node) equip(ctx context.Context, config nodeConfig, listener net.Listener) error {
	if n.token == "" {
		n.tokenFile = filepath.Join(config.engine.Storage.Dir, "api-token")
		token, err := loadToken(n.tokenFile)
		if err != nil {
			return err
		}
		n.token = token
	}
	limits := config.limits
	limits.Tokens, limits.Logger = []string{n.token}, config.logger
	if config.telemetry != nil {
		n.history = config.telemetry.NewHistory()
		limits.Activity = n.history.Samples
	}
	var err error
	if n.api, err = api.New(n.engine, limits); err != nil {
		return err
	}
	if own, err := netip.ParseAddrPort(listener.Addr().String()); err == nil {
		if err := n.engine.SetOwnListeners([]netip.AddrPort{own}); err != nil {
			return fmt.Errorf("own listeners: %w", err)
		}
	}
	n.server = &http.Server{
		Handler:           n.api,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       5 * time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(config.logger.Handler(), slog.LevelDebug),
	}
	if err := n.engine.Start(ctx); err != nil {
		return err
	}
	if n.history != nil {
		n.history.Start(ctx)
	}
	return nil
}

// serveMetrics serves the metrics without a token on an address of their own.
func (n *node) serveMetrics(ctx context.Context, config nodeConfig) error {
	if config.metricsListen == "" || config.limits.Metrics == nil {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", config.metricsListen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w; choose another address with --metrics-listen", config.metricsListen, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", config.limits.Metrics)
	n.metrics = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	n.serving.Go(func() { _ = n.metrics.Serve(listener) })
	return nil
}

// url returns the API's address as a URL.
func (n *node) url() string { return "http://" + n.addr.String() }

// drain says on /readyz that the node is about to stop, and gives balancers the
// time to notice. A node that fails meanwhile ends the wait.
func (n *node) drain(delay time.Duration) error {
	n.api.Drain()
	select {
	case <-time.After(delay):
		return nil
	case err := <-n.failed:
		return err
	}
}

// stop ends the API first, so that no publish is cut off, then the engine. A
// client that never ends its request gets a quarter of the time.
func (n *node) stop(ctx context.Context) error {
	patience, cancel := ctx, context.CancelFunc(func() {})
	if deadline, ok := ctx.Deadline(); ok {
		patience, cancel = context.WithTimeout(ctx, time.Until(deadline)/4)
	}
	err := n.server.Shutdown(patience)
	cancel()
	if err != nil {
		err = errors.Join(err, n.server.Close())
	}
	if n.metrics != nil {
		err = errors.Join(err, n.metrics.Close())
	}
	n.serving.Wait()
	n.endDashboard()
	return errors.Join(err, n.engine.Stop(ctx))
}

// endDashboard stops what it does in the background.
func (n *node) endDashboard() {
	if n.history != nil {
		n.history.Stop()
	}
}

// dashboardURL is where a browser finds the node.
func (n *node) dashboardURL() string { return n.url() + dashboard.Root }

// loadToken reads the API token's file, or makes it: mode 0600, synced before
// it is used, so that a token that was handed out survives a crash.
func loadToken(path string) (string, error) {
	raw, err := os.ReadFile(filepath.Clean(path))
	if err == nil {
		token := strings.TrimSpace(string(raw))
		if token == "" {
			return "", fmt.Errorf("api token: %s is empty; remove it to get a new one", path)
		}
		return token, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("api token: %w", err)
	}
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails: crypto/rand ends the process instead
	token := base64.RawURLEncoding.EncodeToString(random[:])
	if err := writeSynced(path, token+"\n"); err != nil {
		return "", fmt.Errorf("api token: %w", err)
	}
	return token, nil
}

// writeSynced puts a file in place atomically: synced under another name, then
// renamed, then the directory synced.
func writeSynced(path, text string) error {
	partial := path + ".new"
	f, err := os.OpenFile(filepath.Clean(partial), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(partial, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
