//go:build real

package guide

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(pattern)))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(files), err)
	}
	return files
}

// accepts runs a program that has to find nothing wrong.
func accepts(t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Errorf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
}

func TestRealDeployManifestsAreWhatKubernetesDecodes(t *testing.T) {
	program := os.Getenv("DISPATCHER_REAL_MANIFESTS")
	if program == "" {
		t.Fatal("DISPATCHER_REAL_MANIFESTS is not set: run these tests with make test-real")
	}
	for _, file := range glob(t, "deploy/kubernetes/*.yaml") {
		if filepath.Base(file) != "kustomization.yaml" {
			accepts(t, program, file)
		}
	}
}

// The unit names a path at which no binary is here; a copy names this one.
func TestRealDeployUnitIsGoodAndFenced(t *testing.T) {
	self, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "dispatcher.service")
	text := strings.ReplaceAll(read(t, "deploy/systemd/dispatcher.service"), "/usr/local/bin/dispatcher", self)
	if err := os.WriteFile(unit, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	accepts(t, "systemd-analyze", "verify", "--man=no", unit)
	// 0 is a service that may do nothing, 10 one that may do everything.
	accepts(t, "systemd-analyze", "security", "--offline=true", "--threshold=20", unit)
}

func TestRealDeployRulesAlertWhenTheyShould(t *testing.T) {
	rules := "deploy/prometheus/dispatcher.rules.yaml"
	accepts(t, "promtool", append([]string{"check", "rules"}, glob(t, rules)...)...)
	tests := glob(t, "deploy/prometheus/dispatcher.rules_test.yaml")
	accepts(t, "promtool", "test", "rules", tests[0])
	// An alert without a test of its own may never fire.
	for _, alert := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(read(t, rules), -1) {
		if !strings.Contains(read(t, "deploy/prometheus/dispatcher.rules_test.yaml"), `alertname="`+alert[1]+`"`) {
			t.Errorf("no test fires %s", alert[1])
		}
	}
}

// The queries of the dashboard are PromQL: promtool reads them as rules.
func TestRealDeployDashboardQueriesAreGood(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/dispatcher.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("$__rate_interval", "5m", "$job", "dispatcher", "$instance", ".*")
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	queries := 0
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			fmt.Fprintf(&rules, "  - record: query:number:%d\n    expr: %q\n", queries, fill.Replace(target.Expr))
			queries++
		}
	}
	if queries < 30 {
		t.Fatalf("%d queries", queries)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	accepts(t, "promtool", "check", "rules", "--lint=none", file)
}
