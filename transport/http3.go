package transport

import (
	"context"
	"errors"
	"net/http/httptrace"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// closeCode is H3_NO_ERROR: what a peer is told when we let go of a connection.
const closeCode = quic.ApplicationErrorCode(http3.ErrCodeNoError)

// http3Wire is an HTTP/3 connection: quic-go's single-connection client, which,
// unlike its Transport, does not resend a request.
type http3Wire struct {
	link   *link
	conn   *quic.Conn
	client *http3.ClientConn
	watch  *goAwayWatch
	stall  stallTimer
}

var _ wire = (*http3Wire)(nil)

func (w *http3Wire) reserve() bool      { return w.conn.Context().Err() == nil }
func (w *http3Wire) unreserve()         {}
func (w *http3Wire) ended() error       { return context.Cause(w.conn.Context()) }
func (w *http3Wire) rtt() time.Duration { return w.conn.ConnectionStats().SmoothedRTT }

// close tells the peer, and waits until that is sent.
func (w *http3Wire) close() {
	_ = w.conn.CloseWithError(closeCode, "") // returns nil only
	w.stall.stop()
}

func (w *http3Wire) roundTrip(ctx context.Context, ex *exchange) (*answer, *failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	ex.cancel = cancel
	ex.lateKill = w.close
	ex.trace.WroteHeaderField = func(string, []string) { w.wroteField(ex) }
	req, err := ex.httpRequest(httptrace.WithClientTrace(ctx, &ex.trace), w.link)
	if err == nil {
		// quic-go notices a request that cannot be encoded, and then waits for
		// its answer all the same.
		err = invalidRequest(ex.req)
	}
	if err != nil {
		cancel(nil)
		return nil, &failure{err: err, local: err}
	}
	resp, err := w.client.RoundTrip(req)
	w.watch.forget(ex)
	if err != nil {
		cancel(nil)
		return nil, w.failed(ctx, ex, err)
	}
	return &answer{resp: resp, finish: func(bool) {
		_ = resp.Body.Close() // resets the stream if it is not at its end; does not wait
		cancel(nil)
	}}, nil
}

// wroteField runs for each field while the header block is encoded, on the
// goroutine of roundTrip.
func (w *http3Wire) wroteField(ex *exchange) {
	if writeState(ex.state.Load()) == written {
		return
	}
	w.watch.encoding(ex)
	ex.packets = w.conn.ConnectionStats().PacketsReceived
	ex.wroteField("", nil)
	w.stall.arm(ex.packets)
}

func (w *http3Wire) failed(ctx context.Context, ex *exchange, err error) *failure {
	f := &failure{err: err}
	switch writeState(ex.state.Load()) {
	case written:
		f.silent = w.conn.ConnectionStats().PacketsReceived == ex.packets || w.stall.dead()
	case notWritten:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			// It waited for a stream until the end: the peer's limit is what is
			// open now.
			w.link.pool.lowerLimit(w.link, w.watch.started())
		}
	}
	return f
}
