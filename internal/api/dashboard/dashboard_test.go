package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
	"github.com/dispatcher-engine/dispatcher/ingress"
	"github.com/dispatcher-engine/dispatcher/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// markup is what a stranger would put wherever he may write.
const markup = `"><img src=x onerror="alert(1)"><script>alert(2)</script>'`

// fakeNode is a node whose every text is a stranger's. Methods that no test needs
// panic through the nil interface.
type fakeNode struct {
	Node
	changed []string
	jobs    []engine.ReplayJob
	paces   []float64
	full    bool
}

func (f *fakeNode) Version() string                          { return "1.0.0" }
func (f *fakeNode) Ready() error                             { return errors.New("not ready: " + markup) }
func (f *fakeNode) InFlight() int                            { return 3 }
func (f *fakeNode) IngressURL() string                       { return "http://127.0.0.1:8081" }
func (f *fakeNode) Connections(delivery.Protocol) (int, int) { return 2, 1 }
func (f *fakeNode) Backlog() engine.Backlog {
	return engine.Backlog{At: time.Now(), Ready: 5, Dead: 7, Oldest: time.Now().Add(-time.Hour), Worst: []engine.TenantBacklog{{Tenant: markup, Waiting: 5}}}
}

func (f *fakeNode) GetTenant(_ context.Context, id string) (*delivery.Tenant, error) {
	return &delivery.Tenant{ID: id, Name: markup}, nil
}

func (f *fakeNode) ListTenants(context.Context, engine.Page) ([]*delivery.Tenant, string, error) {
	return []*delivery.Tenant{{ID: markup, Name: markup}}, markup, nil
}

func (f *fakeNode) sub() *delivery.Subscriber {
	return &delivery.Subscriber{
		ID: markup, URL: "https://user:hush@host.example/" + url.PathEscape(markup) + "?key=hush", Topics: []string{markup},
		Headers: map[string]string{"X-Key": "hush"}, Concurrency: 8,
		Signing: []delivery.SigningScheme{{Scheme: "standard", Secrets: []delivery.Secret{{Value: "whsec_hush"}}}},
	}
}

func (f *fakeNode) ListSubscribers(context.Context, string, engine.Page) ([]*delivery.Subscriber, string, error) {
	return []*delivery.Subscriber{f.sub()}, "", nil
}

func (f *fakeNode) GetSubscriber(context.Context, string, string) (*delivery.Subscriber, engine.SubscriberStatus, error) {
	return f.sub(), engine.SubscriberStatus{Breaker: "open", Waiting: delivery.ReasonBreakerOpen, Consecutive: 9}, nil
}

func (f *fakeNode) PauseSubscriber(context.Context, string, string) (*delivery.Subscriber, error) {
	f.changed = append(f.changed, "pause")
	return f.sub(), nil
}

func (f *fakeNode) RotateSecret(context.Context, string, string, engine.RotateInput) (*delivery.Subscriber, error) {
	f.changed = append(f.changed, "rotate")
	return f.sub(), nil
}

func (f *fakeNode) delivery() engine.DeliveryInfo {
	return engine.DeliveryInfo{
		ID: markup, Tenant: markup, Subscriber: markup, State: delivery.StateDead, Reason: delivery.ReasonRejected, Signature: markup,
		Event: &delivery.Event{ID: markup, Topic: markup, Size: 12, Payload: []byte("payload-hush")},
	}
}

func (f *fakeNode) ListDeliveries(context.Context, engine.DeliveryFilter, engine.Page) ([]engine.DeliveryInfo, string, error) {
	return []engine.DeliveryInfo{f.delivery()}, markup, nil
}

