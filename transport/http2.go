package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// http2Wire is an HTTP/2 connection. net/http's single-connection client does
// not replay a request, unlike its Transport.
type http2Wire struct {
	link    *link
	conn    *http.ClientConn
	raw     *rawConn
	tls     *tls.Conn
	connect time.Duration
}

var _ wire = (*http2Wire)(nil)

// reserve takes the peer's limit of concurrent streams into account, as far as
// it is known.
func (w *http2Wire) reserve() bool      { return w.conn.Reserve() == nil }
func (w *http2Wire) unreserve()         { w.conn.Release() }
func (w *http2Wire) rtt() time.Duration { return w.connect }
func (w *http2Wire) close()             { _ = w.conn.Close() }
func (w *http2Wire) ended() error       { return lastAlert(w.tls) }

// stateChanged is the stack's hook. Slots come back to the stack a moment after
// a response has ended, and the peer can raise its limit at any time; those who
// wait for a slot must hear of it.
func (w *http2Wire) stateChanged(*http.ClientConn) {
	if w.link.pool.waiting.Load() > 0 {
		w.link.pool.wake(w.link)
	}
}

func (w *http2Wire) roundTrip(ctx context.Context, ex *exchange) (*answer, *failure) {
	ex.trace.Got1xxResponse = ex.got1xx
	ex.trace.WroteHeaderField = ex.wroteField
	ex.lateKill = func() { _ = w.raw.Close() }
	req, err := ex.httpRequest(httptrace.WithClientTrace(ctx, &ex.trace), w.link)
	if err != nil {
		w.unreserve()
		return nil, &failure{err: err, local: err}
	}
	before := w.raw.received.Load()
	resp, err := w.conn.RoundTrip(req)
	if err != nil {
		// A request that was not written has no answer to wait for.
		asked := writeState(ex.state.Load()) == written
		if http2Ended(err) {
			err = cmp.Or(lastAlert(w.tls), err)
		}
		return nil, &failure{err: err, silent: asked && w.raw.received.Load() == before}
	}
	return &answer{resp: resp, finish: w.finish(ctx, resp)}, nil
}

// finish returns what ends the answer. The stack stops a body read at the
// deadline only after it has sent a reset, and the write of that can wait for a
// peer that does not read; grace later the connection is cut, so that no caller
// is held past its deadline.
func (w *http2Wire) finish(ctx context.Context, resp *http.Response) func(done bool) {
	if resp.Body == http.NoBody {
		return func(bool) {}
	}
	const grace = 250 * time.Millisecond
	var over atomic.Bool
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(grace, func() {
			if !over.Load() {
				_ = w.raw.Close()
			}
		})
	})
	return func(done bool) {
		over.Store(true)
		stop()
		if done {
			_ = resp.Body.Close() // at its end
			return
		}
		// Giving back flow control may wait for the peer.
		w.link.pool.background(func() { _ = resp.Body.Close() })
	}
}
