package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// document is what the description says before it knows any operation.
func (s *Server) document() huma.Config {
	config := huma.DefaultConfig("dispatcher", s.node.Version())
	config.Info.Description = "Durable, signed webhook delivery over HTTP/3 and TCP."
	config.Info.License = &huma.License{Name: "Apache License 2.0", Identifier: "Apache-2.0"}
	config.Servers = []*huma.Server{{URL: "/", Description: "the node that serves this document"}}
	config.OpenAPIPath, config.DocsPath, config.SchemasPath = "", "", ""
	config.CreateHooks = nil // no $schema links in answers
	config.Transformers = append(config.Transformers, located)
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token": {Type: "http", Scheme: "bearer", Description: "an API token; x-scopes says which scopes an operation accepts"},
	}
	config.Security = []map[string][]string{{"token": {}}}
	for _, t := range tags {
		if t.text == "" {
			continue // another path of the same
		}
		config.Tags = append(config.Tags, &huma.Tag{Name: t.name, Description: t.text})
	}
	return config
}

// tags sort the operations by what their path begins with: the first that fits,
// so that the longer ones come first.
var tags = []struct{ name, path, text string }{
	{"subscribers", subscribersPath, "Endpoints that events are delivered to."},
	{"sources", "/v1/tenants/{tenant}/sources", "Providers whose webhooks the ingress receives."},
	{"events", eventsPath, "What is published, and delivered to every subscriber whose topics match."},
	{"tenants", "/v1/tenants", "Who subscribers and events belong to, with a share of the node."},
	{"deliveries", "/v1/deliveries", "One event for one subscriber, with its timeline."},
	{"dead letters", "/v1/dlq", "Deliveries that were given up."},
	{"dead letters", "/v1/replays", ""},
	{"protocols", "/v1/protocols", "What is known about origins, and which protocol they get."},
	{"tokens", "/v1/tokens", "Who may use the API, for what."},
	{"store", "/v1/store", "The node's disk."},
	{"node", "/", "Health, metrics, profiles, this document."},
}

func tagOf(path string) string {
	for _, t := range tags {
		if strings.HasPrefix(path, t.path) {
			return t.name
		}
	}
	return ""
}

// operation fills in what all operations share. more are the statuses that it
// answers besides status and those that follow from its form (see finish): 201
// where something may be new, 404, 409.
func operation(method, path, id, summary string, status int, more ...int) huma.Operation {
	op := huma.Operation{
		Method: method, Path: path, OperationID: id, Summary: summary, DefaultStatus: status,
		MaxBodyBytes: maxConfigBody, RejectUnknownQueryParameters: true,
		Errors:    []int{http.StatusUnprocessableEntity, http.StatusServiceUnavailable}, // and 500, which huma adds
		Responses: map[string]*huma.Response{},
	}
	for _, code := range more {
		if code < http.StatusBadRequest {
			op.Responses[strconv.Itoa(code)] = &huma.Response{} // its body is that of status
			continue
		}
		op.Errors = append(op.Errors, code)
	}
	return op
}

// outcomes says what a status means wherever it is answered.
var outcomes = map[int]string{
	http.StatusOK:                    "as asked",
	http.StatusCreated:               "made; the answer shows it",
	http.StatusAccepted:              "accepted: it happens from now on",
	http.StatusNoContent:             "done; there is nothing to show",
	http.StatusBadRequest:            "the body is no JSON, or is missing",
	http.StatusUnauthorized:          "no token, or one that is not known or has expired",
	http.StatusForbidden:             "the token's scope or tenant is not enough",
	http.StatusNotFound:              "what the path or the query names does not exist",
	http.StatusRequestTimeout:        "the body took too long",
	http.StatusConflict:              "it contradicts what is there",
	http.StatusRequestEntityTooLarge: "the body is too large",
	http.StatusUnsupportedMediaType:  "the body is not application/json",
	http.StatusUnprocessableEntity:   "fields that cannot be accepted: errors names each, the rule and how to mend it",
	http.StatusInternalServerError:   "the node could not do this; its log says why",
	http.StatusServiceUnavailable:    "not now, and nothing was changed; try again after Retry-After",
}

