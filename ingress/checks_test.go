package ingress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// trial is a request that is wrong from one check on: everything that later
// checks look at is wrong as well, so that the order shows.
type trial struct {
	outcome Outcome
	status  int
	// prepare makes the request wrong in one more way. Trials are in reverse order
	// of the checks, and each keeps the faults of those before it.
	prepare func(t *testing.T, n *node, r *http.Request)
	// What has been paid for when it ends.
	lookedUp, ready, read, enqueued bool
}

// TestEveryCheckEndsTheRequestBeforeLaterOnesCostAnything makes a request that
// fails everywhere, and mends it from the first check on.
func TestEveryCheckEndsTheRequestBeforeLaterOnesCostAnything(t *testing.T) {
	trials := []trial{
		{
			outcome: OutcomeStoreFailed, status: 503, lookedUp: true, ready: true, read: true, enqueued: true,
			prepare: func(_ *testing.T, n *node, _ *http.Request) { n.store.setFail(errDown) },
		},
		{
			outcome: OutcomeOverQuota, status: 429, lookedUp: true, ready: true, read: true,
			prepare: func(t *testing.T, n *node, _ *http.Request) {
				if _, err := n.in.quota.Reserve(t.Context(), QuotaKey{"acme", "trial"}, delivery.RateLimit{PerSecond: 0.001, Burst: 1}); err != nil {
					t.Fatal(err)
				}
			},
		},
		{
			outcome: OutcomeMismatch, status: 401, lookedUp: true, ready: true, read: true,
			prepare: func(t *testing.T, _ *node, r *http.Request) {
				maps.Copy(r.Header, signed(t, signing.Standard, vectorSecond, "msg_1", nil, time.Now()))
			},
		},
		{
			outcome: OutcomeTooLarge, status: 413, lookedUp: true, ready: true, read: true,
			prepare: func(_ *testing.T, _ *node, r *http.Request) {
				r.Body = &countingBody{r: strings.NewReader(strings.Repeat("x", 2000))}
				r.ContentLength = -1
			},
		},
		{
			outcome: OutcomeTimestamp, status: 401, lookedUp: true, ready: true,
			prepare: func(t *testing.T, _ *node, r *http.Request) { r.Header.Set("Webhook-Timestamp", "1") },
		},
		{
			outcome: OutcomeMalformed, status: 401, lookedUp: true, ready: true,
			prepare: func(_ *testing.T, _ *node, r *http.Request) { r.Header.Set("Webhook-Timestamp", "soon") },
		},
		{
			outcome: OutcomeMissingSignature, status: 401, lookedUp: true, ready: true,
			prepare: func(_ *testing.T, _ *node, r *http.Request) { r.Header.Del("Webhook-Signature") },
		},
		{
			outcome: OutcomeNotReady, status: 503, lookedUp: true, ready: true,
			prepare: func(_ *testing.T, n *node, _ *http.Request) { n.store.setReady(errDown) },
		},
		{
			outcome: OutcomeAddress, status: 403, lookedUp: true,
			prepare: func(_ *testing.T, _ *node, r *http.Request) { r.RemoteAddr = "198.51.100.9:1" },
		},
		{
			outcome: OutcomeContentEncoding, status: 415, lookedUp: true,
			prepare: func(_ *testing.T, _ *node, r *http.Request) { r.Header.Set("Content-Encoding", "br") },
		},
		{
			outcome: OutcomeContentType, status: 415, lookedUp: true,
			prepare: func(_ *testing.T, _ *node, r *http.Request) { r.Header.Set("Content-Type", "text/html") },
		},
		{
			outcome: OutcomeTooLarge, status: 413, lookedUp: true,
			prepare: func(_ *testing.T, _ *node, r *http.Request) { r.ContentLength = 1001 },
		},
		{
			outcome: OutcomeUnknownSource, status: 404, lookedUp: true,
			prepare: func(_ *testing.T, _ *node, r *http.Request) { r.URL.Path = "/webhook/acme/nobody" },
		},
		{
			outcome: OutcomeThrottled, status: 429,
			prepare: func(_ *testing.T, n *node, r *http.Request) {
				for range 60 {
					n.in.failures.charge("acme", clientAddr(r, nil), time.Now())
				}
			},
		},
		{
			outcome: OutcomeDeclaredTooLarge, status: 413,
			prepare: func(_ *testing.T, _ *node, r *http.Request) { r.ContentLength = nodeMaxBody + 1 },
		},
		{
			outcome: OutcomePath, status: 404,
			prepare: func(_ *testing.T, _ *node, r *http.Request) { r.URL.Path = "/webhook/acme/nobody/else" },
		},
		{
			outcome: OutcomeMethod, status: 405,
			prepare: func(_ *testing.T, _ *node, r *http.Request) { r.Method = http.MethodPut },
		},
	}
	for i, trial := range trials {
		t.Run(fmt.Sprintf("%02d %v", len(trials)-i, trial.outcome), func(t *testing.T) { trial.run(t, trials[:i+1]) })
	}
}

