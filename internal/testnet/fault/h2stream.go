package fault

import (
	"io"
	"net"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// maxFrame is what every peer takes (RFC 9113 section 4.2).
const maxFrame = 16 << 10

// http2Stream is one request over HTTP/2.
type http2Stream struct {
	h    *http2Conn
	id   uint32
	x    *exchange // what it belongs to
	body inbox
	once sync.Once
	left chan struct{} // closed when the peer has reset it
}

var (
	_ wire     = (*http2Stream)(nil)
	_ goAwayer = (*http2Stream)(nil)
)

func (st *http2Stream) readBody(sink io.Writer) (int64, error) {
	var total int64
	for {
		p, padding, err := st.body.next(st.gone())
		if err != nil {
			if err == io.EOF { //nolint:errorlint // the inbox's own
				err = nil
			}
			return total, err
		}
		total += int64(len(p))
		if _, err := sink.Write(p); err != nil {
			return total, err
		}
		st.h.credit(st.id, len(p)+padding)
	}
}

func (st *http2Stream) head(h head) error {
	c := st.h
	c.write.Lock()
	defer c.write.Unlock()
	c.block.Reset()
	fields := append([]field{{":status", strconv.Itoa(h.status)}}, h.fields...)
	if h.length >= 0 && h.status >= 200 {
		fields = append(fields, field{"content-length", strconv.FormatInt(h.length, 10)})
	}
	for _, f := range fields {
		if f.name == "connection" {
			continue // not in HTTP/2 (RFC 9113 section 8.2.2)
		}
		if err := c.enc.WriteField(hpack.HeaderField{Name: f.name, Value: f.value}); err != nil {
			return err
		}
	}
	piece := maxFrame
	if h.drip > 0 {
		piece = 1
	}
	return st.writeBlock(c.block.Bytes(), piece, h)
}

// writeBlock sends HEADERS and CONTINUATION frames. Nothing may come between
// them, so a block that drips holds up the whole connection; once the peer has
// given the stream up, the rest follows at once.
func (st *http2Stream) writeBlock(block []byte, piece int, h head) error {
	c := st.h
	for first := true; ; first = false {
		n := min(piece, len(block))
		part := block[:n]
		block = block[n:]
		last := len(block) == 0
		var err error
		if first {
			err = c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: st.id, BlockFragment: part, EndHeaders: last})
		} else {
			err = c.fr.WriteContinuation(st.id, last, part)
		}
		if err != nil || last {
			return err
		}
		if h.drip > 0 && !wait(c.s.ctx, st.left, h.drip) {
			piece = maxFrame
		}
	}
}

func (st *http2Stream) data(p []byte) error {
	for len(p) > 0 {
		n, err := st.h.flow.take(st.id, min(len(p), maxFrame))
		if err != nil {
			return err
		}
		if err := st.h.frame(func() error { return st.h.fr.WriteData(st.id, false, p[:n]) }); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

func (st *http2Stream) end() error {
	return st.h.frame(func() error { return st.h.fr.WriteData(st.id, true, nil) })
}

// endEarly tells the peer to stop sending (RFC 9113 section 8.1).
func (st *http2Stream) endEarly() error {
	if err := st.end(); err != nil {
		return err
	}
	st.reset(h2NoError)
	return nil
}

func (st *http2Stream) register(x *exchange) bool {
	st.x = x
	return st.h.ledger.add(uint64(st.id), x)
}

// finish forgets the stream. What it has not read goes back to the connection's
// flow control, or the streams beside it would starve.
func (st *http2Stream) finish() {
	st.h.take(st.id)
	st.h.credit(0, st.body.drop())
}

func (st *http2Stream) reset(code uint64) {
	_ = st.h.frame(func() error { return st.h.fr.WriteRSTStream(st.id, http2.ErrCode(code)) }) //nolint:gosec // 32 bits on the wire; the reader notices an end
}

func (st *http2Stream) noise(form string) {
	_ = st.h.frame(func() error { // the peer may have left
		switch form {
		case "no-status":
			st.h.block.Reset()
			if err := st.h.enc.WriteField(hpack.HeaderField{Name: "x-no", Value: "status"}); err != nil {
				return err
			}
			return st.h.fr.WriteHeaders(http2.HeadersFrameParam{
				StreamID: st.id, BlockFragment: st.h.block.Bytes(), EndHeaders: true, EndStream: true,
			})
		case "empty":
			return st.h.fr.WriteData(st.id, true, nil)
		default:
			return st.h.fr.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, st.id, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		}
	})
}

func (st *http2Stream) gone() <-chan struct{} { return st.left }

// leave notes that the peer has given the stream, or the connection, up.
func (st *http2Stream) leave() {
	st.once.Do(func() { close(st.left) })
	st.body.end(net.ErrClosed)
}

func (st *http2Stream) connection() connection { return st.h.c }

func (st *http2Stream) goAway(where string, code uint64) { st.h.goAway(st, where, code) }
