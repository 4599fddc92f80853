package fault

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// field is one header field. Names are lower-case, as HTTP/2 and HTTP/3 want
// them and HTTP/1.1 does not mind.
type field struct{ name, value string }

// head is a header block.
type head struct {
	status int
	fields []field
	// length is the content length that is announced, -1 = none: the body ends
	// where the stream, or the last chunk, does.
	length int64
	// drip sends the block a byte at a time, with that pause.
	drip time.Duration
}

// wire is what a request's stream can do, each protocol in its own way. The
// methods that write return an error once the peer has left.
type wire interface {
	// readBody reads the request's body to its end.
	readBody(sink io.Writer) (int64, error)
	// head sends a header block; one of status 1xx is not the last.
	head(h head) error
	// data sends a part of the answer's body.
	data(p []byte) error
	// end ends the answer, whatever length was announced.
	end() error
	// register tells the connection whose request it is, for a GOAWAY that
	// excludes it later; false = one has been sent already.
	register(x *exchange) bool
	// finish is called when the request has been dealt with.
	finish()
	// reset aborts the request: its stream, or over HTTP/1.1 the connection.
	reset(code uint64)
	// noise sends what is no answer.
	noise(form string)
	// endEarly ends an answer whose request body was not read.
	endEarly() error
	// gone is closed when the peer has given the request up.
	gone() <-chan struct{}
	// connection is what it goes over.
	connection() connection
}

// connection is what a fault can do to all requests of a connection.
type connection interface {
	// closeNow ends it: TCP by "fin" or "rst", QUIC with a code.
	closeNow(how string, code uint64)
	// die keeps it open and lets nothing through any more, in either direction.
	die()
}

// exchange is one request and its answer.
type exchange struct {
	wire
	s      *Server
	proto  delivery.Protocol
	header http.Header
	id     string
	body   bytes.Buffer // kept only to verify a signature
	bytes  int64
	badSig error // as far as it is known: after the run
	status int   // answered, 0 = not

	mu       sync.Mutex
	ran      bool // the handler did
	refused  bool // the peer was told "not processed"
	excluded bool // by a GOAWAY that another request caused
}

// serve deals with a request whose headers are in.
func (s *Server) serve(w wire, p delivery.Protocol, header http.Header) {
	x := &exchange{wire: w, s: s, proto: p, header: header, id: header.Get("Webhook-Id")}
	s.tally.arrived(x.id, p)
	defer w.finish()
	defer x.report()
	if !w.register(x) {
		x.hang() // a GOAWAY was sent before it came
		return
	}
	f, ok := s.decide(atRequest, p)
	if !ok {
		x.answer()
		return
	}
	f.kind.act(x, f)
}

// answer is the healthy one, and what may be done once it has been sent.
func (x *exchange) answer() {
	if !x.process() {
		return
	}
	status := x.s.config.Status
	if x.badSig != nil {
		status = http.StatusUnauthorized
	}
	f, ok := x.s.decide(atIdle, x.proto) // before the answer, which may bring a change of faults
	x.reply(status, x.s.healthyFields(x.proto), []byte("ok"))
	if ok && wait(x.s.ctx, nil, flight) {
		f.kind.act(x, f)
		x.s.tally.fired(f.kind.Name)
	}
}

// reply sends a whole answer.
func (x *exchange) reply(status int, fields []field, body []byte) {
	x.status = status
	length := int64(len(body))
	if status == http.StatusNoContent || status == http.StatusNotModified {
		body, length = nil, -1
	}
	if x.head(head{status: status, fields: fields, length: length}) != nil {
		return
	}
	if len(body) > 0 && x.data(body) != nil {
		return
	}
	_ = x.end() // the peer has left, or not; nothing follows
}

// process reads the body and runs the handler, which is to count. It returns
// false when the body broke off, or when the peer has been told meanwhile that
// the request is not processed.
func (x *exchange) process() bool {
	if x.hasRun() {
		return true
	}
	if !x.read() {
		return false
	}
	x.mu.Lock()
	excluded := x.excluded
	if !excluded {
		x.runLocked()
	}
	x.mu.Unlock()
	if excluded {
		x.hang() // until the peer has read that
	}
	return !excluded
}

// runLocked runs the handler. After a refusal that makes the refusal a lie.
func (x *exchange) runLocked() {
	x.ran = true
	x.s.tally.ran(x.id)
	if x.refused {
		x.s.tally.lied(x.id)
	}
}

func (x *exchange) hasRun() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ran
}

// refuse notes that the peer is told "not processed".
func (x *exchange) refuse() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ran && !x.refused {
		x.s.tally.lied(x.id)
	}
	x.refused = true
}

// exclude is refuse by a GOAWAY that another request caused: unless its handler
// has run already, it does not run any more.
func (x *exchange) exclude() {
	x.refuse()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.excluded = true
}

func (x *exchange) read() bool {
	sink := io.Discard
	if x.s.config.Verify != nil {
		sink = &x.body
	}
	n, err := x.readBody(sink)
	x.bytes = n
	x.s.tally.read(x.id, n)
	if err == nil && x.s.config.Verify != nil {
		x.badSig = x.s.config.Verify(x.header, x.body.Bytes())
	}
	return err == nil
}

// until brings the request to where the fault acts, "before" or "after" its
// handler; false = it broke off on the way.
func (x *exchange) until(f Fault) bool {
	return !f.is("when", "after") || x.process()
}

// patience bounds how long a request hangs: a peer that has left without a word
// is not waited for.
const patience = 10 * time.Minute

// hang waits until the peer has given up.
func (x *exchange) hang() { x.pause(patience) }

// pause waits, and returns false when the peer left first.
func (x *exchange) pause(d time.Duration) bool {
	return wait(x.s.ctx, x.gone(), d)
}

func wait(ctx context.Context, gone <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-gone:
		return false
	case <-ctx.Done():
		return false
	}
}

func (x *exchange) report() {
	if x.s.config.OnRequest == nil {
		return
	}
	x.s.config.OnRequest(testnet.Seen{
		ID: x.id, Attempt: x.header.Get("Webhook-Attempt"), Topic: x.header.Get("Webhook-Topic"),
		Protocol: x.proto.String(), Status: x.status, Bytes: x.bytes, At: time.Now(), Signature: x.badSig,
	})
}
