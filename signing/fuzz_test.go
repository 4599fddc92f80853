package signing

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// fuzzVerifiers is one Verifier for each scheme and the secret it was made of.
func fuzzVerifiers(t testing.TB) map[Scheme]*Verifier {
	out := make(map[Scheme]*Verifier)
	for _, s := range Schemes() {
		out[s] = bare(t, s, Layout{})
	}
	return out
}

// Whatever the headers are: no panic, a reason from the closed list, and no
// pass without the secret.
func FuzzHeaders(f *testing.F) {
	vectors, _ := loadVectors(f)
	for _, v := range vectors {
		f.Add(v.signature(), "1700000000", vectorID, "bodySHA256=00", "application/json", v.body)
	}
	f.Add("t,v1,t=1700000000,v1=00", "abc", "a.b", "", formType, []byte("a=%zz"))
	f.Add("v1a,x v1,x", "", "", "a&bodySHA256&", "x/y; a", []byte("{"))
	verifiers := fuzzVerifiers(f)
	f.Fuzz(func(t *testing.T, sig, ts, id, query, contentType string, body []byte) {
		for scheme, v := range verifiers {
			h := http.Header{"Content-Type": {contentType}, v.sigHeader: {sig}}
			if v.tsHeader != "" {
				h.Set(v.tsHeader, ts)
			}
			if v.idHeader != "" {
				h.Set(v.idHeader, id)
			}
			c, err := v.begin(h, query, vectorTime)
			if err == nil {
				err = c.FinishBody(body)
			}
			v.Identify(h, strings.NewReader(string(body)))
			v.Handshake(body)
			if err == nil {
				if !isVector(vectors, sig) {
					t.Fatalf("%s accepts %q", scheme, sig)
				}
				continue
			}
			ve, ok := errors.AsType[*VerifyError](err)
			if !ok || ve.Scheme != scheme || ve.Detail == "" {
				t.Fatalf("%s: %v", scheme, err)
			}
			if !errors.Is(err, ErrMissingHeader) && !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrTimestamp) && !errors.Is(err, ErrMismatch) {
				t.Fatalf("%s: reason %q is not of the list", scheme, ve.Reason)
			}
		}
	})
}

// isVector reports whether sig carries a signature that is genuine: the fuzzer
// may hand the seeds around.
func isVector(vectors []vector, sig string) bool {
	for _, v := range vectors {
		if text := v.signature(); strings.Contains(sig, text[strings.LastIndexAny(strings.TrimRight(text, "="), ",=")+1:]) {
			return true
		}
	}
	return false
}

// Whatever the secret is: no panic, its text in no error, and what is accepted
// can sign what its receiver verifies.
func FuzzSecrets(f *testing.F) {
	for _, s := range []string{"", " ", "***", standardSecret, vectorSeed, "v1," + standardSecret, "whpk_" + b64(32), strings.Repeat("0a", 32), "whsk_" + b64(64), "whsec_====", "é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		secret := NewSecret(text)
		for _, scheme := range Schemes() {
			for _, sign := range []bool{true, false} {
				if err := CheckSecret(scheme, secret, sign); err != nil {
					if ce, ok := errors.AsType[*ConfigError](err); !ok || len(text) > 12 && strings.Contains(ce.Error(), text) {
						t.Fatalf("%s: %v", scheme, err)
					}
					continue
				}
				if strings.TrimSpace(text) == "" {
					t.Fatalf("%s takes a blank secret", scheme)
				}
			}
			if !scheme.Outbound() || CheckSecret(scheme, secret, true) != nil {
				continue
			}
			cfg := SchemeConfig{Scheme: scheme, Keys: NewRing(secret)}
			h := make(http.Header)
			if err := mustSigner(t, cfg).Headers(h, "a", vectorTime, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if err := verifierFor(t, cfg).Verify(h, []byte(text), vectorTime); err != nil {
				t.Fatalf("%s: %v", scheme, err)
			}
		}
	})
}

// Whatever the template is: what is signed with it verifies with it.
func FuzzTemplates(f *testing.F) {
	for _, s := range []string{"{body}", "{timestamp}.{body}", "{id}.{timestamp}.{body}", "v0:{timestamp}:{body}", "{", "}", "{body}{id}", "{url}\n{body}", "{{body}}"} {
		f.Add(s, "sha256=", []byte("body"))
	}
	f.Fuzz(func(t *testing.T, content, prefix string, body []byte) {
		cfg := one(HMACHex, "secret")
		cfg.Layout = Layout{SignedContent: content, SignaturePrefix: prefix, PublicURL: "https://h.example/"}
		s, err := NewSigner(SignerConfig{Schemes: []SchemeConfig{cfg}})
		if err != nil {
			if _, ok := errors.AsType[*ConfigError](err); !ok {
				t.Fatal(err)
			}
			return
		}
		h := make(http.Header)
		if err := s.Headers(h, "a-1", vectorTime, body); err != nil {
			t.Fatal(err)
		}
		if err := mustVerifier(t, VerifierConfig{Scheme: HMACHex, Secrets: Secrets("secret"), Layout: cfg.Layout}).Verify(h, body, vectorTime); err != nil {
			t.Fatalf("%q: %v", content, err)
		}
	})
}

// What is accepted as a header is what net/http sends.
func FuzzValidateHeader(f *testing.F) {
	for _, s := range [][2]string{{"X-A", "b"}, {"Webhook-Id", "x"}, {"X\r\nB", "x"}, {"X-A", "a\x00"}, {"", ""}, {"X-Ä", "ä"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		err := ValidateHeader(name, value)
		if err == nil {
			h := http.Header{name: {value}}
			var b strings.Builder
			if werr := h.Write(&b); werr != nil || b.String() != name+": "+value+"\r\n" {
				t.Fatalf("%q is sent as %q (%v)", name+": "+value, b.String(), werr)
			}
			if !utf8.ValidString(name+value) || ReservedHeader(name) {
				t.Fatalf("accepted %q: %q", name, value)
			}
		}
	})
}

// Explain is given whatever someone pastes.
func FuzzExplain(f *testing.F) {
	f.Add("v1,whsec_x", "sha256=00", `{"a":"\u00e9"}`)
	f.Add(standardSecret, vectorV1, "payload={}")
	f.Fuzz(func(t *testing.T, secret, sig, body string) {
		if len(body) > 4096 {
			return
		}
		for _, scheme := range []Scheme{Standard, GitHub, Stripe, Discord, Twilio, HMACBase64} {
			cfg := VerifierConfig{Scheme: scheme, Secrets: Secrets(secret)}
			if scheme == Twilio {
				cfg.PublicURL = "https://h.example/"
			}
			ev := Evidence{Header: http.Header{specs[scheme].sigHeader: {sig}, HeaderTimestamp: {"1700000000"}, HeaderID: {"a"}}, Body: []byte(body), Now: time.Unix(1700000000, 0)}
			if d := Explain(cfg, ev); d.Err != nil && len(d.Findings) == 0 {
				t.Fatalf("%s: an error and nothing to say", scheme)
			}
		}
	})
}
