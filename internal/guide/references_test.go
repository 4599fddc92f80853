package guide

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/dispatcher-engine/dispatcher/internal/cli"
)

var rewrite = flag.Bool("rewrite", false, "write the references anew")

// TestEveryExampleOfTheHelpIsACommandLine reads the examples where the reference
// prints them, as a shell would.
func TestEveryExampleOfTheHelpIsACommandLine(t *testing.T) {
	examples := regexp.MustCompile("(?s)\nExamples:\n\n```text\n(.*?)```").FindAllStringSubmatch(read(t, "docs/cli.md"), -1)
	if len(examples) < 70 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, e := range examples {
		commands := 0
		for _, command := range (Block{Text: e[1]}).Commands() {
			args, ok := command.Of("dispatcher")
			if !ok {
				continue
			}
			commands++
			if err := cli.Check(args); err != nil {
				t.Errorf("%q: %v", args, err)
			}
		}
		if commands == 0 && !strings.Contains(e[1], "<(dispatcher completion") {
			t.Errorf("no command line in %s", e[1])
		}
	}
}

func TestReferencesAreCurrent(t *testing.T) {
	t.Setenv("DISPATCHER_ADDR", "") // a default that the help shows
	for path, write := range References {
		t.Run(filepath.Base(path), func(t *testing.T) {
			var got bytes.Buffer
			if err := write(&got); err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(root, filepath.FromSlash(path))
			if *rewrite {
				if err := os.WriteFile(name, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%s is not what the program says of itself: run make generate and look at the difference", path)
			}
		})
	}
}
