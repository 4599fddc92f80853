package fault

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// errShort is an answer that ends before its announced length.
var errShort = errors.New("the answer is shorter than announced")

// serveHTTP1 serves requests one after the other.
func (s *Server) serveHTTP1(c *tcpConn, conn net.Conn) {
	br := bufio.NewReader(conn)
	for n := 0; ; n++ {
		var reuse Fault
		if n > 0 {
			if !c.ready(br) {
				return
			}
			reuse, _ = s.decide(atReuse, delivery.ProtocolHTTP1)
			if reuse.is("when", "before") {
				hitClose(c, reuse)
				return
			}
		}
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		w := &http1Stream{c: c, conn: conn, req: req, length: -1}
		if reuse.kind != nil {
			s.serveReused(w, reuse)
			return
		}
		s.serve(w, delivery.ProtocolHTTP1, req.Header)
		if !w.reusable() {
			return
		}
	}
}

// ready waits for the first byte of a further request.
func (c *tcpConn) ready(br *bufio.Reader) bool {
	if br.Buffered() > 0 {
		return true
	}
	return c.peek()
}

// serveReused ends a reused connection after its request was read.
func (s *Server) serveReused(w *http1Stream, f Fault) {
	x := &exchange{wire: w, s: s, proto: delivery.ProtocolHTTP1, header: w.req.Header, id: w.req.Header.Get("Webhook-Id")}
	s.tally.arrived(x.id, x.proto)
	defer x.report()
	f.kind.act(x, f)
}

// http1Stream is a request over HTTP/1.1, which has the connection to itself.
type http1Stream struct {
	c    *tcpConn
	conn net.Conn
	req  *http.Request

	read    bool  // the request's body was read to its end
	length  int64 // announced, -1 = chunked
	written int64
	closing bool // the answer said so
	unread  bool // what the peer sends is to stay unread
	ended   bool // the answer is complete
}

var _ wire = (*http1Stream)(nil)

func (w *http1Stream) readBody(sink io.Writer) (int64, error) {
	if w.read {
		return 0, nil
	}
	if w.req.Header.Get("Expect") == "100-continue" {
		if _, err := io.WriteString(w.conn, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return 0, err
		}
	}
	n, err := io.Copy(sink, w.req.Body)
	w.read = err == nil
	return n, err
}

func (w *http1Stream) head(h head) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", h.status, http.StatusText(h.status))
	for _, f := range h.fields {
		fmt.Fprintf(&b, "%s: %s\r\n", f.name, f.value)
		if f.name == "connection" && f.value == "close" {
			w.closing = true
		}
	}
	switch {
	case h.status < 200 || h.status == http.StatusNoContent || h.status == http.StatusNotModified:
	case h.length >= 0:
		b.WriteString("content-length: " + strconv.FormatInt(h.length, 10) + "\r\n")
	default:
		b.WriteString("transfer-encoding: chunked\r\n")
	}
	w.length, w.written = h.length, 0
	if h.status < 200 || h.status == http.StatusNoContent || h.status == http.StatusNotModified {
		w.length = 0
	}
	b.WriteString("\r\n")
	return w.send(b.Bytes(), h)
}

func (w *http1Stream) send(block []byte, h head) error {
	if h.drip == 0 {
		_, err := w.conn.Write(block)
		return err
	}
	for i := range block {
		if _, err := w.conn.Write(block[i : i+1]); err != nil {
			return err
		}
		if !wait(w.req.Context(), w.c.over, h.drip) {
			return net.ErrClosed
		}
	}
	return nil
}

func (w *http1Stream) data(p []byte) error {
	w.written += int64(len(p))
	if w.length < 0 {
		p = fmt.Appendf(nil, "%x\r\n%s\r\n", len(p), p)
	}
	_, err := w.conn.Write(p)
	return err
}

func (w *http1Stream) end() error {
	if w.length < 0 {
		_, err := io.WriteString(w.conn, "0\r\n\r\n")
		w.ended = err == nil
		return err
	}
	if w.written < w.length {
		w.c.closeNow("fin", 0)
		return errShort
	}
	w.ended = true
	return nil
}

func (w *http1Stream) endEarly() error {
	err := w.end()
	w.c.lastWords()
	return err
}

func (w *http1Stream) register(*exchange) bool { return true }
func (w *http1Stream) finish()                 {}

// reusable reports whether the next request can follow.
func (w *http1Stream) reusable() bool {
	if w.c.dead.Load() {
		return true // the next read waits for the end of it
	}
	return w.read && w.ended && !w.closing && !w.req.Close
}

func (w *http1Stream) reset(uint64) { w.c.closeNow("rst", 0) }

func (w *http1Stream) noise(form string) {
	text := "220 mail.invalid ESMTP ready\r\n"
	switch form {
	case "no-status":
		text = "HTTP/1.1 \r\n\r\n"
	case "empty":
		text = ""
	}
	_, _ = io.WriteString(w.conn, text) // the peer may have left
	w.c.lastWords()
}

// gone looks for the end of the connection by reading on, so nothing can be read
// from it afterwards.
func (w *http1Stream) gone() <-chan struct{} {
	if w.unread {
		return w.c.over
	}
	return w.c.left()
}

func (w *http1Stream) connection() connection { return w.c }
