package fault

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/quic-go/qpack"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Frame types of HTTP/3 (RFC 9114 section 7.2).
const (
	frameData     = 0x0
	frameHeaders  = 0x1
	frameSettings = 0x4
	frameGoAway   = 0x7
)

// quicConfig is asked for each QUIC connection.
func (s *Server) quicConfig(*quic.ClientInfo) (*quic.Config, error) {
	c := &quic.Config{
		MaxIdleTimeout: 5 * time.Minute,
		// Small windows: a body that is not read is to be noticed.
		InitialStreamReceiveWindow: 64 << 10, MaxStreamReceiveWindow: 256 << 10,
		InitialConnectionReceiveWindow: 1 << 20, MaxConnectionReceiveWindow: 4 << 20,
	}
	if f, ok := s.standing("stream-limit"); ok {
		c.MaxIncomingStreams = int64(max(f.count("limit"), 1))
	}
	return c, nil
}

// acceptQUIC serves a generation's connections until its listener is closed.
func (s *Server) acceptQUIC(ln *quic.Listener) {
	for {
		conn, err := ln.Accept(s.ctx)
		if err != nil {
			return
		}
		s.wg.Go(func() { s.serveHTTP3(conn) })
	}
}

// http3Conn is a connection of HTTP/3, on QUIC streams.
type http3Conn struct {
	s       *Server
	conn    *quic.Conn
	control *quic.SendStream
	ledger  ledger
}

var _ connection = (*http3Conn)(nil)

// serveHTTP3 serves until the connection ends, and waits for its requests.
func (s *Server) serveHTTP3(conn *quic.Conn) {
	if !s.trackQUIC(conn) {
		_ = conn.CloseWithError(h3NoError, "") // returns nil only
		return
	}
	defer s.untrackQUIC(conn)
	h := &http3Conn{s: s, conn: conn}
	if f, ok := s.decide(atHandshake, delivery.ProtocolHTTP3); ok {
		f.kind.hit(h, f)
		return // each of them is the end of it
	}
	control, err := conn.OpenUniStream()
	if err != nil {
		return
	}
	h.control = control
	// A control stream that begins with empty settings (RFC 9114 section 6.2.1).
	if _, err := control.Write([]byte{0x00, frameSettings, 0x00}); err != nil {
		return
	}
	var streams sync.WaitGroup
	defer streams.Wait()
	streams.Go(func() { h.drain(&streams) })
	for {
		str, err := conn.AcceptStream(context.Background())
		if err != nil {
			return
		}
		streams.Go(func() { h.request(str) })
	}
}

func (s *Server) trackQUIC(c *quic.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.quic[c] = struct{}{}
	s.tally.connected(overUDP)
	return true
}

func (s *Server) untrackQUIC(c *quic.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.quic, c)
	s.tally.disconnected(overUDP)
}

// drain reads the peer's own control and QPACK streams, of which nothing is
// needed.
func (h *http3Conn) drain(streams *sync.WaitGroup) {
	for {
		str, err := h.conn.AcceptUniStream(context.Background())
		if err != nil {
			return
		}
		streams.Go(func() { _, _ = io.Copy(io.Discard, str) }) // until the connection ends
	}
}

// request reads a request's header block and serves it.
func (h *http3Conn) request(str *quic.Stream) {
	st := &http3Stream{h: h, str: str, br: bufio.NewReader(str)}
	header, err := st.readHead()
	if err != nil {
		st.reset(h3InternalError)
		return
	}
	h.s.serve(st, delivery.ProtocolHTTP3, header)
}

// maxHead bounds a request's header block.
const maxHead = 1 << 20

var errNoHead = errors.New("the stream does not begin with a header block")

func (st *http3Stream) readHead() (http.Header, error) {
	kind, length, err := st.nextFrame()
	if err != nil {
		return nil, err
	}
	if kind != frameHeaders || length > maxHead {
		return nil, errNoHead
	}
	block := make([]byte, length)
	if _, err := io.ReadFull(st.br, block); err != nil {
		return nil, err
	}
	header := http.Header{}
	next := qpack.NewDecoder().Decode(block)
	for {
		f, err := next()
		if errors.Is(err, io.EOF) {
			return header, nil
		}
		if err != nil {
			return nil, err
		}
		if !f.IsPseudo() {
			header.Add(f.Name, f.Value)
		}
	}
}

// nextFrame reads up to the payload of the next frame that means something.
func (st *http3Stream) nextFrame() (kind, length uint64, err error) {
	for {
		if kind, err = quicvarint.Read(st.br); err != nil {
			return 0, 0, err
		}
		if length, err = quicvarint.Read(st.br); err != nil {
			return 0, 0, io.ErrUnexpectedEOF
		}
		if kind == frameData || kind == frameHeaders {
			return kind, length, nil
		}
		if _, err := io.CopyN(io.Discard, st.br, int64(length)); err != nil { //nolint:gosec // below 2^62
			return 0, 0, err
		}
	}
}

// closeNow implements connection.
func (h *http3Conn) closeNow(_ string, code uint64) {
	_ = h.conn.CloseWithError(quic.ApplicationErrorCode(code), "fault") // returns nil only
}

// die implements connection: connections of QUIC share a path, so all of them
// die together.
func (h *http3Conn) die() { h.s.hub.forget(false) }
