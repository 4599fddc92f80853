package cli

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

func deliveryColumns(now time.Time) []column {
	return []column{
		field("DELIVERY", "id"), field("TOPIC", "topic"), field("STATE", "state"), field("REASON", "reason"),
		field("ATTEMPTS", "attempts"), since("NEXT", "next_attempt", now), since("UPDATED", "updated_at", now),
	}
}

// filters are the flags that narrow a list of deliveries.
type filters struct {
	tenant, subscriber, state, reason, topic, signature, since, until string
}

func (f *filters) bind(c *cobra.Command, withState bool) {
	c.Flags().StringVar(&f.tenant, "tenant", "", "only this tenant's")
	c.Flags().StringVar(&f.subscriber, "subscriber", "", "only this subscriber's")
	if withState {
		c.Flags().StringVar(&f.state, "state", "", "received, leased, attempted, retrying, held, delivered, dead or canceled")
	}
	c.Flags().StringVar(&f.reason, "reason", "", "only with this reason, such as exhausted")
	c.Flags().StringVar(&f.topic, "topic", "", "only topics that match this pattern")
	c.Flags().StringVar(&f.signature, "signature", "", "only dead letters with this signature, as dlq groups prints it")
	c.Flags().StringVar(&f.since, "since", "", "accepted at or after (RFC 3339, or an age such as 2h)")
	c.Flags().StringVar(&f.until, "until", "", "accepted before")
}

func (f *filters) values(now time.Time) (url.Values, error) {
	since, err := instant("--since", f.since, now)
	if err != nil {
		return nil, err
	}
	until, err := instant("--until", f.until, now)
	if err != nil {
		return nil, err
	}
	out := url.Values{}
	for name, v := range map[string]string{
		"tenant": f.tenant, "subscriber": f.subscriber, "state": f.state, "reason": f.reason, "topic": f.topic, "signature": f.signature,
		"since": since, "until": until,
	} {
		if v != "" {
			out.Set(name, v)
		}
	}
	return out, nil
}

// body is the same as an object.
func (f *filters) body(now time.Time) (object, error) {
	query, err := f.values(now)
	if err != nil {
		return nil, err
	}
	in := object{}
	for name := range query {
		in[name] = query.Get(name)
	}
	return in, nil
}

// instant reads an RFC 3339 time or an age.
func instant(flag, s string, now time.Time) (string, error) {
	if s == "" {
		return "", nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		return now.Add(-d).UTC().Format(time.RFC3339), nil
	}
	if _, err := time.Parse(time.RFC3339, s); err != nil {
		return "", usageError(fmt.Errorf("%s %q: want a time such as 2026-01-02T15:04:05Z or an age such as 2h", flag, s))
	}
	return s, nil
}

func (a *app) deliveries() *cobra.Command {
	var f filters
	var p pages
	list := &cobra.Command{
		Use: "list", Short: "List deliveries, newest first", Args: noArgs,
		Example: `  dispatcher deliveries list --tenant t1 --state retrying
  dispatcher deliveries list --tenant t1 --subscriber ep1 --since 2h --json`,
		RunE: func(c *cobra.Command, _ []string) error {
			now := time.Now()
			query, err := f.values(now)
			if err != nil {
				return err
			}
			return a.list(c.Context(), "/v1/deliveries", query, p, deliveryColumns(now)...)
		},
	}
	f.bind(list, true)
	p.bind(list)
	show := &cobra.Command{
		Use: "show DELIVERY", Short: "Show one delivery with its timeline", Args: oneArg("DELIVERY"),
		RunE: func(c *cobra.Command, args []string) error {
			var out object
			if err := a.client.do(c.Context(), http.MethodGet, "/v1/deliveries/"+url.PathEscape(args[0]), nil, nil, &out); err != nil {
				return err
			}
			if a.json {
				return printJSON(a.Out, out)
			}
			return a.printDelivery(out)
		},
	}
	payload := &cobra.Command{
		Use: "payload DELIVERY", Short: "Write a delivery's payload to stdout, byte for byte; the node logs who asked", Args: oneArg("DELIVERY"),
		Long: `payload needs a token with the scope admin. What it prints belongs to the tenant's
own customers: the node writes an audit line with the token's id before the first
byte. With --json it is wrapped: content type, size, and the bytes in base64.`,
		Example: `  dispatcher deliveries payload 01ARZ3NDEKTSV4RRFFQ69G5FAV.ep1 > payload.json
  dispatcher deliveries payload 01ARZ3NDEKTSV4RRFFQ69G5FAV.ep1 | sha256sum`,
		RunE: func(c *cobra.Command, args []string) error { return a.payload(c.Context(), args[0]) },
	}
	var force bool
	replay := &cobra.Command{
		Use: "replay DELIVERY", Short: "Send a dead delivery again, with the same webhook-id", Args: oneArg("DELIVERY"),
		RunE: func(c *cobra.Command, args []string) error {
			var out object
			err := a.client.do(c.Context(), http.MethodPost, "/v1/deliveries/"+url.PathEscape(args[0])+"/replay", nil, object{"force": force}, &out)
			if err != nil {
				return err
			}
			return a.show(out, "id", "state", "attempts")
		},
	}
	replay.Flags().BoolVar(&force, "force", false, "replay a delivered one too")
	return group("deliveries", "Deliveries: one event for one subscriber", list, show, payload, replay)
}

