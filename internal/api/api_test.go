package api

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/engine"
)

const goodToken = "token-for-tests"

func setup(t *testing.T, node *fakeNode) *Server {
	t.Helper()
	s, err := New(node, Config{Tokens: []string{"other", goodToken}, MaxPayload: 3000, MaxBatch: 100_000, Metrics: http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func call(t *testing.T, s *Server, method, path, token, body string) (*http.Response, string) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, req)
	resp := w.Result()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(out)
}

func decodeProblem(t *testing.T, resp *http.Response, body string) Problem {
	t.Helper()
	if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("content type %q: %s", ct, body)
	}
	var p Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if p.Type == "" || p.Title == "" || p.Status != resp.StatusCode || p.Instance == "" {
		t.Errorf("incomplete problem: %s", body)
	}
	return p
}

func TestNoTokenNoAccess(t *testing.T) {
	s := setup(t, &fakeNode{})
	for _, path := range []string{"/v1/tenants", "/v1/openapi.json", "/metrics", "/nowhere", "/v1/tenants/t/events"} {
		for _, token := range []string{"", "wrong", goodToken + "x"} {
			resp, body := call(t, s, http.MethodGet, path, token, "")
			if resp.StatusCode != http.StatusUnauthorized || resp.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s with %q: %d", path, token, resp.StatusCode)
			}
			decodeProblem(t, resp, body)
		}
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if resp, _ := call(t, s, http.MethodGet, path, "", ""); resp.StatusCode != http.StatusOK {
			t.Errorf("%s needs a token: %d", path, resp.StatusCode)
		}
	}
	if _, err := New(&fakeNode{}, Config{Tokens: []string{""}}); err == nil {
		t.Error("an API without a token was made")
	}
}

func TestReadyzSaysWhyNot(t *testing.T) {
	s := setup(t, &fakeNode{notReady: &engine.UnavailableError{Reason: "disk is full"}})
	resp, body := call(t, s, http.MethodGet, "/readyz", "", "")
	if p := decodeProblem(t, resp, body); p.Status != 503 || !strings.Contains(p.Detail, "disk is full") || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, _ := call(t, s, http.MethodGet, "/healthz", "", ""); resp.StatusCode != 200 {
		t.Error("healthz depends on readiness")
	}
}

