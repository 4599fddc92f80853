package signing

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

const formType = "application/x-www-form-urlencoded"

func twilioVerifier(t testing.TB, public string, secrets ...string) *Verifier {
	t.Helper()
	return mustVerifier(t, VerifierConfig{Scheme: Twilio, Secrets: Secrets(secrets...), Layout: Layout{PublicURL: public}})
}

// twilioRequest is what arrives: only the query of the URL is Twilio's.
func twilioRequest(query, contentType, signature, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "http://10.0.0.1/somewhere/else?"+query, strings.NewReader(body))
	r.Header = http.Header{"Content-Type": {contentType}, "X-Twilio-Signature": {signature}}
	return r
}

// The example of Twilio's documentation.
func TestTwilioDocumentationExample(t *testing.T) {
	form := url.Values{
		"CallSid": {"CA1234567890ABCDE"}, "Caller": {"+12349013030"}, "Digits": {"1234"}, "From": {"+12349013030"}, "To": {"+18005551212"},
	}.Encode()
	v := twilioVerifier(t, "https://mycompany.com/myapp.php?foo=1&bar=2", "12345")
	const signature = "0/KCTR6DLpKmkAf8muzZqo1nDgQ="
	if _, err := v.VerifyRequest(twilioRequest("foo=1&bar=2", formType+"; charset=utf-8", signature, form), 0, vectorTime); err != nil {
		t.Error(err)
	}
	// Without a query of its own the request has the configured one.
	if _, err := v.VerifyRequest(twilioRequest("", formType, signature, form), 0, vectorTime); err != nil {
		t.Error(err)
	}
	if _, err := v.VerifyRequest(twilioRequest("foo=1&bar=3", formType, signature, form), 0, vectorTime); !errors.Is(err, ErrMismatch) {
		t.Errorf("another query: %v", err)
	}
}

func TestTwilioCoversEveryKindOfBody(t *testing.T) {
	const public = "https://h.example/hook"
	for name, tc := range map[string]struct{ contentType, body string }{
		"form":            {formType, "b=2&a=1"},
		"empty form":      {formType, ""},
		"repeated fields": {formType, "a=2&a=1&a=2&b=%C3%A9+x"},
		"JSON":            {"application/json", `{"a":1}`},
		"no type":         {"", "raw"},
		"nothing":         {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			signed, err := Sign(SchemeConfig{Scheme: Twilio, Keys: NewRing(NewSecret("token")), Layout: Layout{PublicURL: public}},
				Message{ContentType: tc.contentType, Body: []byte(tc.body)})
			if err != nil {
				t.Fatal(err)
			}
			target, err := url.Parse(signed.URL)
			if err != nil {
				t.Fatal(err)
			}
			sig := signed.Header.Get("X-Twilio-Signature")
			v := twilioVerifier(t, public, "other", "token")
			if _, err := v.VerifyRequest(twilioRequest(target.RawQuery, tc.contentType, sig, tc.body), 0, vectorTime); err != nil {
				t.Fatalf("genuine: %v", err)
			}
			for _, forged := range []*http.Request{
				twilioRequest(target.RawQuery, tc.contentType, sig, tc.body+"&z=1"),
				twilioRequest(target.RawQuery+"&x=1", tc.contentType, sig, tc.body),
				twilioRequest(strings.ReplaceAll(target.RawQuery, "bodySHA256", "body"), "text/plain", sig, tc.body+"x"),
			} {
				if _, err := v.VerifyRequest(forged, 0, vectorTime); !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrMalformed) {
					t.Errorf("forged %s: %v", forged.URL.RawQuery, err)
				}
			}
			c, err := v.BeginRequest(twilioRequest(target.RawQuery, tc.contentType, sig, tc.body), vectorTime)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range []byte(tc.body) {
				if _, err := c.Write([]byte{b}); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.Finish(); err != nil {
				t.Errorf("in pieces: %v", err)
			}
			if !v.Buffers() || c.ID() != "" || !c.Timestamp().IsZero() {
				t.Error("Twilio has neither id nor timestamp, and buffers")
			}
		})
	}
}

