package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/internal/telemetry"
	"github.com/dispatcher-engine/dispatcher/storage"
)

func (a *app) nodeCommands() []*cobra.Command {
	list := []*cobra.Command{a.serve(), a.demo()}
	for _, c := range list {
		c.GroupID = "node"
	}
	return list
}

func (a *app) serve() *cobra.Command {
	var data, listen, ingressListen, configFile string
	var allowPrivate []string
	var allowHTTP bool
	c := &cobra.Command{
		Use: "serve", Short: "Run a node", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			prefixes, err := netguard.ParsePrefixes(allowPrivate)
			if err != nil {
				return usageError(fmt.Errorf("--allow-private: %w", err))
			}
			logger := slog.New(slog.NewTextHandler(a.Err, nil))
			config := nodeConfig{listen: listen, logger: logger, token: os.Getenv("DISPATCHER_API_TOKEN"), engine: engine.Config{
				Version: a.version, Logger: logger,
				Guard:   netguard.Config{AllowPrivate: prefixes, AllowHTTP: allowHTTP},
				Storage: storage.Config{Dir: data},
			}}
			return a.runNode(c.Context(), config)
		},
	}
	f := c.Flags()
	f.StringVar(&data, "data", "data", "data directory")
	f.StringVar(&listen, "listen", "127.0.0.1:8080", "API address")
	f.StringVar(&ingressListen, "ingress-listen", "127.0.0.1:8081", "ingress address")
	f.StringVar(&configFile, "config", "", "configuration file")
	f.StringSliceVar(&allowPrivate, "allow-private", nil, "private ranges that may be dialled")
	f.BoolVar(&allowHTTP, "allow-http", false, "allow http URLs")
	return c
}

func (a *app) runNode(ctx context.Context, config nodeConfig) error {
	metrics := telemetry.New()
	metrics.Observe(&config.engine)
	config.limits.Metrics = metrics.Handler()
	n, err := startNode(ctx, config)
	if err != nil {
		return err
	}
	metrics.Watch(n.engine)
	if n.tokenFile != "" {
		config.logger.Info("api_token", "file", n.tokenFile)
	}
	config.logger.Info("ready", "api", n.url(), "version", a.version)
	var failed error
	select {
	case <-ctx.Done():
		config.logger.Info("stopping")
	case failed = <-n.failed:
	}
	return errors.Join(failed, stopWithin(ctx, n))
}
