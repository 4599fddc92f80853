package cli

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/dispatcher-engine/dispatcher/internal/config"
)

// live are the settings that a running node takes over; for all others it has to
// be started again. Certificates of the ingress are not among them because it
// looks at their files by itself.
var live = map[string]func(r *reloader, to *config.Config) error{
	"log.level": func(r *reloader, to *config.Config) error { return r.level.UnmarshalText([]byte(to.Log.Level)) },
	"api_token": (*reloader).takeToken,
}

// reloader reads the configuration again on SIGHUP. What can be taken over is, and
// the log says what was and what needs a restart; a configuration that is wrong
// changes nothing.
type reloader struct {
	read    func() (*config.Config, error)
	running *config.Config // what is in force
	node    *node
	level   *slog.LevelVar
	logger  *slog.Logger
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
	next, err := r.read()
	if err == nil {
		err = next.CheckFiles()
	}
	if err != nil {
		r.logger.Error("configuration_not_reloaded", "error", err.Error(), "in_force", "the one before")
		return
	}
	var changed, restart []string
	for _, path := range r.running.Changed(next) {
		take, ok := live[path]
		if !ok {
			restart = append(restart, path)
			continue
		}
		if err := take(r, next); err != nil {
			r.logger.Error("setting_not_changed", "setting", path, "error", err.Error())
			return
		}
		changed = append(changed, path)
	}
	// What needs a restart stays as it was in running, so that it is named again
	// by every reload until then.
	r.running.Log.Level, r.running.APIToken = next.Log.Level, next.APIToken
	r.logger.Warn("configuration_reloaded", "changed", changed, "needs_restart", restart)
}

func (r *reloader) takeToken(to *config.Config) error {
	token, err := to.APIToken.Reveal(), error(nil)
	if token == "" {
		token, err = loadToken(filepath.Join(cmp.Or(r.running.Data, to.Data), "api-token"))
	}
	if err != nil {
		return err
	}
	return r.node.api.SetTokens([]string{token})
}