func (tr trial) run(t *testing.T, faults []trial) {
	n := setup(t, Config{})
	n.sources.set("acme", "trial", &Source{
		Scheme: signing.Standard, Secrets: signing.Secrets(vectorStandard), Destination: Destination{Type: DestinationFanOut},
		MaxBody: 1000, ContentTypes: []string{"application/json"}, AllowIPs: []string{"192.0.2.0/24"},
		RateLimit: &RateLimit{PerSecond: 0.001, Burst: 1}, RejectOverQuota: true,
	})
	body := []byte(`{"type":"order.created"}`)
	r := request("trial", genuine(t, "msg_1", body), bytes.NewReader(body))
	r.Body = &countingBody{r: bytes.NewReader(body)}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	for _, fault := range faults {
		fault.prepare(t, n, r)
	}
	counted := r.Body.(*countingBody)
	w := n.serve(r)
	n.expect(w, tr.status, tr.outcome)
	if got := n.count(tr.outcome); got != 1 {
		t.Errorf("counted %d times", got)
	}
	paid := [...]struct {
		what      string
		got, want bool
	}{
		{"source looked up", n.sources.count() > 0, tr.lookedUp},
		{"store asked", n.store.asked.Load() > 0, tr.ready},
		{"body read", counted.read.Load() > 0, tr.read},
		{"enqueued", n.store.enqueue.Load() > 0, tr.enqueued},
	}
	for _, p := range paid {
		if p.got != p.want {
			t.Errorf("%s: %v, want %v", p.what, p.got, p.want)
		}
	}
	assertRefusal(t, w, tr.outcome)
}

// assertRefusal checks the form of an answer that is not 2xx.
func assertRefusal(t *testing.T, w *httptest.ResponseRecorder, o Outcome) {
	t.Helper()
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q", got)
	}
	if a := answerOf(t, w); a.Reason != o.String() || a.Detail == "" {
		t.Errorf("answer %+v", a)
	}
	wantRetry := w.Code == http.StatusServiceUnavailable || w.Code == http.StatusTooManyRequests
	if got := w.Header().Get("Retry-After"); (got != "") != wantRetry {
		t.Errorf("Retry-After %q at %d", got, w.Code)
	}
	if got := w.Header().Get("Allow"); (got == "POST") != (w.Code == http.StatusMethodNotAllowed) {
		t.Errorf("Allow %q at %d", got, w.Code)
	}
	if w.Code == http.StatusServiceUnavailable && w.Header().Get("Retry-After") != "30" {
		t.Errorf("Retry-After %q, want 30", w.Header().Get("Retry-After"))
	}
}

func TestOutcomesAreAClosedListWithNameAndStatus(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range Outcomes() {
		if o.String() == "" || seen[o.String()] || o.Status() < 200 || http.StatusText(o.Status()) == "" {
			t.Errorf("outcome %d: %q, %d", o, o, o.Status())
		}
		seen[o.String()] = true
		if o.Stored() != (o.Status() < 300 && o != OutcomeHandshake) {
			t.Errorf("%v: 2xx and stored differ", o)
		}
	}
	if len(seen) != int(outcomeEnd)-1 || Outcome(200).String() != "invalid" || Outcome(200).Status() != 500 {
		t.Errorf("%d outcomes", len(seen))
	}
}

