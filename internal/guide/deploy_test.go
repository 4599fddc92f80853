package guide

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/dispatcher-engine/dispatcher/internal/cli"
	"github.com/dispatcher-engine/dispatcher/internal/config"
)

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// instructions returns a Dockerfile's instructions, stage by stage.
func instructions(text string) [][]string {
	var out [][]string
	text = regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`\\\n\s*`).ReplaceAllString(text, " ")
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "FROM ") {
			out = append(out, nil)
		}
		if line != "" {
			out[len(out)-1] = append(out[len(out)-1], line)
		}
	}
	return out
}

// TestTheImageHoldsOneBinaryThatRunsAsNobody checks the last stage of the
// Dockerfile, which is what runs.
func TestTheImageHoldsOneBinaryThatRunsAsNobody(t *testing.T) {
	stages := instructions(read(t, "deploy/Dockerfile"))
	if len(stages) != 2 || stages[1][0] != "FROM scratch" {
		t.Fatalf("%d stages, the last one %q", len(stages), stages[len(stages)-1][0])
	}
	value := func(name string) string {
		for _, line := range stages[1] {
			if rest, ok := strings.CutPrefix(line, name+" "); ok {
				return rest
			}
		}
		t.Errorf("no %s", name)
		return ""
	}
	if user := value("USER"); !regexp.MustCompile(`^[1-9]\d*:[1-9]\d*$`).MatchString(user) {
		t.Errorf("USER %s is root, or no number", user)
	}
	var health, command []string
	_, after, _ := strings.Cut(value("HEALTHCHECK"), "CMD ")
	if err := errors.Join(json.Unmarshal([]byte(after), &health), json.Unmarshal([]byte(value("CMD")), &command)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{health[1:], command} {
		if err := cli.Check(args); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
	settings, err := config.Load(config.Options{Environ: strings.Fields(value("ENV"))})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range settings.Warnings() {
		if strings.Contains(w, "no setting") {
			t.Errorf("ENV: %s", w)
		}
	}
	for _, address := range []string{settings.Listen, settings.IngressListen, settings.MetricsListen} {
		_, port, _ := strings.Cut(address, ":")
		if !strings.Contains(value("EXPOSE"), port+"/tcp") {
			t.Errorf("%s is served and not exposed", address)
		}
	}
	if value("VOLUME") != settings.Data {
		t.Errorf("the store is in %s, the volume is %s", settings.Data, value("VOLUME"))
	}
}

func TestTheUnitStartsWhatExistsAndWaitsForItsEnd(t *testing.T) {
	unit := map[string][]string{}
	for line := range strings.Lines(read(t, "deploy/systemd/dispatcher.service")) {
		if name, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			unit[name] = append(unit[name], v)
		}
	}
	for _, name := range []string{"ExecStart", "ExecStartPre"} {
		args, ok := Command{Words: strings.Fields(unit[name][0])}.Of("dispatcher")
		if !ok {
			t.Fatalf("%s=%q", name, unit[name])
		}
		if err := cli.Check(args); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := config.Default()
	stop, err := time.ParseDuration(unit["TimeoutStopSec"][0] + "s")
	if err != nil || stop <= d.ShutdownDelay+d.ShutdownTimeout {
		t.Errorf("TimeoutStopSec=%v, %v: a stop may take %v", stop, err, d.ShutdownDelay+d.ShutdownTimeout)
	}
	if unit["Restart"][0] != "on-failure" || unit["User"][0] == "root" || unit["NoNewPrivileges"][0] != "true" {
		t.Errorf("%v", unit)
	}
}

// manifest is what this test looks at of a Kubernetes object.
type manifest struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Data     map[string]string
	Spec     struct {
		Replicas int
		Ports    []struct {
			TargetPort string `yaml:"targetPort"`
		}
		Template struct {
			Spec struct {
				Grace    int `yaml:"terminationGracePeriodSeconds"`
				Security struct {
					RunAsNonRoot bool `yaml:"runAsNonRoot"`
				} `yaml:"securityContext"`
				Containers []container
			}
		}
	}
}

type container struct {
	Args  []string
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	Env            []struct{ Name string }
	LivenessProbe  probe `yaml:"livenessProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	Security       struct {
		ReadOnly bool `yaml:"readOnlyRootFilesystem"`
	} `yaml:"securityContext"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "deploy/kubernetes/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	listed := read(t, "deploy/kubernetes/kustomization.yaml")
	out := map[string]manifest{}
	for _, f := range files {
		if base := filepath.Base(f); base == "kustomization.yaml" {
			continue
		} else if !strings.Contains(listed, "- "+base+"\n") {
			t.Errorf("kustomization.yaml does not list %s", base)
		}
		raw, err := os.ReadFile(filepath.Clean(f))
		if err != nil {
			t.Fatal(err)
		}
		for documents := yaml.NewDecoder(bytes.NewReader(raw)); ; {
			var m manifest
			if err := documents.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", f, err)
			}
			out[m.Kind+"/"+m.Metadata.Name] = m
		}
	}
	return out
}