// finish completes every operation: tag, description, examples, and each answer
// that it can give.
func (s *Server) finish() {
	doc := s.api.OpenAPI()
	problem := doc.Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	for path, item := range doc.Paths {
		for method, op := range operations(item) {
			op.Method = method
			op.Tags = []string{tagOf(path)}
			op.Description = descriptions[op.OperationID]
			finishAnswers(op, problem)
			for _, p := range op.Parameters {
				standard(p.Schema)
			}
			if op.RequestBody == nil {
				continue
			}
			if op.RequestBody.Content["application/json"] != nil {
				delete(op.RequestBody.Content, "application/octet-stream") // where a handler wants the bytes, too
			}
			for _, content := range op.RequestBody.Content {
				if text := examples[op.OperationID]; text != "" {
					_ = json.Unmarshal([]byte(text), &content.Example) // TestOpenAPISaysWhatItShould reads them all
				}
			}
		}
	}
	for _, schema := range doc.Components.Schemas.Map() {
		standard(schema)
	}
	declare(doc)
	for _, item := range doc.Paths {
		for _, op := range operations(item) {
			for code, answer := range op.Responses {
				explain(code, answer, problem)
			}
		}
	}
}

// standard takes from a schema what is huma's own, and is in its messages by now.
func standard(schema *huma.Schema) {
	if schema == nil {
		return
	}
	schema.PatternDescription = ""
	standard(schema.Items)
	for _, p := range schema.Properties {
		standard(p)
	}
}

// finishAnswers adds those that follow from an operation's form.
func finishAnswers(op *huma.Operation, problem *huma.Schema) {
	if op.RequestBody != nil && op.Responses["422"] != nil && op.MaxBodyBytes > 0 { // one of huma's
		for _, code := range []int{http.StatusBadRequest, http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType} {
			op.Responses[strconv.Itoa(code)] = &huma.Response{Content: map[string]*huma.MediaType{problemType: {Schema: problem}}}
		}
	}
	usual := op.Responses[strconv.Itoa(op.DefaultStatus)]
	if created := op.Responses["201"]; created != nil && created != usual && usual != nil {
		created.Content = usual.Content
	}
}

// explain gives an answer its text and its headers where it has none.
func explain(code string, answer *huma.Response, problem *huma.Schema) {
	status, _ := strconv.Atoi(code)
	if answer.Description == "" || answer.Description == http.StatusText(status) {
		answer.Description = outcomes[status]
	}
	if status >= http.StatusBadRequest && answer.Content == nil {
		answer.Content = map[string]*huma.MediaType{problemType: {Schema: problem}}
	}
	header := func(name, text string) {
		answer.Headers = map[string]*huma.Header{name: {Description: text, Schema: &huma.Schema{Type: huma.TypeString}}}
	}
	switch status {
	case http.StatusUnauthorized:
		header("WWW-Authenticate", "the scheme: Bearer")
	case http.StatusServiceUnavailable:
		header("Retry-After", "seconds")
	}
}

// operations are the operations of a path by method.
func operations(item *huma.PathItem) map[string]*huma.Operation {
	out := map[string]*huma.Operation{}
	for method, op := range map[string]*huma.Operation{
		http.MethodGet: item.Get, http.MethodPut: item.Put, http.MethodPost: item.Post,
		http.MethodDelete: item.Delete, http.MethodPatch: item.Patch,
	} {
		if op != nil {
			out[method] = op
		}
	}
	return out
}

// scopesOf are the scopes that a route accepts.
func scopesOf(need access) []string {
	scopes := []string{"admin"}
	switch {
	case need.scope == anyScope:
		scopes = []string{"admin", "publish", "read"}
	case string(need.scope) != scopes[0]:
		scopes = append(scopes, string(need.scope))
	}
	slices.Sort(scopes)
	return scopes
}

// declare writes the access of every operation into the document: an extension
// for programs, and the answers that it leads to.
func declare(doc *huma.OpenAPI) {
	for path, item := range doc.Paths {
		for method, op := range operations(item) {
			need, ok := routes[method+" "+path]
			if !ok || len(op.Security) == 0 && op.Security != nil {
				continue // open: health
			}
			if op.Extensions == nil {
				op.Extensions = map[string]any{}
			}
			op.Extensions["x-scopes"] = scopesOf(need)
			if op.Responses["401"] == nil {
				op.Responses["401"] = &huma.Response{}
			}
			if need.scope != anyScope && op.Responses["403"] == nil {
				op.Responses["403"] = &huma.Response{}
			}
		}
	}
}
