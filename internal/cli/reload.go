package cli

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/config"
)

// reloader reads the configuration again on SIGHUP. What can be taken over is, and
// the log says what was and what needs a restart; a configuration that is wrong
// changes nothing.
type reloader struct {
	read   func() (*config.Config, error)
	node   *node
	level  *slog.LevelVar
	traces tracing
	logger *slog.Logger

	mu      sync.Mutex
	running *config.Config // what is in force
}

// onHangup returns what ends it; it ends with ctx as well.
func (r *reloader) onHangup(ctx context.Context, hangups <-chan os.Signal) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				r.reload()
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (r *reloader) reload() {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.read()
	if err == nil {
		err = next.CheckFiles()
	}
	var changed, restart []string
	var apply []func()
	if err == nil {
		changed, restart, apply, err = r.plan(next)
	}
	if err != nil {
		r.logger.Error("configuration_not_reloaded", "error", err.Error(), "in_force", "the one before")
		return
	}
	for _, f := range apply {
		f()
	}
	// What needs a restart stays as it was in running, so that it is named again by
	// every reload until then.
	r.running.Take(next, changed)
	r.logger.Warn("configuration_reloaded", "changed", changed, "needs_restart", restart)
}

// plan looks at everything that has changed before anything of it is taken over, so
// that nothing is taken over by half.
func (r *reloader) plan(next *config.Config) (changed, restart []string, apply []func(), err error) {
	all := r.running.Changed(next)
	// A node in force is what runs now, with the live settings of next.
	to := r.running.Clone()
	for _, path := range all {
		if slices.Contains(config.Live(), path) && !r.bound(path, all) {
			changed = append(changed, path)
		} else {
			restart = append(restart, path)
		}
	}
	to.Take(next, changed)
	for _, t := range takeovers {
		if !slices.ContainsFunc(changed, func(path string) bool { return slices.Contains(t.paths, path) }) {
			continue
		}
		f, err := t.prepare(r, to)
		if err != nil {
			return nil, nil, nil, err
		}
		apply = append(apply, f)
	}
	return changed, restart, apply, nil
}

// bound reports whether a setting that is live has to wait for another that is not:
// the token of a control plane must not go to the last one.
func (r *reloader) bound(path string, changed []string) bool {
	return path == "ingress.control_plane_token" && slices.Contains(changed, "ingress.control_plane_url")
}

// shutdownDelay is the one in force.
func (r *reloader) shutdownDelay() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running.ShutdownDelay
}
