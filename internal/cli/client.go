package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// client talks to a running node's API.
type client struct {
	addr      string
	token     string
	tokenFile string
	timeout   time.Duration
	http      http.Client
}

const defaultAddr = "http://127.0.0.1:8080"

func (c *client) bind(flags *pflag.FlagSet) {
	flags.StringVar(&c.addr, "addr", envOr("DISPATCHER_ADDR", defaultAddr), "address of the running node's API (env DISPATCHER_ADDR)")
	flags.StringVar(&c.tokenFile, "token-file", "", "file with the API token; else DISPATCHER_API_TOKEN is used")
	flags.DurationVar(&c.timeout, "timeout", 30*time.Second, "how long to wait for the node's answer")
}

func envOr(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

// problem is an RFC 9457 document as the API writes it.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Errors []struct {
		Field string `json:"field"`
		Value string `json:"value"`
		Rule  string `json:"rule"`
		Hint  string `json:"hint"`
	} `json:"errors"`
}

func (p *problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the node answered %d %s", p.Status, p.Title)
	if p.Detail != "" {
		b.WriteString(": " + p.Detail)
	}
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "\n  %s = %q: %s; %s", e.Field, e.Value, e.Rule, e.Hint)
	}
	return b.String()
}

func (c *client) prepare() error {
	if c.tokenFile != "" {
		raw, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return usageError(fmt.Errorf("--token-file: %w", err))
		}
		c.token = strings.TrimSpace(string(raw))
	} else {
		c.token = os.Getenv("DISPATCHER_API_TOKEN")
	}
	if c.token == "" {
		return usageError(errors.New("no API token: set DISPATCHER_API_TOKEN or --token-file (a node keeps its own in DATA/api-token)"))
	}
	if !strings.Contains(c.addr, "://") {
		c.addr = "http://" + c.addr
	}
	if u, err := url.Parse(c.addr); err != nil || u.Host == "" {
		return usageError(fmt.Errorf("--addr %q: want http://HOST:PORT", c.addr))
	}
	return nil
}

// do sends one request and decodes its JSON answer into out (nil = ignore).
func (c *client) do(ctx context.Context, method, path string, query url.Values, in, out any) error {
	var body io.Reader
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	resp, err := c.send(ctx, method, path, query, "application/json", body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil || resp.StatusCode == http.StatusNoContent {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("%s %s: decode answer: %w", method, path, err)
	}
	return nil
}

// send returns an answer below 400; anything else is an error.
func (c *client) send(ctx context.Context, method, path string, query url.Values, contentType string, body io.Reader) (*http.Response, error) {
	if err := c.prepare(); err != nil {
		return nil, err
	}
	target := strings.TrimSuffix(c.addr, "/") + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	c.http.Timeout = c.timeout
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, usageError(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, &ExitError{Status: ExitUnreachable, Err: fmt.Errorf("cannot reach the node at %s: %w; is it running, and is --addr right?", c.addr, errors.Unwrap(err))}
	}
	if resp.StatusCode < 400 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, problemOf(resp)
}

func problemOf(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	p := &problem{}
	if json.Unmarshal(raw, p) != nil || p.Status == 0 {
		p = &problem{Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode)}
	}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return &ExitError{Status: ExitUnreachable, Err: p}
	case http.StatusNotFound:
		return &ExitError{Status: ExitNotFound, Err: p}
	}
	return p
}
