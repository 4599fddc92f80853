package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fileWith writes a configuration file.
func fileWith(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dispatcher.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// flagsOf parses a command line.
func flagsOf(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	BindFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return flags
}

func mustLoad(t *testing.T, o Options) *Config {
	t.Helper()
	c, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWithoutAnythingTheDefaultsAreInForce(t *testing.T) {
	c := mustLoad(t, Options{})
	for _, s := range c.Settings() {
		if s.Origin != "default" {
			t.Errorf("%s comes from %s", s.Path, s.Origin)
		}
	}
	want := Default()
	want.origins = c.origins
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v, want %+v", c, want)
	}
	if len(c.Warnings()) != 0 {
		t.Errorf("the defaults give warnings: %v", c.Warnings())
	}
}

func TestFlagsWinOverEnvironmentOverFileOverDefault(t *testing.T) {
	path := fileWith(t, "listen: 127.0.0.1:1\ningress_listen: 127.0.0.1:2\nlimits:\n  in_flight: 10\n  per_subscriber: 4\nallow_private: [10.0.0.0/8]\n")
	env := []string{"DISPATCHER_LISTEN=127.0.0.1:3", "DISPATCHER_LIMITS_IN_FLIGHT=20", "DISPATCHER_ALLOW_PRIVATE=10.1.0.0/16,fd00::/8", "HOME=/"}
	c := mustLoad(t, Options{File: path, Environ: env, Flags: flagsOf(t, "--limits-in-flight=30", "--log-level", "debug")})
	if c.Listen != "127.0.0.1:3" || c.IngressListen != "127.0.0.1:2" || c.Limits.InFlight != 30 || c.Limits.PerSubscriber != 4 || c.Log.Level != "debug" {
		t.Errorf("got %+v", c)
	}
	if want := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8")}; !slices.Equal(c.AllowPrivate, want) {
		t.Errorf("allow_private is %v, want %v: the later list replaces the earlier", c.AllowPrivate, want)
	}
	for path, want := range map[string]string{
		"listen": "env DISPATCHER_LISTEN", "ingress_listen": path + ":2", "limits.in_flight": "flag --limits-in-flight",
		"limits.per_subscriber": path + ":5", "allow_private": "env DISPATCHER_ALLOW_PRIVATE", "data": "default",
	} {
		if got := c.Origin(path).String(); got != want {
			t.Errorf("%s comes from %q, want %q", path, got, want)
		}
	}
}

func TestTheFileIsFoundByFlagThenByEnvironment(t *testing.T) {
	byFlag, byEnv := fileWith(t, "node: flag"), fileWith(t, "node: env")
	env := []string{"DISPATCHER_CONFIG=" + byEnv}
	if c := mustLoad(t, Options{Environ: env, Flags: flagsOf(t, "--config", byFlag)}); c.Node != "flag" {
		t.Errorf("node is %s", c.Node)
	}
	if c := mustLoad(t, Options{Environ: env, Flags: flagsOf(t)}); c.Node != "env" {
		t.Errorf("node is %s", c.Node)
	}
	if c := mustLoad(t, Options{File: byFlag, Environ: env}); c.Node != "flag" {
		t.Errorf("node is %s", c.Node)
	}
	_, err := Load(Options{File: filepath.Join(t.TempDir(), "missing.yaml")})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("missing file: %v", err)
	}
	if _, err := Load(Options{File: t.TempDir()}); err == nil {
		t.Error("a directory was read as a file")
	}
	if _, err := Load(Options{File: fileWith(t, strings.Repeat("#", maxFile+1))}); err == nil || !strings.Contains(err.Error(), "256KiB") {
		t.Errorf("endless file: %v", err)
	}
}

