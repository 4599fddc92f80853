package transport

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"time"
)

// http1Wire is an HTTP/1.1 connection: net/http's single-connection client over
// a gate. The client never writes a request a second time.
type http1Wire struct {
	link    *link
	conn    *http.ClientConn
	gate    *gateConn
	connect time.Duration
	hint    string // Keep-Alive as last seen; owned by the slot's holder
}

func (w *http1Wire) reserve() bool      { return w.conn.Reserve() == nil }
func (w *http1Wire) unreserve()         { w.conn.Release() }
func (w *http1Wire) rtt() time.Duration { return w.connect }
func (w *http1Wire) close()             { _ = w.conn.Close() }
func (w *http1Wire) ended() error       { return lastAlert(w.gate.Conn) }

func (w *http1Wire) roundTrip(ctx context.Context, ex *exchange) (*answer, *failure) {
	ex.trace.Got1xxResponse = ex.got1xx
	req, err := ex.httpRequest(httptrace.WithClientTrace(ctx, &ex.trace), w.link)
	if err != nil {
		w.unreserve()
		return nil, &failure{err: err, local: err}
	}
	if req.Body != nil && ex.req.Open == nil {
		// net/http sends headers and body in one write only if it knows the
		// reader's type; otherwise it is two, with a TLS record each.
		req.Body = io.NopCloser(bytes.NewReader(ex.req.Body))
		ex.body.sent.Store(ex.req.Length)
	}
	before := w.gate.raw.received.Load()
	w.gate.current.Store(ex)
	resp, err := w.conn.RoundTrip(req)
	if err != nil {
		// The stack's write loop has ended, so nothing is written from here on.
		return nil, &failure{err: err, silent: w.gate.raw.received.Load() == before}
	}
	w.noteKeepAlive(resp.Header)
	return &answer{resp: resp, finish: func(done bool) {
		w.gate.current.Store(nil)
		if done {
			_ = resp.Body.Close() // at its end: returns the connection, cannot fail
			return
		}
		// Closing an unfinished body closes the connection.
		_ = w.conn.Close()
	}}, nil
}

// limitReads makes reads fail after d; 0 lifts that.
func (w *http1Wire) limitReads(d time.Duration) {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	_ = w.gate.raw.SetReadDeadline(at) // fails only on a closed connection
}

// noteKeepAlive reads the peer's idle timeout. Some servers close after five
// seconds; a POST that crosses that close on the wire is ambiguous, so the
// connection is given up a second before.
func (w *http1Wire) noteKeepAlive(h http.Header) {
	value := h.Get("Keep-Alive")
	if value == w.hint {
		return
	}
	w.hint = value
	w.link.pool.keepAliveHint(w.link, keepAliveTimeout(value))
}

// keepAliveTimeout reads the timeout of a Keep-Alive header and takes a second
// off; 0 = none.
func keepAliveTimeout(value string) time.Duration {
	for param := range strings.SplitSeq(value, ",") {
		seconds, ok := strings.CutPrefix(strings.TrimSpace(param), "timeout=")
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(seconds, 10, 16)
		if err != nil {
			return 0
		}
		return max(time.Duration(n)*time.Second-time.Second, 500*time.Millisecond)
	}
	return 0
}

var _ wire = (*http1Wire)(nil)
