package signing

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
)

// bare is a Verifier for functions that do not look at its keys.
func bare(t testing.TB, scheme Scheme, l Layout) *Verifier {
	t.Helper()
	if scheme == Twilio {
		l.PublicURL = "https://h.example/"
	}
	return mustVerifier(t, VerifierConfig{Scheme: scheme, Secrets: []Secret{crossKey(t, vector{}, scheme)}, Layout: l})
}

func TestEventsAreIdentifiedAsTheirProviderDoes(t *testing.T) {
	h := func(pairs ...string) http.Header {
		out := make(http.Header)
		for i := 0; i < len(pairs); i += 2 {
			out.Set(pairs[i], pairs[i+1])
		}
		return out
	}
	form := h("Content-Type", formType)
	for name, tc := range map[string]struct {
		scheme Scheme
		layout Layout
		header http.Header
		body   string
		want   Event
	}{
		"standard":         {Standard, Layout{}, h("webhook-id", "msg_1"), `{"data":{"type":"no"},"type":"user.created"}`, Event{"msg_1", true, "user.created"}},
		"standard, text":   {Standard, Layout{}, h("webhook-id", "msg_1"), `hello`, Event{"msg_1", true, ""}},
		"renamed":          {StandardEd25519, Layout{IDHeader: "svix-id"}, h("svix-id", "msg_1", "webhook-id", "no"), ``, Event{"msg_1", true, ""}},
		"stripe":           {Stripe, Layout{}, h(), `{"data":{"object":{"id":"cus_1"}},"id":"evt_1","type":"customer.created"}`, Event{"evt_1", true, "customer.created"}},
		"stripe, id twice": {Stripe, Layout{}, h(), `{"id":"evt_1","id":"evt_2","type":"x"}`, Event{"evt_1", true, "x"}},
		"stripe, no id":    {Stripe, Layout{}, h(), `{"id":{"a":"b"},"type":"x"}`, Event{"", false, "x"}},
		"github":           {GitHub, Layout{}, h("X-GitHub-Delivery", "72d3162e", "X-GitHub-Event", "pull_request"), `{"action":"opened"}`, Event{"72d3162e", false, "pull_request"}},
		"shopify":          {Shopify, Layout{}, h("X-Shopify-Webhook-Id", "b54557e4", "X-Shopify-Topic", "orders/create"), `{}`, Event{"b54557e4", false, "orders.create"}},
		"slack":            {Slack, Layout{}, h(), `{"type":"event_callback","event_id":"Ev1","event":{"type":"app_mention"}}`, Event{"Ev1", true, "app_mention"}},
		"slack, other":     {Slack, Layout{}, h(), `{"type":"app_rate_limited"}`, Event{"", false, "app_rate_limited"}},
		"slack action":     {Slack, Layout{}, form, "payload=" + url.QueryEscape(`{"type":"block_actions"}`), Event{"", false, "block_actions"}},
		"slack command":    {Slack, Layout{}, form, "command=%2Fdeploy&trigger_id=13.7.a", Event{"13.7.a", true, "command"}},
		"slack, odd form":  {Slack, Layout{}, form, "x=1", Event{}},
		"discord event":    {Discord, Layout{}, h(), `{"version":1,"application_id":"1","type":1,"event":{"type":"APPLICATION_AUTHORIZED"}}`, Event{"", false, "APPLICATION_AUTHORIZED"}},
		"discord command":  {Discord, Layout{}, h(), `{"id":"846462639134605312","type":2}`, Event{"846462639134605312", true, "interaction.application_command"}},
		"telnyx":           {Telnyx, Layout{}, h(), `{"data":{"event_type":"message.received","id":"0ccc7b54","payload":{"id":"no"}},"meta":{}}`, Event{"0ccc7b54", true, "message.received"}},
		"twilio":           {Twilio, Layout{}, h("I-Twilio-Idempotency-Token", "1b2c", "Content-Type", formType), "MessageStatus=delivered", Event{"1b2c", false, "message.delivered"}},
		"twilio call":      {Twilio, Layout{}, form, "CallStatus=in-progress", Event{"", false, "call.in-progress"}},
		"twilio JSON":      {Twilio, Layout{}, h(), `{"type":"com.twilio.x"}`, Event{"", false, "com.twilio.x"}},
		"generic":          {HMACHex, Layout{}, h("X-Event-ID", "e1"), `{"type":"no"}`, Event{"e1", false, ""}},
		"generic, typed":   {HMACHex, Layout{}, h("X-Event-ID", "e1", "X-Event-Type", "a/b"), ``, Event{"e1", false, "a.b"}},
		"generic, own id":  {HMACBase64, Layout{IDHeader: "X-Acme-Id"}, h("X-Acme-Id", "e1", "X-Event-ID", "no"), ``, Event{"e1", false, ""}},
		"generic, signed":  {HMACBase64, Layout{SignedContent: "{id}.{body}"}, h("webhook-id", "e1"), ``, Event{"e1", true, ""}},
		"id with controls": {GitHub, Layout{}, http.Header{"X-Github-Delivery": {"a\nb"}}, ``, Event{}},
		"id too long":      {GitHub, Layout{}, h("X-GitHub-Delivery", strings.Repeat("a", 300)), ``, Event{}},
		"odd type":         {GitHub, Layout{}, h("X-GitHub-Event", "a b..ü/c-d_e."), ``, Event{Type: "a_b._.c-d_e"}},
		"type too long":    {GitHub, Layout{}, h("X-GitHub-Event", strings.Repeat("a", 300)), ``, Event{}},
	} {
		t.Run(name, func(t *testing.T) {
			v := bare(t, tc.scheme, tc.layout)
			if got := v.Identify(tc.header, iotest.OneByteReader(strings.NewReader(tc.body))); got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
			if v.Identify(tc.header, nil).Type != tc.want.Type && !v.IdentifiesByBody() {
				t.Error("the body matters, IdentifiesByBody says it does not")
			}
			read := false
			v.Identify(tc.header, readerFunc(func([]byte) (int, error) { read = true; return 0, io.EOF }))
			if read && !v.IdentifiesByBody() {
				t.Error("the body was read, IdentifiesByBody says it is not")
			}
		})
	}
	if got := (Event{Type: "push"}).Topic("gh"); got != "gh.push" {
		t.Errorf("topic %s", got)
	}
	if got := (Event{}).Topic("gh"); got != "gh.unknown" {
		t.Errorf("topic %s", got)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A genuine but monstrous body costs no more than reading it.
func TestIdentifyingDoesNotHoldTheBody(t *testing.T) {
	v := bare(t, Stripe, Layout{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	deep := io.MultiReader(strings.NewReader(`{"data":`), io.LimitReader(readerFunc(func(p []byte) (int, error) {
		for i := range p {
			p[i] = '['
		}
		return len(p), nil
	}), 8<<20))
	if got := v.Identify(nil, deep); got != (Event{}) {
		t.Errorf("%+v", got)
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("%d bytes allocated for 8 MiB of brackets", grown)
	}
	for _, body := range []string{"", "{", `{"a"`, `{"a":}`, `{"a":[1,{"b":`, "[]", "null", `{"id":"x"`, `{"id":1e999}`, "\xff\xfe{}"} {
		v.Identify(nil, strings.NewReader(body))
	}
	if got := v.Identify(nil, strings.NewReader(`{"id":"evt_1",`)); got.ID != "evt_1" {
		t.Error("what came before the break is lost")
	}
	if got := bare(t, Twilio, Layout{}).Identify(http.Header{"Content-Type": {formType}}, strings.NewReader("MessageStatus=sent&x="+strings.Repeat("a", maxForm))); got.Type != "" {
		t.Error("a form over the limit was parsed")
	}
}

func TestHandshakesAreAnsweredAndNothingElse(t *testing.T) {
	for name, tc := range map[string]struct {
		scheme Scheme
		body   string
		status int // 0: no handshake
		answer string
	}{
		"slack":                {Slack, `{"token":"x","challenge":"3eZbrw1aBm2r","type":"url_verification"}`, 200, "3eZbrw1aBm2r"},
		"slack event":          {Slack, `{"type":"event_callback","challenge":"x"}`, 0, ""},
		"slack, no challenge":  {Slack, `{"type":"url_verification"}`, 0, ""},
		"slack, odd challenge": {Slack, `{"type":"url_verification","challenge":"a\nb"}`, 0, ""},
		"discord interaction":  {Discord, `{"type":1}`, 200, `{"type":1}`},
		"discord full ping":    {Discord, `{"id":"1","application_id":"2","type":1,"token":"t","version":1}`, 200, `{"type":1}`},
		"discord event ping":   {Discord, `{"version":1,"application_id":"1","type":0}`, 204, ""},
		"discord null event":   {Discord, `{"version":1,"application_id":"1","type":0,"event":null}`, 204, ""},
		"discord event":        {Discord, `{"version":1,"application_id":"1","type":1,"event":{"type":"X"}}`, 0, ""},
		"discord command":      {Discord, `{"type":2}`, 0, ""},
		"discord, no type":     {Discord, `{}`, 0, ""},
		"discord, type text":   {Discord, `{"type":"1"}`, 0, ""},
		"discord, no JSON":     {Discord, `x`, 0, ""},
		"stripe":               {Stripe, `{"type":"url_verification","challenge":"x"}`, 0, ""},
		"too large":            {Slack, `{"type":"url_verification","challenge":"x"}` + strings.Repeat(" ", maxHandshake), 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			reply, ok := bare(t, tc.scheme, Layout{}).Handshake([]byte(tc.body))
			if ok != (tc.status != 0) || reply.Status != tc.status || string(reply.Body) != tc.answer {
				t.Fatalf("%v %+v", ok, reply)
			}
			if !ok {
				return
			}
			w := httptest.NewRecorder()
			reply.ServeHTTP(w, nil)
			if w.Code != tc.status || w.Body.String() != tc.answer || (w.Header().Get("Content-Type") == "") != (tc.answer == "") {
				t.Errorf("served %d %q %v", w.Code, w.Body, w.Header())
			}
		})
	}
}
