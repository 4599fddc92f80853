package cli

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ran is what a command line did.
type ran struct {
	status   int
	out, err string
}

func run(t *testing.T, stdin string, args ...string) ran {
	t.Helper()
	var out, errs bytes.Buffer
	status := Run(t.Context(), "1.2.3", args, Streams{In: strings.NewReader(stdin), Out: &out, Err: &errs})
	return ran{status, out.String(), errs.String()}
}

// fakeAPI answers every request with one status and body and remembers it.
type fakeAPI struct {
	*httptest.Server
	status       int
	getStatus    int // of a GET, when it is another one
	body         string
	method, path string
	got          map[string]any
}

func newFakeAPI(t *testing.T, status int, body string) *fakeAPI {
	t.Helper()
	f := &fakeAPI{status: status, body: body}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.method, f.path = r.Method, r.URL.RequestURI()
		f.got = map[string]any{}
		_ = json.NewDecoder(r.Body).Decode(&f.got)
		if r.Header.Get("Authorization") != "Bearer good" {
			f.status = http.StatusUnauthorized
		}
		status := f.status
		if r.Method == http.MethodGet && f.getStatus != 0 {
			status = f.getStatus
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(f.body))
	}))
	t.Cleanup(f.Close)
	t.Setenv("DISPATCHER_ADDR", f.URL)
	t.Setenv("DISPATCHER_API_TOKEN", "good")
	return f
}

func TestEveryCommandTeaches(t *testing.T) {
	a := &app{version: "test"}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" || strings.HasSuffix(c.Short, ".") {
			t.Errorf("%s: a one-line description without a full stop is needed: %q", c.CommandPath(), c.Short)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	root := a.root()
	walk(root)
	r := run(t, "", "--help")
	for _, want := range []string{"serve", "demo", "receive", "subscribers", "events", "deliveries", "dlq", "protocols", "sign", "verify", "version", "Exit status"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("the help does not mention %q", want)
		}
	}
	if r.status != ExitOK {
		t.Errorf("help exits with %d", r.status)
	}
}

func TestExitStatusesAreAsDocumented(t *testing.T) {
	newFakeAPI(t, http.StatusNotFound, `{"title":"Not Found","status":404,"detail":"no such delivery"}`)
	cases := []struct {
		name string
		args []string
		want int
		says string
	}{
		{"unknown command", []string{"frobnicate"}, ExitUsage, "frobnicate"},
		{"unknown subcommand", []string{"events", "frobnicate"}, ExitUsage, "publish"},
		{"unknown flag", []string{"demo", "--frobnicate"}, ExitUsage, "frobnicate"},
		{"missing flag", []string{"events", "publish", "--tenant", "t"}, ExitUsage, "--topic"},
		{"missing argument", []string{"deliveries", "show"}, ExitUsage, "DELIVERY"},
		{"not JSON", []string{"events", "publish", "--tenant", "t", "--topic", "a", "--payload", "{"}, ExitUsage, "--content-type"},
		{"bad time", []string{"deliveries", "list", "--since", "tomorrow"}, ExitUsage, "--since"},
		{"bad behaviour", []string{"receive", "--behave", "explode"}, ExitUsage, "explode"},
		{"h3 without tls", []string{"receive", "--h3"}, ExitUsage, "--tls"},
		{"too many events", []string{"demo", "--events", "0"}, ExitUsage, "--events"},
		{"not found", []string{"deliveries", "show", "x"}, ExitNotFound, "no such delivery"},
		{"unreachable", []string{"deliveries", "show", "x", "--addr", "127.0.0.1:1"}, ExitUnreachable, "127.0.0.1:1"},
		{"version", []string{"version"}, ExitOK, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := run(t, "", c.args...)
			if r.status != c.want || !strings.Contains(r.err, c.says) {
				t.Errorf("status %d, want %d; stderr: %s", r.status, c.want, r.err)
			}
			if r.status != ExitOK && r.out != "" {
				t.Errorf("a failure wrote to stdout: %s", r.out)
			}
		})
	}
}