// Every problem at once, each with its place: nobody likes to find them one by one.
func TestEveryProblemIsReportedAtOnce(t *testing.T) {
	path := fileWith(t, "limits:\n  in_flight: lots\n  inflight: 3\ntimeouts:\n  attempt: 15\nretention:\n  events: 7 days\n")
	_, err := Load(Options{
		File: path, Environ: []string{"DISPATCHER_LISTEN=8080", "DISPATCHER_STORAGE_CACHE=64M"}, Flags: flagsOf(t, "--ingress-tls-cert=c.pem"),
	})
	invalid, ok := errors.AsType[*InvalidError](err)
	if !ok {
		t.Fatalf("got %v", err)
	}
	want := []string{
		"limits.in_flight = lots (" + path + ":2): is not a whole number; write digits only, from 1 to 1000000",
		"limits.inflight (" + path + ":3): unknown key; did you mean limits.in_flight?",
		"timeouts.attempt = 15 (" + path + ":5): has no unit; write 15s for seconds, 15m for minutes, 15h for hours or 15d for days",
		"retention.events = 7 days (" + path + ":7): is not a duration; write one such as 500ms, 15s, 5m, 24h or 7d",
		"listen = 8080 (env DISPATCHER_LISTEN): is not host:port; write one such as 127.0.0.1:8080 or [::1]:8080",
		`storage.cache = 64M (env DISPATCHER_STORAGE_CACHE): the unit "M" may mean two sizes; write 64MiB (binary) or 64MB (decimal)`,
		"ingress.tls_cert = c.pem (flag --ingress-tls-cert): certificate and key come together; set ingress.tls_cert and ingress.tls_key",
	}
	var got []string
	for _, p := range invalid.Problems {
		got = append(got, p.Error())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if field, ok := errors.AsType[*FieldError](err); !ok || field.Field != "limits.in_flight" {
		t.Errorf("the first problem is %v", field)
	}
	for _, line := range want {
		if !strings.Contains(err.Error(), line) {
			t.Errorf("the error lacks %q", line)
		}
	}
}

func TestALaterSourceMendsAnEarlierOne(t *testing.T) {
	// The problem is still reported: the file stays wrong.
	path := fileWith(t, "limits:\n  in_flight: lots\n")
	_, err := Load(Options{File: path, Environ: []string{"DISPATCHER_LIMITS_IN_FLIGHT=5"}})
	if err == nil || !strings.Contains(err.Error(), ":2") {
		t.Errorf("got %v", err)
	}
}

func TestWhatSettingsSayTogetherIsChecked(t *testing.T) {
	for name, tc := range map[string]struct{ file, field, rule string }{
		"slow above all":            {"limits: {in_flight: 10, slow_in_flight: 11}", "limits.slow_in_flight", "above limits.in_flight"},
		"batch below event":         {"api: {max_payload: 10MiB, max_batch: 1MiB}", "api.max_batch", "below api.max_payload"},
		"breaker":                   {"breaker: {open_for: 1h}", "breaker.open_max", "below breaker.open_for"},
		"dial above attempt":        {"timeouts: {attempt: 5s, dial: 6s}", "timeouts.dial", "above timeouts.attempt"},
		"empty allowlist":           {"http3: allowlist", "http3", "http3_origins names none"},
		"qlog of nothing":           {"qlog: {dir: /tmp}", "qlog.dir", "qlog.origins names none"},
		"key without certificate":   {"ingress: {tls_key: k.pem}", "ingress.tls_cert", "come together"},
		"memory above body":         {"ingress: {max_body: 1MiB, memory_body: 2MiB}", "ingress.memory_body", "above ingress.max_body"},
		"spool below body":          {"ingress: {max_body: 20MiB, max_spool: 2MiB}", "ingress.max_spool", "below ingress.max_body"},
		"burst of nothing":          {"ingress: {tenant_burst: 5}", "ingress.tenant_burst", "no effect"},
		"control plane, no token":   {"ingress: {control_plane_url: https://c.example}", "ingress.control_plane_url", "come together"},
		"one port twice":            {"ingress_listen: 127.0.0.1:8080", "ingress_listen", "address of listen"},
		"all addresses and one":     {"metrics_listen: :8081", "metrics_listen", "address of ingress_listen"},
		"IPv4 prefix for NAT64":     {"nat64_prefixes: [10.0.0.0/32]", "nat64_prefixes", "not an IPv6 prefix"},
		"NAT64 of unknown length":   {"nat64_prefixes: [\"64:ff9b::/95\"]", "nat64_prefixes", "RFC 6052"},
		"client bound above node's": {"ingress: {max_connections: 10, max_connections_per_client: 11}", "ingress.max_connections_per_client", "above ingress.max_connections"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(Options{File: fileWith(t, tc.file)})
			invalid, ok := errors.AsType[*InvalidError](err)
			if !ok || len(invalid.Problems) != 1 {
				t.Fatalf("got %v, want one problem", err)
			}
			p := invalid.Problems[0]
			if p.Field != tc.field || !strings.Contains(p.Rule, tc.rule) || p.Mend == "" || p.Origin == "" {
				t.Errorf("got %+v, want %s: … %s …", p, tc.field, tc.rule)
			}
		})
	}
	mustLoad(t, Options{File: fileWith(t, "listen: 127.0.0.1:0\ningress_listen: 127.0.0.1:0\nmetrics_listen: off\n")})
	mustLoad(t, Options{File: fileWith(t, "timeouts: {attempt: 5s}")}) // the default dial is cut short by it
}

