package cli

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

var exitLine = regexp.MustCompile(`^  [0-4]  \S`)

// TestEveryCommandsHelpHasAnExampleAndItsExitStatuses reads the help as a person
// gets it.
func TestEveryCommandsHelpHasAnExampleAndItsExitStatuses(t *testing.T) {
	paths := map[string]bool{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		paths[c.CommandPath()] = true
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				walk(sub)
			}
		}
		var out bytes.Buffer
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		if status := Run(context.Background(), "test", args, Streams{In: strings.NewReader(""), Out: &out, Err: &out}); status != ExitOK {
			t.Fatalf("%v: status %d: %s", args, status, &out)
		}
		help := out.String()
		_, after, found := strings.Cut(help, "\nExamples:\n")
		if !found || !strings.Contains(after, "dispatcher") {
			t.Errorf("%s has no example:\n%s", c.CommandPath(), help)
		}
		_, after, found = strings.Cut(help, "\nExit status:\n")
		lines := strings.Split(strings.TrimRight(after, "\n"), "\n")
		if !found || !strings.HasPrefix(after, "  0  ") {
			t.Errorf("%s does not say what its exit statuses mean:\n%s", c.CommandPath(), help)
		}
		for _, line := range lines {
			if !exitLine.MatchString(line) {
				t.Errorf("%s: exit status %q", c.CommandPath(), line)
			}
		}
		if c.GroupID == "talk" || c.HasParent() && c.Parent().GroupID == "talk" {
			if c.Flag("json") == nil {
				t.Errorf("%s has no --json", c.CommandPath())
			}
		}
	}
	walk(complete())
	for _, texts := range []map[string]string{examples, exits} {
		for path := range texts {
			if !paths[path] {
				t.Errorf("a help text for %s, which is no command", path)
			}
		}
	}
}

func TestAPayloadIsWrittenByteForByte(t *testing.T) {
	api := newFakeAPI(t, 200, "{ \"a\":1 }\x00")
	if r := run(t, "", "deliveries", "payload", "e.s"); r.status != ExitOK || r.out != api.body || r.err != "" || api.path != "/v1/deliveries/e.s/payload" {
		t.Errorf("%+v, %s", r, api.path)
	}
	if r := run(t, "", "deliveries", "payload", "e.s", "--json"); !strings.Contains(r.out, `"payload_base64": "eyAiYSI6MSB9AA=="`) || !strings.Contains(r.out, `"size": 10`) {
		t.Errorf("%+v", r)
	}
}

func TestDeadLettersShowCategorySizeAndHashAndNoPayload(t *testing.T) {
	newFakeAPI(t, 200, `{"data":[{"id":"e.s","reason":"rejected","signature":"rejected: status 400","size":12,"payload_hash":"`+strings.Repeat("ab", 32)+`"}]}`)
	if r := run(t, "", "dlq", "list"); !strings.Contains(r.out, "CATEGORY") || !strings.Contains(r.out, "rejected: status 400") || !strings.Contains(r.out, " 12 ") || !strings.Contains(r.out, " abababababab ") {
		t.Errorf("%s", r.out)
	}
}
