package cli

import (
	"strings"
	"testing"
)

func TestCheckKnowsCommandsFlagsAndArguments(t *testing.T) {
	good := []string{
		"serve --data ./data --allow-private 127.0.0.0/8 --limits-in-flight 10",
		"subscribers create --tenant t --url https://hooks.example.com/in --topic order.*",
		"deliveries show ID", "dlq --help", "--version", "completion bash", "config print --config x.yaml", "doctor https://x.example.com/",
	}
	for _, line := range good {
		if err := Check(strings.Fields(line)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	bad := []string{"frobnicate", "subscribers frobnicate", "serve --frobnicate", "deliveries show", "version x", "serve --limits-in-flight many"}
	for _, line := range bad {
		if err := Check(strings.Fields(line)); err == nil {
			t.Errorf("%s: no error", line)
		}
	}
}

func TestTheReferenceHasEveryCommand(t *testing.T) {
	var b strings.Builder
	if err := Reference(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n## dispatcher\n", "\n## dispatcher serve\n", "\n## dispatcher dlq replay\n", "\n## dispatcher completion bash\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q", want)
		}
	}
}