func TestOnlyTheExactPathIsServed(t *testing.T) {
	n := setup(t, Config{})
	for _, path := range []string{
		"/", "/webhook", "/webhook/", "/webhook/acme", "/webhook/acme/", "/webhook//github", "/webhook/acme/github/",
		"/webhook/acme/github/x", "/webhook/ac.me/github", "/webhook/acme/git%20hub", "/webhook/acme/..", "/Webhook/acme/github",
		"/x/webhook/acme/github", "/webhook/acme%2Fgithub/x", "/webhook/" + strings.Repeat("a", 129) + "/github", "//webhook/acme/github",
	} {
		r := httptest.NewRequest(http.MethodPost, "http://edge.test/", nil)
		u, err := r.URL.Parse("http://edge.test" + path)
		if err != nil {
			t.Fatal(err)
		}
		r.URL = u
		if w := n.serve(r); w.Code != http.StatusNotFound || n.last().Outcome != OutcomePath {
			t.Errorf("%s: %d, %v", path, w.Code, n.last().Outcome)
		}
	}
	if n.sources.count() != 0 {
		t.Error("a path that cannot exist was looked up")
	}
}

func TestGenuineEventIsBufferedWithEverythingThatGoesOn(t *testing.T) {
	n := setup(t, Config{})
	n.sources.set("acme", "gh", &Source{
		Scheme: signing.GitHub, Secrets: signing.Secrets(vectorSecret), Destination: Destination{Type: DestinationOrigin, URL: "https://origin.test/in"},
		ForwardHeaders: []string{"x-github-event", "X-GitHub-Hook-ID", "X-Missing"}, DedupeBody: true,
	})
	h := signed(t, signing.GitHub, vectorSecret, "", vectorBody, time.Now())
	h.Set("X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
	h.Set("X-GitHub-Event", "pull_request")
	h.Set("X-GitHub-Hook-ID", "7")
	h.Set("Cookie", "session=1")
	h.Set("Content-Type", "application/json")
	before := time.Now()
	w := n.post("gh", h, vectorBody)
	n.expect(w, http.StatusAccepted, OutcomeBuffered)
	const id = "gh:72d3162e-cc78-11e3-81ab-4c9367dc0958"
	if a := answerOf(t, w); a.Status != "buffered" || a.ID != id {
		t.Errorf("answer %+v", a)
	}
	rows := n.store.stored()
	if len(rows) != 1 {
		t.Fatalf("%d rows", len(rows))
	}
	got := rows[0]
	want := []Header{{"X-Github-Event", "pull_request"}, {"X-Github-Hook-Id", "7"}}
	if got.ID != id || got.Topic != "gh.pull_request" || got.Tenant != "acme" || got.Source != "gh" || got.ContentType != "application/json" ||
		got.Destination.URL != "https://origin.test/in" || !got.DedupeBody || !bytes.Equal(got.stored, vectorBody) || got.Digest != got.digest {
		t.Errorf("message %+v", got)
	}
	if fmt.Sprint(got.Headers) != fmt.Sprint(want) {
		t.Errorf("headers %v, want %v", got.Headers, want)
	}
	if got.ReceivedAt.Before(before) || !got.NotBefore.IsZero() {
		t.Errorf("received at %v, not before %v", got.ReceivedAt, got.NotBefore)
	}
}

func TestEverySchemeIsAcceptedAndNamesItsEvent(t *testing.T) {
	n := setup(t, Config{})
	form := []byte("MessageSid=SM1&MessageStatus=delivered")
	for _, c := range []struct {
		source, secret, id, body, wantID, topic string
		scheme                                  signing.Scheme
		header                                  [2]string
	}{
		{source: "standard", scheme: signing.Standard, secret: vectorStandard, id: "msg_9", body: `{"type":"a.b"}`, wantID: "standard:msg_9", topic: "standard.a.b"},
		{source: "ed25519", scheme: signing.StandardEd25519, secret: vectorSeed, id: "msg_9", body: `{"type":"a.b"}`, wantID: "ed25519:msg_9", topic: "ed25519.a.b"},
		{source: "stripe", scheme: signing.Stripe, secret: vectorStripe, body: `{"id":"evt_1","type":"charge.paid"}`, wantID: "stripe:evt_1", topic: "stripe.charge.paid"},
		{source: "shopify", scheme: signing.Shopify, secret: vectorSecret, body: `{}`, wantID: "shopify:b1", topic: "shopify.unknown", header: [2]string{"X-Shopify-Webhook-Id", "b1"}},
		{source: "slack", scheme: signing.Slack, secret: vectorSlack, body: `{"event_id":"Ev1","type":"event_callback","event":{"type":"message"}}`, wantID: "slack:Ev1", topic: "slack.message"},
		{source: "discord", scheme: signing.Discord, secret: vectorSeed, body: `{"id":"99","type":2}`, wantID: "discord:99", topic: "discord.interaction.application_command"},
		{source: "telnyx", scheme: signing.Telnyx, secret: vectorSeed, body: `{"data":{"id":"t-1","event_type":"call.hangup"}}`, wantID: "telnyx:t-1", topic: "telnyx.call.hangup"},
		{source: "twilio", scheme: signing.Twilio, secret: vectorSecret, body: string(form), wantID: "twilio:tok", topic: "twilio.message.delivered", header: [2]string{"I-Twilio-Idempotency-Token", "tok"}},
		{source: "hex", scheme: signing.HMACHex, secret: vectorSecret, body: `x`, wantID: "hex:e.1", topic: "hex.unknown", header: [2]string{"X-Event-ID", "e.1"}},
		{source: "base64", scheme: signing.HMACBase64, secret: vectorSecret, body: `x`, wantID: "base64:e1", topic: "base64.unknown", header: [2]string{"X-Event-ID", "e1"}},
	} {
		body := []byte(c.body)
		h := signed(t, c.scheme, c.secret, c.id, body, time.Now())
		if c.header[0] != "" {
			h.Set(c.header[0], c.header[1])
		}
		if c.scheme == signing.Twilio {
			h.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		w := n.post(c.source, h, body)
		n.expect(w, http.StatusAccepted, OutcomeBuffered)
		rows := n.store.stored()
		got := rows[len(rows)-1]
		wantID := c.wantID
		if strings.ContainsRune(wantID, '.') { // no event id may have a dot
			wantID = eventID(c.source, strings.TrimPrefix(wantID, c.source+":"))
		}
		if got.ID != wantID || got.Topic != c.topic || delivery.CheckEventID(got.ID) != nil || !bytes.Equal(got.stored, body) {
			t.Errorf("%s: id %q, topic %q, want %q, %q", c.source, got.ID, got.Topic, wantID, c.topic)
		}
		w = n.post(c.source, h, body)
		n.expect(w, http.StatusOK, OutcomeDeduplicated)
	}
}

func TestHandshakesAreAnsweredAndNeverStored(t *testing.T) {
	n := setup(t, Config{})
	for _, c := range []struct {
		source, secret, body string
		scheme               signing.Scheme
		status               int
		want                 string
	}{
		{"slack", vectorSlack, `{"type":"url_verification","challenge":"3eZbrw1a"}`, signing.Slack, 200, "3eZbrw1a"},
		{"discord", vectorSeed, `{"type":1}`, signing.Discord, 200, `{"type":1}`},
		{"discord", vectorSeed, `{"version":1,"application_id":"1","type":0}`, signing.Discord, 204, ""},
	} {
		w := n.post(c.source, signed(t, c.scheme, c.secret, "", []byte(c.body), time.Now()), []byte(c.body))
		n.expect(w, c.status, OutcomeHandshake)
		if w.Body.String() != c.want || n.last().Status != c.status {
			t.Errorf("%s: %q, want %q", c.source, w.Body, c.want)
		}
		// Discord probes with a bad signature, and must be refused.
		w = n.post(c.source, signed(t, c.scheme, c.secret, "", []byte("other"), time.Now()), []byte(c.body))
		n.expect(w, http.StatusUnauthorized, OutcomeMismatch)
	}
	if n.store.enqueue.Load() != 0 {
		t.Error("a handshake was stored")
	}
}

func TestFailedVerificationsOfOneAddressShutOutNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := setup(t, Config{Failures: FailureConfig{PerSecond: 1, Burst: 10}})
		bad := func(addr string) *httptest.ResponseRecorder {
			r := request("github", http.Header{"X-Hub-Signature-256": {"sha256=" + strings.Repeat("0", 64)}}, strings.NewReader("x"))
			r.RemoteAddr = addr
			return n.serve(r)
		}
		good := func(addr string) *httptest.ResponseRecorder {
			r := request("github", signed(t, signing.GitHub, vectorSecret, "", vectorBody, time.Now()), bytes.NewReader(vectorBody))
			r.RemoteAddr = addr
			return n.serve(r)
		}
		for range 10 {
			n.expect(bad("203.0.113.1:1"), http.StatusUnauthorized, OutcomeMismatch)
		}
		w := bad("203.0.113.1:2")
		n.expect(w, http.StatusTooManyRequests, OutcomeThrottled)
		if w.Header().Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q, want 1", w.Header().Get("Retry-After"))
		}
		// The provider sits next door, in the same /24.
		n.expect(good("203.0.113.2:1"), http.StatusAccepted, OutcomeBuffered)
		// A second token is there after a second, and is not charged by success.
		time.Sleep(time.Second)
		for range 20 {
			if w := good("203.0.113.1:3"); w.Code/100 != 2 {
				t.Fatalf("a genuine request is refused with %d", w.Code)
			}
		}
		n.expect(bad("203.0.113.1:1"), http.StatusUnauthorized, OutcomeMismatch)
		n.expect(bad("203.0.113.1:1"), http.StatusTooManyRequests, OutcomeThrottled)
		// IPv6 counts by /56: an address of one's own for each try does not help.
		for i := range 10 {
			n.expect(bad(fmt.Sprintf("[2001:db8:0:%x::%x]:1", i, i+1)), http.StatusUnauthorized, OutcomeMismatch)
		}
		n.expect(bad("[2001:db8:0:ff::1]:1"), http.StatusTooManyRequests, OutcomeThrottled)
		n.expect(bad("[2001:db8:0:100::1]:1"), http.StatusUnauthorized, OutcomeMismatch)
		// The bucket fills completely, and no further.
		time.Sleep(time.Hour)
		for range 10 {
			n.expect(bad("203.0.113.1:1"), http.StatusUnauthorized, OutcomeMismatch)
		}
		n.expect(bad("203.0.113.1:1"), http.StatusTooManyRequests, OutcomeThrottled)
	})
}