func TestTwilioPortsAndPaths(t *testing.T) {
	for signedFor, configured := range map[string]string{
		"https://h.example/p":         "https://h.example:443/p",
		"https://h.example:443/p":     "https://h.example/p",
		"http://h.example:80/p":       "http://h.example/p",
		"https://h.example:8443/p":    "https://h.example:8443/p",
		"https://h.example/":          "https://h.example",
		"https://[2001:db8::1]:443/p": "https://[2001:db8::1]/p",
		"https://[2001:db8::1]/p":     "https://[2001:db8::1]:443/p",
		"https://h.example/a%2Fb%20c": "https://h.example/a%2Fb%20c",
	} {
		signed, err := Sign(SchemeConfig{Scheme: Twilio, Keys: NewRing(NewSecret("token")), Layout: Layout{PublicURL: signedFor}},
			Message{ContentType: formType, Body: []byte("a=1")})
		if err != nil {
			t.Fatal(err)
		}
		r := twilioRequest("", formType, signed.Header.Get("X-Twilio-Signature"), "a=1")
		if _, err := twilioVerifier(t, configured, "token").VerifyRequest(r, 0, vectorTime); err != nil {
			t.Errorf("signed for %s, configured %s: %v", signedFor, configured, err)
		}
	}
}

func TestTwilioRefusesWhatItCannotJudge(t *testing.T) {
	sig := "0/KCTR6DLpKmkAf8muzZqo1nDgQ="
	hash := strings.Repeat("0", 64)
	v := twilioVerifier(t, "https://h.example/", "12345")
	for name, r := range map[string]*http.Request{
		"JSON without hash": twilioRequest("", "application/json", sig, "{}"),
		"two hashes":        twilioRequest("bodySHA256="+hash+"&bodySHA256="+hash, "application/json", sig, "{}"),
		"short hash":        twilioRequest("bodySHA256=00", "application/json", sig, "{}"),
		"broken form":       twilioRequest("", formType, sig, "a=%zz"),
		"hex signature":     twilioRequest("", formType, strings.Repeat("0", 40), "a=1"),
		"SHA-256 unasked":   twilioRequest("", formType, b64(32), "a=1"),
	} {
		if _, err := v.VerifyRequest(r, 0, vectorTime); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTwilioSharedKeyUsesSHA256(t *testing.T) {
	m := newMACKey([]byte("shared-key")).get()
	m.Write([]byte("https://h.example/hooka1"))
	sig := string(codecBase64.appendTo(nil, m.finish()))
	v := twilioVerifier(t, "https://h.example/hook", "token", "shared-key")
	for settings, want := range map[string]error{
		"key=SK1,algorithm=HMAC_SHA256":  nil,
		"algorithm=HMAC_SHA256, key=SK1": nil,
		"key=SK1,algorithm=HMAC_SHA1":    ErrMalformed, // 32 bytes are no SHA-1
		"key=SK1,algorithm=HMAC_MD5":     ErrMalformed,
		"key=SK1":                        ErrMalformed,
		"":                               ErrMalformed,
	} {
		r := twilioRequest("", formType, sig, "a=1")
		r.Header.Set(twilioSettingsHeader, settings)
		if _, err := v.VerifyRequest(r, 0, vectorTime); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", settings, err, want)
		}
	}
	r := twilioRequest("", formType, sig, "a=1")
	r.Header[twilioSettingsHeader] = []string{"algorithm=HMAC_SHA256", "algorithm=HMAC_SHA1"}
	if _, err := v.VerifyRequest(r, 0, vectorTime); !errors.Is(err, ErrMalformed) {
		t.Errorf("settings twice: %v", err)
	}
}

func TestSignTwilioReportsWhatItCannotSign(t *testing.T) {
	cfg := SchemeConfig{Scheme: Twilio, Keys: NewRing(NewSecret("token")), Layout: Layout{PublicURL: "https://h.example/?a=1"}}
	if _, err := Sign(cfg, Message{ContentType: formType, Body: []byte("%zz")}); err == nil {
		t.Error("a broken form was signed")
	}
	signed, err := Sign(cfg, Message{Body: []byte("{}")})
	if err != nil || !strings.Contains(signed.URL, "?a=1&bodySHA256=") {
		t.Errorf("%s, %v", signed.URL, err)
	}
	cfg.Keys = Ring{{Secret: NewSecret("token"), Expires: time.Unix(1, 0)}}
	if _, err := Sign(cfg, Message{}); !errors.Is(err, ErrNoActiveSecret) {
		t.Errorf("expired: %v", err)
	}
	for _, bad := range []SchemeConfig{{Scheme: Twilio}, {Scheme: Twilio, Keys: NewRing(Secret{}), Layout: cfg.Layout}, {Scheme: "nope"}, {Scheme: GitHub}} {
		if _, err := Sign(bad, Message{}); err == nil {
			t.Errorf("%+v signs", bad)
		}
	}
}
