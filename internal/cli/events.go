package cli

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// readFile reads a file, or stdin for "-".
func readFile(flag, name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, usageError(fmt.Errorf("%s: %w", flag, err))
	}
	return raw, nil
}

func (a *app) events() *cobra.Command {
	return group("events", "Events: publish them and see what became of them",
		a.eventsPublish(), a.eventsBatch(), a.eventsShow(), a.eventsDeliveries())
}

func (a *app) eventsPublish() *cobra.Command {
	var tenant, id, topic, payload, file, contentType, key, priority, deliverAt string
	var subscribers []string
	c := &cobra.Command{
		Use: "publish", Short: "Publish one event; returns when it is durable", Args: noArgs,
		Example: `  dispatcher events publish --tenant t1 --topic order.created --payload '{"n":1}'
  dispatcher events publish --tenant t1 --topic order.created --file order.json --id order-1 --ordering-key cust-7
  generate | dispatcher events publish --tenant t1 --topic report.ready --file - --content-type text/csv`,
		RunE: func(c *cobra.Command, _ []string) error {
			body := []byte(payload)
			if file != "" {
				if payload != "" {
					return usageError(errors.New("give --payload or --file, not both"))
				}
				raw, err := readFile("--file", file, a.In)
				if err != nil {
					return err
				}
				body = raw
			}
			in := object{"topic": topic}
			if contentType == "" {
				if !json.Valid(body) {
					return usageError(errors.New("the payload is not JSON; give --content-type to send it as it is"))
				}
				in["payload"] = json.RawMessage(body)
			} else {
				in["payload_base64"], in["content_type"] = base64.StdEncoding.EncodeToString(body), contentType
			}
			for name, v := range map[string]string{"id": id, "ordering_key": key, "priority": priority, "deliver_at": deliverAt} {
				if v != "" {
					in[name] = v
				}
			}
			if len(subscribers) > 0 {
				in["subscribers"] = subscribers
			}
			var out object
			if err := a.client.do(c.Context(), http.MethodPost, tenantPath(tenant, "/events"), nil, in, &out); err != nil {
				return err
			}
			return a.show(out, "id", "deliveries", "deduplicated")
		},
	}
	f := c.Flags()
	f.StringVar(&tenant, "tenant", "", "tenant")
	f.StringVar(&topic, "topic", "", "topic, dot-separated segments")
	f.StringVar(&payload, "payload", "", "JSON payload, sent exactly as given")
	f.StringVar(&file, "file", "", "file with the payload, - for stdin")
	f.StringVar(&contentType, "content-type", "", "of a payload that is not JSON")
	f.StringVar(&id, "id", "", "event id for deduplication (made if not given)")
	f.StringVar(&key, "ordering-key", "", "deliver events with this key in order")
	f.StringVar(&priority, "priority", "", "high, normal or low")
	f.StringVar(&deliverAt, "deliver-at", "", "not before this time (RFC 3339)")
	f.StringArrayVar(&subscribers, "subscriber", nil, "only to this subscriber, repeatable")
	need(c, "tenant", "topic")
	return c
}

func (a *app) eventsBatch() *cobra.Command {
	var tenant, file string
	c := &cobra.Command{
		Use: "batch", Short: "Publish NDJSON, one event a line; prints one answer a line", Args: noArgs,
		Example: `  dispatcher events batch --tenant t1 --file events.ndjson
  # a line: {"id":"e1","topic":"order.created","payload":{"n":1}}`,
		RunE: func(c *cobra.Command, _ []string) error {
			in := a.In
			if file != "-" {
				f, err := os.Open(file)
				if err != nil {
					return usageError(fmt.Errorf("--file: %w", err))
				}
				defer f.Close() //nolint:errcheck // it was only read
				in = f
			}
			resp, err := a.client.send(c.Context(), http.MethodPost, tenantPath(tenant, "/events/batch"), nil, "application/x-ndjson", in)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			return a.copyBatchAnswer(resp.Body)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "tenant")
	c.Flags().StringVar(&file, "file", "-", "NDJSON file, - for stdin")
	need(c, "tenant")
	return c
}

// copyBatchAnswer prints the answer's lines and fails if one of them did.
func (a *app) copyBatchAnswer(body io.Reader) error {
	lines, bad := bufio.NewScanner(body), 0
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var answer struct {
			Status int `json:"status"`
		}
		if json.Unmarshal(lines.Bytes(), &answer) != nil || answer.Status >= 400 {
			bad++
		}
		fmt.Fprintf(a.Out, "%s\n", lines.Bytes())
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read answer: %w", err)
	}
	if bad > 0 {
		return fmt.Errorf("%d of the lines were not accepted", bad)
	}
	return nil
}

func eventPath(tenant, id, rest string) string {
	return tenantPath(tenant, "/events/"+url.PathEscape(id)+rest)
}

func (a *app) eventsShow() *cobra.Command {
	var tenant string
	c := &cobra.Command{
		Use: "show EVENT", Short: "Show one event", Args: oneArg("EVENT"),
		RunE: func(c *cobra.Command, args []string) error {
			var out object
			if err := a.client.do(c.Context(), http.MethodGet, eventPath(tenant, args[0], ""), nil, nil, &out); err != nil {
				return err
			}
			return a.show(out, "id", "key", "topic", "content_type", "size", "ordering_key", "priority", "deliver_at", "accepted_at", "headers", "payload", "payload_base64")
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "tenant")
	need(c, "tenant")
	return c
}

func (a *app) eventsDeliveries() *cobra.Command {
	var tenant string
	var p pages
	c := &cobra.Command{
		Use: "deliveries EVENT", Short: "List an event's deliveries", Args: oneArg("EVENT"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.list(c.Context(), eventPath(tenant, args[0], "/deliveries"), nil, p, deliveryColumns(time.Now())...)
		},
	}
	c.Flags().StringVar(&tenant, "tenant", "", "tenant")
	p.bind(c)
	need(c, "tenant")
	return c
}
