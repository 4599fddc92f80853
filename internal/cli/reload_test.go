package cli

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/internal/config"
)

// TestEveryLiveSettingIsTakenOverAndNoOther holds the marks in internal/config against
// what this package does.
func TestEveryLiveSettingIsTakenOverAndNoOther(t *testing.T) {
	var taken []string
	for _, x := range takeovers {
		taken = append(taken, x.paths...)
	}
	slices.Sort(taken)
	live := config.Live()
	slices.Sort(live)
	if !slices.Equal(taken, live) {
		t.Errorf("taken over %q\nmarked live %q", taken, live)
	}
}

// reloading is a node made as serve makes it, and the configuration it reads again.
type reloading struct {
	*reloader
	next *config.Config
	log  bytes.Buffer
}

func startReloading(t *testing.T) *reloading {
	t.Helper()
	base, err := config.Load(config.Options{Environ: []string{
		"DISPATCHER_DATA=" + t.TempDir(), "DISPATCHER_LISTEN=127.0.0.1:0", "DISPATCHER_INGRESS_LISTEN=off",
		"DISPATCHER_STORAGE_MIN_FREE=0", "DISPATCHER_API_TOKEN=first-token-0123456789",
	}})
	if err != nil {
		t.Fatal(err)
	}
	x := &reloading{next: base.Clone()}
	x.reloader = &reloader{running: base, level: new(slog.LevelVar), logger: slog.New(slog.NewTextHandler(&x.log, nil))}
	x.read = func() (*config.Config, error) { return x.next.Clone(), nil }
	if x.node, err = startNode(t.Context(), assemble(base, "test", slog.New(slog.DiscardHandler))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stopWithin(t.Context(), x.node, 20*time.Second); err != nil {
			t.Error(err)
		}
	})
	return x
}

func (x *reloading) subscribe(t *testing.T, id, url string) (concurrency int, timeout time.Duration, err error) {
	t.Helper()
	s, err := x.node.engine.CreateSubscriber(t.Context(), "t", engine.SubscriberInput{ID: &id, URL: &url})
	if err != nil {
		return 0, 0, err
	}
	return s.Concurrency, s.Timeout, nil
}

func (x *reloading) status(t *testing.T, token string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, x.node.url()+"/v1/tokens/self", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read only
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// TestRunningNodeObeysWhatItTookOver changes settings under a node that serves.
func TestRunningNodeObeysWhatItTookOver(t *testing.T) {
	x := startReloading(t)
	if _, _, err := x.node.engine.PutTenant(t.Context(), "t", engine.TenantInput{}); err != nil {
		t.Fatal(err)
	}
	const private = "https://10.1.2.3/"
	if _, _, err := x.subscribe(t, "early", private); err == nil {
		t.Fatal("a private address is taken by default")
	}
	set := func(texts map[string]string) {
		t.Helper()
		environ := []string{}
		for path, text := range texts {
			environ = append(environ, "DISPATCHER_"+strings.ToUpper(strings.ReplaceAll(path, ".", "_"))+"="+text)
		}
		loaded, err := config.Load(config.Options{Environ: environ})
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for path := range texts {
			paths = append(paths, path)
		}
		x.next.Take(loaded, paths)
		x.reload()
	}
	set(map[string]string{
		"log.level": "debug", "api_token": "second-token-0123456789", "allow_private": "10.0.0.0/8",
		"limits.per_subscriber": "3", "timeouts.attempt": "20s", "limits.per_tenant": "5", "http3": "off",
		"shutdown_delay": "7s", "storage.cache": "64MiB",
	})
	if x.level.Level() != slog.LevelDebug || x.shutdownDelay() != 7*time.Second {
		t.Errorf("level %v, delay %v", x.level.Level(), x.shutdownDelay())
	}
	if x.status(t, "first-token-0123456789") != http.StatusUnauthorized || x.status(t, "second-token-0123456789") != http.StatusOK {
		t.Error("the token was not taken over")
	}
	if concurrency, timeout, err := x.subscribe(t, "s", private); err != nil || concurrency != 3 || timeout != 20*time.Second {
		t.Errorf("a new subscriber has %d, %v, %v", concurrency, timeout, err)
	}
	if made, _, err := x.node.engine.PutTenant(t.Context(), "u", engine.TenantInput{}); err != nil || made.MaxShare != 5 {
		t.Errorf("a new tenant: %+v %v", made, err)
	}
	if log := x.log.String(); !strings.Contains(log, "needs_restart=[storage.cache]") || strings.Contains(log, "second-token") {
		t.Errorf("log: %s", log)
	}
	set(map[string]string{"egress.deny": "10.1.0.0/16", "allow_http": "true"})
	if _, _, err := x.subscribe(t, "denied", private); err == nil {
		t.Error("a denied range is taken")
	}
	if _, _, err := x.subscribe(t, "plain", "http://10.2.0.1/"); err != nil {
		t.Errorf("http: %v", err)
	}
}

// TestRunningNodeJudgesHostsByWhatItTookOver: behind NAT64, and without a dot.
func TestRunningNodeJudgesHostsByWhatItTookOver(t *testing.T) {
	x := startReloading(t)
	if _, _, err := x.node.engine.PutTenant(t.Context(), "t", engine.TenantInput{}); err != nil {
		t.Fatal(err)
	}
	change := func(f func(c *config.Config)) {
		f(x.next)
		x.reload()
	}
	taken := func(id, url string, want bool) {
		t.Helper()
		if _, _, err := x.subscribe(t, id, url); want != (err == nil) {
			t.Errorf("%s: %v", url, err)
		}
	}
	const throughNAT64, inNetwork = "https://[2001:db8:64::a00:1]/", "https://receiver/" // 10.0.0.1 behind a gateway
	change(func(c *config.Config) { c.AllowPrivate = []netip.Prefix{netip.MustParsePrefix("2001:db8::/32")} })
	taken("translated-1", throughNAT64, true)
	taken("short-1", inNetwork, false)
	change(func(c *config.Config) {
		c.NAT64Prefixes = []netip.Prefix{netip.MustParsePrefix("2001:db8:64::/96")}
		c.Egress.SingleLabelHosts = true
	})
	taken("translated-2", throughNAT64, false)
	taken("short-2", inNetwork, true)
}

// TestConfigurationIsTakenOverWholeOrNotAtAll: one setting that cannot be taken over
// keeps all others as they were.
func TestConfigurationIsTakenOverWholeOrNotAtAll(t *testing.T) {
	x := startReloading(t)
	x.running.Data = "\x00" // where its own token cannot be read
	x.next.Data = x.running.Data
	x.next.APIToken, x.next.Log.Level, x.next.AllowHTTP = config.Secret{}, "debug", true
	x.reload()
	if x.level.Level() != slog.LevelInfo || x.running.Log.Level != "info" || x.running.AllowHTTP {
		t.Errorf("taken over by half: %v", x.running.Log.Level)
	}
	if !strings.Contains(x.log.String(), "configuration_not_reloaded") {
		t.Errorf("log: %s", x.log.String())
	}
}

// TestTokenOfAnotherControlPlaneWaitsForIt: it must not be sent to the last one.
func TestTokenOfAnotherControlPlaneWaitsForIt(t *testing.T) {
	r := &reloader{}
	if !r.bound("ingress.control_plane_token", []string{"ingress.control_plane_url", "ingress.control_plane_token"}) ||
		r.bound("ingress.control_plane_token", []string{"ingress.control_plane_token"}) {
		t.Error("the token goes where it must not, or never")
	}
}
