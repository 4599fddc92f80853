package fault

import (
	"bufio"
	"bytes"
	"io"
	"strconv"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
)

// http3Stream is one request over HTTP/3.
type http3Stream struct {
	h   *http3Conn
	str *quic.Stream
	br  *bufio.Reader
	x   *exchange // what it belongs to

	closed bool // the answer has ended; owned by the request's goroutine
}

var (
	_ wire     = (*http3Stream)(nil)
	_ goAwayer = (*http3Stream)(nil)
)

// readBody reads DATA frames; trailers are skipped.
func (st *http3Stream) readBody(sink io.Writer) (int64, error) {
	var total int64
	for {
		kind, length, err := st.nextFrame()
		if err == io.EOF { //nolint:errorlint // the stream's end, and nothing else
			return total, nil
		}
		if err != nil {
			return total, err
		}
		to := sink
		if kind == frameHeaders {
			to = io.Discard
		}
		n, err := io.CopyN(to, st.br, int64(length)) //nolint:gosec // below 2^62
		if kind == frameData {
			total += n
		}
		if err != nil {
			return total, err
		}
	}
}

func (st *http3Stream) head(h head) error {
	var block bytes.Buffer
	enc := qpack.NewEncoder(&block)
	fields := append([]field{{":status", strconv.Itoa(h.status)}}, h.fields...)
	if h.length >= 0 && h.status >= 200 {
		fields = append(fields, field{"content-length", strconv.FormatInt(h.length, 10)})
	}
	for _, f := range fields {
		if f.name == "connection" {
			continue // not in HTTP/3 (RFC 9114 section 4.2)
		}
		if err := enc.WriteField(qpack.HeaderField{Name: f.name, Value: f.value}); err != nil {
			return err
		}
	}
	frame := appendFrame(nil, frameHeaders, block.Bytes())
	if h.drip == 0 {
		_, err := st.str.Write(frame)
		return err
	}
	for i := range frame {
		if _, err := st.str.Write(frame[i : i+1]); err != nil {
			return err
		}
		if !wait(st.h.s.ctx, st.gone(), h.drip) {
			return io.ErrClosedPipe
		}
	}
	return nil
}

func appendFrame(b []byte, kind uint64, payload []byte) []byte {
	b = quicvarint.Append(b, kind)
	b = quicvarint.Append(b, uint64(len(payload)))
	return append(b, payload...)
}

func (st *http3Stream) data(p []byte) error {
	_, err := st.str.Write(appendFrame(nil, frameData, p))
	return err
}

func (st *http3Stream) end() error {
	st.closed = true
	return st.str.Close()
}

// endEarly tells the peer to stop sending (RFC 9114 section 4.1).
func (st *http3Stream) endEarly() error {
	err := st.end()
	st.str.CancelRead(h3NoError)
	return err
}

func (st *http3Stream) register(x *exchange) bool {
	st.x = x
	return st.h.ledger.add(uint64(st.str.StreamID()), x) //nolint:gosec // not negative
}

// finish lets go of both directions, or the stream would count for ever. After
// an answer's end a cancel would take back what is on its way.
func (st *http3Stream) finish() {
	st.str.CancelRead(h3NoError) // no effect once the body has been read
	if !st.closed {
		st.str.CancelWrite(h3InternalError)
	}
}

func (st *http3Stream) reset(code uint64) {
	st.str.CancelRead(quic.StreamErrorCode(code))
	st.str.CancelWrite(quic.StreamErrorCode(code))
}

func (st *http3Stream) noise(form string) {
	frame := appendFrame(nil, frameData, []byte("no head before the body"))
	switch form {
	case "no-status":
		frame = appendFrame(nil, frameHeaders, []byte{0, 0, 0x23, 'x', '-', 'a', 0x01, 'b'})
	case "empty":
		frame = nil
	}
	if _, err := st.str.Write(frame); err == nil {
		_ = st.end() // the peer may have left
	}
}

// gone is closed when the peer has stopped the stream, or the connection ended.
func (st *http3Stream) gone() <-chan struct{} { return st.str.Context().Done() }

func (st *http3Stream) connection() connection { return st.h }

// goAway names the first stream that is not processed.
func (st *http3Stream) goAway(where string, _ uint64) {
	id := uint64(st.str.StreamID()) //nolint:gosec // not negative
	switch {
	case where == "above":
		id += 4
	case where == "below" && id >= 4:
		id -= 4
	}
	st.h.ledger.exclude(id, st.x)
	_, _ = st.h.control.Write(appendFrame(nil, frameGoAway, quicvarint.Append(nil, id))) // the peer may have left
}