func (f *fakeNode) GetDelivery(context.Context, string) (engine.DeliveryInfo, []delivery.TimelineEntry, error) {
	begun := time.Now()
	return f.delivery(), []delivery.TimelineEntry{
		{At: begun, State: delivery.StateReceived, Note: markup},
		{At: begun, State: delivery.StateAttempted, Attempt: &delivery.Attempt{Number: 1, StartedAt: begun, EndedAt: begun.Add(time.Second), Result: delivery.Result{
			Status: 302, Location: "javascript:alert(1)" + markup, Detail: markup, Remote: markup, RaceLoser: markup, Body: []byte("answer-hush"),
			Phases: delivery.Phases{DNS: time.Millisecond, TLS: 2 * time.Millisecond, FirstByte: 3 * time.Millisecond, Total: 7 * time.Millisecond},
		}}},
	}, nil
}

func (f *fakeNode) DeadGroups(context.Context, engine.DeliveryFilter) (engine.DeadGroups, error) {
	return engine.DeadGroups{Seen: 3, Groups: []engine.DeadGroup{{
		Tenant: markup, Subscriber: markup, Signature: markup, Count: 3, Reason: delivery.ReasonRejected, Topics: []string{markup},
	}}}, nil
}

func (f *fakeNode) StartReplay(_ context.Context, filter engine.DeliveryFilter, perSecond float64) (engine.ReplayJob, error) {
	f.changed = append(f.changed, "replay")
	if f.full {
		return engine.ReplayJob{}, &engine.ConflictError{Field: "replays", Rule: "at most 100", Hint: "wait"}
	}
	f.paces = append(f.paces, perSecond)
	f.jobs = append(f.jobs, engine.ReplayJob{ID: "job", Filter: filter, State: engine.ReplayPending, CreatedAt: time.Now()})
	return f.jobs[len(f.jobs)-1], nil
}

// GetReplay knows one job in each state, named after it.
func (f *fakeNode) GetReplay(_ context.Context, id string) (engine.ReplayJob, error) {
	job := engine.ReplayJob{
		ID: markup, State: engine.ReplayState(id), Replayed: 30, PassedOver: 20, Total: 100, Counted: true, CreatedAt: time.Now(), EndedAt: time.Now(),
		Filter: engine.DeliveryFilter{Tenant: markup, Subscriber: markup, Signature: markup},
	}
	switch job.State {
	case engine.ReplayPending:
		job.Counted, job.Replayed, job.PassedOver, job.Total = false, 0, 0, 0
	case engine.ReplayFailed:
		job.Why = markup
	case engine.ReplayRunning, engine.ReplayDone, engine.ReplayCanceled:
	default:
		return job, engine.ErrNotFound
	}
	return job, nil
}

func (f *fakeNode) ListReplays(ctx context.Context, _ string, _ engine.Page) (jobs []engine.ReplayJob, next string, err error) {
	for _, state := range []string{"pending", "running", "done", "canceled", "failed"} {
		job, _ := f.GetReplay(ctx, state)
		jobs = append(jobs, job)
	}
	return jobs, "", nil
}

func (f *fakeNode) CancelReplay(_ context.Context, id string) (engine.ReplayJob, error) {
	f.changed = append(f.changed, "cancel "+id)
	return engine.ReplayJob{ID: id, State: engine.ReplayCanceled}, nil
}

func (f *fakeNode) Protocols(context.Context, engine.Page) ([]engine.ProtocolRow, string, error) {
	return []engine.ProtocolRow{{
		Route: delivery.Route{Origin: delivery.Origin{Scheme: "https", Host: markup, Port: 443}, Egress: markup}, HTTPSRecord: markup,
		Alternatives: []engine.AlternativeRow{{Authority: markup, Reason: markup}},
	}}, "", nil
}

func (f *fakeNode) ListSources(context.Context, string, engine.Page) ([]*engine.Source, string, error) {
	return []*engine.Source{{ID: markup, Config: &ingress.Source{DedupeHeader: markup, Destination: ingress.Destination{URL: "https://u:hush@h/" + url.PathEscape(markup)}}}}, "", nil
}

// rig is a dashboard with two tokens: "admin" may write, "read" may not.
type rig struct {
	*Dashboard
	t      *testing.T
	node   *fakeNode
	tokens map[string]Access
}

