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
	"strings"
	"sync"
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

// problemFor translates an engine's error, once. What it does not know is an
// internal error whose text stays in the log.
func problemFor(err error, logger *slog.Logger) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if e, ok := errors.AsType[*engine.InvalidError](err); ok {
		p := newProblem(http.StatusUnprocessableEntity, "the request has fields that cannot be accepted")
		p.Errors = e.Fields
		return p
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

var hookErrors sync.Once

// useProblems makes huma's own errors (validation, unknown fields, sizes) our
// problem documents. huma keeps the hook in package variables, so it is set once.
func useProblems() {
	hookErrors.Do(func() {
		huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
			p := newProblem(status, msg)
			for _, err := range errs {
				if err == nil {
					continue
				}
				if own, ok := errors.AsType[*Problem](err); ok {
					return own
				}
				p.Errors = append(p.Errors, fieldOf(err))
			}
			return p
		}
		huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
			err := huma.NewError(status, msg, errs...)
			if p, ok := err.(*Problem); ok { //nolint:errorlint // it is what NewError made
				u := ctx.URL()
				p.Instance = u.Path
			}
			return err
		}
	})
}

func fieldOf(err error) engine.FieldError {
	d, ok := errors.AsType[*huma.ErrorDetail](err)
	if !ok {
		return engine.FieldError{Field: "body", Value: "", Rule: err.Error(), Hint: "see GET /v1/openapi.json"}
	}
	field := strings.TrimPrefix(strings.TrimPrefix(d.Location, "body."), "query.")
	hint := "see GET /v1/openapi.json"
	if strings.HasPrefix(d.Message, huma.ErrUnknownContentType.Error()) {
		hint = "send JSON, with the header content-type: application/json"
	}
	return engine.FieldError{Field: field, Value: shown(field, d.Value), Rule: d.Message, Hint: hint}
}

// secretFields are parts of field names whose values are never echoed.
var secretFields = []string{"secret", "pem", "token", "header", "password", "signing", "tls", "authorization", "payload", "url"}

func shown(field string, value any) string {
	lower := strings.ToLower(field)
	if lower == "body" {
		return "" // the whole body as it came, secrets and all
	}
	for _, part := range secretFields {
		if strings.Contains(lower, part) {
			return "***"
		}
	}
	switch v := value.(type) {
	case nil, map[string]any, []any:
		return "" // a whole body or list may hold secrets, and says nothing by itself
	case string:
		return clip(v)
	default:
		return clip(fmt.Sprint(v))
	}
}

func clip(s string) string {
	const most = 200
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
