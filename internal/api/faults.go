package api

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcher-engine/dispatcher/engine"
)

const (
	invalidDetail = "the request has fields that cannot be accepted"
	hintTime      = "write 2026-01-02T15:04:05Z"
	hintSpelling  = "leave it out, or check its spelling: docs/api.md and GET /v1/openapi.json have the names"
)

var hookErrors sync.Once

// useProblems makes huma's own errors (validation, unknown fields, sizes) our
// problem documents. huma keeps the hook in package variables, so it is set once.
func useProblems() {
	hookErrors.Do(func() {
		huma.NewError = func(status int, msg string, errs ...error) huma.StatusError { return problemOf(status, msg, errs) }
		huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
			p := problemOf(status, msg, errs)
			u := ctx.URL()
			p.Instance = u.Path
			return p
		}
	})
}

func problemOf(status int, msg string, errs []error) *Problem {
	p := newProblem(status, msg)
	for _, err := range errs {
		if own, ok := errors.AsType[*Problem](err); ok {
			return own
		}
		if err != nil {
			p.Detail = invalidDetail
			p.Errors = append(p.Errors, fieldOf(status, err))
		}
	}
	if len(p.Errors) == 0 {
		p.Errors = bodyFault(status, msg)
	}
	return p
}

// bodyFault names what is wrong with a body of which huma tells in words alone;
// nil for what is not the body's fault.
func bodyFault(status int, msg string) []engine.FieldError {
	f := engine.FieldError{Field: "body", Rule: msg}
	switch status {
	case http.StatusBadRequest:
		f.Rule, f.Hint = "required", "send a JSON object; {} where nothing is to be said"
	case http.StatusRequestEntityTooLarge:
		_, limit, _ := strings.Cut(msg, "limit=")
		f.Value, f.Rule, f.Hint = "***", "less than "+limit, "send less at once"
	case http.StatusRequestTimeout:
		f.Value, f.Rule, f.Hint = "***", "within 5 s", "send it without pauses"
	default:
		return nil
	}
	return []engine.FieldError{f}
}

// fieldOf turns what huma says of a field into field, value, rule and hint.
func fieldOf(status int, err error) engine.FieldError {
	d, ok := errors.AsType[*huma.ErrorDetail](err)
	if !ok {
		return engine.FieldError{Field: "body", Value: "***", Rule: err.Error(), Hint: hintSpelling}
	}
	field := d.Location
	for _, part := range []string{"body.", "query.", "path."} {
		field = strings.TrimPrefix(field, part)
	}
	f := engine.FieldError{Field: field, Value: shown(field, d.Value), Rule: d.Message}
	switch status {
	case http.StatusUnsupportedMediaType:
		_, kind, _ := strings.Cut(d.Message, ": ")
		return engine.FieldError{Field: "content-type", Value: clip(kind), Rule: "application/json", Hint: "send the header content-type: application/json"}
	case http.StatusBadRequest:
		return engine.FieldError{Field: "body", Value: "***", Rule: "one JSON object: " + d.Message, Hint: "mend the JSON; jq . FILE shows where it breaks"}
	}
	if name := missing.FindStringSubmatch(d.Message); name != nil {
		// The location is the object that lacks it.
		f.Field = strings.TrimPrefix(field+"."+name[1], "body.")
		f.Value, f.Rule, f.Hint = "", "required", "add it"
		return f
	}
	for _, m := range mends {
		if rest, ok := strings.CutPrefix(d.Message, m.says); ok {
			f.Hint = fmt.Sprintf(m.hint, strings.Trim(rest, `"`))
			if m.rule != "" {
				f.Rule, f.Value = m.rule, "***" // the value of a name that nobody knows may be a secret
			}
			return f
		}
	}
	f.Hint = "send what the rule says"
	return f
}

var missing = regexp.MustCompile(`^expected required property (\S+) to be present$`)

// mends say for the beginnings of huma's rules how to satisfy them, with the rest
// of the rule in place of %s.
var mends = []struct{ says, rule, hint string }{
	{says: "unexpected property", rule: "not a field of this object", hint: hintSpelling + "%s"},
	{says: "unknown query parameter", rule: "not a parameter of this request", hint: hintSpelling + "%s"},
	{says: "expected value to be one of ", hint: "choose one of %s"},
	{says: "expected number >= ", hint: "send %s or more"},
	{says: "expected number <= ", hint: "send %s or less"},
	{says: "expected length >= ", hint: "send at least %s characters"},
	{says: "expected length <= ", hint: "shorten it to %s characters"},
	{says: "expected array length >= ", hint: "send at least %s"},
	{says: "expected array length <= ", hint: "send at most %s"},
	{says: "expected string to be RFC 3339 date-time", hint: hintTime + "%s"},
	{says: "expected string to match pattern ", hint: "send a text that %s matches"},
	{says: "expected string to be ", hint: "write %s"},
	{says: "expected string", hint: `send a JSON string, in quotes%s`},
	{says: "expected boolean", hint: "send true or false, without quotes%s"},
	{says: "expected integer", hint: "send a whole number, without quotes%s"},
	{says: "expected number", hint: "send a number, without quotes%s"},
	{says: "expected array", hint: "send a list: […]%s"},
	{says: "expected object", hint: "send an object: {…}%s"},
	{says: "invalid integer", hint: "send a whole number%s"},
	{says: "invalid boolean", hint: "send true or false%s"},
}

// secretFields are parts of field names whose values are never echoed.
var secretFields = []string{"secret", "pem", "token", "header", "password", "signing", "tls", "authorization", "payload", "url"}

func shown(field string, value any) string {
	lower := strings.ToLower(field)
	if lower == "body" {
		return "***" // it may hold any secret
	}
	for _, part := range secretFields {
		if strings.Contains(lower, part) {
			return "***"
		}
	}
	switch v := value.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "an object" // it may hold secrets, and says nothing by itself
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
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