func TestUnknownSourcesAreNotChargedAsFailures(t *testing.T) {
	n := setup(t, Config{Failures: FailureConfig{PerSecond: 1, Burst: 1}})
	for range 10 {
		n.expect(n.post("nobody", nil, nil), http.StatusNotFound, OutcomeUnknownSource)
	}
	if got := n.in.failures.buckets.Len(); got != 0 {
		t.Errorf("%d buckets", got)
	}
}

func TestClientIsThePeerUnlessAProxyIsTrusted(t *testing.T) {
	trusted := []string{"10.0.0.0/8", "2001:db8::/32"}
	for _, c := range []struct {
		peer, forwarded string
		trusted         []string
		want            string
	}{
		{"203.0.113.1:80", "198.51.100.1", nil, "203.0.113.1"},
		{"203.0.113.1:80", "198.51.100.1", trusted, "203.0.113.1"},
		{"10.1.1.1:80", "198.51.100.1", trusted, "198.51.100.1"},
		{"10.1.1.1:80", "6.6.6.6, 198.51.100.1", trusted, "198.51.100.1"},
		{"10.1.1.1:80", "6.6.6.6, 198.51.100.1, 10.2.2.2", trusted, "198.51.100.1"},
		{"10.1.1.1:80", "10.3.3.3, 10.2.2.2", trusted, "10.3.3.3"},
		{"10.1.1.1:80", "", trusted, "10.1.1.1"},
		{"[2001:db8::1]:80", "[2001:db9::7]:443", trusted, "2001:db9::7"},
		{"10.1.1.1:80", "198.51.100.1:5555", trusted, "198.51.100.1"},
		{"[::ffff:10.1.1.1]:80", "::ffff:198.51.100.1", trusted, "198.51.100.1"},
		{"10.1.1.1:80", "6.6.6.6, unknown", trusted, "invalid IP"},
		{"10.1.1.1:80", "6.6.6.6,,", trusted, "invalid IP"},
		{"10.1.1.1:80", strings.Repeat("10.2.2.2,", 40) + "10.2.2.2", trusted, "invalid IP"},
		{"nonsense", "", trusted, "invalid IP"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.RemoteAddr = c.peer
		if c.forwarded != "" {
			r.Header.Set("X-Forwarded-For", c.forwarded)
		}
		var prefixes faults
		got := clientAddr(r, prefixes.allowIPs(&Source{AllowIPs: c.trusted}))
		if got.String() != c.want {
			t.Errorf("peer %s, forwarded %q: %v, want %s", c.peer, c.forwarded, got, c.want)
		}
	}
	// Several header lines are one list.
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.RemoteAddr = "10.0.0.1:1"
	r.Header["X-Forwarded-For"] = []string{"198.51.100.1", "10.2.2.2"}
	var f faults
	if got := clientAddr(r, f.allowIPs(&Source{AllowIPs: trusted})); got.String() != "198.51.100.1" {
		t.Errorf("two lines: %v", got)
	}
}

func TestBrokenBodiesAreToldApart(t *testing.T) {
	n := setup(t, Config{})
	for _, c := range []struct {
		err     error
		status  int
		outcome Outcome
	}{
		{os.ErrDeadlineExceeded, 408, OutcomeBodyTimeout},
		{errors.New("connection reset"), 400, OutcomeBodyBroken},
		{context.Canceled, 400, OutcomeBodyBroken},
	} {
		r := request("github", signed(t, signing.GitHub, vectorSecret, "", vectorBody, time.Now()), iotest.ErrReader(c.err))
		r.ContentLength = -1
		n.expect(n.serve(r), c.status, c.outcome)
	}
	if n.store.enqueue.Load() != 0 {
		t.Error("a broken body was stored")
	}
}

func TestStoreThatHangsIsLeftWithoutA2xx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := setup(t, Config{EnqueueTimeout: 4 * time.Second})
		n.store.hold()
		began := time.Now()
		w := n.post("standard", genuine(t, "msg_1", vectorBody), vectorBody)
		n.expect(w, http.StatusServiceUnavailable, OutcomeStoreFailed)
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("took %v", took)
		}
		if !errors.Is(n.last().Err, errEnqueueTimeout) {
			t.Errorf("error %v", n.last().Err)
		}
	})
}

