package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

const (
	replayPath = "/v1/replays"
	// A replay is looked at often at first, so that a short one does not seem long.
	lookFirst = 50 * time.Millisecond
	lookMost  = time.Second
	// lookPatience is how long a node that does not answer is asked again: a replay
	// goes on over a restart.
	lookPatience = time.Minute
	// cancelWait bounds what an interrupted command still does.
	cancelWait = 10 * time.Second
)

func (a *app) replays() *cobra.Command {
	c := group("replays", "Bulk replays: list, show, watch, cancel", a.replayList(), a.replayShow(), a.replayWatch(), a.replayCancel())
	c.Long = `A bulk replay is made with "dlq replay" and runs on the node, over restarts of it.
Four run at a time, others wait for them.`
	c.Example = "  dispatcher replays list\n  dispatcher replays watch 03e6ljtgr2ucb6nu"
	return c
}

var replayFields = []string{
	"id", "state", "failure", "tenant", "subscriber", "reason", "signature", "topic", "since", "until", "per_second",
	"replayed", "passed_over", "total", "created_at", "started_at", "ended_at",
}

func (a *app) replayList() *cobra.Command {
	var p pages
	var tenant string
	c := &cobra.Command{
		Use: "list", Short: "List bulk replays, the newest first", Args: noArgs,
		Example: "  dispatcher replays list --tenant t1",
		RunE: func(c *cobra.Command, _ []string) error {
			now := time.Now()
			return a.list(c.Context(), replayPath, url.Values{"tenant": {tenant}}, p,
				field("REPLAY", "id"), field("STATE", "state"), field("TENANT", "tenant"), field("SUBSCRIBER", "subscriber"),
				field("SIGNATURE", "signature"), field("REPLAYED", "replayed"), field("TOTAL", "total"), field("PER SECOND", "per_second"),
				since("MADE", "created_at", now), since("ENDED", "ended_at", now))
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "only this tenant's")
	p.bind(c)
	return c
}

func (a *app) replayShow() *cobra.Command {
	return &cobra.Command{
		Use: "show REPLAY", Short: "Show one bulk replay", Args: oneArg("REPLAY"),
		Example: "  dispatcher replays show 03e6ljtgr2ucb6nu",
		RunE: func(c *cobra.Command, args []string) error {
			out, err := a.getReplay(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(out, replayFields...)
		},
	}
}

func (a *app) replayWatch() *cobra.Command {
	return &cobra.Command{
		Use: "watch REPLAY", Short: "Wait for the end of a bulk replay and show how far it has come", Args: oneArg("REPLAY"),
		Long: `watch ends with the replay; its exit status is 1 if that was canceled or failed.
An interrupt ends watch alone, not the replay.`,
		Example: "  dispatcher replays watch 03e6ljtgr2ucb6nu",
		RunE: func(c *cobra.Command, args []string) error {
			out, err := a.followReplay(c.Context(), args[0])
			if errors.Is(err, context.Canceled) {
				return fmt.Errorf("interrupted; the replay goes on, dispatcher replays cancel %s ends it", args[0])
			}
			if err != nil {
				return err
			}
			return a.replayEnd(out, replayFields...)
		},
	}
}

func (a *app) replayCancel() *cobra.Command {
	return &cobra.Command{
		Use: "cancel REPLAY", Short: "End a bulk replay; what it replayed stays replayed", Args: oneArg("REPLAY"),
		Example: "  dispatcher replays cancel 03e6ljtgr2ucb6nu",
		RunE: func(c *cobra.Command, args []string) error {
			out, err := a.cancelReplay(c.Context(), args[0])
			if err != nil {
				return err
			}
			return a.show(out, "id", "state", "replayed", "passed_over", "total")
		},
	}
}

func (a *app) getReplay(ctx context.Context, id string) (out object, err error) {
	return out, a.client.do(ctx, http.MethodGet, replayPath+"/"+url.PathEscape(id), nil, nil, &out)
}

func (a *app) cancelReplay(ctx context.Context, id string) (out object, err error) {
	return out, a.client.do(ctx, http.MethodPost, replayPath+"/"+url.PathEscape(id)+"/cancel", nil, nil, &out)
}

// replayEnd shows a replay that has ended. Only one that is done is a success.
func (a *app) replayEnd(out object, names ...string) error {
	if err := a.show(out, names...); err != nil {
		return err
	}
	switch state := out.str("state"); state {
	case "failed":
		return fmt.Errorf("replay %s failed: %s", out.str("id"), out.str("failure"))
	case "canceled":
		return fmt.Errorf("replay %s was canceled", out.str("id"))
	}
	return nil
}

// followReplay waits for the end of a replay. With --json it says nothing
// meanwhile.
func (a *app) followReplay(ctx context.Context, id string) (object, error) {
	p := newProgress(a.Err, "replayed", isTerminal(a.Err))
	defer p.clear()
	var silent time.Time // since when the node does not answer
	for wait := lookFirst; ; wait = min(2*wait, lookMost) {
		out, err := a.getReplay(ctx, id)
		switch now := time.Now(); {
		case ctx.Err() != nil:
			return nil, ctx.Err() // its cause names the signal
		case err == nil:
			silent = time.Time{}
			if state := out.str("state"); state != "pending" && state != "running" {
				return out, nil
			}
			if !a.json {
				p.at(out.num("replayed")+out.num("passed_over"), out.num("total"))
			}
		case !mayComeBack(err) || !silent.IsZero() && now.Sub(silent) > lookPatience:
			return nil, err
		case silent.IsZero():
			silent = now
			p.say("%v\nlooking again for %v", err, lookPatience)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

// mayComeBack reports whether a node that answered so, or not at all, may only be
// starting again.
func mayComeBack(err error) bool {
	if p, ok := errors.AsType[*problem](err); ok {
		return p.Status == http.StatusServiceUnavailable || p.Status == http.StatusBadGateway || p.Status == http.StatusGatewayTimeout
	}
	exit, ok := errors.AsType[*ExitError](err)
	return ok && exit.Status == ExitUnreachable
}

// dlqReplay is "dlq replay".
func (a *app) dlqReplay() *cobra.Command {
	var f filters
	var perSecond float64
	var limit int
	var cursor string
	var background bool
	c := &cobra.Command{
		Use: "replay", Short: "Replay the dead letters that match", Args: noArgs,
		Long: `replay sends the dead letters again that match, each once: those that are dead now.
It runs on the node. The command waits for its end and shows how far it has come;
an interrupt ends the replay, too, and what it replayed stays replayed. With
--background it is made and left to itself: see "dispatcher replays".

With --limit or --cursor it is one request instead, which ends with its connection
or after --timeout.`,
		Example: `  dispatcher dlq replay --tenant t1 --subscriber ep1 --per-second 50
  dispatcher dlq replay --tenant t1 --signature 'exhausted: status 503' --background
  dispatcher dlq replay --tenant t1 --limit 10`,
		RunE: func(c *cobra.Command, _ []string) error {
			in, err := f.body(time.Now())
			if err != nil {
				return err
			}
			if perSecond != 0 {
				in["per_second"] = perSecond
			}
			if limit > 0 || cursor != "" {
				if background {
					return usageError(errors.New("--background goes on to the end: leave out --limit and --cursor"))
				}
				return a.replayPart(c.Context(), in, limit, cursor)
			}
			return a.replayAll(c.Context(), in, background)
		},
	}
	f.bind(c, false)
	c.Flags().Float64Var(&perSecond, "per-second", 0, "at most this many a second (default no limit)")
	c.Flags().BoolVar(&background, "background", false, "do not wait for its end")
	c.Flags().IntVar(&limit, "limit", 0, "stop after this many, and print where to go on (default: all)")
	c.Flags().StringVar(&cursor, "cursor", "", "go on: next_cursor of a replay that its limit stopped")
	return c
}

// replayPart replays within one request.
func (a *app) replayPart(ctx context.Context, in object, limit int, cursor string) error {
	if limit > 0 {
		in["limit"] = limit
	}
	if cursor != "" {
		in["cursor"] = cursor
	}
	var out object
	if err := a.client.do(ctx, http.MethodPost, "/v1/dlq/replay", nil, in, &out); err != nil {
		return err
	}
	return a.show(out, "replayed", "next_cursor")
}

// replayAll makes a replay and, unless it is left to itself, waits for its end.
func (a *app) replayAll(ctx context.Context, in object, background bool) error {
	var job object
	if err := a.client.do(ctx, http.MethodPost, replayPath, nil, in, &job); err != nil {
		return err
	}
	id := job.str("id")
	if background {
		if !a.json {
			a.note("dispatcher replays watch %s shows how far it has come", id)
		}
		return a.show(job, "id", "state")
	}
	out, err := a.followReplay(ctx, id)
	if errors.Is(err, context.Canceled) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelWait)
		defer cancel()
		if out, err = a.cancelReplay(ctx, id); err != nil {
			return fmt.Errorf("the replay goes on, since it could not be ended: %w; try dispatcher replays cancel %s", err, id)
		}
	}
	if err != nil {
		return err
	}
	out["next_cursor"] = "" // what the request of --limit answers; here nothing is left
	return a.replayEnd(out, "replayed", "passed_over")
}
