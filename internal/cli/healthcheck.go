package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// healthcheck asks without a token, so that a container needs no secret to find
// out about itself.
func (a *app) healthcheck() *cobra.Command {
	var addr string
	var ready bool
	var timeout time.Duration
	c := &cobra.Command{
		Use: "healthcheck", Short: "Ask a node whether it lives, for containers without curl", Args: noArgs,
		Long: `healthcheck asks /healthz, whether the process serves, or with --ready /readyz,
whether publishes are accepted. It needs no token.`,
		Example: `  dispatcher healthcheck
  dispatcher healthcheck --ready --addr http://127.0.0.1:8080 --timeout 2s`,
		RunE: func(c *cobra.Command, _ []string) error {
			path := "/healthz"
			if ready {
				path = "/readyz"
			}
			return a.askHealth(c.Context(), addr, path, timeout)
		},
	}
	c.Flags().StringVar(&addr, "addr", envOr("DISPATCHER_ADDR", defaultAddr), "address of the node's API (env DISPATCHER_ADDR)")
	c.Flags().BoolVar(&ready, "ready", false, "ask whether publishes are accepted")
	c.Flags().DurationVar(&timeout, "timeout", 3*time.Second, "how long to wait for the answer")
	return c
}

func (a *app) askHealth(ctx context.Context, addr, path string, timeout time.Duration) error {
	if !strings.Contains(addr, "://") {
		addr = "http://" + addr
	}
	target := strings.TrimSuffix(addr, "/") + path
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return usageError(fmt.Errorf("--addr %q: want http://HOST:PORT", addr))
	}
	client := http.Client{Timeout: timeout}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return problemOf(resp)
	}
	_, err = io.Copy(a.Out, io.LimitReader(resp.Body, 64<<10))
	return err
}
