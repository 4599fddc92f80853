package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// http1Wire is an HTTP/1.1 connection. Whoever makes a request writes it, in one
// system call if it is small; one goroutine per connection reads, so that the end
// of an idle connection is noticed at once. net/http parses the answers. It
// spares a request two of the three goroutine switches that net/http's own client
// needs, and a third of its CPU time.
//
// Invariant: ex is set from before the first byte of a request until its answer
// was read, and whoever takes it out under mu gives the next word: read, to
// answers, or the requester, to resume. What comes while it is not set was not
// asked for, and ends the connection.
type http1Wire struct {
	link    *link
	conn    net.Conn // the TLS connection, or the raw one for http
	raw     *rawConn
	connect time.Duration
	hint    string // Keep-Alive as last seen; owned by the slot's holder

	in      headerLimit
	reader  *bufio.Reader
	peek    *socketPeek      // nil: nobody looks
	asked   bool             // a request was answered; owned by the slot's holder
	answers chan http1Answer // room for one, so read never waits
	resume  chan bool        // the same: the body was read, go on or end

	mu  sync.Mutex
	ex  *exchange
	end error // why the connection ended
}

var _ wire = (*http1Wire)(nil)

// http1Answer is what the reading goroutine found.
type http1Answer struct {
	resp *http.Response
	// body is the whole body, nil = none. rest: the body is still to be read, by
	// the requester.
	body []byte
	rest bool
	err  error
}

var errUnsolicited = errors.New("the peer had closed the connection, or sent what nobody had asked for")

// answeredTo lets net/http know that answers are to POSTs, which may have bodies.
var answeredTo = &http.Request{Method: http.MethodPost}

const (
	// oneWrite is the size of a body up to which head and body are one write.
	oneWrite = 32 << 10
	// answerGrace is how long an answer may still come in after a write has
	// failed: peers answer 413 and close before they have read everything.
	answerGrace = 500 * time.Millisecond
	// writeGrace is how long the rest of a request may take after its answer.
	writeGrace = 50 * time.Millisecond
)

func newHTTP1Wire(l *link, conn net.Conn, raw *rawConn, connect time.Duration, maxHeader int) *http1Wire {
	w := &http1Wire{
		link: l, conn: conn, raw: raw, connect: connect,
		in:      headerLimit{conn: conn, most: int64(maxHeader)},
		answers: make(chan http1Answer, 1), resume: make(chan bool, 1),
	}
	w.reader = bufio.NewReader(&w.in)
	if c, ok := raw.Conn.(syscall.Conn); ok {
		if fd, err := c.SyscallConn(); err == nil {
			w.peek = newSocketPeek(fd)
		}
	}
	return w
}

// start begins to read. The link must be complete.
func (w *http1Wire) start() { go w.read() }

func (w *http1Wire) reserve() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.end == nil
}

func (w *http1Wire) unreserve()         {} // the one slot is counted by the pool
func (w *http1Wire) rtt() time.Duration { return w.connect }

// close ends the connection without a TLS close_notify: that can wait seconds
// for a peer that does not read. A request's end is told by its length, so the
// peer loses nothing.
func (w *http1Wire) close() { _ = w.raw.Close() }

func (w *http1Wire) ended() error {
	w.mu.Lock()
	err := w.end
	w.mu.Unlock()
	if isAlert(err) {
		return err
	}
	return lastAlert(w.conn)
}

// read is the connection's goroutine. It ends with the connection.
func (w *http1Wire) read() {
	for {
		w.in.left = w.in.most
		_, err := w.reader.Peek(1)
		ex := w.awaited(err)
		if ex == nil {
			w.close()
			return
		}
		got := http1Answer{err: err}
		if err == nil {
			got = w.readAnswer(ex)
		}
		w.in.left = math.MaxInt64
		if got.err != nil {
			ex.seal() // what was not written yet need not be any more
		}
		last := got.err != nil || !got.rest && (got.resp.Close || !w.clean())
		if !got.rest {
			w.over(last, got.err)
		}
		if last {
			w.close()
		}
		w.answers <- got
		if last || got.rest && !<-w.resume {
			return
		}
	}
}

// awaited returns the request that waits for an answer. Without one the connection
// has ended.
func (w *http1Wire) awaited(err error) *exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ex == nil {
		if w.end = err; err == nil {
			w.end = errUnsolicited
		}
	}
	return w.ex
}

