package fault

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// http2Conn is a connection of HTTP/2, on frames.
//
// One goroutine reads and never waits for a request, so that each of them can
// hang. Lock order: write, then mu.
type http2Conn struct {
	s    *Server
	c    *tcpConn
	fr   *http2.Framer
	over chan struct{} // closed when reading has ended

	write sync.Mutex // frames, and the compression state that their order makes
	enc   *hpack.Encoder
	block bytes.Buffer

	mu      sync.Mutex
	streams map[uint32]*http2Stream
	flow    flow
	ledger  ledger
}

// serveHTTP2 serves until the connection ends, and waits for its requests.
func (s *Server) serveHTTP2(c *tcpConn, conn net.Conn) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil || string(preface) != http2.ClientPreface {
		return
	}
	h := &http2Conn{
		s: s, c: c, fr: http2.NewFramer(conn, conn), over: make(chan struct{}), streams: map[uint32]*http2Stream{},
	}
	h.flow.init()
	h.enc = hpack.NewEncoder(&h.block)
	h.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.fr.MaxHeaderListSize = 1 << 20
	settings := []http2.Setting{}
	if f, ok := s.standing("stream-limit"); ok {
		settings = append(settings, http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(f.count("limit"))}) //nolint:gosec // bounded
	}
	if h.frame(func() error { return h.fr.WriteSettings(settings...) }) != nil {
		return
	}
	var requests sync.WaitGroup
	defer requests.Wait()
	h.read(&requests)
	h.flow.close()
	close(h.over)
	for _, st := range h.all() {
		st.leave()
	}
}

func (h *http2Conn) all() []*http2Stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.streams))
}

// frame writes under the lock.
func (h *http2Conn) frame(write func() error) error {
	h.write.Lock()
	defer h.write.Unlock()
	return write()
}

// read deals with frames until the connection ends.
func (h *http2Conn) read(requests *sync.WaitGroup) {
	for {
		f, err := h.fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			h.request(f, requests)
		case *http2.DataFrame:
			h.received(f)
		case *http2.SettingsFrame:
			err = h.settings(f)
		case *http2.PingFrame:
			if !f.IsAck() {
				err = h.frame(func() error { return h.fr.WritePing(true, f.Data) })
			}
		case *http2.WindowUpdateFrame:
			h.flow.grow(f.StreamID, int64(f.Increment))
		case *http2.RSTStreamFrame:
			if st := h.take(f.StreamID); st != nil {
				st.leave()
			}
		}
		if err != nil {
			return
		}
	}
}

func (h *http2Conn) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
		h.flow.initial(int64(v))
	}
	return h.frame(h.fr.WriteSettingsAck)
}

// request starts a stream. Trailers are taken for its end.
func (h *http2Conn) request(f *http2.MetaHeadersFrame, requests *sync.WaitGroup) {
	h.mu.Lock()
	if st := h.streams[f.StreamID]; st != nil {
		h.mu.Unlock()
		st.body.end(nil)
		return
	}
	st := &http2Stream{h: h, id: f.StreamID, left: make(chan struct{})}
	st.body.init()
	h.streams[f.StreamID] = st
	open := len(h.streams)
	h.mu.Unlock()
	h.flow.open(f.StreamID)
	if f.StreamEnded() {
		st.body.end(nil)
	}
	if limit, ok := h.s.standing("stream-limit"); ok && open > limit.count("limit") {
		st.reset(h2RefusedStream)
		return
	}
	header := http.Header{}
	for _, hf := range f.RegularFields() {
		header.Add(hf.Name, hf.Value)
	}
	requests.Go(func() { h.s.serve(st, delivery.ProtocolHTTP2, header) })
}

// received takes body bytes. They are given back to flow control when the
// request reads them, so one that does not read stops its peer.
func (h *http2Conn) received(f *http2.DataFrame) {
	h.mu.Lock()
	st := h.streams[f.StreamID]
	h.mu.Unlock()
	if st == nil {
		h.credit(0, int(f.Length)) // for a stream that has been reset
		return
	}
	padding := int(f.Length) - len(f.Data())
	st.body.add(f.Data(), padding)
	if f.StreamEnded() {
		st.body.end(nil)
	}
}

// credit returns flow control for the connection and, unless it is 0, a stream.
func (h *http2Conn) credit(stream uint32, n int) {
	if n == 0 {
		return
	}
	_ = h.frame(func() error { // the reader notices an end
		if stream != 0 {
			if err := h.fr.WriteWindowUpdate(stream, uint32(n)); err != nil { //nolint:gosec // a frame's length
				return err
			}
		}
		return h.fr.WriteWindowUpdate(0, uint32(n)) //nolint:gosec // a frame's length
	})
}

// take removes a stream.
func (h *http2Conn) take(id uint32) *http2Stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	st := h.streams[id]
	delete(h.streams, id)
	h.flow.forget(id)
	return st
}

// goAway sends the frame, with an id as seen from a request's stream.
func (h *http2Conn) goAway(from *http2Stream, where string, code uint64) {
	last := from.id
	switch {
	case where == "above":
		last = 1<<31 - 1
	case where == "below" && from.id > 2:
		last = from.id - 2
	case where == "below":
		last = 0
	}
	h.ledger.exclude(uint64(last)+1, from.x)
	_ = h.frame(func() error { return h.fr.WriteGoAway(last, http2.ErrCode(code), []byte("fault")) }) //nolint:gosec // 32 bits on the wire; the reader notices an end
}
