package payloads

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestEveryBodyIsJSONWhoseActionMatchesItsName(t *testing.T) {
	for _, p := range GitHub() {
		var body struct {
			Action string `json:"action"`
		}
		if err := json.Unmarshal(p.Body, &body); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if body.Action != p.Action {
			t.Errorf("%s: Action = %q, body says %q", p.Name, p.Action, body.Action)
		}
		if p.Event == "" || strings.Contains(p.Event, ".") {
			t.Errorf("%s: Event = %q", p.Name, p.Event)
		}
	}
}

func TestSetIsCompleteSortedAndOfRealSizes(t *testing.T) {
	all := GitHub()
	if len(all) != 120 {
		t.Errorf("got %d bodies, want 120", len(all))
	}
	if !slices.IsSortedFunc(all, func(a, b Payload) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("not sorted by name")
	}
	sizes := make([]int, 0, len(all))
	names := map[string]bool{}
	for _, p := range all {
		sizes = append(sizes, len(p.Body))
		if names[p.Name] {
			t.Errorf("name %s is there twice", p.Name)
		}
		names[p.Name] = true
	}
	slices.Sort(sizes)
	// The figures that the package comment gives.
	if low, high := sizes[0], sizes[len(sizes)-1]; low != 1036 || high != 31640 {
		t.Errorf("sizes run from %d to %d bytes, the package comment says 1 KB to 32 KB", low, high)
	}
	if median := sizes[len(sizes)/2]; median < 8500 || median > 9499 {
		t.Errorf("median size is %d bytes, the package comment says 9 KB", median)
	}
}

func TestBodiesAreTheFilesByteForByte(t *testing.T) {
	for _, p := range GitHub() {
		want, err := os.ReadFile(filepath.Join("github", p.Name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		if string(want) != string(p.Body) {
			t.Errorf("%s differs from its file", p.Name)
		}
	}
}

func TestCallersCannotReorderEachOthersList(t *testing.T) {
	first := GitHub()
	slices.Reverse(first)
	if second := GitHub(); first[0].Name == second[0].Name {
		t.Errorf("reversing one caller's list changed the next caller's: %s comes first", second[0].Name)
	}
}

func TestTopicNamesTheActionOnlyWhereThereIsOne(t *testing.T) {
	for want, p := range map[string]Payload{
		"fork":            {Event: "fork"},
		"issues.reopened": {Event: "issues", Action: "reopened"},
	} {
		if got := p.Topic(); got != want {
			t.Errorf("Topic() = %q, want %q", got, want)
		}
	}
}

func TestParseRefusesOtherFileNames(t *testing.T) {
	for _, file := range []string{"", ".json", "fork.json", "fork.none.json", "fork..0.json", "fork.none.0", "a.b.c.d.json"} {
		if p, err := parse(file, nil); err == nil {
			t.Errorf("parse(%q) = %+v, want an error", file, p)
		}
	}
}

func TestLicenceStandsBesideTheBodies(t *testing.T) {
	text, err := os.ReadFile("github/LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"MIT License", "Copyright (c)", "Permission is hereby granted"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("github/LICENSE lacks %q", want)
		}
	}
}