// payload copies a payload from the node to stdout.
func (a *app) payload(ctx context.Context, id string) error {
	resp, err := a.client.send(ctx, http.MethodGet, "/v1/deliveries/"+url.PathEscape(id)+"/payload", nil, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if !a.json {
		_, err := io.Copy(a.Out, resp.Body)
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("payload of %s: %w", id, err)
	}
	return printJSON(a.Out, object{
		"id": id, "content_type": resp.Header.Get("Webhook-Content-Type"), "size": len(body), "payload_base64": base64.StdEncoding.EncodeToString(body),
	})
}

// printDelivery prints the timeline as a table: one line a transition.
func (a *app) printDelivery(d object) error {
	if err := printFields(a.Out, d, "id", "event_id", "topic", "tenant", "subscriber", "state", "reason", "attempts", "next_attempt", "size", "payload_hash", "signature"); err != nil {
		return err
	}
	entries, _ := d["timeline"].([]any)
	t := tabwriter.NewWriter(a.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "\nTIME\tSTATE\tREASON\tATTEMPT\tPROTOCOL\tSTATUS\tTOTAL\tDETAIL")
	for _, e := range entries {
		entry, ok := e.(map[string]any)
		if !ok {
			continue
		}
		o := object(entry)
		attempt := object{}
		if m, ok := entry["attempt"].(map[string]any); ok {
			attempt = m
		}
		cells := []string{
			o.str("at"), o.str("state"), o.str("reason"), attempt.str("number"), attempt.str("protocol"),
			attempt.str("status"), attempt.str("total"), strings.TrimSpace(o.str("note") + " " + attempt.str("detail")),
		}
		for i, cell := range cells {
			if cell == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

func (a *app) dlq() *cobra.Command {
	var f filters
	var p pages
	list := &cobra.Command{
		Use: "list", Short: "List dead letters, those that died last first", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			f.state = "dead"
			now := time.Now()
			query, err := f.values(now)
			if err != nil {
				return err
			}
			return a.list(c.Context(), "/v1/deliveries", query, p, deadColumns(now)...)
		},
	}
	f.bind(list, false)
	p.bind(list)
	return group("dlq", "Dead letters: list, group, replay, purge", list, a.dlqGroups(), a.dlqReplay(), a.dlqPurge())
}

// deadColumns tell a dead letter without its payload.
func deadColumns(now time.Time) []column {
	return []column{
		field("DELIVERY", "id"), field("TOPIC", "topic"), field("CATEGORY", "reason"), field("SIGNATURE", "signature"),
		field("ATTEMPTS", "attempts"), field("BYTES", "size"), short("SHA-256", "payload_hash"), since("DIED", "updated_at", now),
	}
}

func (a *app) dlqGroups() *cobra.Command {
	var f filters
	c := &cobra.Command{
		Use: "groups", Short: "Group dead letters by what they died of, the largest group first", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			now := time.Now()
			query, err := f.values(now)
			if err != nil {
				return err
			}
			var out struct {
				Data []object `json:"data"`
				Seen int      `json:"seen"`
				More bool     `json:"more"`
			}
			if err := a.client.do(c.Context(), http.MethodGet, "/v1/dlq/groups", query, nil, &out); err != nil {
				return err
			}
			if a.json {
				return printJSON(a.Out, out)
			}
			err = printTable(a.Out, out.Data, field("TENANT", "tenant"), field("SUBSCRIBER", "subscriber"), field("SIGNATURE", "signature"),
				field("COUNT", "count"), field("BYTES", "bytes"), since("LAST", "last", now), field("EXAMPLE", "example"))
			if err == nil && out.More {
				a.note("only the first %d dead letters were looked at: narrow it with --tenant, --subscriber or --since", out.Seen)
			}
			return err
		},
	}
	f.bind(c, false)
	return c
}

func (a *app) dlqPurge() *cobra.Command {
	var f filters
	c := &cobra.Command{
		Use: "purge", Short: "Remove the dead letters that match, payloads included", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			in, err := f.body(time.Now())
			if err != nil {
				return err
			}
			var out object
			if err := a.client.do(c.Context(), http.MethodPost, "/v1/dlq/purge", nil, in, &out); err != nil {
				return err
			}
			return a.show(out, "purged")
		},
	}
	f.bind(c, false)
	return c
}
