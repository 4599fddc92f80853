package api

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// Receipt answers a publish.
type Receipt struct {
	ID           string `json:"id" doc:"the event's id: webhook-id on the wire"`
	Deliveries   int    `json:"deliveries" required:"false" doc:"subscribers it goes to; absent when deduplicated"`
	Deduplicated bool   `json:"deduplicated,omitempty" doc:"the same event was accepted before"`
}

func receiptOut(r engine.Receipt) Receipt {
	return Receipt{ID: r.ID, Deliveries: r.Deliveries, Deduplicated: r.Deduplicated}
}

// publish is POST …/events, however its path is written.
func (s *Server) publish(w http.ResponseWriter, r *http.Request) {
	s.publishFor(w, r, r.PathValue("tenant"))
}

// publishFor is outside of huma: its cost is paid per event, and the payload's
// bytes must stay as they came.
func (s *Server) publishFor(w http.ResponseWriter, r *http.Request, tenant string) {
	body, release, err := s.readBody(w, r, s.maxEvent())
	if err != nil {
		writeProblem(w, r, problemFor(err, s.logger))
		return
	}
	defer release()
	in, err := decodeEvent(body)
	if err != nil {
		writeProblem(w, r, problemFor(err, s.logger))
		return
	}
	in.TraceParent = r.Header.Get("Traceparent")
	receipt, err := s.node.Publish(r.Context(), tenant, in)
	if err != nil {
		writeProblem(w, r, problemFor(err, s.logger))
		return
	}
	writeReceipt(w, receipt)
}

func writeReceipt(w http.ResponseWriter, receipt engine.Receipt) {
	if receipt.Deduplicated {
		writeJSON(w, http.StatusOK, map[string]any{"id": receipt.ID, "deduplicated": true})
		return
	}
	// Written by hand: ids need no escaping (delivery.CheckEventID).
	buf := make([]byte, 0, 64+len(receipt.ID))
	buf = append(buf, `{"id":"`...)
	buf = append(buf, receipt.ID...)
	buf = append(buf, `","deliveries":`...)
	buf = strconv.AppendInt(buf, int64(receipt.Deliveries), 10)
	buf = append(buf, "}\n"...)
	w.Header()["Content-Type"] = typeJSON // the length is added by net/http
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write(buf)
}

// typeJSON is the value of a header; nobody may change it.
var typeJSON = []string{"application/json"}

// maxEvent bounds an event's JSON: base64 grows a payload by a third.
func (s *Server) maxEvent() int64 { return s.config.MaxPayload/3*4 + maxEnvelope }

// readBody reads a bounded body, and once there is room for it; release gives that
// back. A declared length over the bound is refused before a byte is read.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, most int64) (body []byte, release func(), err error) {
	const hint = "send a reference instead, or raise the node's api.max_payload"
	if r.ContentLength > most {
		return nil, nil, tooLarge(strconv.FormatInt(r.ContentLength, 10)+" bytes", most, hint)
	}
	size := r.ContentLength
	if size < 0 {
		size = most
	}
	if release, err = s.bodies.hold(r.Context(), w, size); err != nil {
		return nil, nil, readFault(err)
	}
	if r.ContentLength > 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
		_ = r.Body.Close() // or net/http looks whether something is left
		err = readFault(err)
	} else if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, most)); err != nil {
		if _, over := errors.AsType[*http.MaxBytesError](err); over {
			err = tooLarge("more", most, hint)
		} else {
			err = readFault(err)
		}
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return body, release, nil
}

func readFault(err error) error {
	if err == nil {
		return nil
	}
	p := newProblem(http.StatusBadRequest, "the body broke off")
	p.Errors = []engine.FieldError{{Field: "body", Value: "***", Rule: "as long as its content-length says", Hint: "send it again, whole"}}
	return p
}

// batchLine is one line of a batch's answer.
type batchLine struct {
	Line         int      `json:"line" doc:"of the request, from 1; empty ones count"`
	ID           string   `json:"id,omitempty" doc:"the event's id"`
	Status       int      `json:"status" doc:"as a single publish would be answered"`
	Deliveries   *int     `json:"deliveries,omitempty" doc:"subscribers it goes to"`
	Deduplicated bool     `json:"deduplicated,omitempty" doc:"the same event was accepted before"`
	Error        *Problem `json:"error,omitempty" doc:"why the line was refused"`
}

