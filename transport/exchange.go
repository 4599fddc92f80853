package transport

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// writeState says whether any byte of a request can have left.
type writeState uint32

const (
	notWritten writeState = iota
	written               // from here on only the peer can prove that it did not process it
	sealed                // never written, and it will not be
)

// exchange is one request on its way and what is known about it.
//
// Its central question, "can a byte have left?", is decided by one atomic word.
// The protocol stack asks beginWrite before it lets the first byte out; whoever
// classifies a failure calls seal. Whichever comes first wins, so a request that
// was declared "never sent" cannot be sent by a goroutine that was a little
// late.
type exchange struct {
	req   *delivery.Request
	trace httptrace.ClientTrace

	state    atomic.Uint32
	unleased atomic.Bool // Valid said no at the last moment
	refused  atomic.Bool // a GOAWAY proves that it was not processed
	lateKill func()      // ends the connection when a stack would write after seal
	informed atomic.Int32

	body requestBody

	// HTTP/3; guarded by the watch's lock.
	streamID int64
	cancel   context.CancelCauseFunc
	packets  uint64 // received when the request was written
}

var (
	errSealed     = errors.New("request was given up before its first byte")
	errTooMany1xx = errors.New("too many informational answers")
	errGoAway     = errors.New("peer sent GOAWAY with an id that excludes this request")
)

// beginWrite is asked before the first byte of a request leaves, and again for
// every further one. It takes the last look at the lease.
func (ex *exchange) beginWrite() bool {
	switch writeState(ex.state.Load()) {
	case written:
		return true
	case sealed:
		return false
	}
	if ex.req.Valid != nil && !ex.req.Valid() {
		ex.unleased.Store(true)
		ex.state.CompareAndSwap(uint32(notWritten), uint32(sealed))
		return false
	}
	return ex.state.CompareAndSwap(uint32(notWritten), uint32(written)) ||
		writeState(ex.state.Load()) == written
}

// seal ends the request's chance to be written. It returns true if no byte left,
// which from then on stays so.
func (ex *exchange) seal() bool {
	return ex.state.CompareAndSwap(uint32(notWritten), uint32(sealed)) ||
		writeState(ex.state.Load()) == sealed
}

// wroteField is the trace hook of HTTP/2 and HTTP/3. It runs while the header
// block is encoded, before any of it reaches the connection. It cannot refuse,
// so in the rare case that the request has been given up meanwhile, or that the
// lease ended in the queue for a stream, it ends the connection underneath.
func (ex *exchange) wroteField(string, []string) {
	if !ex.beginWrite() {
		ex.lateKill()
	}
}

// got1xx bounds informational answers; the stacks reset their own byte limit at
// each of them when somebody listens.
func (ex *exchange) got1xx(int, textproto.MIMEHeader) error {
	if ex.informed.Add(1) > max1xx {
		return errTooMany1xx
	}
	return nil
}

// answer is a response whose headers were seen.
type answer struct {
	resp *http.Response
	// body is the whole body if it came along, else it is read from resp.
	body []byte
	// finish gives back what the answer holds. done = the body was read to its
	// end.
	finish func(done bool)
}

// exchange runs one request on a link.
func (l *link) exchange(ctx context.Context, req *delivery.Request) (*delivery.Response, fate, error) {
	if err := l.precheck(ctx, req); err != nil {
		l.wire.unreserve()
		return nil, keepLink, err
	}
	ex := &exchange{req: req, streamID: noStream}
	if err := ex.prepare(); err != nil {
		l.wire.unreserve()
		return nil, keepLink, &delivery.SendError{
			Sent: delivery.SentNever, Cause: delivery.CauseLocal, Detail: detail(err), Err: err,
		}
	}

	started := time.Now()
	got, failed := l.wire.roundTrip(ctx, ex)
	if failed == nil && ex.body.failure() != nil {
		// The peer has answered half a request.
		got.finish(false)
		failed = &failure{err: ex.body.failure()}
	}
	if failed != nil {
		fate, err := l.fail(ctx, ex, failed)
		return nil, fate, err
	}
	resp := &delivery.Response{
		Status:    got.resp.StatusCode,
		Header:    got.resp.Header,
		FirstByte: time.Since(started),
	}
	fate := l.readBody(ctx, got, resp)
	ex.body.end()
	resp.BytesSent = ex.body.sent.Load()
	return resp, fate, nil
}

// fail judges a request without an answer.
func (l *link) fail(ctx context.Context, ex *exchange, f *failure) (fate, *delivery.SendError) {
	ex.body.end()
	f.complete(ctx, l, ex)
	verdict := classify(*f)
	if verdict.Sent == delivery.SentRefused {
		l.pool.cfg.Observer.refused(l.route, l.proto)
	}
	return f.fate(verdict), verdict
}

// prepare checks the headers and opens the body.
func (ex *exchange) prepare() error {
	if err := checkHeaders(ex.req.Headers); err != nil {
		return err
	}
	return ex.body.begin(ex.req)
}

// precheck refuses what must not even reach the protocol stack.
func (l *link) precheck(ctx context.Context, req *delivery.Request) *delivery.SendError {
	if err := ctx.Err(); err != nil {
		return gaveUp(err, "before the request was written")
	}
	if req.Length < 0 || req.Open == nil && int64(len(req.Body)) != req.Length {
		return &delivery.SendError{
			Sent: delivery.SentNever, Cause: delivery.CauseLocal, Detail: "the length does not match the body",
		}
	}
	if req.Valid != nil && !req.Valid() {
		return leaseEnded()
	}
	return nil
}
