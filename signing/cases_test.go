package signing

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const (
	standardSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
	secondSecret   = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="
	vectorV1       = "v1,qKz4+T/TdLNNwLgVIFH/nTMiuwGvcp8rI09Nw/pYtCk="
)

func vectorBody(t testing.TB) []byte {
	vectors, _ := loadVectors(t)
	return vectors[0].body
}

// TestCases has one subtest for each case from a public report.
func TestCases(t *testing.T) {
	for id, run := range map[string]func(*testing.T){
		"S1": caseS1, "S2": caseS2, "S3": caseS3, "S5": caseS5, "S6": caseS6, "S8": caseS8, "S9": caseS9, "S11": caseS11,
		"V1": crossMatrix, "V2": caseV2, "V4": caseV4, "V5": caseV5, "V6": caseV6, "V7": caseV7, "V8": caseV8,
		"V9": caseV9, "V10": caseV10, "V11": caseV11, "V12": caseV12, "V14": caseV14, "V16": caseV16,
		"V21": caseV21, "V22": caseV22,
	} {
		t.Run(id, run)
	}
}

func caseS1(t *testing.T) {
	h := make(http.Header)
	if err := mustSigner(t, one(Standard, standardSecret)).Headers(h, vectorID, vectorTime, vectorBody(t)); err != nil {
		t.Fatal(err)
	}
	if got := h.Get("webhook-signature"); got != vectorV1 {
		t.Errorf("webhook-signature %q, want %q", got, vectorV1)
	}
}