func TestMissingTokenSaysWhereToFindIt(t *testing.T) {
	newFakeAPI(t, http.StatusOK, `{}`)
	t.Setenv("DISPATCHER_API_TOKEN", "")
	if r := run(t, "", "tenants", "list"); r.status != ExitUsage || !strings.Contains(r.err, "api-token") {
		t.Errorf("%+v", r)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("good\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "", "tenants", "list", "--token-file", file); r.status != ExitOK {
		t.Errorf("%+v", r)
	}
	if err := os.WriteFile(file, []byte("bad\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "", "tenants", "list", "--token-file", file); r.status != ExitUnreachable {
		t.Errorf("%+v", r)
	}
}

func TestProblemsArePrintedFieldByField(t *testing.T) {
	newFakeAPI(t, http.StatusUnprocessableEntity,
		`{"title":"Unprocessable Entity","status":422,"detail":"no","errors":[{"field":"url","value":"x","rule":"must be https","hint":"write https://"}]}`)
	r := run(t, "", "subscribers", "list", "--tenant", "t")
	if r.status != ExitFailed || !strings.Contains(r.err, `url = "x": must be https; write https://`) {
		t.Errorf("%+v", r)
	}
}

func TestPublishSendsThePayloadAsItIs(t *testing.T) {
	f := newFakeAPI(t, http.StatusAccepted, `{"id":"e1","deliveries":3}`)
	r := run(t, `{"n": 1.50}`, "events", "publish", "--tenant", "t", "--topic", "a.b", "--file", "-", "--id", "e1", "--ordering-key", "k")
	if r.status != ExitOK || f.method != http.MethodPost || f.path != "/v1/tenants/t/events" || f.got["ordering_key"] != "k" || f.got["id"] != "e1" {
		t.Errorf("%+v %s %s %v", r, f.method, f.path, f.got)
	}
	if r := run(t, "a,b\n", "events", "publish", "--tenant", "t", "--topic", "a", "--file", "-", "--content-type", "text/csv", "--json"); r.status != ExitOK || f.got["payload_base64"] != "YSxiCg==" {
		t.Errorf("%+v %v", r, f.got)
	}
}

func TestListsPrintTablesAndCursors(t *testing.T) {
	newFakeAPI(t, http.StatusOK, `{"data":[{"id":"d1","topic":"a","state":"dead","reason":"gone","attempts":3}],"next_cursor":"abc"}`)
	r := run(t, "", "dlq", "list", "--tenant", "t")
	if r.status != ExitOK || !strings.Contains(r.out, "DELIVERY") || !strings.Contains(r.out, "d1") || !strings.Contains(r.err, "--cursor abc") {
		t.Errorf("%+v", r)
	}
	r = run(t, "", "deliveries", "list", "--json")
	var page list
	if err := json.Unmarshal([]byte(r.out), &page); err != nil || page.NextCursor != "abc" || len(page.Data) != 1 {
		t.Errorf("%v %s", err, r.out)
	}
}

func TestASubscriberIsCreatedWithAReservation(t *testing.T) {
	f := newFakeAPI(t, http.StatusCreated, `{"id":"s","concurrency":16,"reserved_in_flight":4}`)
	f.getStatus = http.StatusOK
	got := run(t, "", "subscribers", "create", "--tenant", "t", "--url", "https://a.test/", "--concurrency", "16", "--reserved-in-flight", "4")
	want := map[string]any{"url": "https://a.test/", "concurrency": 16.0, "reserved_in_flight": 4.0}
	if got.status != ExitOK || f.method != http.MethodPost || !reflect.DeepEqual(f.got, want) {
		t.Errorf("%+v: %s %v, want %v", got, f.method, f.got, want)
	}
	if !strings.Contains(got.out, "reserved in flight") {
		t.Errorf("it is not shown: %s", got.out)
	}
}

// TestPuttingATenantKeepsWhatIsNotGiven: the API replaces all of a tenant's
// settings, so the command repeats those that it was not told to change.
func TestPuttingATenantKeepsWhatIsNotGiven(t *testing.T) {
	const stored = `{"id":"t","name":"Acme","weight":3,"rate_limit":{"per_second":5,"burst":9},"max_in_flight":40,"reserved_in_flight":4,"created_at":null}`
	kept := func(change map[string]any) map[string]any {
		all := map[string]any{
			"name": "Acme", "weight": 3.0, "rate_limit": map[string]any{"per_second": 5.0, "burst": 9.0},
			"max_in_flight": 40.0, "reserved_in_flight": 4.0,
		}
		maps.Copy(all, change)
		return all
	}
	for _, c := range []struct {
		args   string
		status int
		want   map[string]any
	}{
		{"--reserved-in-flight 16", http.StatusOK, kept(map[string]any{"reserved_in_flight": 16.0})},
		{"--max-in-flight 64 --weight 2", http.StatusOK, kept(map[string]any{"max_in_flight": 64.0, "weight": 2.0})},
		{"--max-in-flight 0", http.StatusOK, kept(map[string]any{"max_in_flight": 0.0})},
		{"--rate 0", http.StatusOK, kept(map[string]any{"rate_limit": map[string]any{"per_second": 0.0, "burst": 0.0}})},
		{"--name Other", http.StatusOK, kept(map[string]any{"name": "Other"})},
		{"", http.StatusOK, kept(nil)},
		{"--rate 2.5 --rate-burst 7", http.StatusNotFound, map[string]any{"rate_limit": map[string]any{"per_second": 2.5, "burst": 7.0}}},
	} {
		f := newFakeAPI(t, http.StatusOK, stored)
		f.getStatus = c.status
		got := run(t, "", append([]string{"tenants", "put", "t"}, strings.Fields(c.args)...)...)
		if got.status != ExitOK || f.method != http.MethodPut || f.path != "/v1/tenants/t" || !reflect.DeepEqual(f.got, c.want) {
			t.Errorf("%q: %+v: %s %s %v, want %v", c.args, got, f.method, f.path, f.got, c.want)
		}
	}
	f := newFakeAPI(t, http.StatusInternalServerError, `{"title":"broken"}`)
	if got := run(t, "", "tenants", "put", "t", "--weight", "2"); got.status == ExitOK || f.method != http.MethodGet {
		t.Errorf("what could not be read was replaced: %+v, %s", got, f.method)
	}
	if got := run(t, "", "tenants", "put", "t", "--rate-burst", "2"); got.status == ExitOK {
		t.Errorf("%+v", got)
	}
}

func TestSignThenVerifyAndTheNamedMistake(t *testing.T) {
	const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	t.Setenv("DISPATCHER_SECRET", secret)
	r := run(t, `{"a":1}`, "sign", "--id", "msg_1", "--at", "2026-01-02T03:04:05Z")
	if r.status != ExitOK {
		t.Fatalf("%+v", r)
	}
	args := []string{"verify", "--at", "2026-01-02T03:04:06Z"}
	for line := range strings.Lines(r.out) {
		args = append(args, "-H", strings.TrimSpace(line))
	}
	if v := run(t, `{"a":1}`, args...); v.status != ExitOK || !strings.Contains(v.out, "valid") {
		t.Errorf("%+v", v)
	}
	v := run(t, "{ \"a\": 1 }", args...)
	if v.status != ExitFailed || !strings.Contains(v.out, "proven") {
		t.Errorf("a re-encoded body is not named: %+v", v)
	}
	if strings.Contains(v.out+v.err, secret) {
		t.Error("the secret is shown")
	}
}

func TestDemoDeliversEverythingOnce(t *testing.T) {
	r := run(t, "", "demo", "--events", "24", "--exit", "--json")
	var report struct {
		Events, Deliveries, Delivered, Lost, Duplicates int
		SignatureFailures                               int                      `json:"signature_failures"`
		ByProtocol                                      struct{ H1, H2, H3 int } `json:"by_protocol"`
		Receivers                                       []map[string]any
	}
	if err := json.Unmarshal([]byte(r.out), &report); err != nil {
		t.Fatalf("%v\n%s\n%s", err, r.out, r.err)
	}
	if r.status != ExitOK || report.Events != 24 || report.Deliveries != 96 || report.Delivered != 96 || report.Lost != 0 ||
		report.Duplicates != 0 || report.SignatureFailures != 0 || len(report.Receivers) != 4 {
		t.Errorf("status %d: %s\n%s", r.status, r.out, r.err)
	}
	if report.ByProtocol.H1 == 0 || report.ByProtocol.H2 == 0 || report.ByProtocol.H3 == 0 {
		t.Errorf("not every protocol was used: %+v", report.ByProtocol)
	}
}
