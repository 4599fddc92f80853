package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/dispatcher-engine/dispatcher/internal/payloads"
)

// client calls the node's API.
type client struct{ node Node }

func (c client) send(ctx context.Context, method, path, contentType string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.node.URL+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.node.Token)
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, text)
	}
	return resp, nil
}

// call sends a JSON body and decodes the answer into out (nil = ignore).
func (c client) call(ctx context.Context, method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	resp, err := c.send(ctx, method, path, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// batch publishes NDJSON and fails unless every line was accepted.
func (c client) batch(ctx context.Context, path, lines string, want int) error {
	resp, err := c.send(ctx, http.MethodPost, path, "application/x-ndjson", strings.NewReader(lines))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for n := 0; ; n++ {
		var line struct {
			ID     string
			Status int
			Error  json.RawMessage
		}
		if err := dec.Decode(&line); errors.Is(err, io.EOF) {
			if n != want {
				return fmt.Errorf("%d of %d lines were answered", n, want)
			}
			return nil
		} else if err != nil {
			return err
		}
		if line.Status != http.StatusAccepted {
			return fmt.Errorf("event %s: status %d: %s", line.ID, line.Status, line.Error)
		}
	}
}

// eventLine is one event as NDJSON. The payload is a compacted copy only
// because NDJSON has no room for its line breaks.
func eventLine(id string, p payloads.Payload) string {
	var payload bytes.Buffer
	if err := json.Compact(&payload, p.Body); err != nil {
		panic("demo: embedded payload " + p.Name + " is not JSON") // a broken build
	}
	return fmt.Sprintf("{\"id\":%q,\"topic\":%q,\"payload\":%s}\n", id, "github."+p.Topic(), payload.Bytes())
}