func newRig(t *testing.T, readOnly bool) *rig {
	t.Helper()
	r := &rig{t: t, node: &fakeNode{}, tokens: map[string]Access{"admin": {Write: true}, "read": {}}}
	d, err := New(r.node, Config{ReadOnly: readOnly, Activity: func() []telemetry.Totals { return nil }, Authenticate: func(token string) (Access, bool) {
		a, ok := r.tokens[token]
		return a, ok
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.Dashboard = d
	return r
}

func (r *rig) do(method, path, cookie string, form url.Values, headers ...string) *http.Response {
	r.t.Helper()
	req := httptest.NewRequestWithContext(r.t.Context(), method, "http://node.example"+path, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	if cookie != "" {
		req.AddCookie(&http.Cookie{Name: cookieName, Value: cookie}) //nolint:gosec // a request's cookie
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w.Result()
}

func (r *rig) signIn(token string) string {
	r.t.Helper()
	resp := r.do("POST", "/ui/login", "", url.Values{"token": {token}})
	if resp.StatusCode != http.StatusSeeOther || len(resp.Cookies()) != 1 {
		r.t.Fatalf("login: %d", resp.StatusCode)
	}
	return resp.Cookies()[0].Value
}

func text(resp *http.Response) string {
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

var pagePaths = []string{
	"/ui/", "/ui/live", "/ui/tenants", "/ui/tenants/t", "/ui/tenants/t/subscribers/s", "/ui/deliveries", "/ui/deliveries/d",
	"/ui/dlq", "/ui/dlq/replay?tenant=t", "/ui/dlq/replays/pending", "/ui/dlq/replays/running", "/ui/dlq/replays/done",
	"/ui/dlq/replays/canceled", "/ui/dlq/replays/failed", "/ui/protocols", "/ui/sources", "/ui/nowhere",
}

func TestNothingIsShownWithoutASession(t *testing.T) {
	r := newRig(t, false)
	for _, path := range pagePaths {
		for _, cookie := range []string{"", "made-up"} {
			resp := r.do("GET", path, cookie, nil)
			if resp.StatusCode != http.StatusSeeOther || !strings.HasPrefix(resp.Header.Get("Location"), "/ui/login") {
				t.Errorf("%s with cookie %q: %d to %q", path, cookie, resp.StatusCode, resp.Header.Get("Location"))
			}
		}
	}
	if resp := r.do("GET", "/ui/live", "", nil, "HX-Request", "true"); resp.StatusCode != 401 || resp.Header.Get("Hx-Redirect") != "/ui/login" {
		t.Errorf("a part of a page: %d", resp.StatusCode)
	}
}

func TestTheSessionCookieIsNobodyElses(t *testing.T) {
	r := newRig(t, false)
	for _, proto := range []string{"http", "https"} {
		resp := r.do("POST", "/ui/login", "", url.Values{"token": {"admin"}}, "X-Forwarded-Proto", proto)
		c := resp.Cookies()[0]
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure != (proto == "https") || c.Path != Root || len(c.Value) < 40 {
			t.Errorf("over %s: %v", proto, c)
		}
	}
	if resp := r.do("POST", "/ui/login", "", url.Values{"token": {"wrong"}}); resp.StatusCode != 401 || len(resp.Cookies()) != 0 {
		t.Errorf("a wrong token: %d, %v", resp.StatusCode, resp.Cookies())
	}
}

func TestARevokedTokenEndsItsSessions(t *testing.T) {
	r := newRig(t, false)
	cookie := r.signIn("admin")
	delete(r.tokens, "admin")
	if resp := r.do("GET", "/ui/tenants", cookie, nil); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("after the revocation: %d", resp.StatusCode)
	}
}

func TestSigningOutEndsTheSession(t *testing.T) {
	r := newRig(t, false)
	cookie := r.signIn("admin")
	r.do("POST", "/ui/logout", cookie, nil)
	if resp := r.do("GET", "/ui/tenants", cookie, nil); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("after signing out: %d", resp.StatusCode)
	}
}

func TestSessionsExpireAndAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSessions()
		var first *session
		for i := range maxSessions + 50 {
			n := s.start("token")
			if i == 0 {
				first = n
			}
		}
		if len(s.open) > maxSessions || len(s.order) != len(s.open) || s.open[first.id] != nil {
			t.Errorf("%d sessions are open, %d in order", len(s.open), len(s.order))
		}
		last := s.start("token")
		req := httptest.NewRequestWithContext(t.Context(), "GET", "/ui/", nil)
		req.AddCookie(&http.Cookie{Name: cookieName, Value: last.id}) //nolint:gosec // a request's cookie
		time.Sleep(sessionLife - time.Second)
		if s.of(req) == nil {
			t.Error("it ended too early")
		}
		time.Sleep(time.Second)
		if s.of(req) != nil {
			t.Error("it did not expire")
		}
	})
}

func TestGuessingTokensIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttempts()
		allowed := 0
		for range 100 {
			if a.allow("one") {
				allowed++
			}
		}
		if allowed != loginBurst || !a.allow("other") {
			t.Errorf("%d of 100 tries were allowed", allowed)
		}
		for i := range 3 * maxClients {
			a.allow(fmt.Sprint(i))
		}
		if len(a.clients) > maxClients {
			t.Errorf("%d clients are remembered", len(a.clients))
		}
	})
}

