package api

import (
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