// over takes the request out: nothing more comes for it.
func (w *http1Wire) over(last bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ex = nil
	if last {
		if w.end = err; err == nil {
			w.end = io.EOF
		}
	}
}

// readAnswer reads the head of the answer, and its body if that has come along.
func (w *http1Wire) readAnswer(ex *exchange) http1Answer {
	for {
		resp, err := http.ReadResponse(w.reader, answeredTo)
		if err != nil {
			return http1Answer{err: err}
		}
		if code := resp.StatusCode; code >= 100 && code < 200 && code != http.StatusSwitchingProtocols {
			if err := ex.got1xx(code, nil); err != nil {
				return http1Answer{err: err}
			}
			continue
		}
		if resp.Body == http.NoBody {
			return http1Answer{resp: resp}
		}
		if n := resp.ContentLength; n > 0 && n <= maxBodyExcerpt && n <= int64(w.reader.Buffered()) {
			body := make([]byte, n)
			_, err := io.ReadFull(resp.Body, body)
			return http1Answer{resp: resp, body: body, err: err}
		}
		return http1Answer{resp: resp, rest: true}
	}
}

func (w *http1Wire) roundTrip(ctx context.Context, ex *exchange) (*answer, *failure) {
	head := takeHead()
	var err error
	if *head, err = appendHead((*head)[:0], ex.req); err != nil {
		giveHead(head)
		return nil, &failure{err: err, local: err}
	}
	before := w.raw.received.Load()
	if err := w.begin(ex); err != nil {
		giveHead(head)
		return nil, &failure{err: err}
	}
	wrote := w.write(ctx, ex, head)
	var got http1Answer
	select {
	case got = <-w.answers:
	case <-ctx.Done():
		w.close()
		got = <-w.answers
	}
	err = wrote.wait(got.err != nil)
	if got.err != nil {
		if err == nil || !errors.Is(err, errSealed) && !errors.Is(got.err, os.ErrDeadlineExceeded) {
			err = got.err
		}
		return nil, &failure{err: err, silent: w.raw.received.Load() == before}
	}
	w.asked = true
	w.noteKeepAlive(got.resp.Header)
	if !got.rest {
		if err != nil {
			w.close() // it has half a request
		}
		return &answer{resp: got.resp, body: got.body, finish: nothingHeld}, nil
	}
	stop := context.AfterFunc(ctx, w.close) // the requester reads on, and waits for nothing else
	return &answer{resp: got.resp, finish: func(done bool) {
		stop()
		w.finish(done && err == nil && !got.resp.Close && w.clean())
	}}, nil
}

// nothingHeld ends an answer that was read.
func nothingHeld(bool) {}

// begin makes ex the request that is under way. Whatever lies in the socket then
// would be taken for its answer, and an end of the connection for its failure, so
// the kernel is asked. Before the first request it may hold TLS session tickets.
func (w *http1Wire) begin(ex *exchange) error {
	if w.asked && w.peek != nil && w.peek.pending() {
		w.close()
		return errUnsolicited
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.end == nil {
		w.ex = ex
	}
	return w.end
}

// clean reports whether nothing has come behind an answer. It is asked by
// whoever has read it. TLS may hold records that it has not given out.
func (w *http1Wire) clean() bool {
	if w.reader.Buffered() > 0 {
		return false
	}
	if w.conn == net.Conn(w.raw) {
		return true
	}
	w.raw.dry = true
	n, err := w.conn.Read(make([]byte, 1))
	w.raw.dry = false
	return n == 0 && errors.Is(err, errDry)
}

// finish ends an answer whose body the requester has read.
func (w *http1Wire) finish(reusable bool) {
	if !reusable {
		w.over(true, nil)
		w.close()
	} else {
		w.over(false, nil)
	}
	w.resume <- reusable
}

// limitReads makes reads fail after d; 0 lifts that.
func (w *http1Wire) limitReads(d time.Duration) {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	_ = w.raw.SetReadDeadline(at) // fails only on a closed connection
}

// headerLimit bounds what is read before the end of an answer's headers.
type headerLimit struct {
	conn net.Conn
	most int64
	left int64
}

// Read implements io.Reader.
func (r *headerLimit) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, fmt.Errorf("the answer's headers exceeded %d bytes", r.most)
	}
	if int64(len(p)) > r.left {
		p = p[:r.left]
	}
	n, err := r.conn.Read(p)
	r.left -= int64(n)
	return n, err
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
