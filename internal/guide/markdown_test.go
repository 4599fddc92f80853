package guide

import (
	"slices"
	"strings"
	"testing"
)

func TestBlocksKeepTheirOrderTheirNamesAndTheirIndentation(t *testing.T) {
	text := "a\n```sh\necho 1\n```\n1. item\n\n   ```sh background\n   if x\n     y\n   ```\n"
	got, err := blocks(text)
	if err != nil {
		t.Fatal(err)
	}
	want := []Block{{3, "sh", "echo 1\n"}, {8, "sh background", "if x\n  y\n"}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestNoCommandHidesUnderAnotherName(t *testing.T) {
	for _, info := range []string{"bash", "shell", "console", "sh Background", "sh status=0", "sh "} {
		if _, err := blocks("```" + info + "\nrm -rf x\n```\n"); err == nil {
			t.Errorf("a block called %q is let through", info)
		}
	}
	if _, err := blocks("```sh\necho\n"); err == nil {
		t.Error("a block without an end is let through")
	}
}

func TestCommandsAreFoundWhereverTheyStand(t *testing.T) {
	b := Block{Line: 10, Text: "DISPATCHER_X='a b' dispatcher serve --data x # dispatcher no\n" +
		"sudo -u dispatcher dispatcher config check \\\n  --config /etc/d.yaml\nkubectl exec d-0 -- dispatcher store stats | tee y && bin/dispatcher version\necho dispatcher nothing\n"}
	var got []string
	for _, c := range b.Commands() {
		if args, ok := c.Of("dispatcher"); ok {
			got = append(got, strings.Join(args, " "))
		}
	}
	want := []string{"serve --data x", "config check --config /etc/d.yaml", "store stats", "version"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAScriptEndsAtTheFirstFailureAndSaysWhere(t *testing.T) {
	d := &Document{Path: "d.md", Blocks: []Block{{1, "sh", "a\n"}, {3, "", "b\n"}, {5, "sh status=4", "c\n"}, {7, "sh elsewhere", "e\n"}, {9, "sh background", "f\n"}}}
	got := d.Script()
	for _, want := range []string{"set -eu\n", "echo '== d.md:1' >&2\na\n", "(\nc\n) || status=$?", "(\nf\n) >background.9.log 2>&1 &\nawait background.9.log $!\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	for _, not := range []string{"\nb\n", "\ne\n"} {
		if strings.Contains(got, not) {
			t.Errorf("%q in\n%s", not, got)
		}
	}
	if (&Document{Blocks: []Block{{1, "json", "{}"}}}).Script() != "" {
		t.Error("a document without commands has a script")
	}
}
