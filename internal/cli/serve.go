package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcher-engine/dispatcher/internal/config"
	"github.com/dispatcher-engine/dispatcher/internal/telemetry"
)

func (a *app) nodeCommands() []*cobra.Command {
	list := []*cobra.Command{a.serve(), a.demo(), a.configuration()}
	for _, c := range list {
		c.GroupID = "node"
	}
	return list
}

func (a *app) serve() *cobra.Command {
	c := &cobra.Command{
		Use: "serve", Short: "Run a node", Args: noArgs,
		Long: `serve opens the store in the data directory, delivers what is pending, and serves
the HTTP API until SIGTERM or Ctrl-C. Then /readyz answers 503, and after
shutdown_delay the node stops, without costing any delivery an attempt.

Every setting can stand in a file (--config), in the environment
(DISPATCHER_ and the setting's path in upper case) or in a flag; flags win over
the environment, the environment over the file. "dispatcher config print" shows
what is in force and where each value comes from.

SIGHUP has it read the configuration again: what "dispatcher config print" marks as
live is taken over at once, and the log says what else has changed and needs a
restart. A configuration that is wrong changes nothing.

Without a token in the configuration or in DISPATCHER_API_TOKEN, one is made at
the first start and kept in DATA/api-token (mode 0600).`,
		Example: `  dispatcher serve --data ./data
  dispatcher serve --config /etc/dispatcher.yaml --listen 0.0.0.0:8080
  dispatcher serve --data ./data --allow-private 127.0.0.0/8 --allow-http   # to try it against local receivers`,
		RunE: func(c *cobra.Command, _ []string) error {
			loaded, err := a.load(c)
			if err != nil {
				return err
			}
			return a.runNode(c.Context(), loaded, func() (*config.Config, error) { return a.load(c) })
		},
	}
	config.BindFlags(c.Flags())
	return c
}

// load reads file, environment and flags, and prints warnings.
func (a *app) load(c *cobra.Command) (*config.Config, error) {
	loaded, err := config.Load(config.Options{Environ: os.Environ(), Flags: c.Flags()})
	if err != nil {
		return nil, usageError(err)
	}
	for _, w := range loaded.Warnings() {
		a.note("warning: %s", w)
	}
	return loaded, nil
}

func (a *app) runNode(ctx context.Context, loaded *config.Config, again func() (*config.Config, error)) error {
	// From the first moment on, since the signal ends a process that does not ask
	// for it. One that comes before the node is up is obeyed when it is.
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	logger, level := newLogger(a.Err, loaded.Log)
	assembled := assemble(loaded, a.version, logger)
	metrics := telemetry.New()
	metrics.Observe(&assembled.engine)
	traces, err := a.traces(ctx, loaded, &assembled, logger)
	if err != nil {
		return err
	}
	assembled.limits.Metrics, assembled.telemetry = metrics.Handler(), metrics
	n, err := startNode(ctx, assembled)
	if err != nil {
		return errors.Join(err, traces.stop(ctx))
	}
	metrics.Watch(n.engine)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if n.tokenFile != "" {
		logger.Info("api_token", "file", n.tokenFile)
	}
	logger.Info("ready", "api", n.url(), "dashboard", n.dashboardURL(), "ingress", cmp.Or(n.engine.IngressURL(), "off"), "version", a.version, "data", loaded.Data)
	reload := &reloader{read: again, running: loaded, node: n, level: level, traces: traces, logger: logger}
	defer reload.onHangup(ctx, hangups)()
	var failed error
	select {
	case <-ctx.Done():
		delay := reload.shutdownDelay()
		logger.Info("stopping", "delay", delay, "timeout", loaded.ShutdownTimeout)
		failed = n.drain(delay)
	case failed = <-n.failed:
	}
	return errors.Join(failed, stopWithin(ctx, n, loaded.ShutdownTimeout), traces.stop(ctx))
}

// tracing is an exporter of spans, or none.
type tracing struct{ *telemetry.Traces }

func (a *app) traces(ctx context.Context, loaded *config.Config, assembled *nodeConfig, logger *slog.Logger) (tracing, error) {
	if loaded.Telemetry.OTLPEndpoint == "" {
		return tracing{}, nil
	}
	traces, err := telemetry.NewTraces(ctx, telemetry.TraceConfig{
		Endpoint: loaded.Telemetry.OTLPEndpoint, Headers: loaded.Telemetry.Headers(), Ratio: loaded.Telemetry.SampleRatio,
		Node: loaded.Node, Version: a.version, Logger: logger.With("part", "traces"),
	})
	if err != nil {
		return tracing{}, err
	}
	traces.Observe(&assembled.engine)
	return tracing{traces}, nil
}

// tracesStop bounds the last export: a collector that is gone must not hold up a
// stop.
const tracesStop = 3 * time.Second

func (t tracing) stop(ctx context.Context) error {
	if t.Traces == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracesStop)
	defer cancel()
	return t.Stop(ctx)
}

// gcPercent is the garbage collector's target while a node runs. Most of what it
// holds are the store's tables and cache, which cost the collector nothing to look
// at: collecting twice as often as Go's default is cheap, and saves a third of the
// memory. GOGC in the environment wins.
const gcPercent = 50

func (a *app) configuration() *cobra.Command {
	var asJSON bool
	show := &cobra.Command{
		Use: "print", Short: "Print the settings in force and where each comes from; secrets are masked", Args: noArgs,
		Example: `  dispatcher config print --config dispatcher.yaml`,
		RunE: func(c *cobra.Command, _ []string) error {
			loaded, err := a.load(c)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(a.Out, loaded.Settings())
			}
			return loaded.Print(a.Out)
		},
	}
	show.Flags().BoolVar(&asJSON, "json", false, "print JSON for scripts")
	check := &cobra.Command{
		Use: "check", Short: "Check the configuration and the files it names, without starting anything", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			loaded, err := a.load(c)
			if err != nil {
				return err
			}
			if err := loaded.CheckFiles(); err != nil {
				return usageError(err)
			}
			_, err = fmt.Fprintln(a.Out, "the configuration is good")
			return err
		},
	}
	example := &cobra.Command{
		Use: "example", Short: "Print a commented configuration file with every setting and its default", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return config.Example(a.Out) },
	}
	config.BindFlags(show.Flags())
	config.BindFlags(check.Flags())
	return group("config", "Configuration: print, check, example", show, check, example)
}
