package payloads

import (
	"embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:embed github/*.json
var files embed.FS

// Payload is one webhook body as GitHub sends it.
type Payload struct {
	// Name identifies the body: its file's name without the extension, such as
	// "check_run.completed.1".
	Name string
	// Event is the value of GitHub's X-GitHub-Event header, such as "check_run".
	Event string
	// Action is the body's "action" member, such as "completed"; empty for an
	// event that has no actions, such as "fork".
	Action string
	// Body holds the exact bytes. It is shared by all callers: do not modify it.
	Body []byte
}

// Topic is the payload's topic in a dispatcher: the event, and the action after
// a dot where there is one.
func (p Payload) Topic() string {
	if p.Action == "" {
		return p.Event
	}
	return p.Event + "." + p.Action
}

// load reads the embedded files once. A file that does not follow the naming
// scheme is a mistake made at build time, which no caller could handle, so it
// panics.
var load = sync.OnceValue(func() []Payload {
	entries, err := files.ReadDir("github")
	if err != nil {
		panic(fmt.Sprintf("payloads: read embedded directory: %v", err))
	}
	all := make([]Payload, 0, len(entries))
	for _, e := range entries {
		body, err := files.ReadFile("github/" + e.Name())
		if err != nil {
			panic(fmt.Sprintf("payloads: read embedded file: %v", err))
		}
		p, err := parse(e.Name(), body)
		if err != nil {
			panic(fmt.Sprintf("payloads: %v", err))
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Payload) int { return strings.Compare(a.Name, b.Name) })
	return all
})

// GitHub returns all bodies sorted by name. The slice is the caller's own; the
// bodies in it are shared.
func GitHub() []Payload {
	return slices.Clone(load())
}

// parse turns a file name EVENT.ACTION.N.json and its bytes into a Payload.
func parse(file string, body []byte) (Payload, error) {
	name, ok := strings.CutSuffix(file, ".json")
	parts := strings.Split(name, ".")
	if !ok || len(parts) != 3 || slices.Contains(parts, "") {
		return Payload{}, fmt.Errorf("file %q is not named EVENT.ACTION.N.json", file)
	}
	action := parts[1]
	if action == "none" {
		action = ""
	}
	return Payload{Name: name, Event: parts[0], Action: action, Body: body}, nil
}