func TestTheManifestsRunOneNodeThatIsConfiguredAndStoppedInTime(t *testing.T) {
	all := manifests(t)
	for _, kind := range []string{"PodDisruptionBudget", "NetworkPolicy", "Secret"} {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(all)), func(k string) bool { return strings.HasPrefix(k, kind+"/") }) {
			t.Errorf("no %s", kind)
		}
	}
	set := all["StatefulSet/dispatcher"].Spec
	pod := set.Template.Spec
	if set.Replicas != 1 || len(pod.Containers) != 1 || !pod.Security.RunAsNonRoot || !pod.Containers[0].Security.ReadOnly {
		t.Fatalf("%+v", set)
	}
	node := pod.Containers[0]
	if err := cli.Check(node.Args); err != nil {
		t.Error(err)
	}
	token := filepath.Join(t.TempDir(), "api-token")
	if err := os.WriteFile(token, []byte(strings.Repeat("t", 43)), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dispatcher.yaml")
	text := strings.ReplaceAll(all["ConfigMap/dispatcher"].Data["dispatcher.yaml"], "/etc/dispatcher-token/api-token", token)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	settings, err := config.Load(config.Options{File: file, Environ: []string{node.Env[0].Name + "=dispatcher-0"}})
	if err != nil {
		t.Fatal(err)
	}
	if settings.Node != "dispatcher-0" || !settings.APIToken.IsSet() {
		t.Error("the node has no name or no token of its own")
	}
	if grace := time.Duration(pod.Grace) * time.Second; grace <= settings.ShutdownDelay+settings.ShutdownTimeout {
		t.Errorf("the kubelet kills after %v, a stop may take %v", grace, settings.ShutdownDelay+settings.ShutdownTimeout)
	}
	ports := map[string]int{}
	for _, p := range node.Ports {
		ports[p.Name] = p.ContainerPort
	}
	for name, address := range map[string]string{"api": settings.Listen, "ingress": settings.IngressListen, "metrics": settings.MetricsListen} {
		if !strings.HasSuffix(address, ":"+strconv.Itoa(ports[name])) {
			t.Errorf("port %s is %d, the node listens on %s", name, ports[name], address)
		}
	}
	for name, want := range map[string]probe{"/healthz": node.LivenessProbe, "/readyz": node.ReadinessProbe} {
		if want.HTTPGet.Path != name || want.HTTPGet.Port != "api" {
			t.Errorf("the probe of %s is %+v", name, want)
		}
	}
	for name, m := range all {
		if m.Kind != "Namespace" && m.Metadata.Namespace != "dispatcher" {
			t.Errorf("%s is in namespace %q", name, m.Metadata.Namespace)
		}
		for _, p := range m.Spec.Ports {
			if ports[p.TargetPort] == 0 {
				t.Errorf("%s names port %q, which the pod does not have", name, p.TargetPort)
			}
		}
	}
}
