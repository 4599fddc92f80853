package transport

import (
	"io"
	"math"
	"sync"

	"github.com/quic-go/quic-go"
	h3log "github.com/quic-go/quic-go/http3/qlog"
	"github.com/quic-go/quic-go/qlogwriter"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

const noStream = int64(-1)

// goAwayWatch proves that requests were not processed. A GOAWAY names the first
// request stream that the peer will not process (RFC 9114 section 5.2), but
// quic-go leaves requests above it hanging until their deadline. Its qlog events
// tell both halves of the proof, in the goroutines in which they happen: the
// GOAWAY as it is parsed, and the header frame of each of our requests, with its
// stream id, before it is written.
//
// It poses as a connection's qlog trace. QUIC's own events, several per packet,
// would cost too much: the recorder is given out to HTTP/3 only, which asks for
// one after the handshake, when the watch is armed.
type goAwayWatch struct {
	mu      sync.Mutex
	armed   bool
	drained func()
	file    qlogwriter.Trace // where an operator wants a qlog, or nil
	next    *exchange        // whose header block is being encoded
	open    []*exchange
	first   int64 // the lowest id of any GOAWAY
}

var _ qlogwriter.Trace = (*goAwayWatch)(nil)

func newGoAwayWatch() *goAwayWatch { return &goAwayWatch{first: math.MaxInt64} }

// attach sets where to log, before the connection's first event.
func (w *goAwayWatch) attach(to io.WriteCloser, client bool, id quic.ConnectionID) {
	if to == nil {
		return
	}
	file := qlogwriter.NewConnectionFileSeq(to, client, id)
	go file.Run()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.file = file
}

// arm begins the watch. drained is called at each GOAWAY.
func (w *goAwayWatch) arm(drained func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed, w.drained = true, drained
}

// AddProducer implements qlogwriter.Trace. A nil recorder switches a layer's
// events off.
func (w *goAwayWatch) AddProducer() qlogwriter.Recorder {
	w.mu.Lock()
	defer w.mu.Unlock()
	var file qlogwriter.Recorder
	if w.file != nil {
		file = w.file.AddProducer()
	}
	if !w.armed {
		return file
	}
	return &watchRecorder{watch: w, file: file}
}

// encoding notes whose headers are encoded next. quic-go encodes one header
// block of a connection at a time and records its frame before it lets the next
// one in.
func (w *goAwayWatch) encoding(ex *exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next = ex
}

// created gives the request whose header frame has just been made its stream id.
// The frame is compared with the request, so that an id can never come to belong
// to another one: that request would then be resent although it was processed.
func (w *goAwayWatch) created(id quic.StreamID, frame h3log.HeadersFrame) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ex := w.next
	w.next = nil
	if ex == nil || ex.streamID != noStream || !ex.wrote(frame) {
		return
	}
	ex.streamID = int64(id)
	w.open = append(w.open, ex)
	if ex.streamID >= w.first {
		w.refuseLocked(ex)
	}
}

// wrote compares a header frame with a request, by what is sent byte for byte.
func (ex *exchange) wrote(frame h3log.HeadersFrame) bool {
	want := [...]struct{ name, value string }{
		{":path", ex.req.Path}, {"webhook-id", ex.req.HeaderValue("Webhook-Id")},
	}
	for _, w := range want {
		if w.value != "" && !hasField(frame, w.name, w.value) {
			return false
		}
	}
	return true
}

func hasField(frame h3log.HeadersFrame, name, value string) bool {
	for _, f := range frame.HeaderFields {
		if f.Name == name {
			return f.Value == value
		}
	}
	return false
}

// goAway ends every request that the frame excludes.
func (w *goAwayWatch) goAway(id quic.StreamID) {
	w.mu.Lock()
	w.first = min(w.first, int64(id))
	for _, ex := range w.open {
		if ex.streamID >= w.first {
			w.refuseLocked(ex)
		}
	}
	drained := w.drained
	w.mu.Unlock()
	if drained != nil {
		drained()
	}
}

func (w *goAwayWatch) refuseLocked(ex *exchange) {
	ex.refused.Store(true)
	ex.cancel(errGoAway)
}

// forget ends the watch over a request: it has its answer, or has failed.
func (w *goAwayWatch) forget(ex *exchange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.open {
		if other == ex {
			last := len(w.open) - 1
			w.open[i], w.open[last] = w.open[last], nil
			w.open = w.open[:last]
			return
		}
	}
}

// started counts the requests that have a stream and no answer yet.
func (w *goAwayWatch) started() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open)
}

// watchRecorder is HTTP/3's event sink.
type watchRecorder struct {
	watch *goAwayWatch
	file  qlogwriter.Recorder
}

// RecordEvent implements qlogwriter.Recorder.
func (r *watchRecorder) RecordEvent(e qlogwriter.Event) {
	switch e := e.(type) {
	case h3log.FrameCreated:
		if frame, ok := e.Frame.Frame.(h3log.HeadersFrame); ok {
			r.watch.created(e.StreamID, frame)
		}
	case h3log.FrameParsed:
		if frame, ok := e.Frame.Frame.(h3log.GoAwayFrame); ok {
			r.watch.goAway(frame.StreamID)
		}
	}
	if r.file != nil {
		r.file.RecordEvent(e)
	}
}

// Close implements qlogwriter.Recorder.
func (r *watchRecorder) Close() error {
	if r.file != nil {
		return r.file.Close()
	}
	return nil
}

// qlog returns where the operator wants the next connection's qlog.
func (d *quicDialer) qlog(route delivery.Route) io.WriteCloser {
	if d.t.cfg.Qlog == nil {
		return nil
	}
	return d.t.cfg.Qlog(route)
}