func TestEventIsStoredThoughItsSenderHasLeft(t *testing.T) {
	n := setup(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	r := request("standard", genuine(t, "msg_1", vectorBody), bytes.NewReader(vectorBody)).WithContext(ctx)
	// The source is in the cache, so that only storing could notice.
	n.expect(n.post("standard", nil, nil), http.StatusUnauthorized, OutcomeMissingSignature)
	cancel()
	n.expect(n.serve(r), http.StatusAccepted, OutcomeBuffered)
}

func TestTenantThatIsDeletedMeanwhileIsUnknown(t *testing.T) {
	n := setup(t, Config{})
	for _, err := range []error{delivery.ErrNoTenant, ErrUnknownSource} {
		n.store.setFail(fmt.Errorf("publish: %w", err))
		n.expect(n.post("standard", genuine(t, "msg_1", vectorBody), vectorBody), http.StatusNotFound, OutcomeUnknownSource)
	}
}

func TestSenderWhoLeavesDuringTheLookUpIsNobodysFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := setup(t, Config{})
		n.sources.delay = time.Hour
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n.serve(request("standard", nil, nil).WithContext(ctx))
		if a := n.last(); a.Outcome != OutcomeBodyBroken || a.Err != nil || a.Took != time.Second {
			t.Errorf("reported %+v", a)
		}
	})
}

// Whatever a stranger sends, the answer is one of the list, and nothing is stored
// that was not signed.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "/webhook/acme/github", "X-Hub-Signature-256", "sha256=00", "gzip", "10.0.0.1", []byte("x"))
	f.Add("POST", "/webhook/acme/twilio", "X-Twilio-Signature", "AAAA", "", "a,b", []byte("a=%zz"))
	f.Add("GET", "/webhook/%61cme/stripe", "Stripe-Signature", "t=1,v1=00", "zstd", "", []byte{0x28, 0xb5, 0x2f, 0xfd})
	f.Fuzz(func(t *testing.T, method, path, name, value, encoding, forwarded string, body []byte) {
		n := setup(t, Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		r.Method, r.URL.Path = method, path
		r.Header = http.Header{http.CanonicalHeaderKey(name): {value}, "Content-Encoding": {encoding}, "X-Forwarded-For": {forwarded}}
		w := n.serve(r)
		if a := n.last(); a.Outcome == outcomeNone || a.Outcome.Status() != w.Code || w.Code < 400 {
			t.Errorf("answered %d: %+v", w.Code, a)
		}
		if n.store.enqueue.Load() != 0 {
			t.Error("something unsigned was stored")
		}
	})
}
