package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/netguard"
	"github.com/dispatcher-engine/dispatcher/internal/telemetry"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/protoselect"
	"github.com/dispatcher-engine/dispatcher/storage"
)

// walk is a real node behind its API, and the document that this API serves.
// Whatever is asked is held against the document: status, content type, headers
// and body. So is what is asked to set something up.
type walk struct {
	t       *testing.T
	server  *Server
	schemas *jsonschema.Compiler
	ops     map[string]walkOp
	paths   map[string]any // of the document, for pointers into it
	parts   map[string]any // its schemas
	seen    map[string]map[int]bool
	tokens  map[string]string // one for each scope
	ca      *testnet.CA       // of the receivers
	takes   *testnet.Receiver
	rejects *testnet.Receiver
	made    int
}

// walkOp is an operation of the document.
type walkOp struct {
	ID, Method, Path string
	open             bool
	scopes           []string
	spec             map[string]any
}

// asked is a request of an operation. Its body is the document's example with
// the fields of body instead of those of the same name; text is sent as it is.
type asked struct {
	status int // wanted; 0 = any that is documented
	path   map[string]string
	query  string
	body   map[string]any
	text   *string
	kind   string // content type, if not the document's
	token  string // scope of the token; "" = admin, "none" = none
}

type answer struct {
	status int
	body   []byte
	fields map[string]any
}

// str returns a field as text.
func (a answer) str(name string) string { return fmt.Sprint(a.fields[name]) }

func startWalk(t *testing.T) *walk {
	t.Helper()
	w := &walk{t: t, seen: map[string]map[int]bool{}, tokens: map[string]string{"admin": goodToken}}
	metrics := telemetry.New()
	config := engine.Config{
		Version:  "1.0.0",
		Guard:    netguard.Config{AllowPrivate: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, AllowHTTP: true},
		Storage:  storage.Config{Dir: t.TempDir(), Watermark: storage.Watermark{Bytes: -1}},
		Selector: protoselect.Config{DNS: protoselect.DNSConfig{Disabled: true}},
	}
	metrics.Observe(&config)
	node, err := engine.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
		defer cancel()
		if err := node.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	if err := node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.server, err = New(node, Config{Tokens: []string{goodToken}, Metrics: metrics.Handler(), MaxPayload: 100_000, MaxBatch: 200_000})
	if err != nil {
		t.Fatal(err)
	}
	if w.ca, err = testnet.NewCA(); err != nil {
		t.Fatal(err)
	}
	w.takes, w.rejects = w.receiver(0), w.receiver(http.StatusBadRequest)
	w.read()
	for _, scope := range []string{"read", "publish"} {
		w.tokens[scope] = w.ask("create-token", asked{status: 201, body: map[string]any{"scope": scope, "tenant": w.tenant()}}).str("token")
	}
	return w
}

func (w *walk) receiver(status int) *testnet.Receiver {
	w.t.Helper()
	cert, err := w.ca.Issue(testnet.Leaf{Names: []string{"127.0.0.1"}})
	if err != nil {
		w.t.Fatal(err)
	}
	r, err := testnet.Start(testnet.Config{Certificate: &cert, HTTP3: true, Behaviour: testnet.Behaviour{Status: status}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = r.Close() })
	return r
}

// read gets the document and compiles nothing yet: schemas are compiled where an
// answer meets them.
func (w *walk) read() {
	w.t.Helper()
	resp, text := call(w.t, w.server, http.MethodGet, "/v1/openapi.json", goodToken, "")
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil || resp.StatusCode != http.StatusOK {
		w.t.Fatalf("%d: %v", resp.StatusCode, err)
	}
	w.schemas = jsonschema.NewCompiler()
	w.schemas.DefaultDraft(jsonschema.Draft2020)
	w.schemas.AssertFormat()
	if err := w.schemas.AddResource("openapi.json", doc); err != nil {
		w.t.Fatal(err)
	}
	w.paths = at(doc, "paths").(map[string]any)
	w.parts = at(doc, "components", "schemas").(map[string]any)
	w.ops = map[string]walkOp{}
	for path, item := range w.paths {
		for method, spec := range item.(map[string]any) {
			op := walkOp{ID: at(spec, "operationId").(string), Method: strings.ToUpper(method), Path: path, spec: spec.(map[string]any)}
			if security, own := op.spec["security"].([]any); own && len(security) == 0 {
				op.open = true
			}
			scopes, _ := op.spec["x-scopes"].([]any)
			for _, s := range scopes {
				op.scopes = append(op.scopes, s.(string))
			}
			w.ops[op.ID] = op
		}
	}
}

