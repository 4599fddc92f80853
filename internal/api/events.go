package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"reflect"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

// EventPath names an event in a path.
type EventPath struct {
	TenantPath
	ID string `path:"id" doc:"event id" maxLength:"256"`
}

// Event is an event on the wire.
type Event struct {
	ID            string              `json:"id" doc:"webhook-id on the wire"`
	Key           string              `json:"key" doc:"internal id: the first part of its deliveries' ids"`
	Topic         string              `json:"topic" doc:"which subscribers it is for"`
	ContentType   string              `json:"content_type" doc:"of the payload"`
	Size          int64               `json:"size" doc:"payload bytes"`
	OrderingKey   string              `json:"ordering_key,omitempty" doc:"events with the same key are delivered in order"`
	Priority      string              `json:"priority,omitempty" doc:"absent = the subscriber's"`
	DeliverAt     *string             `json:"deliver_at,omitempty" format:"date-time" doc:"not before"`
	AcceptedAt    *string             `json:"accepted_at" format:"date-time" doc:"when it was stored"`
	TraceParent   string              `json:"traceparent,omitempty" doc:"trace of the publish"`
	Headers       map[string][]string `json:"headers,omitempty" doc:"headers of the webhook it came in, which go on with it; only when one event is shown"`
	Payload       raw                 `json:"payload,omitempty" doc:"a JSON payload up to 256 KiB; only when one event is shown"`
	PayloadBase64 string              `json:"payload_base64,omitempty" doc:"any other payload up to 256 KiB"`
}

const maxShownPayload = 256 << 10

func eventOut(e *delivery.Event) Event {
	out := Event{
		ID: e.ID, Key: e.Key.String(), Topic: e.Topic, ContentType: e.ContentType, Size: e.Size,
		OrderingKey: e.OrderingKey, DeliverAt: rfc3339(e.DeliverAt), AcceptedAt: rfc3339(e.AcceptedAt()), TraceParent: e.TraceParent,
	}
	if e.PrioritySet {
		out.Priority = e.Priority.String()
	}
	return out
}

func eventWithPayload(e *delivery.Event) Event {
	out := eventOut(e)
	for _, h := range e.Headers {
		if out.Headers == nil {
			out.Headers = map[string][]string{}
		}
		out.Headers[h.Name] = append(out.Headers[h.Name], h.Value)
	}
	switch {
	case len(e.Payload) == 0 || len(e.Payload) > maxShownPayload:
	case utf8.Valid(e.Payload) && json.Valid(e.Payload):
		out.Payload = e.Payload
	default:
		out.PayloadBase64 = base64.StdEncoding.EncodeToString(e.Payload)
	}
	return out
}

type (
	eventList struct {
		TenantPath
		PageQuery
	}
	eventDeliveries struct {
		EventPath
		PageQuery
	}
)

const (
	beforeTenant = "/v1/tenants/"
	behindTenant = "/events"
	eventsPath   = beforeTenant + "{tenant}" + behindTenant
	publishRoute = "POST " + eventsPath
)

func (s *Server) registerEvents(mux *guarded) {
	s.describePublish(mux)
	list := operation(http.MethodGet, eventsPath, "list-events", "List events, newest first", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, list, func(ctx context.Context, in *eventList) (*pageOf[Event], error) {
		rows, next, err := s.node.ListEvents(ctx, in.Tenant, in.page())
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return newPage(mapped(rows, eventOut), next), nil
	})
	get := operation(http.MethodGet, eventsPath+"/{id}", "get-event", "Show an event; its payload with the scope admin", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, get, func(ctx context.Context, in *EventPath) (*bodyOf[Event], error) {
		e, err := s.node.GetEvent(ctx, in.Tenant, in.ID)
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		if callerOf(ctx).Scope != engine.TokenAdmin {
			return ok(eventOut(e)), nil
		}
		s.audit(ctx, "payload_shown", "tenant", in.Tenant, "event", in.ID, "bytes", e.Size)
		return ok(eventWithPayload(e)), nil
	})
	remove := operation(http.MethodDelete, eventsPath+"/{id}", "delete-event", "Delete an event's payload and cancel what is pending", http.StatusNoContent, http.StatusNotFound)
	huma.Register(s.api, remove, func(ctx context.Context, in *EventPath) (*struct{}, error) {
		if err := s.node.DeleteEvent(ctx, in.Tenant, in.ID); err != nil {
			return nil, problemFor(err, s.logger)
		}
		return nil, nil //nolint:nilnil // 204 has no body
	})
	deliveries := operation(http.MethodGet, eventsPath+"/{id}/deliveries", "list-event-deliveries", "List an event's deliveries", http.StatusOK, http.StatusNotFound)
	huma.Register(s.api, deliveries, func(ctx context.Context, in *eventDeliveries) (*pageOf[Delivery], error) {
		rows, next, err := s.node.EventDeliveries(ctx, in.Tenant, in.ID, in.page())
		if err != nil {
			return nil, problemFor(err, s.logger)
		}
		return newPage(mapped(rows, deliveryOut), next), nil
	})
}

// describePublish mounts the two hot paths outside of huma and describes them
// in the document all the same.
func (s *Server) describePublish(mux *guarded) {
	mux.HandleFunc("POST "+eventsPath, s.publish)
	mux.HandleFunc("POST "+eventsPath+"/batch", s.publishBatch)
	schemas := s.api.OpenAPI().Components.Schemas
	of := func(v any, hint string) *huma.Schema { return schemas.Schema(reflect.TypeOf(v), true, hint) }
	answer := func(description, contentType string, schema *huma.Schema) *huma.Response {
		return &huma.Response{Description: description, Content: map[string]*huma.MediaType{contentType: {Schema: schema}}}
	}
	tenant := &huma.Param{
		Name: "tenant", In: "path", Required: true, Description: "tenant id",
		Schema: &huma.Schema{Type: huma.TypeString, Pattern: "^[A-Za-z0-9_-]+$"},
	}
	problem := of(Problem{}, "Problem")
	fails := func(text string) *huma.Response { return answer(text, problemType, problem) }
	s.api.OpenAPI().AddOperation(&huma.Operation{
		Method: http.MethodPost, Path: eventsPath, OperationID: "publish-event",
		Summary:    "Publish an event; 202 means that it is durable",
		Parameters: []*huma.Param{tenant},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/json": {Schema: of(EventBody{}, "EventBody")},
		}},
		Responses: map[string]*huma.Response{
			"200": answer("the same event was accepted before", "application/json", of(Receipt{}, "Receipt")),
			"202": answer("accepted and durable", "application/json", of(Receipt{}, "Receipt")),
			"400": fails("the body broke off"), "404": fails("no such tenant"),
			"409": fails("the same id with other content"), "413": fails("the payload is too large"),
			"422": {}, "500": {}, "503": fails("not stored; try again after Retry-After"),
		},
	})
	s.api.OpenAPI().AddOperation(&huma.Operation{
		Method: http.MethodPost, Path: eventsPath + "/batch", OperationID: "publish-batch",
		Summary:    "Publish many events: NDJSON, one a line; answers one line each",
		Parameters: []*huma.Param{tenant},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/x-ndjson": {Schema: of(EventBody{}, "EventBody")},
		}},
		Responses: map[string]*huma.Response{
			"200": answer("one answer a line, in order", "application/x-ndjson", of(batchLine{}, "BatchLine")),
			"413": fails("the batch is too large, and nothing was stored"),
		},
	})
}
