package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/demo"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/internal/telemetry"
	"github.com/dispatcher-engine/dispatcher/storage"
)

const demoEvents = 120

func (a *app) demo() *cobra.Command {
	var events int
	var exit, asJSON bool
	var listen string
	c := &cobra.Command{
		Use: "demo", Short: "See it work: a node, four receivers, 120 real payloads, a table", Args: noArgs,
		Long: `demo starts a node with a temporary store and four local receivers, each with
TLS and a signing secret of its own: one advertises HTTP/3, one speaks TCP only,
one advertises HTTP/3 on a UDP port that nobody answers, one fails its first
attempts with 503 and Retry-After: 1. It publishes real GitHub webhook payloads,
waits until they arrived and prints what each receiver saw.

Then the node goes on running until Ctrl-C, unless --exit is given: then the
exit status is 0 only if every delivery arrived exactly once with a valid
signature.`,
		Example: `  dispatcher demo
  dispatcher demo --events 1000 --exit
  dispatcher demo --exit --json | jq .by_protocol`,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.runDemo(c.Context(), demoOptions{events: events, exit: exit, json: asJSON, listen: listen})
		},
	}
	c.Flags().IntVar(&events, "events", demoEvents, "events to publish; the payloads repeat beyond 120")
	c.Flags().BoolVar(&exit, "exit", false, "end after the table")
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as JSON")
	c.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address of the node's API")
	return c
}

type demoOptions struct {
	events     int
	exit, json bool
	listen     string
}

func (a *app) runDemo(ctx context.Context, o demoOptions) (err error) {
	if o.events < 1 || o.events > 1_000_000 {
		return usageError(fmt.Errorf("--events %d: want 1 to 1000000", o.events))
	}
	dir, err := os.MkdirTemp("", "dispatcher-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	n, err := a.startDemoNode(ctx, dir, o.listen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopWithin(ctx, n, stopTimeout)) }()
	a.note("node on %s with a temporary store in %s", n.url(), dir)
	d, err := demo.Start(ctx, demo.Config{Node: demo.Node{URL: n.url(), Token: n.token}, Events: o.events, Progress: a.Err})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	report, failed := d.Run(ctx)
	if err := a.printReport(report, o.json); err != nil {
		return err
	}
	if failed != nil || o.exit {
		return failed
	}
	a.invite(n)
	select {
	case <-ctx.Done():
		return nil
	case err := <-n.failed:
		return err
	}
}

func (a *app) printReport(r demo.Report, asJSON bool) error {
	if asJSON {
		return printJSON(a.Out, r)
	}
	return r.Print(a.Out)
}

// startDemoNode starts a node that may deliver to loopback and nowhere else
// that is private.
func (a *app) startDemoNode(ctx context.Context, dir, listen string) (*node, error) {
	logger := slog.New(slog.NewTextHandler(a.Err, logOptions(slog.LevelWarn)))
	config := nodeConfig{
		listen: listen, logger: logger,
		engine: engine.Config{
			Version: a.version, Logger: logger,
			Guard:   netguard.Config{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
			Storage: storage.Config{Dir: dir, Watermark: storage.Watermark{Bytes: 256 << 20}},
		},
	}
	config.telemetry = telemetry.New()
	config.telemetry.Observe(&config.engine)
	return startNode(ctx, config)
}

// invite says what to try with the node that goes on running.
func (a *app) invite(n *node) {
	fmt.Fprintf(a.Err, `
The node and its receivers go on running; Ctrl-C ends them. See what happened in a
browser, signing in with the token below:

  %[3]s

or try:

  export DISPATCHER_API_TOKEN=%[1]s
  curl -sS -X POST %[2]s/v1/tenants/demo/events -H "authorization: Bearer $DISPATCHER_API_TOKEN" \
    -H 'content-type: application/json' -d '{"topic":"github.push","payload":{"hello":"webhook"}}'
  dispatcher deliveries list --addr %[2]s --tenant demo
`, n.token, n.url(), n.dashboardURL())
}

// stopTimeout bounds a stop that nobody asked to be faster.
const stopTimeout = 15 * time.Second

func stopWithin(ctx context.Context, n *node, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	return n.stop(ctx)
}