func TestAfterTheLoginOnlyAPageOfTheDashboardFollows(t *testing.T) {
	for _, next := range []string{"", "https://evil.example/ui/", "//evil.example/ui/", "/ui/../..//evil", "/\\evil.example", "javascript:alert(1)", "/v1/tenants", "/ui/login"} {
		if got := localPath(next); !strings.HasPrefix(got, Root) || strings.Contains(got, "login") {
			t.Errorf("%q leads to %q", next, got)
		}
	}
	if got := localPath("/ui/dlq?tenant=a%20b"); got != "/ui/dlq?tenant=a%20b" {
		t.Errorf("the page that was asked for became %q", got)
	}
}

func TestOtherSitesCannotActForAnOperator(t *testing.T) {
	r := newRig(t, false)
	cookie := r.signIn("admin")
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://evil.example"}, {"Origin", "null"}} {
		resp := r.do("POST", "/ui/tenants/t/subscribers/s/pause", cookie, nil, headers...)
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("%v: %d", headers, resp.StatusCode)
		}
	}
	if len(r.node.changed) != 0 {
		t.Errorf("other sites did %v", r.node.changed)
	}
	if resp := r.do("POST", "/ui/tenants/t/subscribers/s/pause", cookie, nil, "Origin", "http://node.example"); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("the dashboard's own form: %d", resp.StatusCode)
	}
}

func TestReadOnlySessionsChangeNothing(t *testing.T) {
	for name, c := range map[string]struct {
		token    string
		readOnly bool
	}{"a token that may only look": {"read", false}, "a node that is read-only": {"admin", true}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c.readOnly)
			cookie := r.signIn(c.token)
			for _, path := range []string{
				"/ui/tenants/t/subscribers/s/pause", "/ui/tenants/t/subscribers/s/resume", "/ui/tenants/t/subscribers/s/test",
				"/ui/tenants/t/subscribers/s/rotate", "/ui/deliveries/d/replay", "/ui/dlq/replay", "/ui/dlq/replays/1/stop",
				"/ui/protocols/h:443/pin", "/ui/protocols/h:443/forget", "/ui/protocols/h:443/probe",
			} {
				if resp := r.do("POST", path, cookie, url.Values{"tenant": {"t"}}); resp.StatusCode != http.StatusForbidden {
					t.Errorf("%s: %d", path, resp.StatusCode)
				}
			}
			if len(r.node.changed) != 0 {
				t.Errorf("it did %v", r.node.changed)
			}
			for _, path := range []string{"/ui/tenants/t/subscribers/s", "/ui/protocols", "/ui/dlq", "/ui/deliveries/d"} {
				page := text(r.do("GET", path, cookie, nil))
				if n := strings.Count(page, `method="post"`); n != 1 { // signing out
					t.Errorf("%s offers %d forms that would be refused", path, n-1)
				}
			}
		})
	}
}