// The secret must be decoded. Who must stay compatible with a sender that used
// the text has to say so, with the generic scheme.
func caseS2(t *testing.T) {
	_, mustNot := loadVectors(t)
	body := vectorBody(t)
	for _, bad := range mustNot {
		signed, err := Sign(one(bad.Scheme, standardSecret), Message{ID: vectorID, Time: vectorTime, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		if signed.Header.Get(HeaderSignature) == bad.Signature {
			t.Errorf("%s signed with the undecoded secret", bad.Scheme)
		}
		v := mustVerifier(t, VerifierConfig{Scheme: bad.Scheme, Secrets: Secrets(standardSecret)})
		h := http.Header{HeaderID: {vectorID}, HeaderTimestamp: {"1700000000"}, HeaderSignature: {bad.Signature}}
		if err := v.Verify(h, body, vectorTime); !errors.Is(err, ErrMismatch) {
			t.Errorf("accepted: %v", err)
		}

		legacy := one(HMACBase64, standardSecret)
		legacy.Layout = Layout{SignatureHeader: "webhook-signature", SignaturePrefix: "v1,", SignedContent: "{id}.{timestamp}.{body}"}
		h = make(http.Header)
		if err := mustSigner(t, legacy).Headers(h, vectorID, vectorTime, body); err != nil {
			t.Fatal(err)
		}
		if got := h.Get(HeaderSignature); got != bad.Signature {
			t.Errorf("legacy mode gives %q, want %q", got, bad.Signature)
		}
	}
}

func caseS3(t *testing.T) {
	ring, err := NewRing(NewSecret(standardSecret)).Rotate(NewSecret(secondSecret), vectorTime.Add(-time.Hour), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s := mustSigner(t, SchemeConfig{Scheme: Standard, Keys: ring})
	signature := func(now time.Time) string {
		h := make(http.Header)
		if err := s.Headers(h, vectorID, now, vectorBody(t)); err != nil {
			t.Fatal(err)
		}
		return h.Get(HeaderSignature)
	}
	sigs := strings.Split(signature(vectorTime), " ")
	if len(sigs) != 2 || sigs[1] != vectorV1 || !strings.HasPrefix(sigs[0], "v1,") || sigs[0] == sigs[1] {
		t.Fatalf("in the window: %q, want the new signature, one space, the old one", sigs)
	}
	if got := signature(vectorTime.Add(23 * time.Hour)); strings.Contains(got, " ") {
		t.Errorf("after the window: %q", got)
	}
}

func caseS5(t *testing.T) {
	s := mustSigner(t, one(Standard, standardSecret))
	first, second := make(http.Header), make(http.Header)
	if err := errors.Join(
		s.Headers(first, vectorID, vectorTime, vectorBody(t)),
		s.Headers(second, vectorID, vectorTime.Add(time.Hour), vectorBody(t))); err != nil {
		t.Fatal(err)
	}
	if first.Get(HeaderID) != second.Get(HeaderID) {
		t.Error("the id changed")
	}
	for _, name := range []string{HeaderTimestamp, HeaderSignature} {
		if first.Get(name) == second.Get(name) {
			t.Errorf("%s is the same an hour later", name)
		}
	}
}

func caseS6(t *testing.T) {
	for _, name := range []string{
		"WEBHOOK-SIGNATURE", "webhook-id", "Webhook-Timestamp", "webhook-anything", "Webhook_Signature",
		"Host", "content-length", "Content-Type", "TRANSFER-ENCODING", "connection", "te", "Trailer", "upgrade",
		"User-Agent", "traceparent", "Alt-Used", "Early-Data", "Proxy-Authorization", ":authority",
	} {
		if err := ValidateHeader(name, "x"); err == nil || !ReservedHeader(name) {
			t.Errorf("%s accepted: %v", name, err)
		}
	}
	for _, name := range []string{"Authorization", "X-Api-Key", "x-webhook-source", "Cookie"} {
		if err := ValidateHeader(name, "x"); err != nil {
			t.Errorf("%s refused: %v", name, err)
		}
	}

	// What slipped in all the same loses, in whatever spelling, and leaves one value.
	s := mustSigner(t, one(Standard, standardSecret))
	h := http.Header{"webhook-id": {"forged"}, "WEBHOOK-SIGNATURE": {"v1,forged"}, HeaderTimestamp: {"1", "2"}}
	if err := s.Headers(h, vectorID, vectorTime, vectorBody(t)); err != nil {
		t.Fatal(err)
	}
	if len(h) != 3 || h.Get(HeaderID) != vectorID || h.Get(HeaderSignature) != vectorV1 || len(h[HeaderTimestamp]) != 1 {
		t.Errorf("on the wire: %v", h)
	}
	if !s.OwnsHeader("webhook-SIGNATURE") || s.OwnsHeader("x-hub-signature-256") {
		t.Error("OwnsHeader is wrong about its own")
	}
}

func caseS8(t *testing.T) {
	for _, value := range []string{"a\r\nX-Evil: 1", "a\nb", "a\rb", "a\x00b", "a\x7fb", "a\x1bb", " a", "a\t", "caf\u00e9", "\u0085", strings.Repeat("a", 5000)} {
		err := ValidateHeader("X-Note", value)
		if err == nil {
			t.Errorf("%q accepted", value)
			continue
		}
		if len(value) < 100 && strings.Contains(err.Error(), value) {
			t.Errorf("the error repeats the value: %v", err)
		}
	}
	for _, value := range []string{"", "a", "a b\tc", "!~", `Bearer "x"`} {
		if err := ValidateHeader("X-Note", value); err != nil {
			t.Errorf("%q refused: %v", value, err)
		}
	}
	for _, name := range []string{"", "X Note", "X-Note:", "X\r\nNote", "Ünote", "X-Note\x00", strings.Repeat("a", 200)} {
		if err := ValidateHeader(name, "a"); err == nil {
			t.Errorf("name %q accepted", name)
		}
	}
}

func caseS9(t *testing.T) {
	legacy := one(HMACHex, "legacy-secret")
	legacy.SignatureHeader = "X-Acme-Digest"
	h := make(http.Header)
	body := vectorBody(t)
	if err := mustSigner(t, one(Standard, standardSecret), legacy).Headers(h, vectorID, vectorTime, body); err != nil {
		t.Fatal(err)
	}
	for _, cfg := range []VerifierConfig{
		{Scheme: Standard, Secrets: Secrets(standardSecret)},
		{Scheme: HMACHex, Secrets: Secrets("legacy-secret"), Layout: Layout{SignatureHeader: "x-acme-digest"}},
	} {
		if err := mustVerifier(t, cfg).Verify(h, body, vectorTime); err != nil {
			t.Errorf("%s: %v", cfg.Scheme, err)
		}
	}
}

// A restart is a Signer made anew. Nothing in this package writes to the body.
func caseS11(t *testing.T) {
	body := []byte(`{"mood":"😀","name":"Zoë"}`)
	before := bytes.Clone(body)
	var seen string
	for attempt := range 3 {
		s := mustSigner(t, one(Standard, standardSecret), one(StandardEd25519, vectorSeed))
		h := make(http.Header)
		if err := s.Headers(h, vectorID, vectorTime, body); err != nil {
			t.Fatal(err)
		}
		if seen == "" {
			seen = h.Get(HeaderSignature)
		}
		if !bytes.Equal(body, before) || h.Get(HeaderSignature) != seen {
			t.Fatalf("attempt %d differs", attempt+1)
		}
	}
}

func caseV2(t *testing.T) {
	raw := []byte(`{"id":"evt_1","object":"event","b":1,"a":2}`)
	signed, err := Sign(one(Stripe, "whsec_stripe_literal"), Message{Time: vectorTime, Body: raw})
	if err != nil {
		t.Fatal(err)
	}
	v := mustVerifier(t, VerifierConfig{Scheme: Stripe, Secrets: Secrets("whsec_stripe_literal")})
	if err := v.Verify(signed.Header, raw, vectorTime); err != nil {
		t.Errorf("raw: %v", err)
	}
	for _, encoded := range []string{
		`{"id": "evt_1", "object": "event", "b": 1, "a": 2}`,
		`{"a":2,"b":1,"id":"evt_1","object":"event"}`,
		string(raw) + "\n",
	} {
		if err := v.Verify(signed.Header, []byte(encoded), vectorTime); !errors.Is(err, ErrMismatch) {
			t.Errorf("%s: %v", encoded, err)
		}
	}
}

func caseV4(t *testing.T) {
	form := []byte("payload=%7B%22a%22%3A1%7D")
	signed, err := Sign(one(GitHub, "s3cret-for-test"), Message{Body: form})
	if err != nil {
		t.Fatal(err)
	}
	signed.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	v := mustVerifier(t, VerifierConfig{Scheme: GitHub, Secrets: Secrets("s3cret-for-test")})
	if err := v.Verify(signed.Header, form, vectorTime); err != nil {
		t.Errorf("form body: %v", err)
	}
	if err := v.Verify(signed.Header, []byte(`{"a":1}`), vectorTime); !errors.Is(err, ErrMismatch) {
		t.Errorf("decoded JSON: %v", err)
	}
}

func caseV5(t *testing.T) {
	v := mustVerifier(t, VerifierConfig{Scheme: GitHub, Secrets: Secrets("s3cret-for-test")})
	for _, value := range []string{
		"sha256=abc", "sha256=", "sha256", "=", "sha256=" + strings.Repeat("z", 64), strings.Repeat("0", 64),
		"sha256=" + strings.Repeat("0", 63), "sha256=" + strings.Repeat("0", 66), "sha1=" + strings.Repeat("0", 40),
		"SHA256=" + strings.Repeat("0", 64), " sha256=" + strings.Repeat("0", 64), strings.Repeat("a", 1<<20),
	} {
		if err := v.Verify(http.Header{"X-Hub-Signature-256": {value}}, []byte("x"), vectorTime); !errors.Is(err, ErrMalformed) {
			t.Errorf("%.40q: %v", value, err)
		}
	}
}

func caseV6(t *testing.T) {
	for _, s := range Schemes() {
		v := mustVerifier(t, VerifierConfig{Scheme: s, Secrets: []Secret{crossKey(t, vector{}, s)}, Layout: Layout{PublicURL: map[Scheme]string{Twilio: "https://h.example/"}[s]}})
		for _, h := range []http.Header{nil, {}, {v.sigHeader: {}}, {v.sigHeader: {""}}} {
			if err := v.Verify(h, []byte("x"), vectorTime); !errors.Is(err, ErrMissingHeader) {
				t.Errorf("%s with %v: %v", s, h, err)
			}
		}
	}
}

func caseV7(t *testing.T) {
	for _, s := range Schemes() {
		for _, secret := range []string{"", " ", "   ", "\t\n", "\u00a0"} {
			_, err := NewVerifier(VerifierConfig{Scheme: s, Secrets: Secrets(secret), Layout: Layout{PublicURL: map[Scheme]string{Twilio: "https://h.example/"}[s]}})
			if ce, ok := errors.AsType[*ConfigError](err); !ok || ce.Field != "secret" {
				t.Errorf("%s verifies with %q: %v", s, secret, err)
			}
			if _, err := Sign(one(s, secret), Message{ID: vectorID, Time: vectorTime}); err == nil {
				t.Errorf("%s signs with %q", s, secret)
			}
		}
		if _, err := NewVerifier(VerifierConfig{Scheme: s}); err == nil {
			t.Errorf("%s verifies without a secret", s)
		}
		if _, err := NewVerifier(VerifierConfig{Scheme: s, Secrets: make([]Secret, 1)}); err == nil {
			t.Errorf("%s verifies with the zero secret", s)
		}
	}
}

func caseV8(t *testing.T) {
	vectors, _ := loadVectors(t)
	for _, vec := range vectors {
		v := mustVerifier(t, VerifierConfig{Scheme: vec.Scheme, Secrets: []Secret{vec.verifySecret()}})
		other := []byte("another body")
		right, err := Sign(SchemeConfig{Scheme: vec.Scheme, Keys: NewRing(vec.signSecret())}, Message{ID: vectorID, Time: vectorTime, Body: other})
		if err != nil {
			t.Fatal(err)
		}
		expected := right.Header.Get(v.sigHeader)
		expected = expected[strings.LastIndexAny(strings.TrimRight(expected, "="), ",=")+1:]
		err = v.Verify(vec.header(), other, vectorTime)
		if !errors.Is(err, ErrMismatch) {
			t.Fatal(err)
		}
		for _, text := range []string{err.Error(), fmt.Sprintf("%+v %#v", err, err)} {
			if strings.Contains(text, expected) || strings.Contains(text, vec.signSecret().Reveal()) {
				t.Errorf("%s: %s", vec.Scheme, text)
			}
		}
	}
}

func caseV9(t *testing.T) {
	v := mustVerifier(t, VerifierConfig{Scheme: GitHub, Secrets: Secrets("first-secret", "s3cret-for-test")})
	vectors, _ := loadVectors(t)
	for _, vec := range vectors {
		if vec.Scheme == GitHub && vec.Secret == "s3cret-for-test" {
			if err := v.Verify(vec.header(), vec.body, vectorTime); err != nil {
				t.Error(err)
			}
		}
	}
}

func caseV10(t *testing.T) {
	v := mustVerifier(t, VerifierConfig{Scheme: Standard, Secrets: Secrets(standardSecret)})
	for _, ts := range []string{"abc", "", strings.Repeat("1", 30), "+1700000000", "-1700000000", " 1700000000", "1700000000 ", "1700000000.0", "1.7e9", "0x6553f100", "１７００００００００", "99999999999"} {
		h := http.Header{HeaderID: {vectorID}, HeaderTimestamp: {ts}, HeaderSignature: {vectorV1}}
		if err := v.Verify(h, vectorBody(t), vectorTime); err == nil || errors.Is(err, ErrMismatch) {
			t.Errorf("%q: %v", ts, err)
		}
	}
}

func caseV11(t *testing.T) {
	vectors, _ := loadVectors(t)
	for _, vec := range vectors {
		if !mustVerifier(t, VerifierConfig{Scheme: vec.Scheme, Secrets: []Secret{vec.verifySecret()}}).content.usesTimestamp {
			continue
		}
		v := mustVerifier(t, VerifierConfig{Scheme: vec.Scheme, Secrets: []Secret{vec.verifySecret()}, Tolerance: new(time.Duration(0))})
		for offset, want := range map[time.Duration]error{0: nil, 999 * time.Millisecond: nil, 2 * time.Second: ErrTimestamp, time.Second: ErrTimestamp, -time.Second: ErrTimestamp} {
			if err := v.Verify(vec.header(), vec.body, vectorTime.Add(offset)); !errors.Is(err, want) {
				t.Errorf("%s, tolerance 0, %s later: %v", vec.Scheme, offset, err)
			}
		}
	}
	if _, err := NewVerifier(VerifierConfig{Scheme: Stripe, Secrets: Secrets("x"), Tolerance: new(-time.Second)}); err == nil {
		t.Error("a negative tolerance is accepted")
	}
}

func caseV12(t *testing.T) {
	vectors, _ := loadVectors(t)
	v := mustVerifier(t, VerifierConfig{Scheme: Stripe, Secrets: Secrets("whsec_stripe_literal")})
	good := "91882e80fd629777bb12fa0ead5ca88e310625fa68b6e03d811bfcb67bc49eca"
	body := vectors[0].body
	for value, want := range map[string]error{
		"t,v1,t=1700000000,v1=" + good:                                            nil,
		"t=1700000000,v0=ffff,v1=" + good + ",scheme=x":                           nil,
		"v1=" + good + ",t=1700000000":                                            nil,
		"t=1700000000,v1=" + strings.Repeat("0", 64) + ",v1=" + good:              nil,
		"t=1700000000,v1=abc,v1=,v1=" + good:                                      nil,
		"t=1700000000,v0=" + good:                                                 ErrMalformed,
		"v1=" + good:                                                              ErrMalformed,
		"t=1700000000,t=1700000001,v1=" + good:                                    ErrMalformed,
		"t=1700000000":                                                            ErrMalformed,
		"t=1700000000,v1=" + strings.Repeat("0", 64):                              ErrMismatch,
		"t=1700000001,v1=" + good:                                                 ErrMismatch,
		"t=1700000000" + strings.Repeat(",v1="+strings.Repeat("0", 64), 34) + "x": ErrMalformed,
	} {
		if err := v.Verify(http.Header{"Stripe-Signature": {value}}, body, vectorTime); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", value, err, want)
		}
	}
}

func caseV14(t *testing.T) {
	_, err := NewVerifier(VerifierConfig{Scheme: Standard, Secrets: Secrets("v1," + standardSecret)})
	ce, ok := errors.AsType[*ConfigError](err)
	if !ok || !strings.Contains(ce.Error(), `"v1,"`) || strings.Contains(ce.Error(), standardSecret) {
		t.Errorf("%v", err)
	}
}

func caseV16(t *testing.T) {
	vectors, _ := loadVectors(t)
	for _, vec := range vectors {
		if vec.Scheme != Slack {
			continue
		}
		v := mustVerifier(t, VerifierConfig{Scheme: Slack, Secrets: []Secret{vec.verifySecret()}})
		for offset, want := range map[time.Duration]error{5 * time.Minute: nil, 6 * time.Minute: ErrTimestamp, -6 * time.Minute: ErrTimestamp} {
			if _, err := v.Begin(vec.header(), vectorTime.Add(offset)); !errors.Is(err, want) {
				t.Errorf("replayed %s later: %v", offset, err)
			}
		}
	}
}

func caseV21(t *testing.T) {
	form := "Body=hello&From=%2B15550100"
	signed, err := Sign(SchemeConfig{Scheme: Twilio, Keys: NewRing(NewSecret("token")), Layout: Layout{PublicURL: "https://hooks.example/twilio"}},
		Message{ContentType: "application/x-www-form-urlencoded", Body: []byte(form)})
	if err != nil {
		t.Fatal(err)
	}
	v := mustVerifier(t, VerifierConfig{Scheme: Twilio, Secrets: Secrets("token"), Layout: Layout{PublicURL: "https://hooks.example/twilio"}})
	// TLS ended at a proxy: here the request is plain, for another host.
	r := httptest.NewRequest(http.MethodPost, "http://10.0.0.7:8081/webhook/t/twilio", strings.NewReader(form))
	r.Header = signed.Header.Clone()
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Forwarded-Host", "evil.example")
	r.Header.Set("X-Forwarded-Proto", "http")
	if _, err := v.VerifyRequest(r, 0, vectorTime); err != nil {
		t.Errorf("behind a proxy: %v", err)
	}

	forged, err := Sign(SchemeConfig{Scheme: Twilio, Keys: NewRing(NewSecret("token")), Layout: Layout{PublicURL: "https://evil.example/twilio"}},
		Message{ContentType: "application/x-www-form-urlencoded", Body: []byte(form)})
	if err != nil {
		t.Fatal(err)
	}
	r = httptest.NewRequest(http.MethodPost, "https://evil.example/twilio", strings.NewReader(form))
	r.Header = forged.Header.Clone()
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Forwarded-Host", "evil.example")
	if _, err := v.VerifyRequest(r, 0, vectorTime); !errors.Is(err, ErrMismatch) {
		t.Errorf("signed for another URL: %v", err)
	}
}

func caseV22(t *testing.T) {
	for _, key := range []string{
		"abc", "zz", strings.Repeat("0", 63), strings.Repeat("0", 62), strings.Repeat("0", 66), strings.Repeat("g", 64),
		"I7xUkSwebpLEqGglyGfif/3FVb/71CRPF6Jqv//ull0=", vectorSeed, standardSecret, strings.Repeat("0", 5000),
	} {
		_, err := NewVerifier(VerifierConfig{Scheme: Discord, Secrets: Secrets(key)})
		if ce, ok := errors.AsType[*ConfigError](err); !ok || ce.Field != "secret" {
			t.Errorf("%.20q: %v", key, err)
		}
	}
}
