package cli

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/config"
)

// TestEverySettingOfTheIngressReachesIt changes one field after the other.
func TestEverySettingOfTheIngressReachesIt(t *testing.T) {
	base := func() *config.Config {
		c := config.Default()
		c.Ingress.ControlPlaneURL, c.Ingress.TenantPerSecond = "https://config.example.com", 7
		return c
	}
	for setting := range reflect.TypeFor[config.Ingress]().Fields() {
		changed := base()
		field := reflect.ValueOf(&changed.Ingress).Elem().FieldByIndex(setting.Index)
		switch field.Kind() {
		case reflect.Bool:
			field.SetBool(!field.Bool())
		case reflect.String:
			field.SetString("other")
		case reflect.Int, reflect.Int64:
			field.SetInt(field.Int() + 1)
		case reflect.Float64:
			field.SetFloat(field.Float() + 1)
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 1, 1))
		default:
			if field.Type() == reflect.TypeFor[config.Secret]() {
				continue // nothing shows it; the control plane refuses to be without
			}
			t.Fatalf("%s: a kind this test does not know", setting.Name)
		}
		if reflect.DeepEqual(ingressConfig(base()), ingressConfig(changed)) {
			t.Errorf("ingress.%s changes nothing", setting.Name)
		}
	}
	off := config.Default()
	off.IngressListen = ""
	if ingressConfig(off) != nil {
		t.Error("--ingress-listen off still makes an ingress")
	}
}

// tracedError is an error that prints a stack trace when it is asked for more.
type tracedError struct{}

func (tracedError) Error() string { return "no space left" }

func (tracedError) Format(f fmt.State, verb rune) {
	_, _ = io.WriteString(f, "no space left")
	if verb == 'v' && f.Flag('+') {
		_, _ = io.WriteString(f, "\n  | stack trace of forty lines")
	}
}

func TestTheLogShowsMessagesOfErrorsNotTheirStacks(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		logger, _ := newLogger(&out, config.Log{Level: "info", Format: format})
		logger.Error("failed", "error", error(tracedError{}))
		if !strings.Contains(out.String(), "no space left") || strings.Contains(out.String(), "stack") {
			t.Errorf("%s: %s", format, &out)
		}
	}
}

func TestQlogsAreWrittenForTheNamedOriginsAlone(t *testing.T) {
	dir := t.TempDir() + "/qlog"
	open := qlogs(config.Qlog{Dir: dir, Origins: []string{"hooks.example.com", "[2001:db8::1]:8443"}}, slog.New(slog.DiscardHandler))
	for _, o := range []delivery.Origin{
		{Scheme: "https", Host: "hooks.example.com", Port: 443}, {Scheme: "https", Host: "2001:db8::1", Port: 8443},
		{Scheme: "https", Host: "2001:db8::1", Port: 443}, {Scheme: "https", Host: "other.example.com", Port: 443},
	} {
		if w := open(delivery.Route{Origin: o}); w != nil {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, part := range []string{"_hooks.example.com_443_", "_2001_db8__1_8443_"} {
		if !slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.Contains(e.Name(), part) }) {
			t.Errorf("no file for %s in %v", part, entries)
		}
	}
	if qlogs(config.Qlog{}, nil) != nil {
		t.Error("without a directory there are traces")
	}
}

func TestSourcesArePutFromFlagsAndFilesWithoutASecretOnTheCommandLine(t *testing.T) {
	f := newFakeAPI(t, 200, `{"id":"gh","path":"/webhook/t/gh","destination":{"type":"origin"}}`)
	file := func(name, text string) string {
		path := t.TempDir() + "/" + name
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	got := run(t, "from stdin\n", "sources", "put", "gh", "--tenant", "t", "--file", file("s.json", `{"scheme":"github","dedupe_body":true}`),
		"--secret-file", "-", "--origin", "https://o.example.com/x", "--origin-token-file", file("tok", "tok\r\n"), "--max-body", "99")
	if got.status != ExitOK || f.method != "PUT" || f.path != "/v1/tenants/t/sources/gh" {
		t.Fatalf("%+v, %s %s", got, f.method, f.path)
	}
	want := map[string]any{
		"scheme": "github", "dedupe_body": true, "secrets": []any{"from stdin"}, "max_body": 99.0,
		"destination": map[string]any{"type": "origin", "url": "https://o.example.com/x", "token": "tok"},
	}
	if !reflect.DeepEqual(f.got, want) {
		t.Errorf("%v, want %v", f.got, want)
	}
	if !strings.Contains(got.out, `{"type":"origin"}`) {
		t.Errorf("%s", got.out)
	}
	for _, bad := range [][]string{
		{"put", "gh", "--tenant", "t"},
		{"put", "gh", "--tenant", "t", "--scheme", "github", "--secret-file", file("empty", "\n")},
		{"put", "gh", "--tenant", "t", "--file", file("bad", "[]")},
		{"put", "gh", "--scheme", "github"},
	} {
		if got := run(t, "", append([]string{"sources"}, bad...)...); got.status != ExitUsage {
			t.Errorf("%v: %+v", bad, got)
		}
	}
}
