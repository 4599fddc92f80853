package api

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// TestOpenAPISaysWhatItShould holds the texts against the operations: what is
// described has a description and a kind, what takes a body shows one, and no
// text is left of what is gone.
func TestOpenAPISaysWhatItShould(t *testing.T) {
	s := setup(t, &fakeNode{})
	doc := s.api.OpenAPI()
	var ids, withBody []string
	for path, item := range doc.Paths {
		for method, op := range operations(item) {
			ids = append(ids, op.OperationID)
			if op.RequestBody != nil {
				withBody = append(withBody, op.OperationID)
			}
			if op.Summary == "" || op.Description == "" || len(op.Tags) != 1 || op.Tags[0] == "" {
				t.Errorf("%s %s: summary %q, description %q, tags %q", method, path, op.Summary, op.Description, op.Tags)
			}
			for code, answer := range op.Responses {
				if answer.Description == "" || code == "default" {
					t.Errorf("%s %s: the answer %s says nothing", method, path, code)
				}
			}
			for _, p := range op.Parameters {
				if p.Description == "" {
					t.Errorf("%s %s: parameter %s says nothing", method, path, p.Name)
				}
			}
		}
	}
	for name, schema := range doc.Components.Schemas.Map() {
		for field, p := range schema.Properties {
			if p.Description == "" {
				t.Errorf("%s.%s says nothing", name, field)
			}
		}
	}
	same := func(what string, want, got []string) {
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("%s\noperations %v\ntexts      %v", what, want, got)
		}
	}
	same("descriptions", ids, slices.Collect(maps.Keys(descriptions)))
	same("examples", withBody, slices.Collect(maps.Keys(examples)))
	for id, text := range examples {
		if !json.Valid([]byte(text)) {
			t.Errorf("the example of %s is no JSON: %s", id, text)
		}
	}
}
