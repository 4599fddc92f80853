package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/dispatcher-engine/dispatcher/engine"
)

const defaultRetryAfter = 5 * time.Second

// Duration is a time.Duration written as Go writes it: "15s", "120h".
type Duration time.Duration

// Schema implements huma.SchemaProvider.
func (Duration) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type: huma.TypeString, Description: `a duration such as "250ms", "15s", "5m" or "120h"`,
		PatternDescription: `a duration such as "15s" or "120h"`,
		Pattern:            `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$`, Examples: []any{"15s"},
	}
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("duration %q: want a number and a unit, such as 15s", clip(string(text)))
	}
	*d = Duration(v)
	return nil
}

func durations(in []Duration) []time.Duration {
	out := make([]time.Duration, len(in))
	for i, d := range in {
		out[i] = time.Duration(d)
	}
	return out
}

// RateLimit is a token bucket on the wire.
type RateLimit struct {
	PerSecond float64 `json:"per_second" doc:"deliveries a second; 0 = no limit" minimum:"0"`
	Burst     int     `json:"burst,omitempty" doc:"deliveries at once; default one second's worth" minimum:"0"`
}

// PageQuery are the query parameters of a list.
type PageQuery struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"rows to return"`
	Cursor string `query:"cursor" doc:"next_cursor of the previous page"`
}

func (p PageQuery) page() engine.Page { return engine.Page{Limit: p.Limit, Cursor: p.Cursor} }

// pageOf is a page of a list.
type pageOf[T any] struct {
	Body struct {
		Data       []T    `json:"data" doc:"the rows"`
		NextCursor string `json:"next_cursor" doc:"give it as cursor for the next page; empty at the end"`
	}
}

func newPage[T any](rows []T, next string) *pageOf[T] {
	p := &pageOf[T]{}
	p.Body.Data, p.Body.NextCursor = rows, next
	if rows == nil {
		p.Body.Data = []T{}
	}
	return p
}

// bodyOf is an answer with one object.
type bodyOf[T any] struct {
	Status int
	Body   T
}

func ok[T any](v T) *bodyOf[T] { return &bodyOf[T]{Status: 200, Body: v} }

// rfc3339 writes a time for JSON, nil for zero.
func rfc3339(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(time.RFC3339Nano)
	return &s
}

// millis writes a phase's duration as a number of milliseconds with
// microsecond precision.
func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// raw is JSON that is passed on as it is.
type raw = json.RawMessage

// orZero returns an optional body, or its zero value.
func orZero[T any](body *T) T {
	if body == nil {
		var zero T
		return zero
	}
	return *body
}

// assumeJSON takes a body for JSON where its content type is only what a client
// sends unasked: `curl -d` and urllib call every body a form, which this API has
// none of.
func assumeJSON(r *http.Request) {
	if media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); strings.EqualFold(strings.TrimSpace(media), "application/x-www-form-urlencoded") {
		r.Header.Set("Content-Type", "application/json")
	}
}