// batchChunk is how many events share one commit, and batchBytes how many bytes of
// them wait for it.
const (
	batchChunk = 1000
	batchBytes = 4 << 20
)

// publishBatch is POST …/events/batch: NDJSON in, NDJSON out. A bad line is
// answered in its place and spoils nothing else. Events are committed in chunks,
// so a request that breaks off has published what was answered.
func (s *Server) publishBatch(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength > s.config.MaxBatch {
		writeProblem(w, r, tooLarge(strconv.FormatInt(r.ContentLength, 10)+" bytes", s.config.MaxBatch, "send several batches"))
		return
	}
	b := &batch{server: s, r: r, tenant: r.PathValue("tenant")}
	b.enc = json.NewEncoder(w)
	b.enc.SetEscapeHTML(false)
	// Answers are written while the rest of the body is still being read.
	_ = http.NewResponseController(w).EnableFullDuplex()
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := bufio.NewScanner(http.MaxBytesReader(w, r.Body, s.config.MaxBatch))
	lines.Buffer(make([]byte, 0, 64<<10), int(s.maxEvent()))
	release := func() {}
	defer func() { release() }()
	lines.Split(holdingLines(func() (err error) {
		b.flush() // what waits for company would wait for room as well
		release, err = s.bodies.hold(r.Context(), w, s.maxEvent())
		return err
	}))
	for lines.Scan() {
		b.line++
		if len(lines.Bytes()) > 0 {
			b.add(lines.Bytes())
		}
		if len(b.inputs) == batchChunk || b.bytes >= batchBytes {
			b.flush()
		}
	}
	b.flush()
	if err := lines.Err(); err != nil {
		p := newProblem(http.StatusRequestEntityTooLarge, "the batch ends here: "+scanFault(err)+"; this line and what follows is not stored")
		p.Instance = r.URL.Path
		p.Errors = []engine.FieldError{{
			Field: "body", Value: "line " + strconv.Itoa(b.line+1), Rule: scanFault(err),
			Hint: "send this line and what follows again: whole, in shorter lines, in smaller batches",
		}}
		b.answer(batchLine{Line: b.line + 1, Status: p.Status, Error: p})
	}
}

func scanFault(err error) string {
	if errors.Is(err, bufio.ErrTooLong) {
		return "the line is too long"
	}
	if _, over := errors.AsType[*http.MaxBytesError](err); over {
		return "the batch is too large"
	}
	return "the body broke off"
}

// batch is a batch publish on its way.
type batch struct {
	server  *Server
	r       *http.Request
	tenant  string
	enc     *json.Encoder
	line    int
	inputs  []engine.EventInput
	bytes   int         // of the lines of inputs
	pending []batchLine // in line order; those of inputs are filled by flush
	slots   []int       // inputs[i] answers pending[slots[i]]
}

func (b *batch) add(line []byte) {
	in, err := decodeEvent(append([]byte(nil), line...)) // the payload outlives the scanner's buffer
	if err != nil {
		b.pending = append(b.pending, b.failed(b.line, in.ID, err))
		return
	}
	b.slots = append(b.slots, len(b.pending))
	b.inputs = append(b.inputs, in)
	b.bytes += len(line)
	b.pending = append(b.pending, batchLine{Line: b.line, ID: in.ID})
}

func (b *batch) failed(line int, id string, err error) batchLine {
	p := problemFor(err, b.server.logger)
	p.Instance = b.r.URL.Path
	return batchLine{Line: line, ID: id, Status: p.Status, Error: p}
}

func (b *batch) flush() {
	for i, result := range b.server.node.PublishBatch(b.r.Context(), b.tenant, b.inputs) {
		out := &b.pending[b.slots[i]]
		if result.Err != nil {
			*out = b.failed(out.Line, out.ID, result.Err)
			continue
		}
		out.ID, out.Deduplicated = result.Receipt.ID, result.Receipt.Deduplicated
		out.Status = http.StatusOK
		if !out.Deduplicated {
			n := result.Receipt.Deliveries
			out.Status, out.Deliveries = http.StatusAccepted, &n
		}
	}
	for _, line := range b.pending {
		b.answer(line)
	}
	clear(b.inputs) // payloads of large lines would stay for as long as the batch
	b.inputs, b.pending, b.slots, b.bytes = b.inputs[:0], b.pending[:0], b.slots[:0], 0
}

func (b *batch) answer(line batchLine) { _ = b.enc.Encode(line) }
