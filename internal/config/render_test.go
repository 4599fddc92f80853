package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what is generated; run go test -rewrite and look at the difference", path)
	}
}

func example(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	if err := Example(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTheExampleIsTheOneInTheRepository(t *testing.T) {
	golden(t, "testdata/dispatcher.yaml", []byte(example(t)))
}

func TestTheExampleAsItIsChangesNothing(t *testing.T) {
	c := mustLoad(t, Options{File: fileWith(t, example(t))})
	for _, s := range c.Settings() {
		if s.Origin != "default" {
			t.Errorf("%s comes from %s", s.Path, s.Origin)
		}
	}
}

// With every setting uncommented it is still the defaults, from the file now.
func TestTheExampleUncommentedIsTheDefaults(t *testing.T) {
	text := regexp.MustCompile(`(?m)^( *)#(\w+: )`).ReplaceAllString(example(t), "$1$2")
	text = strings.ReplaceAll(text, "api_token: \"\"", "#")
	text = strings.ReplaceAll(text, "control_plane_token: \"\"", "#")
	path := fileWith(t, text)
	c := mustLoad(t, Options{File: path})
	for _, s := range c.Settings() {
		if !strings.HasPrefix(s.Origin, path) && !strings.HasSuffix(s.Path, "_token") {
			t.Errorf("%s comes from %s", s.Path, s.Origin)
		}
	}
	if len(c.Warnings()) != 0 {
		t.Errorf("warnings: %q", c.Warnings())
	}
	got, want := normal(c), normal(Default())
	got.origins = nil
	if a, b := render(t, &got), render(t, &want); a != b {
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
}

func render(t *testing.T, c *Config) string {
	t.Helper()
	var b strings.Builder
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const unusual = `data: "/var/lib/my dispatcher: it's # here"
listen: "[::1]:8080"
ingress_listen: off
metrics_listen: 127.0.0.1:9090
allow_private: [10.1.0.0/16, "fd00::/8", "::1"]
allow_http: true
http3: allowlist
http3_origins: [a.example, "b.example:8443"]
http3_ports: [8443, 9443]
log: {level: debug, format: json}
limits: {in_flight: 100, payload_memory: 10MB}
retention: {events: 14d}
storage: {min_free_percent: 2.5}
resolver: {servers: [192.0.2.53, "[2001:db8::53]:5353"]}
egress: {proxy: "http://user:hunter2@proxy.example:3128", no_proxy: [.corp.example]}
redis: {url: "redis://:hunter2@redis.example:6379/0"}
`

func TestWhatIsPrintedReadsBackAsTheSame(t *testing.T) {
	c := mustLoad(t, Options{File: fileWith(t, unusual), Environ: []string{"DISPATCHER_NODE=node 1"}, Flags: flagsOf(t, "--log-format=text")})
	printed := render(t, c)
	if strings.Contains(printed, "hunter2") {
		t.Errorf("a secret is printed:\n%s", printed)
	}
	for _, want := range []string{
		"http://***@proxy.example:3128", "redis://***@redis.example:6379/***", "# env DISPATCHER_NODE", "# flag --log-format", "# default", "ingress_listen: off ",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("lacks %q:\n%s", want, printed)
		}
	}
	// Masks are no values: the secrets are left out.
	again := mustLoad(t, Options{File: fileWith(t, regexp.MustCompile(`(?m)^ *(api_token|proxy|url|control_plane_token): .*$`).ReplaceAllString(printed, ""))})
	again.Egress.Proxy, again.Redis.URL = c.Egress.Proxy, c.Redis.URL
	a, b := normal(again), normal(c)
	a.origins, b.origins = nil, nil
	if x, y := render(t, &a), render(t, &b); x != y {
		t.Errorf("read back as\n%s\nwant\n%s", x, y)
	}
}

func TestSettingsAreJSONForScripts(t *testing.T) {
	c := mustLoad(t, Options{File: fileWith(t, unusual)})
	raw, err := json.Marshal(c.Settings())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"path":"http3_origins","values":["a.example","b.example:8443"],"list":true,"origin":"`, `"values":["http://***@proxy.example:3128"]`, `{"path":"limits.in_flight","values":["100"],"origin":"`,
	} {
		if !bytes.Contains(raw, []byte(want)) {
			t.Errorf("lacks %s", want)
		}
	}
	if bytes.Contains(raw, []byte("hunter2")) {
		t.Error("a secret is in it")
	}
	problem, err := json.Marshal(&FieldError{Field: "f", Value: "v", Rule: "r", Mend: "m"})
	if err != nil || string(problem) != `{"field":"f","value":"v","rule":"r","mend":"m"}` {
		t.Errorf("problem is %s, %v", problem, err)
	}
}
