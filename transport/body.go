package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// excerpts holds the buffers that bodies are read into; what is kept of a body
// is copied out at its real size, which is most often a few bytes.
var excerpts = sync.Pool{New: func() any { return new([maxBodyExcerpt]byte) }}

// readBody reads the answer's body as far as it is kept, within ctx. The outcome
// was decided at the headers, so nothing here is an error of the exchange.
func (l *link) readBody(ctx context.Context, got *answer, out *delivery.Response) fate {
	if got.body != nil {
		out.Body = got.body
		got.finish(true)
		return keepLink
	}
	body := got.resp.Body
	if got.resp.StatusCode == http.StatusSwitchingProtocols {
		got.finish(false) // nobody asked for it, and its body is the raw connection
		return dropLink
	}
	if body == nil || body == http.NoBody {
		got.finish(true)
		return keepLink
	}
	buf := excerpts.Get().(*[maxBodyExcerpt]byte) //nolint:errcheck // the pool holds nothing else
	defer excerpts.Put(buf)
	n, err := readUpTo(body, buf[:])
	if n > 0 {
		out.Body = bytes.Clone(buf[:n])
	}
	switch {
	case errors.Is(err, io.EOF):
		got.finish(true)
		return keepLink
	case err != nil:
		out.Truncated, out.BodyErr = true, bodyError(ctx, err)
		got.finish(false)
		return l.brokenBody()
	}
	return l.drainBody(body, buf, got, out)
}

// readUpTo fills p as far as the body goes. Unlike io.ReadFull it returns the
// body's own error: a body that broke off is not one that ended.
func readUpTo(body io.Reader, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = body.Read(p[n:])
		n += m
	}
	return n, err
}

// brokenBody is what an unfinished body means for the connection. HTTP/1.1 has
// closed it; the others have reset a stream.
func (l *link) brokenBody() fate {
	if l.proto == delivery.ProtocolHTTP1 {
		return dropLink
	}
	return keepLink
}

// drainBody deals with what comes after the excerpt. Only HTTP/1.1 has to read
// on to be reused, and does so for a little while; streams are reset.
func (l *link) drainBody(body io.Reader, buf *[maxBodyExcerpt]byte, got *answer, out *delivery.Response) fate {
	out.Truncated = true
	if l.proto != delivery.ProtocolHTTP1 {
		// Exactly as long as the buffer is not truncated.
		if left := got.resp.ContentLength - maxBodyExcerpt; left == 0 {
			out.Truncated = false
		}
		got.finish(!out.Truncated)
		return keepLink
	}
	left := got.resp.ContentLength - maxBodyExcerpt
	if left > maxBodyDrain-maxBodyExcerpt {
		got.finish(false)
		return dropLink
	}
	conn, ok := l.wire.(*http1Wire)
	if !ok {
		got.finish(false)
		return dropLink
	}
	conn.limitReads(drainWait)
	defer conn.limitReads(0)
	for total := maxBodyExcerpt; total < maxBodyDrain; {
		n, err := body.Read(buf[:])
		total += n
		if errors.Is(err, io.EOF) {
			out.Truncated = total > maxBodyExcerpt
			got.finish(true)
			return keepLink
		}
		if err != nil {
			break
		}
	}
	got.finish(false)
	return dropLink
}

// bodyError prefers the context's word: what a stack reports after the deadline
// is a consequence.
func bodyError(ctx context.Context, err error) error {
	if ctxErr := ctx.Err(); ctxErr != nil {
		return ctxErr
	}
	return err
}
