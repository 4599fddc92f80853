package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

// Problem is an RFC 9457 problem document.
type Problem struct { //nolint:errname // the RFC's name, and the schema's
	Type     string              `json:"type" doc:"about:blank, or a URN that names the kind of problem"`
	Title    string              `json:"title" doc:"the status in words"`
	Status   int                 `json:"status" doc:"the HTTP status"`
	Detail   string              `json:"detail,omitempty" doc:"what went wrong this time"`
	Instance string              `json:"instance,omitempty" doc:"the request's path"`
	Errors   []engine.FieldError `json:"errors,omitempty" doc:"each field that is wrong: its value, the rule, and how to mend it"`

	retryAfter time.Duration
}

// Error implements error.
func (p *Problem) Error() string { return p.Title + ": " + p.Detail }

// GetStatus implements huma.StatusError.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *Problem) ContentType(string) string { return problemType }

const problemType = "application/problem+json"

// GetHeaders implements huma.HeadersError.
func (p *Problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retryAfter > 0 {
		h.Set("Retry-After", retrySeconds(p.retryAfter))
	}
	return h
}

func retrySeconds(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}

func newProblem(status int, detail string) *Problem {
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

// invalid is the problem of a request with fields that no retry can make good.
func invalid(fields ...engine.FieldError) *Problem {
	p := newProblem(http.StatusUnprocessableEntity, invalidDetail)
	p.Errors = fields
	return p
}

// tooLarge is the problem of a body over its bound in bytes.
func tooLarge(size string, most int64, hint string) *Problem {
	p := newProblem(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", most))
	p.Errors = []engine.FieldError{{Field: "body", Value: size, Rule: fmt.Sprintf("at most %d bytes", most), Hint: hint}}
	return p
}

// problemFor translates an engine's error, once. What it does not know is an
// internal error whose text stays in the log.
func problemFor(err error, logger *slog.Logger) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if e, ok := errors.AsType[*engine.InvalidError](err); ok {
		return invalid(e.Fields...)
	}
	if e, ok := errors.AsType[*engine.ConflictError](err); ok {
		p := newProblem(http.StatusConflict, e.Rule)
		p.Errors = []engine.FieldError{{Field: e.Field, Value: e.Value, Rule: e.Rule, Hint: e.Hint}}
		return p
	}
	if e, ok := errors.AsType[*engine.UnavailableError](err); ok {
		p := newProblem(http.StatusServiceUnavailable, e.Reason)
		p.retryAfter = e.RetryAfter
		return p
	}
	switch {
	case errors.Is(err, engine.ErrNotFound):
		return newProblem(http.StatusNotFound, notFoundDetail(err))
	case errors.Is(err, delivery.ErrBadID):
		return newProblem(http.StatusNotFound, err.Error())
	}
	logger.Error("request_failed", "error", err.Error())
	return newProblem(http.StatusInternalServerError, "the node could not do this; its log says why")
}

func notFoundDetail(err error) string {
	if err == engine.ErrNotFound { //nolint:errorlint // the bare sentinel has nothing to add
		return "there is nothing under this path"
	}
	return err.Error()
}

// writeProblem answers outside of huma: authentication and the publish paths.
func writeProblem(w http.ResponseWriter, r *http.Request, p *Problem) {
	p.Instance = r.URL.Path
	h := w.Header()
	h.Set("Content-Type", problemType)
	h.Set("Cache-Control", "no-store")
	maps.Copy(h, p.GetHeaders())
	w.WriteHeader(p.Status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p)
}

// located writes the request's path into problems that handlers return; it is a
// huma.Transformer.
func located(ctx huma.Context, _ string, v any) (any, error) {
	if p, ok := v.(*Problem); ok && p.Instance == "" {
		own, u := *p, ctx.URL()
		own.Instance = u.Path
		return &own, nil
	}
	return v, nil
}
