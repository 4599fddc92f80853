package api

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// describe writes into the document what huma does not serve: health, metrics,
// profiles, payloads, the document itself.
func (s *Server) describe() {
	doc := s.api.OpenAPI()
	text := func(description, contentType string) *huma.Response {
		return &huma.Response{Description: description, Content: map[string]*huma.MediaType{contentType: {Schema: &huma.Schema{Type: huma.TypeString}}}}
	}
	problem := doc.Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	fails := func(description string) *huma.Response {
		return &huma.Response{Description: description, Content: map[string]*huma.MediaType{problemType: {Schema: problem}}}
	}
	object := func(description, contentType string) *huma.Response {
		return &huma.Response{Description: description, Content: map[string]*huma.MediaType{
			contentType: {Schema: &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}},
		}}
	}
	open := []map[string][]string{} // no token
	for _, op := range []*huma.Operation{
		{
			Path: "/healthz", OperationID: "health", Summary: "Say whether the process runs", Security: open,
			Responses: map[string]*huma.Response{"200": object("it runs", "application/json")},
		},
		{
			Path: "/readyz", OperationID: "ready", Summary: "Say whether publishes are accepted, and why not", Security: open,
			Responses: map[string]*huma.Response{"200": object("they are", "application/json"), "503": fails("they are not, and why")},
		},
		{
			Path: "/v1/openapi.json", OperationID: "openapi", Summary: "Show this document",
			Responses: map[string]*huma.Response{"200": object("OpenAPI 3.1", openAPIType)},
		},
		{
			Path: "/metrics", OperationID: "metrics", Summary: "Show metrics in Prometheus' text format",
			Responses: map[string]*huma.Response{"200": text("metrics", "text/plain")},
		},
		{
			Path: "/v1/deliveries/{id}/payload", OperationID: "get-payload",
			Summary: "Show the payload of a delivery, byte for byte; the request is logged",
			Parameters: []*huma.Param{
				{Name: "id", In: "path", Required: true, Description: "delivery id: {event key}.{subscriber}", Schema: &huma.Schema{Type: huma.TypeString}},
			},
			Responses: map[string]*huma.Response{
				"200": text("the payload; Webhook-Content-Type says of which type", "application/octet-stream"), "404": fails("no such delivery, or its payload is gone"),
			},
		},
		{
			Path: "/debug/pprof/{name}", OperationID: "profile", Summary: "Take a profile of the process, for debugging the dispatcher itself",
			Parameters: []*huma.Param{
				{Name: "name", In: "path", Required: true, Description: "profile, heap, allocs, goroutine, block or mutex", Schema: &huma.Schema{Type: huma.TypeString}},
				{Name: "seconds", In: "query", Description: "how long the processor's is taken: 1 to 120; default 10", Schema: &huma.Schema{Type: huma.TypeInteger}},
			},
			Responses: map[string]*huma.Response{
				"200": text("a profile for go tool pprof", "application/octet-stream"), "404": fails("no such profile"),
				"409": fails("a CPU profile is being taken already"), "422": fails("seconds is out of its bounds"),
			},
		},
	} {
		op.Method = http.MethodGet
		doc.AddOperation(op)
	}
}