func TestPublishPassesThePayloadByteForByte(t *testing.T) {
	payload := `{ "b" : 1.50 , "a":"\u00e9 <&>",  "n":12345678901234567890 }`
	node := &fakeNode{}
	s := setup(t, node)
	resp, body := call(t, s, http.MethodPost, "/v1/tenants/t1/events", goodToken,
		`{"id":"e1","topic":"order.created","payload":`+payload+`,"ordering_key":"k","deliver_at":"2030-01-02T03:04:05Z"}`)
	if resp.StatusCode != http.StatusAccepted || body != "{\"id\":\"e1\",\"deliveries\":2}\n" {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	in := node.published[0]
	if string(in.Payload) != payload {
		t.Errorf("payload changed: %s", in.Payload)
	}
	if in.ContentType != "application/json" || in.OrderingKey != "k" || !in.DeliverAt.Equal(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)) {
		t.Errorf("%+v", in)
	}
	resp, body = call(t, s, http.MethodPost, "/v1/tenants/t1/events", goodToken, `{"id":"e1","topic":"order.created","payload":1}`)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"deduplicated":true`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	resp, body = call(t, s, http.MethodPost, "/v1/tenants/t1/events", goodToken, `{"topic":"a","payload_base64":"AP8="}`)
	if resp.StatusCode != http.StatusAccepted || string(node.published[1].Payload) != "\x00\xff" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

func TestPublishNamesWhatIsWrong(t *testing.T) {
	s := setup(t, &fakeNode{})
	cases := []struct {
		name, body, field string
		status            int
	}{
		{"empty", ``, "body", 422},
		{"no JSON", `{"topic":`, "body", 422},
		{"two objects", `{"topic":"a","payload":1}{}`, "body", 422},
		{"misspelt field", `{"topic":"a","payload":1,"orderingkey":"k"}`, "orderingkey", 422},
		{"wrong type", `{"topic":7,"payload":1}`, "topic", 422},
		{"no payload", `{"topic":"a"}`, "payload", 422},
		{"both payloads", `{"topic":"a","payload":1,"payload_base64":""}`, "payload", 422},
		{"bad base64", `{"topic":"a","payload_base64":"%"}`, "payload_base64", 422},
		{"bad time", `{"topic":"a","payload":1,"deliver_at":"tomorrow"}`, "deliver_at", 422},
		{"too large", `{"topic":"a","payload":"` + strings.Repeat("x", 100_000) + `"}`, "", 413},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			resp, body := call(t, s, http.MethodPost, "/v1/tenants/t1/events", goodToken, c.body)
			p := decodeProblem(t, resp, body)
			if p.Status != c.status || c.field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != c.field || p.Errors[0].Rule == "" || p.Errors[0].Hint == "") {
				t.Errorf("%s", body)
			}
		})
	}
}

func TestErrorsOfTheNodeBecomeTheRightProblems(t *testing.T) {
	cases := []struct {
		err    error
		status int
	}{
		{&engine.UnavailableError{Reason: "full", RetryAfter: 30 * time.Second}, 503},
		{&engine.ConflictError{Field: "id", Value: "e1", Rule: "taken", Hint: "use another"}, 409},
		{&engine.InvalidError{Fields: []engine.FieldError{{Field: "topic", Rule: "r", Hint: "h"}}}, 422},
		{engine.ErrNotFound, 404},
		{io.ErrUnexpectedEOF, 500},
	}
	for _, c := range cases {
		s := setup(t, &fakeNode{fail: c.err})
		resp, body := call(t, s, http.MethodPost, "/v1/tenants/t/events", goodToken, `{"topic":"a","payload":1}`)
		p := decodeProblem(t, resp, body)
		if p.Status != c.status {
			t.Errorf("%v: %s", c.err, body)
		}
		if c.status == 503 && resp.Header.Get("Retry-After") != "30" {
			t.Errorf("Retry-After %q", resp.Header.Get("Retry-After"))
		}
	}
	resp, body := call(t, setup(t, &fakeNode{}), http.MethodGet, "/v1/tenants/t", goodToken, "")
	if resp.StatusCode != 500 || strings.Contains(body, "secret/path") {
		t.Errorf("an internal error leaks: %s", body)
	}
}

func TestBatchAnswersEveryLineInItsPlace(t *testing.T) {
	node := &fakeNode{}
	s := setup(t, node)
	resp, body := call(t, s, http.MethodPost, "/v1/tenants/t1/events/batch", goodToken, strings.Join([]string{
		`{"id":"a","topic":"x","payload":1}`, `nonsense`, ``, `{"id":"a","topic":"x","payload":1}`, `{"id":"b","topic":"x","payload":{"k":[1, 2]}}`,
	}, "\n"))
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	type answer struct {
		Line, Status int
		ID           string
		Deliveries   *int
		Error        *Problem
	}
	var got []answer
	for line := range strings.Lines(body) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		got = append(got, a)
	}
	want := []answer{{Line: 1, Status: 202, ID: "a"}, {Line: 2, Status: 422}, {Line: 4, Status: 200, ID: "a"}, {Line: 5, Status: 202, ID: "b"}}
	if len(got) != len(want) {
		t.Fatalf("%s", body)
	}
	for i, w := range want {
		if g := got[i]; g.Line != w.Line || g.Status != w.Status || g.ID != w.ID || (g.Status == 202) != (g.Deliveries != nil) || (g.Status == 422) != (g.Error != nil) {
			t.Errorf("line %d: %+v", i, g)
		}
	}
	if string(node.published[1].Payload) != `{"k":[1, 2]}` {
		t.Errorf("payload changed: %s", node.published[1].Payload)
	}
}

func TestBatchSaysWhereItEnds(t *testing.T) {
	node := &fakeNode{}
	s := setup(t, node)
	long := `{"topic":"x","payload":"` + strings.Repeat("y", 80_000) + `"}`
	_, body := call(t, s, http.MethodPost, "/v1/tenants/t1/events/batch", goodToken, "{\"id\":\"a\",\"topic\":\"x\",\"payload\":1}\n"+long+"\n")
	lines := strings.Split(strings.TrimSpace(body), "\n")
	if len(lines) != 2 || !strings.Contains(lines[0], `"status":202`) || !strings.Contains(lines[1], `"status":413`) || !strings.Contains(lines[1], `"line":2`) {
		t.Errorf("%s", body)
	}
}

func TestSecretsAppearInTheAnswerThatMadeThemAlone(t *testing.T) {
	s := setup(t, &fakeNode{})
	const path = "/v1/tenants/t1/subscribers"
	resp, body := call(t, s, http.MethodPost, path, goodToken, `{"url":"https://a.example/","headers":{"X-Key":"hush"}}`)
	if resp.StatusCode != http.StatusCreated || !strings.Contains(body, `"secret":"whsec_hush"`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	for _, p := range []string{path, path + "/ep1"} {
		if resp, body := call(t, s, http.MethodGet, p, goodToken, ""); resp.StatusCode != 200 || strings.Contains(body, "hush") {
			t.Errorf("%s: %d %s", p, resp.StatusCode, body)
		}
	}
	if _, body := call(t, s, http.MethodGet, path+"/ep1", goodToken, ""); !strings.Contains(body, `"breaker":"open"`) || !strings.Contains(body, `"waiting":"breaker_open"`) {
		t.Errorf("health is missing: %s", body)
	}
}

func TestValidationProblemsNeverEchoSecrets(t *testing.T) {
	s := setup(t, &fakeNode{})
	for _, body := range []string{
		`{"url":"https://a.example/","secret":{"hush":1}}`,
		`{"url":"https://a.example/","signing":[{"scheme":"nope","secret":"hush"}]}`,
		`{"url":"https://u:hush@a.example/","bogus":"hush"}`,
		`{"headers":{"a":["hush"]}}`,
		`{"tls":{"client_key_pem":7,"ca_pem":"hush"}}`,
		`{"url":"https://a.example/","secret":"hush"`,
		`"hush"`,
		`hush`,
	} {
		resp, out := call(t, s, http.MethodPost, "/v1/tenants/t1/subscribers", goodToken, body)
		p := decodeProblem(t, resp, out)
		if p.Status != 422 && p.Status != 400 || len(p.Errors) == 0 || strings.Contains(out, "hush") {
			t.Errorf("%s\n-> %s", body, out)
		}
	}
}

// curl and urllib call a body a form unless they are told; other types are
// refused, and what was sent is not shown: it may hold a secret.
func TestBodiesAreJSONUnlessTheySayOtherwise(t *testing.T) {
	for contentType, want := range map[string]int{
		"":                                  http.StatusCreated,
		"application/json":                  http.StatusCreated,
		"application/x-www-form-urlencoded": http.StatusCreated,
		"Application/X-WWW-Form-URLEncoded; charset=utf-8": http.StatusCreated,
		"application/xml": http.StatusUnsupportedMediaType,
		"multipart/form-data; boundary=application/json": http.StatusUnsupportedMediaType,
	} {
		s := setup(t, &fakeNode{})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/tenants/t1/subscribers",
			strings.NewReader(`{"url":"https://a.example/","secret":"hush"}`))
		r.Header.Set("Authorization", "Bearer "+goodToken)
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%q: %d %s", contentType, w.Code, w.Body)
		}
		if want == http.StatusUnsupportedMediaType &&
			(!strings.Contains(w.Body.String(), "application/json") || strings.Contains(w.Body.String(), "hush")) {
			t.Errorf("%q: %s", contentType, w.Body)
		}
	}
}

func TestListsTakeLimitCursorAndFilters(t *testing.T) {
	node := &fakeNode{}
	s := setup(t, node)
	resp, body := call(t, s, http.MethodGet, "/v1/tenants/t1/subscribers?limit=7&cursor=abc", goodToken, "")
	if resp.StatusCode != 200 || !strings.Contains(body, `"next_cursor":"more"`) || node.page != (engine.Page{Limit: 7, Cursor: "abc"}) {
		t.Errorf("%s %+v", body, node.page)
	}
	resp, body = call(t, s, http.MethodGet, "/v1/deliveries?tenant=t&subscriber=s&state=dead&reason=gone&topic=a.*&since=2026-01-02T03:04:05Z", goodToken, "")
	if resp.StatusCode != 200 || !strings.Contains(body, `"data":[]`) || node.filter.State != "dead" || node.filter.Topic != "a.*" || node.filter.Since.IsZero() || node.page.Limit != 100 {
		t.Errorf("%d %s %+v %+v", resp.StatusCode, body, node.filter, node.page)
	}
	for _, bad := range []string{"?limit=0", "?limit=1001", "?limit=x", "?state=gone", "?since=yesterday", "?sbscriber=typo"} {
		resp, body := call(t, s, http.MethodGet, "/v1/deliveries"+bad, goodToken, "")
		if p := decodeProblem(t, resp, body); p.Status != 422 {
			t.Errorf("%s: %s", bad, body)
		}
	}
}

func TestOpenAPIDescribesEveryPath(t *testing.T) {
	s := setup(t, &fakeNode{})
	resp, body := call(t, s, http.MethodGet, "/v1/openapi.json", goodToken, "")
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	var doc struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]any
	}
	if err := json.Unmarshal([]byte(body), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("openapi %q", doc.OpenAPI)
	}
	for _, want := range []string{
		"put /v1/tenants/{tenant}", "delete /v1/tenants/{tenant}", "post /v1/tenants/{tenant}/subscribers",
		"patch /v1/tenants/{tenant}/subscribers/{id}", "post /v1/tenants/{tenant}/subscribers/{id}/rotate-secret",
		"post /v1/tenants/{tenant}/events", "post /v1/tenants/{tenant}/events/batch", "get /v1/tenants/{tenant}/events/{id}/deliveries",
		"get /v1/deliveries", "get /v1/deliveries/{id}", "post /v1/deliveries/{id}/replay", "get /v1/dlq/groups", "post /v1/dlq/replay", "post /v1/dlq/purge",
		"post /v1/replays", "get /v1/replays", "get /v1/replays/{id}", "post /v1/replays/{id}/cancel",
	} {
		method, path, _ := strings.Cut(want, " ")
		if doc.Paths[path][method] == nil {
			t.Errorf("not described: %s", want)
		}
	}
}

func TestASubscribersReservationGoesInAndComesOut(t *testing.T) {
	node := &fakeNode{}
	s := setup(t, node)
	resp, body := call(t, s, http.MethodPost, "/v1/tenants/t1/subscribers", goodToken,
		`{"url":"https://a.example/","concurrency":16,"reserved_in_flight":4}`)
	if resp.StatusCode != http.StatusCreated || !strings.Contains(body, `"reserved_in_flight":4`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if in := node.created; len(in) != 1 || in[0].Reserved == nil || *in[0].Reserved != 4 || *in[0].Concurrency != 16 {
		t.Errorf("%+v", in)
	}
}