func TestWhatIsProbablyNotMeantGivesAWarning(t *testing.T) {
	for name, tc := range map[string]struct{ file, want string }{
		"API in the clear":        {"listen: 0.0.0.0:8080", "the API and its token can be read"},
		"ingress in the clear":    {"ingress_listen: :8081", "webhooks can be read"},
		"origins without a list":  {"http3_origins: [h.example]", "http3_origins has no effect"},
		"tenant above node":       {"limits: {in_flight: 10, per_tenant: 11}", "limits.per_tenant"},
		"short dedupe":            {"retention: {dedupe: 24h}", "retention.dedupe is 24h"},
		"QUIC idle for long":      {"timeouts: {idle_quic: 1m}", "timeouts.idle_quic is 1m"},
		"the whole private world": {"allow_private: [0.0.0.0/0]", "allow_private has 0.0.0.0/0"},
	} {
		t.Run(name, func(t *testing.T) {
			c := mustLoad(t, Options{File: fileWith(t, tc.file)})
			if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0], tc.want) {
				t.Errorf("got %q, want one with %q", w, tc.want)
			}
		})
	}
	c := mustLoad(t, Options{File: fileWith(t, "ingress_listen: :8081\ningress: {tls_cert: c, tls_key: k}")})
	if len(c.Warnings()) != 0 {
		t.Errorf("with TLS: %q", c.Warnings())
	}
}