// TestSessionsFollowANodeThatBecomesReadOnly: whoever is signed in already may no
// longer change anything, and may again when the node is not read-only any more.
func TestSessionsFollowANodeThatBecomesReadOnly(t *testing.T) {
	r := newRig(t, false)
	cookie := r.signIn("admin")
	for _, step := range []struct {
		readOnly bool
		want     int
	}{{true, http.StatusForbidden}, {false, http.StatusSeeOther}} {
		r.SetReadOnly(step.readOnly)
		if resp := r.do("POST", "/ui/tenants/t/subscribers/s/pause", cookie, nil); resp.StatusCode != step.want {
			t.Errorf("read-only %v: %d", step.readOnly, resp.StatusCode)
		}
	}
	if len(r.node.changed) != 1 {
		t.Errorf("it did %v", r.node.changed)
	}
}

func TestEveryAnswerCarriesThePolicy(t *testing.T) {
	r := newRig(t, false)
	cookie := r.signIn("admin")
	for _, path := range append(pagePaths, "/ui/login", "/ui/assets/x/y") {
		h := r.do("GET", path, cookie, nil).Header
		csp := h.Get("Content-Security-Policy")
		if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
		for name, want := range map[string]string{"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store"} {
			if h.Get(name) != want {
				t.Errorf("%s: %s is %q", path, name, h.Get(name))
			}
		}
	}
}

// inline is what the policy would block, and what escaping must prevent.
var inline = regexp.MustCompile(`(?i)<script(?: [^>]*)?>[^<]|<img|<[a-z]+(?:\s+[a-z-]+(?:="[^"]*"|='[^']*')?)*\s+(?:style|on[a-z]+)=|href="javascript`)

func TestStrangersTextsAreEscapedAndSecretsAreNotShown(t *testing.T) {
	r := newRig(t, false)
	cookie := r.signIn("admin")
	q := url.QueryEscape(markup)
	paths := append(pagePaths, "/ui/deliveries?tenant="+q+"&subscriber="+q+"&topic="+q+"&signature="+q+"&since="+q, "/ui/dlq?tenant="+q+"&topic="+q, "/ui/sources?tenant="+q)
	for _, path := range paths {
		page := text(r.do("GET", path, cookie, nil))
		if found := inline.FindString(page); found != "" {
			t.Errorf("%s: %q", path, found)
		}
		if strings.Contains(page, "hush") {
			t.Errorf("%s shows a secret or a body", path)
		}
	}
	if page := text(r.do("GET", "/ui/login?next="+q, "", nil)); inline.MatchString(page) {
		t.Errorf("login: %q", inline.FindString(page))
	}
}

func TestARotatedSecretIsShownByOneAnswer(t *testing.T) {
	r := newRig(t, false)
	cookie := r.signIn("admin")
	resp := r.do("POST", "/ui/tenants/t/subscribers/s/rotate", cookie, url.Values{"scheme": {"standard"}})
	if page := text(resp); resp.StatusCode != 200 || strings.Count(page, "whsec_hush") != 1 || resp.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d, shown %d times", resp.StatusCode, strings.Count(page, "whsec_hush"))
	}
	if strings.Contains(text(r.do("GET", "/ui/tenants/t/subscribers/s", cookie, nil)), "whsec_hush") {
		t.Error("the next page shows it again")
	}
}

