package transport

import (
	"context"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// headBuffers holds what requests are put together in; pieces holds what large
// bodies are copied through.
var (
	headBuffers = sync.Pool{New: func() any { b := make([]byte, 0, 4<<10); return &b }}
	pieces      = sync.Pool{New: func() any { return new([64 << 10]byte) }}
)

// maxPooledHead keeps a request with large headers from staying in the pool.
const maxPooledHead = 2 * oneWrite

func takeHead() *[]byte { return headBuffers.Get().(*[]byte) } //nolint:errcheck // the pool holds nothing else

func giveHead(b *[]byte) {
	if cap(*b) <= maxPooledHead {
		headBuffers.Put(b)
	}
}

// appendHead appends the request line and headers (RFC 9112 section 3).
func appendHead(b []byte, req *delivery.Request) ([]byte, error) {
	if err := checkTarget(req.Path); err != nil {
		return nil, err
	}
	if !httpguts.ValidHostHeader(req.Host) {
		return nil, errors.New("host is not valid")
	}
	b = append(b, "POST "...)
	b = append(b, req.Path...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, req.Host...)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, req.Length, 10)
	b = append(b, "\r\nAccept-Encoding: identity\r\n"...)
	for i := range req.Headers {
		f := &req.Headers[i]
		if skipped(f) {
			continue
		}
		if err := checkField(*f); err != nil {
			return nil, err
		}
		b = append(b, f.Name...)
		b = append(b, ": "...)
		b = append(b, f.Value...)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...), nil
}

// skipped reports whether a field is not written: framing is ours, and an empty
// User-Agent means none, as it does to net/http.
func skipped(f *delivery.Header) bool {
	switch f.Name {
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
		return true
	case "User-Agent":
		return f.Value == ""
	}
	return ours(f.Name)
}

// writing is a request that is being written, or was.
type writing struct {
	done chan error // nil = it was written, with err
	err  error
}

// wait returns what became of the write. After an answer the rest of the request
// has a moment left; when the connection has ended, so does the write.
func (w *writing) wait(ended bool) error {
	if w.done == nil {
		return w.err
	}
	if ended {
		return <-w.done
	}
	select {
	case err := <-w.done:
		return err
	default:
	}
	timer := time.NewTimer(writeGrace)
	defer timer.Stop()
	select {
	case err := <-w.done:
		return err
	case <-timer.C:
		return errors.New("the peer answered before it had read the request")
	}
}

// write writes the request. It does not wait for a large one: the peer may answer
// before it has read it. A small one hardly ever has to wait for room in the
// socket, and then until ctx's deadline; without a deadline it is not waited for
// either. The head is given away.
func (w *http1Wire) write(ctx context.Context, ex *exchange, head *[]byte) writing {
	body := ex.req.Body
	if deadline, ok := ctx.Deadline(); ok && ex.req.Open == nil && len(body) <= oneWrite {
		_ = w.raw.SetWriteDeadline(deadline) // fails only on a closed connection
		*head = append(*head, body...)
		ex.body.sent.Store(ex.req.Length)
		return writing{err: w.writeAll(ex, head, nil)}
	}
	_ = w.raw.SetWriteDeadline(time.Time{})
	done := make(chan error, 1)
	go func() { done <- w.writeAll(ex, head, &ex.body) }()
	return writing{done: done}
}

// writeAll writes the head and then the body, after the last look at the lease.
// If it fails, an answer may still be on its way for a moment, but only if
// something was written.
func (w *http1Wire) writeAll(ex *exchange, head *[]byte, body io.Reader) error {
	defer giveHead(head)
	if !ex.beginWrite() {
		w.close()
		return errSealed
	}
	_, err := w.conn.Write(*head)
	if err == nil && body != nil {
		err = w.writeBody(body)
	}
	if err != nil {
		_ = w.raw.SetReadDeadline(time.Now().Add(answerGrace)) // fails only on a closed connection
	}
	return err
}

func (w *http1Wire) writeBody(body io.Reader) error {
	piece := pieces.Get().(*[64 << 10]byte) //nolint:errcheck // the pool holds nothing else
	defer pieces.Put(piece)
	for {
		n, err := body.Read(piece[:])
		if n > 0 {
			if _, err := w.conn.Write(piece[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			w.close() // the peer must not take half a request for a whole one
			return err
		}
	}
}
