package api

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// EventBody is an event to publish.
type EventBody struct {
	ID            string   `json:"id,omitempty" maxLength:"256" pattern:"^[A-Za-z0-9_~:-]+$" doc:"yours, for deduplication within 4 days; made if absent"`
	Topic         string   `json:"topic" maxLength:"256" doc:"dot-separated segments"`
	Payload       raw      `json:"payload,omitempty" doc:"any JSON; its bytes are sent exactly as given"`
	PayloadBase64 *string  `json:"payload_base64,omitempty" doc:"instead of payload: any bytes"`
	ContentType   string   `json:"content_type,omitempty" doc:"of payload_base64; default application/json"`
	OrderingKey   string   `json:"ordering_key,omitempty" maxLength:"256" doc:"events with the same key are delivered in order"`
	Priority      string   `json:"priority,omitempty" enum:"high,normal,low" doc:"default: the subscriber's"`
	Subscribers   []string `json:"subscribers,omitempty" doc:"only these; default: all whose topics match"`
	DeliverAt     string   `json:"deliver_at,omitempty" format:"date-time" doc:"not before"`
}

var (
	errNoBody     = errors.New("the body is empty; send a JSON object")
	errTwoObjects = errors.New("there is something after the JSON object")
)

// decodeEvent reads one event; body must not be used any more. Unknown fields are
// errors: a misspelt "ordering_key" must not silently lose the order.
func decodeEvent(body []byte) (engine.EventInput, error) {
	if in, ok := scanEvent(body); ok {
		return in, nil
	}
	return parseEvent(body)
}

// parseEvent reads any event, and says what is wrong with it.
func parseEvent(body []byte) (engine.EventInput, error) {
	var b EventBody
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&b); err != nil {
		if errors.Is(err, io.EOF) {
			err = errNoBody
		}
		return engine.EventInput{}, jsonFault(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return engine.EventInput{}, jsonFault(errTwoObjects)
	}
	return b.input()
}

// jsonFault turns a decoding error into a problem that names the field.
func jsonFault(err error) *engine.InvalidError {
	f := engine.FieldError{
		Field: "body", Value: "***", Rule: "one JSON object: " + strings.TrimPrefix(err.Error(), "json: "), Hint: "mend the JSON; jq . FILE shows where it breaks",
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kind := jsonKind(e.Type)
		f = engine.FieldError{Field: cmp.Or(e.Field, "body"), Value: e.Value, Rule: "must be " + kind, Hint: "send " + kind}
	} else if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		f = engine.FieldError{Field: strings.Trim(name, `"`), Value: "***", Rule: "not a field of an event", Hint: hintSpelling}
	}
	return &engine.InvalidError{Fields: []engine.FieldError{f}}
}

// jsonKind says what JSON a Go type is read from.
func jsonKind(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() { //nolint:exhaustive // the others are not fields of an event
	case reflect.String:
		return "a JSON string, in quotes"
	case reflect.Slice:
		return "a list of strings"
	default:
		return "a JSON object"
	}
}

func (b *EventBody) input() (engine.EventInput, error) {
	in := engine.EventInput{
		ID: b.ID, Topic: b.Topic, ContentType: b.ContentType, OrderingKey: b.OrderingKey,
		Priority: b.Priority, Subscribers: b.Subscribers,
	}
	var faults []engine.FieldError
	add := func(field, value, rule, hint string) {
		faults = append(faults, engine.FieldError{Field: field, Value: value, Rule: rule, Hint: hint})
	}
	switch {
	case b.PayloadBase64 != nil && b.Payload != nil:
		add("payload", "***", "payload or payload_base64, not both", "remove one")
	case b.PayloadBase64 != nil:
		bytes, err := base64.StdEncoding.DecodeString(*b.PayloadBase64)
		if err != nil {
			add("payload_base64", "***", "standard base64 with padding", "encode it with base64 -w0: "+err.Error())
		}
		in.Payload = bytes
		if in.ContentType == "" {
			in.ContentType = "application/octet-stream"
		}
	case b.Payload != nil:
		in.Payload = b.Payload
		if in.ContentType == "" {
			in.ContentType = "application/json"
		}
	default:
		add("payload", "", "required", "give payload (JSON) or payload_base64")
	}
	if b.DeliverAt != "" {
		at, err := time.Parse(time.RFC3339Nano, b.DeliverAt)
		if err != nil {
			add("deliver_at", clip(b.DeliverAt), "an RFC 3339 time", hintTime)
		}
		in.DeliverAt = at
	}
	if len(faults) > 0 {
		return in, &engine.InvalidError{Fields: faults}
	}
	return in, nil
}