func TestAReplayIsMadeShownInEveryStateAndStopped(t *testing.T) {
	r := newRig(t, false)
	cookie := r.signIn("admin")
	resp := r.do("POST", "/ui/dlq/replay", cookie, url.Values{"tenant": {"t"}, "signature": {"s"}, "per_second": {"2.5"}})
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/ui/dlq/replays/job" {
		t.Fatalf("start: %d, %q", resp.StatusCode, resp.Header.Get("Location"))
	}
	if got := r.node.jobs[0].Filter; got.Tenant != "t" || got.Signature != "s" || r.node.paces[0] != 2.5 {
		t.Errorf("it started %+v at %v a second", got, r.node.paces)
	}
	for state, c := range map[string]struct {
		says   string
		goesOn bool
		width  string
		counts bool
	}{
		"pending":  {says: "Waits for its turn", goesOn: true, width: `width="0.0"`},
		"running":  {says: "Under way", goesOn: true, width: `width="50.0"`, counts: true},
		"done":     {says: "Done in", width: `width="100.0"`, counts: true},
		"canceled": {says: "Stopped after", width: `width="50.0"`, counts: true},
		"failed":   {says: "Failed after", width: `width="50.0"`, counts: true},
	} {
		page := text(r.do("GET", "/ui/dlq/replays/"+state, cookie, nil, "Hx-Request", "true"))
		if !strings.Contains(page, c.says) || !strings.Contains(page, c.width) || strings.Contains(page, "of 100 replayed") != c.counts {
			t.Errorf("%s: %s", state, page)
		}
		if strings.Contains(page, "hx-get") != c.goesOn || strings.Contains(page, ">Stop<") != c.goesOn {
			t.Errorf("%s: it asks again, or offers a stop, where it should not: %s", state, page)
		}
	}
	if resp := r.do("POST", "/ui/dlq/replays/running/stop", cookie, nil); resp.StatusCode != http.StatusSeeOther {
		t.Errorf("stop: %d", resp.StatusCode)
	}
	if got := r.node.changed[len(r.node.changed)-1]; got != "cancel running" {
		t.Errorf("the node was asked to %s", got)
	}
	if resp := r.do("GET", "/ui/dlq/replays/never", cookie, nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("one that never was: %d", resp.StatusCode)
	}
	for name, form := range map[string]url.Values{"no tenant": {}, "a pace that is none": {"tenant": {"t"}, "per_second": {"NaN"}}} {
		if resp := r.do("POST", "/ui/dlq/replay", cookie, form); resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
	r.node.full = true
	if resp := r.do("POST", "/ui/dlq/replay", cookie, url.Values{"tenant": {"t"}}); resp.StatusCode != http.StatusConflict {
		t.Errorf("one too many: %d", resp.StatusCode)
	}
}

func TestFiguresAreRatesAndPercentilesOfTheReadings(t *testing.T) {
	at := time.Unix(1000, 0)
	buckets := len(telemetry.LatencyBounds()) + 1
	var samples []telemetry.Totals
	for i := range 20 {
		latency := make([]uint64, buckets)
		latency[3] = uint64(90 * i) // 5 to 10 ms
		latency[8] = uint64(10 * i) // 250 to 500 ms
		samples = append(samples, telemetry.Totals{At: at.Add(time.Duration(i) * 5 * time.Second), Published: uint64(100 * i), Latency: latency})
	}
	a := newActivity(samples)
	if rate, ok := a.rate(publishedOf); !ok || rate != 20 {
		t.Errorf("rate %v", rate)
	}
	first, last := a.first(), a.last()
	p50, _ := a.quantile(0.5, &first, &last)
	p99, _ := a.quantile(0.99, &first, &last)
	if p50 < 5*time.Millisecond || p50 > 10*time.Millisecond || p99 < 250*time.Millisecond || p99 > 500*time.Millisecond {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
	if s := newSpark(a.series(publishedOf), a.axis(), 0, ""); !strings.HasPrefix(s.Line, "M") || strings.Contains(s.Line, "NaN") {
		t.Errorf("drawn %q", s.Line)
	}
	if newSpark(nil, window, 0, "").Line != "" || percent(999_999, 1_000_000) == "100 %" {
		t.Error("nothing is drawn as something, or nearly all as all")
	}
}
