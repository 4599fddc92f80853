package api

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// ownHandlers are operations that do not refuse parameters that they do not know.
var ownHandlers = []string{"openapi", "metrics", "profile", "get-payload", "publish-event", "publish-batch"}

// spoil asks what is bad in every way that the document's form allows, one at a
// time, in a request that is good otherwise.
func (w *walk) spoil(op walkOp, good asked) {
	w.t.Helper()
	good.status = 0
	if op.open {
		return // health and readiness take nothing that could be bad
	}
	w.refuse(op, with(good, func(a *asked) { a.token = "none" }), "", http.StatusUnauthorized)
	for _, scope := range []string{"read", "publish"} {
		if !slices.Contains(op.scopes, scope) {
			w.refuse(op, with(good, func(a *asked) { a.token = scope }), "", http.StatusForbidden)
		}
	}
	if !slices.Contains(ownHandlers, op.ID) {
		w.refuse(op, with(good, func(a *asked) { a.query = "bogus=1" }), "bogus", http.StatusUnprocessableEntity)
	}
	parameters, _ := op.spec["parameters"].([]any)
	for _, p := range parameters {
		w.spoilParameter(op, good, p)
	}
	if op.spec["requestBody"] != nil {
		w.spoilBody(op, good)
	}
}

func with(a asked, change func(*asked)) asked {
	a.path, a.body = maps.Clone(a.path), maps.Clone(a.body)
	change(&a)
	return a
}

// refuse asks what has to be refused with one of the statuses, by a problem that
// names the field.
func (w *walk) refuse(op walkOp, a asked, field string, statuses ...int) {
	w.t.Helper()
	out := w.ask(op.ID, a)
	text := string(out.body)
	if op.ID == "publish-batch" && out.status == http.StatusOK { // refused in its line
		if !strings.Contains(text, `"error":`) {
			w.t.Errorf("%s takes %+v", op.ID, a)
		}
	} else if !slices.Contains(statuses, out.status) {
		w.t.Errorf("%s: %d, want one of %v, for %+v: %s", op.ID, out.status, statuses, a, text)
	}
	if field != "" && out.status != http.StatusNotFound && !strings.Contains(text, `"field":"`+field) {
		w.t.Errorf("%s: the problem does not name %s: %s", op.ID, field, text)
	}
}

func (w *walk) spoilParameter(op walkOp, good asked, p any) {
	w.t.Helper()
	name := at(p, "name").(string)
	schema := w.resolve(at(p, "schema"))
	if at(p, "in") == "path" {
		if schema["pattern"] != nil {
			w.refuse(op, with(good, func(a *asked) { a.path[name] = "not.an.id!" }), "", 404, 422)
		}
		if at(op.spec, "responses", "404") != nil && (op.ID != "put-source" || name != "source") {
			w.refuse(op, with(good, func(a *asked) { a.path[name] = "absent" }), "", 404)
		}
		return
	}
	for _, bad := range spoilt(schema) {
		if text, ok := bad.(string); ok {
			w.refuse(op, with(good, func(a *asked) { a.query = name + "=" + text }), name, 422)
		}
	}
	if most, err := strconv.Atoi(fmt.Sprint(schema["maximum"])); err == nil {
		w.refuse(op, with(good, func(a *asked) { a.query = fmt.Sprintf("%s=%d", name, most+1) }), name, 422)
	}
}

func (w *walk) spoilBody(op walkOp, good asked) {
	w.t.Helper()
	text := func(s string) asked { return with(good, func(a *asked) { a.text = &s }) }
	w.refuse(op, text(`{"broken":`), "body", 400, 422)
	w.refuse(op, text(`[]`), "body", 422)
	if required, _ := at(op.spec, "requestBody", "required").(bool); required && op.ID != "publish-batch" {
		w.refuse(op, text(""), "body", 400, 422)
	}
	if at(op.spec, "responses", "415") != nil {
		w.refuse(op, with(good, func(a *asked) { a.kind = "text/html" }), "content-type", 415)
	}
	if at(op.spec, "responses", "413") != nil {
		w.refuse(op, text(`{"x":"`+strings.Repeat("x", 1<<20)+`"}`), "body", 413)
	}
	content, _ := at(op.spec, "requestBody", "content").(map[string]any)
	for _, media := range content {
		w.spoilObject(op, good, w.resolve(at(media, "schema")), nil)
	}
}

// spoilObject gives every field of an object a value that it cannot have, and the
// object a field that it has not. into are the names that lead to the object.
func (w *walk) spoilObject(op walkOp, good asked, schema map[string]any, into []string) {
	w.t.Helper()
	set := func(name string, value any) asked {
		return with(good, func(a *asked) {
			if a.body == nil {
				a.body = map[string]any{}
			}
			nested := any(map[string]any{name: value})
			for _, outer := range slices.Backward(into) {
				nested = map[string]any{outer: nested}
			}
			maps.Copy(a.body, nested.(map[string]any))
		})
	}
	if schema["additionalProperties"] == false {
		w.refuse(op, set("bogus", "hush"), strings.Join(append(slices.Clone(into), "bogus"), "."), 422)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, p := range properties {
		inner := w.resolve(p)
		field := strings.Join(append(slices.Clone(into), name), ".")
		for _, bad := range spoilt(inner) {
			w.refuse(op, set(name, bad), field, 422)
		}
		if inner["properties"] != nil {
			w.spoilObject(op, good, inner, append(slices.Clone(into), name))
		}
	}
}

// resolve follows a reference.
func (w *walk) resolve(schema any) map[string]any {
	if ref, ok := at(schema, "$ref").(string); ok {
		schema = w.parts[ref[strings.LastIndexByte(ref, '/')+1:]]
	}
	m, _ := schema.(map[string]any)
	return m
}

// spoilt are values that a schema does not admit.
func spoilt(schema map[string]any) []any {
	kind, _ := schema["type"].(string)
	if list, ok := schema["type"].([]any); ok {
		kind, _ = list[0].(string)
	}
	switch kind {
	case "string":
		out := []any{7}
		if schema["enum"] != nil || schema["pattern"] != nil || schema["format"] != nil {
			out = append(out, "not;this")
		}
		return out
	case "integer", "number":
		return []any{"seven"}
	case "boolean", "array", "object":
		return []any{"neither"}
	}
	return nil
}

// unseen are documented answers that no request of a test can get.
var unseen = map[string]string{
	"* 408":             "it takes longer than a test may",
	"publish-event 400": "the body breaks off: no request of httptest does",
	"create-token 409":  "it takes ten thousand tokens",
	"start-replay 409":  "it takes a hundred replays that do not end",
}

// complete reports what the document promises and no request was answered with,
// but for the node's own faults.
func (w *walk) complete() {
	w.t.Helper()
	for id, op := range w.ops {
		responses, _ := op.spec["responses"].(map[string]any)
		for code := range responses {
			status, err := strconv.Atoi(code)
			if err != nil {
				w.t.Errorf("%s documents %q, which is no status", id, code)
			}
			if status < 500 && !w.seen[id][status] && unseen["* "+code] == "" && unseen[id+" "+code] == "" {
				w.t.Errorf("%s documents %d and no request met it", id, status)
			}
		}
	}
}