// at follows names into nested objects; nil where one is missing.
func at(v any, names ...string) any {
	for _, name := range names {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

// request makes the request that a says.
func (w *walk) request(op walkOp, a asked) *http.Request {
	w.t.Helper()
	path := op.Path
	for name, value := range a.path {
		path = strings.ReplaceAll(path, "{"+name+"}", url.PathEscape(value))
	}
	if strings.Contains(path, "{") {
		w.t.Fatalf("%s: the fixture gives no value for %s", op.ID, path)
	}
	if a.query != "" {
		path += "?" + a.query
	}
	text, kind := w.body(op, a)
	r := httptest.NewRequestWithContext(w.t.Context(), op.Method, path, strings.NewReader(text))
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	if token := a.token; token != "none" {
		if token == "" {
			token = "admin"
		}
		r.Header.Set("Authorization", "Bearer "+w.tokens[token])
	}
	return r
}

func (w *walk) body(op walkOp, a asked) (text, kind string) {
	w.t.Helper()
	content, _ := at(op.spec, "requestBody", "content").(map[string]any)
	for name, media := range content {
		kind = name
		example, ok := at(media, "example").(map[string]any)
		if !ok {
			w.t.Fatalf("%s has a body and no example of one", op.ID)
		}
		merged := maps.Clone(example)
		maps.Copy(merged, a.body)
		raw, err := json.Marshal(merged)
		if err != nil {
			w.t.Fatal(err)
		}
		text = string(raw)
	}
	if a.kind != "" {
		kind = a.kind
	}
	if a.text != nil {
		text = *a.text
	}
	return text, kind
}

// ask sends a request and holds the answer against the document.
func (w *walk) ask(id string, a asked) answer {
	w.t.Helper()
	op, ok := w.ops[id]
	if !ok {
		w.t.Fatalf("no operation %s in the document", id)
	}
	r := w.request(op, a)
	recorder := httptest.NewRecorder()
	w.server.ServeHTTP(recorder, r)
	resp := recorder.Result()
	out := answer{status: resp.StatusCode}
	out.body, _ = io.ReadAll(resp.Body)
	_ = json.Unmarshal(out.body, &out.fields)
	what := fmt.Sprintf("%s: %s %s", id, r.Method, r.URL)
	if a.status != 0 && out.status != a.status {
		w.t.Fatalf("%s: %d, want %d: %s", what, out.status, a.status, out.body)
	}
	w.documented(what, op, resp, out)
	if w.seen[id] == nil {
		w.seen[id] = map[int]bool{}
	}
	w.seen[id][out.status] = true
	return out
}

// documented checks that an answer is one that the document tells of.
func (w *walk) documented(what string, op walkOp, resp *http.Response, a answer) {
	w.t.Helper()
	described, ok := at(op.spec, "responses", strconv.Itoa(a.status)).(map[string]any)
	if !ok {
		w.t.Errorf("%s: %d is not documented: %s", what, a.status, a.body)
		return
	}
	headers, _ := described["headers"].(map[string]any)
	for name := range headers {
		if resp.Header.Get(name) == "" {
			w.t.Errorf("%s: %d without the header %s", what, a.status, name)
		}
	}
	content, _ := described["content"].(map[string]any)
	if len(content) == 0 {
		if len(a.body) > 0 {
			w.t.Errorf("%s: %d has a body, of which nothing is documented: %s", what, a.status, a.body)
		}
		return
	}
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if content[kind] == nil {
		w.t.Errorf("%s: %d as %q, documented are %v", what, a.status, kind, slices.Collect(maps.Keys(content)))
		return
	}
	pointer := strings.Join([]string{"/paths", escaped(op.Path), strings.ToLower(op.Method), "responses", strconv.Itoa(a.status), "content", escaped(kind), "schema"}, "/")
	schema, err := w.schemas.Compile("openapi.json#" + pointer)
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
	for _, value := range w.values(what, kind, a.body) {
		if err := schema.Validate(value); err != nil {
			w.t.Errorf("%s: %d is not what is documented: %v\n%s", what, a.status, err, a.body)
		}
		p := value
		if line := at(value, "error"); line != nil {
			p = line // of a batch
		}
		if kind == problemType || at(value, "error") != nil {
			w.problem(what, resp.Request, p)
		}
	}
}

// escaped is a name inside a JSON pointer inside a URL.
func escaped(name string) string {
	return url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
}

// values are what a body holds: one JSON value, one a line, or text.
func (w *walk) values(what, kind string, body []byte) (out []any) {
	w.t.Helper()
	decode := func(raw []byte) {
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		if err != nil {
			w.t.Errorf("%s: %v: %s", what, err, raw)
		}
		out = append(out, v)
	}
	switch {
	case kind == "application/x-ndjson":
		for line := range bytes.Lines(body) {
			decode(line)
		}
	case strings.HasSuffix(kind, "json"):
		decode(body)
	default:
		out = append(out, string(body))
	}
	return out
}

// validation are the statuses whose problems name fields.
var validation = []int{http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}

// problem checks that a problem document says what a reader needs: for each field
// its name, its value, the rule, and how to mend it.
func (w *walk) problem(what string, _ *http.Request, p any) {
	w.t.Helper()
	status, _ := strconv.Atoi(fmt.Sprint(at(p, "status")))
	for _, name := range []string{"type", "title", "detail", "instance"} {
		if text, _ := at(p, name).(string); text == "" {
			w.t.Errorf("%s: the problem has no %s: %v", what, name, p)
		}
	}
	fields, _ := at(p, "errors").([]any)
	if slices.Contains(validation, status) && len(fields) == 0 {
		w.t.Errorf("%s: %d names no field: %v", what, status, p)
	}
	for _, f := range fields {
		get := func(name string) string { text, _ := at(f, name).(string); return text }
		if get("field") == "" || get("rule") == "" || get("hint") == "" || get("hint") == get("rule") {
			w.t.Errorf("%s: the problem lacks field, rule or hint: %v", what, f)
		}
		if get("value") == "" && !strings.Contains(get("rule"), "required") {
			w.t.Errorf("%s: the problem does not say which value: %v", what, f)
		}
		if strings.HasPrefix(get("hint"), "see ") {
			w.t.Errorf("%s: the hint mends nothing: %v", what, f)
		}
	}
}
