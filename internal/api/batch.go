package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"sync"

	"github.com/dispatcher-engine/dispatcher/engine"
)

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
	b := newBatch(s, w, r)
	defer b.recycle()
	// Answers are written while the rest of the body is still being read.
	_ = http.NewResponseController(w).EnableFullDuplex()
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines := bufio.NewScanner(http.MaxBytesReader(w, r.Body, s.config.MaxBatch))
	lines.Buffer(b.window, int(s.maxEvent()))
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
		p.Errors = []engine.FieldError{{
			Field: "body", Value: "line " + strconv.Itoa(b.line+1), Rule: scanFault(err),
			Hint: "send this line and what follows again: whole, in shorter lines, in smaller batches",
		}}
		b.line++
		b.refuse("", p)
		b.flush()
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
	server *Server
	w      http.ResponseWriter
	r      *http.Request
	line   int
	inputs []engine.EventInput
	bytes  int           // of the lines of inputs
	answer []batchAnswer // in line order; those of inputs are filled in by flush
	slots  []int         // inputs[i] answers answer[slots[i]]
	out    bytes.Buffer
	window []byte // of the scanner
}

// batchAnswer is what a line will be answered.
type batchAnswer struct {
	line    int
	id      string
	receipt engine.Receipt
	problem *Problem // instead of a receipt
}

// batches keeps the memory of those that are over: with many connections it would
// be most of what a batch allocates.
var batches = sync.Pool{New: func() any { return &batch{window: make([]byte, 64<<10)} }}

func newBatch(s *Server, w http.ResponseWriter, r *http.Request) *batch {
	b := batches.Get().(*batch) //nolint:forcetypeassert // nothing else is in it
	b.server, b.w, b.r, b.line = s, w, r, 0
	return b
}

// recycle gives the memory back, unless a large answer made it grow.
func (b *batch) recycle() {
	b.server, b.w, b.r = nil, nil, nil
	if b.out.Cap() <= 4*len(b.window) {
		batches.Put(b)
	}
}

func (b *batch) add(line []byte) {
	in, err := decodeEvent(bytes.Clone(line)) // the payload outlives the scanner's window
	if err != nil {
		b.refuse(in.ID, problemFor(err, b.server.logger))
		return
	}
	b.slots = append(b.slots, len(b.answer))
	b.inputs = append(b.inputs, in)
	b.bytes += len(line)
	b.answer = append(b.answer, batchAnswer{line: b.line, id: in.ID})
}

// refuse answers the line with a problem.
func (b *batch) refuse(id string, p *Problem) {
	b.answer = append(b.answer, batchAnswer{line: b.line, id: id, problem: p})
}

// flush publishes what was added, and writes the answers.
func (b *batch) flush() {
	if len(b.inputs) > 0 {
		for i, result := range b.server.node.PublishBatch(b.r.Context(), b.r.PathValue("tenant"), b.inputs) {
			to := &b.answer[b.slots[i]]
			if result.Err != nil {
				to.problem = problemFor(result.Err, b.server.logger)
			} else {
				to.id, to.receipt = result.Receipt.ID, result.Receipt
			}
		}
	}
	b.out.Reset()
	for i := range b.answer {
		a := &b.answer[i]
		if a.problem == nil {
			b.out.Write(a.append(b.out.AvailableBuffer()))
			continue
		}
		a.problem.Instance = b.r.URL.Path
		enc := json.NewEncoder(&b.out)
		enc.SetEscapeHTML(false)
		_ = enc.Encode(batchLine{Line: a.line, ID: a.id, Status: a.problem.Status, Error: a.problem})
	}
	if b.out.Len() > 0 {
		_, _ = b.w.Write(b.out.Bytes())
	}
	clear(b.inputs) // payloads of large lines would stay for as long as the batch
	clear(b.answer)
	b.inputs, b.answer, b.slots, b.bytes = b.inputs[:0], b.answer[:0], b.slots[:0], 0
}

// append appends the [batchLine] of an event that was accepted. It is written by
// hand, as in [writeReceipt]: ids need no escaping.
func (a *batchAnswer) append(to []byte) []byte {
	to = strconv.AppendInt(append(to, `{"line":`...), int64(a.line), 10)
	if a.id != "" {
		to = append(append(append(to, `,"id":"`...), a.id...), '"')
	}
	if a.receipt.Deduplicated {
		return append(to, `,"status":200,"deduplicated":true}`+"\n"...)
	}
	to = strconv.AppendInt(append(to, `,"status":202,"deliveries":`...), int64(a.receipt.Deliveries), 10)
	return append(to, "}\n"...)
}