func TestUnknownVariablesGiveAWarningNotAnError(t *testing.T) {
	c := mustLoad(t, Options{Environ: []string{
		"DISPATCHER_LISTENN=x", "DISPATCHER_WHATEVER=1", "DISPATCHER_CONFIG=", "DISPATCHER_ADDR=http://x", "DISPATCHERX=1",
		// What Kubernetes sets beside a service that is called dispatcher.
		"DISPATCHER_SERVICE_HOST=10.0.0.1", "DISPATCHER_SERVICE_PORT=80", "DISPATCHER_SERVICE_PORT_HTTP=80", "DISPATCHER_PORT=tcp://10.0.0.1:80",
		"DISPATCHER_PORT_80_TCP=tcp://10.0.0.1:80", "DISPATCHER_PORT_80_TCP_PROTO=tcp", "DISPATCHER_PORT_80_TCP_PORT=80", "DISPATCHER_PORT_80_TCP_ADDR=10.0.0.1",
	}})
	want := []string{
		"DISPATCHER_LISTENN is in the environment and is no setting; did you mean DISPATCHER_LISTEN?",
		"DISPATCHER_WHATEVER is in the environment and is no setting; remove it if it is meant for this program",
	}
	if got := c.Warnings(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestAnEmptyVariableCountsAsNotSet(t *testing.T) {
	c := mustLoad(t, Options{Environ: []string{"DISPATCHER_LISTEN=", "DISPATCHER_API_TOKEN="}})
	if c.Listen != Default().Listen || c.APIToken.IsSet() {
		t.Errorf("listen is %q, token set %v", c.Listen, c.APIToken.IsSet())
	}
}

func TestNoSettingHasANameThatKubernetesSets(t *testing.T) {
	for _, f := range Default().fields() {
		if serviceLinks.MatchString(f.env()) || slices.Contains(otherVariables, f.env()) {
			t.Errorf("%s is taken", f.env())
		}
	}
}

func TestFlagsCheckTheirValuesAtOnce(t *testing.T) {
	for _, args := range [][]string{
		{"--limits-in-flight=0"}, {"--http3=maybe"}, {"--allow-private=10.0.0.1/8"}, {"--listen=x"}, {"--allow-http=maybe"}, {"--shutdown-timeout=5"},
		{"--api-token=0123456789abcdef0123456789"}, // secrets are no flags
	} {
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		BindFlags(flags)
		if err := flags.Parse(args); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
	c := mustLoad(t, Options{Flags: flagsOf(t, "--allow-http", "--allow-private=10.0.0.0/8", "--allow-private", "fd00::/8,192.168.1.7", "--http3=25%", "--ingress-listen=off")})
	if !c.AllowHTTP || len(c.AllowPrivate) != 3 || c.HTTP3 != (HTTP3{HTTP3Percent, 25}) || c.IngressListen != "" {
		t.Errorf("got %+v", c)
	}
}

func TestHelpListsWhatIsSetOftenWithItsDefault(t *testing.T) {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	BindFlags(flags)
	help := flags.FlagUsages()
	for _, want := range []string{
		"--config string", "--data dir", `(default data)`, "--listen host:port", "--ingress-listen host:port", "--metrics-listen host:port",
		"--allow-private CIDR,…", "--allow-http", "--http3 on|off|N%|allowlist", "--log-level", "--api-token-file file", "--shutdown-timeout duration",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("help lacks %q:\n%s", want, help)
		}
	}
	if strings.Contains(help, "limits-in-flight") {
		t.Error("help lists everything")
	}
}

func TestFlagsOfOthersAreLeftAlone(t *testing.T) {
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	flags.Bool("json", false, "")
	flags.String("node", "", "not ours")
	if err := flags.Parse([]string{"--json", "--node=x"}); err != nil {
		t.Fatal(err)
	}
	if c := mustLoad(t, Options{Flags: flags}); c.Node != "node" {
		t.Errorf("node is %s", c.Node)
	}
}

const token = "a-token-of-the-operator-0123456789"

func TestSecretsAreReadFromFilesAndNeverShown(t *testing.T) {
	secretFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(secretFile, []byte(token+"\r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"in the file":        {File: fileWith(t, "api_token: "+token)},
		"named in the file":  {File: fileWith(t, "api_token_file: "+secretFile)},
		"in the environment": {Environ: []string{"DISPATCHER_API_TOKEN=" + token}},
		"named there":        {Environ: []string{"DISPATCHER_API_TOKEN_FILE=" + secretFile}},
		"named by a flag":    {Flags: flagsOf(t, "--api-token-file", secretFile)},
	} {
		t.Run(name, func(t *testing.T) {
			c := mustLoad(t, o)
			if c.APIToken.Reveal() != token {
				t.Fatalf("token is %q", c.APIToken.Reveal())
			}
			var out strings.Builder
			if err := c.Print(&out); err != nil {
				t.Fatal(err)
			}
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
				fmt.Fprintf(&out, verb, *c)
				fmt.Fprintf(&out, verb, c.APIToken)
			}
			fmt.Fprint(&out, c.Settings(), c.Warnings())
			if strings.Contains(out.String(), token) || !strings.Contains(out.String(), "***") {
				t.Errorf("shown: %s", out.String())
			}
		})
	}
}

func TestErrorsNeverShowASecret(t *testing.T) {
	for name, o := range map[string]Options{
		"short token":           {File: fileWith(t, "api_token: hunter2")},
		"token with a space":    {Environ: []string{"DISPATCHER_API_TOKEN=hunter2 hunter2 hunter2 hunter2"}},
		"list for a token":      {File: fileWith(t, "api_token: [hunter2, hunter2]")},
		"proxy":                 {Environ: []string{"DISPATCHER_EGRESS_PROXY=socks5://user:hunter2@proxy.example"}},
		"proxy that parses not": {Environ: []string{"DISPATCHER_EGRESS_PROXY=http://user:hunter2@proxy.example:x/"}},
		"redis":                 {File: fileWith(t, "redis: {url: \"http://:hunter2@redis.example\"}")},
		"broken YAML":           {File: fileWith(t, "api_token: hunter2\nlisten: 'x\n")},
		"secret as section":     {File: fileWith(t, "api_token: {hunter2: 1}")},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Load(o)
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestURLsAreShownWithoutWhatLetsIn(t *testing.T) {
	for raw, want := range map[string]string{
		"":                                     "",
		"http://proxy.example:3128":            "http://proxy.example:3128",
		"http://user:pass@proxy.example:3128/": "http://***@proxy.example:3128",
		"redis://:pass@redis.example:6379/2":   "redis://***@redis.example:6379/***",
		"unix:///run/redis.sock":               "***",
		"rediss://redis.example?token=pass":    "rediss://redis.example/***",
		"://":                                  "***",
	} {
		if got := maskURL(raw); got != want {
			t.Errorf("%q is shown as %q, want %q", raw, got, want)
		}
	}
}

func TestASecretInAFileForAllIsWarnedOf(t *testing.T) {
	path := fileWith(t, "api_token: "+token)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, Options{File: path})
	if w := c.Warnings(); len(w) != 1 || !strings.Contains(w[0], "0644") || !strings.Contains(w[0], "api_token_file") {
		t.Errorf("got %q", w)
	}
	path = fileWith(t, "listen: 127.0.0.1:1")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if c := mustLoad(t, Options{File: path}); len(c.Warnings()) != 0 {
		t.Errorf("without a secret: %q", c.Warnings())
	}
}

func TestUnusableSecretFilesSayWhy(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file",
		dir:                           "is a directory",
		write("empty", "\n"):          "is empty",
		write("huge", strings.Repeat("x", maxSecretFile+1)): "larger than any secret",
	} {
		_, err := Load(Options{Environ: []string{"DISPATCHER_API_TOKEN_FILE=" + path}})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "api_token_file") {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

func TestCheckFilesFindsWhatTheStartWould(t *testing.T) {
	c := mustLoad(t, Options{File: fileWith(t, "ingress: {tls_cert: /nowhere/c.pem, tls_key: /nowhere/k.pem}\ndata: /dev/null\nqlog: {dir: /nowhere/q, origins: [h.example]}")})
	err := c.CheckFiles()
	invalid, ok := errors.AsType[*InvalidError](err)
	if !ok || len(invalid.Problems) != 2 {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"ingress.tls_cert = /nowhere/c.pem", "data = /dev/null", "not a directory"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
	if err := mustLoad(t, Options{}).CheckFiles(); err != nil {
		t.Error(err)
	}
}

func TestDurationsReadByTheirOwnText(t *testing.T) {
	c := mustLoad(t, Options{File: fileWith(t, "retention: {events: 7d, dead_letters: 1d12h, dedupe: 96h}")})
	if c.Retention.Events != 7*day || c.Retention.DeadLetters != 36*time.Hour {
		t.Errorf("got %+v", c.Retention)
	}
}
