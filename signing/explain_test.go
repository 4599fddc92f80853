package signing

import (
	"bytes"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha1" // A mistake to be found.
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

func sum(h func() hash.Hash, key, message string) []byte {
	m := hmac.New(h, []byte(key))
	m.Write([]byte(message))
	return m.Sum(nil)
}

func sha256sum(key, message string) []byte {
	m := newMACKey([]byte(key)).get()
	m.Write([]byte(message))
	return bytes.Clone(m.finish())
}

func githubHeader(sig []byte) http.Header {
	return http.Header{"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(sig)}}
}

func standardHeader(sig string) http.Header {
	return http.Header{HeaderID: {vectorID}, HeaderTimestamp: {"1700000000"}, HeaderSignature: {sig}}
}

// The document that a re-encoding changes in every way.
const explainBody = "{\"name\":\"Zoë 😀\",\"html\":\"<a&b>\",\"path\":\"a/b\",\"nested\":{\"b\":[1,2],\"a\":\"x: y, \\\"z\\\"\"}}"

func TestExplainNamesTheMistake(t *testing.T) {
	std := VerifierConfig{Scheme: Standard, Secrets: Secrets(standardSecret)}
	gh := VerifierConfig{Scheme: GitHub, Secrets: Secrets("s3cret-for-test")}
	content := vectorID + ".1700000000." + explainBody
	key := "0123456789abcdef0123456789abcdef"
	b64sig := func(raw []byte) string { return base64.StdEncoding.EncodeToString(raw) }
	good := "v1," + b64sig(sha256sum(key, content))
	seed := ed25519.NewKeyFromSeed([]byte(key))
	pub := base64.StdEncoding.EncodeToString(seed.Public().(ed25519.PublicKey))
	edSig := "v1a," + b64sig(ed25519.Sign(seed, []byte(content)))
	discord := VerifierConfig{Scheme: Discord, Secrets: Secrets(hex.EncodeToString(seed.Public().(ed25519.PublicKey)))}

	for name, tc := range map[string]struct {
		cfg      VerifierConfig
		header   http.Header
		now      time.Duration
		mistakes []Mistake // proven, in any order; nil: the request is genuine
		says     string
	}{
		"genuine":                 {std, standardHeader(good), 0, nil, ""},
		"text of the secret":      {std, standardHeader("v1," + b64sig(sha256sum(standardSecret, content))), 0, []Mistake{MistakeSecretNotDecoded}, "must be decoded"},
		"text without prefix":     {std, standardHeader("v1," + b64sig(sha256sum(standardSecret[6:], content))), 0, []Mistake{MistakeSecretPrefix}, "behind whsec_"},
		"v1, in the secret":       {VerifierConfig{Scheme: Standard, Secrets: Secrets("v1," + standardSecret)}, standardHeader(good), 0, []Mistake{MistakeSecretPrefix}, "label of a signature"},
		"line break in secret":    {VerifierConfig{Scheme: Standard, Secrets: Secrets(standardSecret + "\n")}, standardHeader(good), 0, []Mistake{MistakeSecretSpace}, "white space"},
		"space around a literal":  {VerifierConfig{Scheme: GitHub, Secrets: Secrets(" s3cret-for-test")}, githubHeader(sha256sum("s3cret-for-test", explainBody)), 0, []Mistake{MistakeSecretSpace}, "white space"},
		"URL-safe secret":         {VerifierConfig{Scheme: Standard, Secrets: Secrets("whsec_" + base64.URLEncoding.EncodeToString([]byte(strings.Repeat("\xfb\xff\xfe", 10))))}, standardHeader("v1," + b64sig(sha256sum(strings.Repeat("\xfb\xff\xfe", 10), content))), 0, []Mistake{MistakeSecretNotDecoded}, "not the standard one"},
		"literal was decoded":     {VerifierConfig{Scheme: Stripe, Secrets: Secrets(standardSecret)}, http.Header{"Stripe-Signature": {"t=1700000000,v1=" + hex.EncodeToString(sha256sum(key, "1700000000."+explainBody))}}, 0, []Mistake{MistakeSecretNotDecoded}, "as it is written"},
		"stripe without prefix":   {VerifierConfig{Scheme: Stripe, Secrets: Secrets("whsec_abc")}, http.Header{"Stripe-Signature": {"t=1700000000,v1=" + hex.EncodeToString(sha256sum("abc", "1700000000."+explainBody))}}, 0, []Mistake{MistakeSecretPrefix}, "without its prefix"},
		"hex in standard":         {std, standardHeader("v1," + hex.EncodeToString(sha256sum(key, content))), 0, []Mistake{MistakeEncoding, MistakeHeader}, "written in hex"},
		"base64 in github":        {gh, http.Header{"X-Hub-Signature-256": {"sha256=" + b64sig(sha256sum("s3cret-for-test", explainBody))}}, 0, []Mistake{MistakeEncoding, MistakeHeader}, "written in base64"},
		"base64 of hex":           {std, standardHeader("v1," + b64sig([]byte(hex.EncodeToString(sha256sum(key, content))))), 0, []Mistake{MistakeEncoding, MistakeHeader}, "that again in base64"},
		"no prefix":               {gh, http.Header{"X-Hub-Signature-256": {hex.EncodeToString(sha256sum("s3cret-for-test", explainBody))}}, 0, []Mistake{MistakeHeader}, "does not begin with"},
		"SHA-1":                   {gh, http.Header{"X-Hub-Signature-256": {"sha1=" + hex.EncodeToString(sum(sha1.New, "s3cret-for-test", explainBody))}}, 0, []Mistake{MistakeAlgorithm, MistakeHeader}, "HMAC-SHA1"},
		"SHA-512":                 {gh, http.Header{"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(sum(sha512.New, "s3cret-for-test", explainBody))}}, 0, []Mistake{MistakeAlgorithm, MistakeHeader}, "HMAC-SHA512"},
		"other scheme's header":   {std, githubHeader(sha256sum(key, explainBody)), 0, []Mistake{MistakeScheme, MistakeHeader}, "the header of github"},
		"other scheme's content":  {std, standardHeader("v1," + b64sig(sha256sum(key, explainBody))), 0, []Mistake{MistakeScheme}, `"{body}"`},
		"old":                     {std, standardHeader(good), time.Hour, []Mistake{MistakeTimestamp}, "The signature itself is right"},
		"old and wrong":           {std, standardHeader("v1," + b64sig(sha256sum("x", content))), time.Hour, []Mistake{MistakeTimestamp}, "signature is wrong too"},
		"milliseconds":            {std, http.Header{HeaderID: {vectorID}, HeaderTimestamp: {"1700000000000"}, HeaderSignature: {good}}, 0, []Mistake{MistakeTimestamp}, "milliseconds"},
		"no header":               {gh, http.Header{}, 0, []Mistake{MistakeHeader}, "is missing"},
		"private key at receiver": {VerifierConfig{Scheme: StandardEd25519, Secrets: Secrets(vectorSeed)}, standardHeader(edSig), 0, []Mistake{MistakeSecretKind}, "private key"},
		"public key, no mistake":  {VerifierConfig{Scheme: StandardEd25519, Secrets: Secrets("whpk_" + pub)}, standardHeader(edSig), 0, nil, ""},
		"discord key in base64":   {VerifierConfig{Scheme: Discord, Secrets: Secrets(pub)}, http.Header{"X-Signature-Timestamp": {"1700000000"}, "X-Signature-Ed25519": {hex.EncodeToString(ed25519.Sign(seed, []byte("1700000000"+explainBody)))}}, 0, []Mistake{MistakeSecretNotDecoded}, "in base64"},
		"discord in base64":       {discord, http.Header{"X-Signature-Timestamp": {"1700000000"}, "X-Signature-Ed25519": {b64sig(ed25519.Sign(seed, []byte("1700000000"+explainBody)))}}, 0, []Mistake{MistakeEncoding, MistakeHeader}, "Discord"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Explain(tc.cfg, Evidence{Header: tc.header, Body: []byte(explainBody), Now: vectorTime.Add(tc.now)})
			if tc.mistakes == nil {
				if d.Err != nil || len(d.Findings) != 0 {
					t.Fatalf("%+v", d)
				}
				return
			}
			if d.Err == nil || len(d.Findings) == 0 {
				t.Fatalf("nothing found: %+v", d)
			}
			for _, m := range tc.mistakes {
				if !slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Mistake == m && f.Proven }) {
					t.Errorf("%s is not found: %+v", m, d.Findings)
				}
			}
			for _, f := range d.Findings {
				if f.Proven && !slices.Contains(tc.mistakes, f.Mistake) {
					t.Errorf("found besides: %+v", f)
				}
				for _, s := range tc.cfg.Secrets {
					if strings.Contains(f.Message, s.Reveal()) {
						t.Errorf("the finding shows the secret: %s", f.Message)
					}
				}
			}
			if text := strings.ToLower(messages(d)); !strings.Contains(text, strings.ToLower(tc.says)) {
				t.Errorf("does not say %q: %s", tc.says, text)
			}
		})
	}
}

func messages(d Diagnosis) string {
	var out []string
	for _, f := range d.Findings {
		out = append(out, f.Message)
	}
	return strings.Join(out, " ")
}

func TestExplainNamesWhatHappenedToTheBody(t *testing.T) {
	cfg := VerifierConfig{Scheme: GitHub, Secrets: Secrets("s3cret-for-test")}
	for name, tc := range map[string]struct{ signed, received, says string }{
		"line break added":    {"abc", "abc\n", "added at the end"},
		"line break cut":      {"abc\n", "abc", "cut off"},
		"LF to CRLF":          {"a\nb", "a\r\nb", "into CR LF"},
		"CRLF to LF":          {"a\r\nb", "a\nb", "into LF"},
		"byte order mark":     {"abc", "\xef\xbb\xbfabc", "byte order mark"},
		"indented":            {explainBody, "{\n \"name\": \"Zoë 😀\",\n \"html\": \"<a&b>\",\n \"path\": \"a/b\",\n \"nested\": {\n  \"b\": [1, 2],\n  \"a\": \"x: y, \\\"z\\\"\"}}", "the compact form."},
		"was indented":        {"{\n  \"a\": 1\n}", `{"a":1}`, "two spaces"},
		"was indented by 4":   {"{\n    \"a\": 1\n}\n", `{"a":1}`, "four spaces and a line break"},
		"was tabbed":          {"{\n\t\"a\": 1\n}", `{"a":1}`, "tabs"},
		"Python":              {`{"name": "Zo\u00eb \ud83d\ude00", "a": [1, 2], "b": "x: y,\" z"}`, `{"name":"Zoë 😀","a":[1,2],"b":"x: y,\" z"}`, `space after : and , and with \u escapes`},
		"Python, UTF-8":       {`{"name": "Zoë", "a": 1}`, `{"name":"Zoë","a":1}`, "space after : and ,"},
		"ASCII":               {`{"name":"Zo\u00eb"}`, `{"name":"Zoë"}`, `\u escapes`},
		"HTML escapes":        {`{"a":"\u003cb\u003e"}`, `{"a":"<b>"}`, `<, > and &`},
		"escapes resolved":    {`{"a":"<b>"}`, `{"a":"\u003cb\u003e"}`, "sorted keys"},
		"keys sorted":         {`{"a":1,"b":2}`, `{"b":2,"a":1}`, "sorted keys"},
		"slashes escaped":     {`{"a":"x\/y"}`, `{"a":"x/y"}`, `written \/`},
		"slashes unescaped":   {`{"a":"x/y"}`, `{"a":"x\/y"}`, "unescaped /"},
		"body read before":    {"", "abc", "empty body"},
		"form's JSON signed":  {`{"a":1}`, "payload=%7B%22a%22%3A1%7D", "inside the form"},
		"large, line break":   {strings.Repeat("a", 1000), strings.Repeat("a", 1000) + "\r\n", "added at the end"},
		"number kept exactly": {`{"a":1.10,"b":12345678901234567890}`, `{"b":12345678901234567890,"a":1.10}`, "sorted keys"},
	} {
		t.Run(name, func(t *testing.T) {
			h := githubHeader(sha256sum("s3cret-for-test", tc.signed))
			if strings.HasPrefix(tc.received, "payload=") {
				h.Set("Content-Type", formType)
			}
			d := Explain(cfg, Evidence{Header: h, Body: []byte(tc.received), Now: vectorTime})
			if len(d.Findings) != 1 || d.Findings[0].Mistake != MistakeBody || !d.Findings[0].Proven {
				t.Fatalf("%+v", d)
			}
			if !strings.Contains(d.Findings[0].Message, tc.says) {
				t.Errorf("does not say %q: %s", tc.says, d.Findings[0].Message)
			}
		})
	}
}

func TestExplainFindsTwoMistakesAtOnce(t *testing.T) {
	content := vectorID + ".1700000000." + `{"a": 1}`
	d := Explain(VerifierConfig{Scheme: Standard, Secrets: Secrets(standardSecret)}, Evidence{
		Header: standardHeader("v1," + base64.StdEncoding.EncodeToString(sha256sum(standardSecret, content))),
		Body:   []byte(`{"a":1}`), Now: vectorTime,
	})
	if len(d.Findings) != 2 || !d.Findings[0].Proven || !d.Findings[1].Proven {
		t.Errorf("%+v", d.Findings)
	}
}

func TestExplainSaysWhenItDoesNotKnow(t *testing.T) {
	ev := Evidence{Header: githubHeader(make([]byte, 32)), Body: bytes.Repeat([]byte("x"), maxVariantBody+1), Now: vectorTime}
	d := Explain(VerifierConfig{Scheme: GitHub, Secrets: Secrets("secret")}, ev)
	if !errors.Is(d.Err, ErrMismatch) || len(d.Findings) != 1 || d.Findings[0].Mistake != MistakeUnknown || d.Findings[0].Proven {
		t.Errorf("%+v", d)
	}
	d = Explain(VerifierConfig{Scheme: GitHub, Secrets: Secrets(standardSecret)}, ev)
	if len(d.Findings) != 1 || d.Findings[0].Mistake != MistakeSecretKind || d.Findings[0].Proven {
		t.Errorf("%+v", d)
	}
	d = Explain(VerifierConfig{Scheme: "nope"}, ev)
	if d.Err == nil || len(d.Findings) != 1 || d.Findings[0].Mistake != MistakeConfig {
		t.Errorf("%+v", d)
	}
	d = Explain(VerifierConfig{Scheme: GitHub}, Evidence{})
	if d.Err == nil || len(d.Findings) == 0 {
		t.Errorf("%+v", d)
	}
	// A signature of another scheme that is wrong under that one, too.
	d = Explain(VerifierConfig{Scheme: Standard, Secrets: Secrets(standardSecret)}, ev)
	if !slices.ContainsFunc(d.Findings, func(f Finding) bool { return f.Mistake == MistakeScheme && !f.Proven }) {
		t.Errorf("%+v", d)
	}
}

func TestExplainFindsTwiliosURL(t *testing.T) {
	for signedFor, says := range map[string]string{
		"http://h.example/hook":      "with http instead of https",
		"https://h.example/hook/":    "with a / at the end",
		"https://www.h.example/hook": "with www.",
	} {
		cfg := VerifierConfig{Scheme: Twilio, Secrets: Secrets("token"), Layout: Layout{PublicURL: "https://h.example/hook"}}
		signed, err := Sign(SchemeConfig{Scheme: Twilio, Keys: NewRing(NewSecret("token")), Layout: Layout{PublicURL: signedFor}},
			Message{ContentType: formType, Body: []byte("a=1")})
		if err != nil {
			t.Fatal(err)
		}
		signed.Header.Set("Content-Type", formType)
		d := Explain(cfg, Evidence{Header: signed.Header, Body: []byte("a=1"), Now: vectorTime})
		if d.Err == nil || len(d.Findings) == 0 || d.Findings[0].Mistake != MistakeURL || !strings.Contains(d.Findings[0].Message, says) {
			t.Errorf("%s: %+v", signedFor, d)
		}
		// And the reverse, for what is configured too long.
		cfg.PublicURL, signed.Header = signedFor+"?x=1", nil
		signed, err = Sign(SchemeConfig{Scheme: Twilio, Keys: NewRing(NewSecret("token")), Layout: Layout{PublicURL: signedFor}},
			Message{ContentType: formType, Body: []byte("a=1")})
		if err != nil {
			t.Fatal(err)
		}
		d = Explain(cfg, Evidence{Header: http.Header{"X-Twilio-Signature": signed.Header["X-Twilio-Signature"], "Content-Type": {formType}}, Body: []byte("a=1"), Now: vectorTime})
		if len(d.Findings) == 0 || !strings.Contains(d.Findings[0].Message, "without the query") {
			t.Errorf("%s?x=1: %+v", signedFor, d)
		}
		cfg.PublicURL = signedFor
		d = Explain(cfg, Evidence{Header: http.Header{"X-Twilio-Signature": signed.Header["X-Twilio-Signature"]}, Body: []byte("a=1"), Now: vectorTime})
		if !slices.ContainsFunc(d.Findings, func(f Finding) bool { return strings.Contains(f.Message, "signed as a form") }) {
			t.Errorf("content type: %+v", d)
		}
	}
}
