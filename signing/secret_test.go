package signing

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

const tellTale = "whsec_tell-tale"

func TestASecretIsNeverShown(t *testing.T) {
	s := NewSecret(tellTale)
	type holder struct {
		Public  Secret
		private Secret
		Pointer *Secret
	}
	h := holder{Public: s, private: s, Pointer: &s}
	_ = h.private
	var shown []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T %v"} {
		args := []any{s}
		if verb == "%T %v" {
			args = []any{s, s}
		}
		shown = append(shown, fmt.Sprintf(verb, args...))
		shown = append(shown, fmt.Sprintf(strings.TrimPrefix(verb, "%T "), h), fmt.Sprintf("%v", []any{s, &s, map[string]Secret{"k": s}}))
	}
	for _, v := range []any{s, h, &h, []Secret{s}, map[string]Secret{"k": s}} {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, string(data))
	}
	var log bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
		slog.New(handler).Info("x", "secret", s, "holder", h, "group", slog.GroupValue(slog.Any("s", s)))
	}
	text, err := s.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	shown = append(shown, log.String(), string(text), s.String(), s.GoString(), fmt.Sprint(s), fmt.Errorf("x: %v", s).Error())
	for _, out := range shown {
		if strings.Contains(out, "tell-tale") || strings.Contains(out, fmt.Sprintf("%x", "tell-tale")) {
			t.Errorf("shown: %s", out)
		}
	}
	if s.Reveal() != tellTale {
		t.Errorf("Reveal gives %q", s.Reveal())
	}
}

func TestARedactedSecretIsNotTakenForOne(t *testing.T) {
	var s Secret
	if err := json.Unmarshal([]byte(`"***"`), &s); err == nil || !s.IsZero() {
		t.Errorf("the placeholder became a secret: %v", err)
	}
	if err := CheckSecret(GitHub, NewSecret("***"), false); err == nil {
		t.Error("the placeholder verifies")
	}
	err := json.Unmarshal([]byte(`{"a":"tell-tale"}`), &s)
	if err == nil || strings.Contains(err.Error(), "tell-tale") {
		t.Errorf("object as secret: %v", err)
	}
	for text, want := range map[string]string{`"a\u0062c"`: "abc", `null`: ""} {
		if err := json.Unmarshal([]byte(text), &s); err != nil || s.Reveal() != want {
			t.Errorf("%s gives %q, %v", text, s.Reveal(), err)
		}
	}
	var cfg struct {
		Secret Secret `json:"secret,omitzero"`
	}
	if data, err := json.Marshal(cfg); err != nil || string(data) != "{}" {
		t.Errorf("zero secret: %s, %v", data, err)
	}
}

func TestSecretsAreComparedByText(t *testing.T) {
	if !NewSecret("a").Equal(NewSecret("a")) || NewSecret("a").Equal(NewSecret("b")) || (Secret{}).Equal(NewSecret("a")) {
		t.Error("Equal is wrong")
	}
}

func b64(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, n)) }

func TestSecretsArePickyAboutTheirForm(t *testing.T) {
	for _, tc := range []struct {
		scheme Scheme
		sign   bool
		text   string
		fault  string // part of the message, "" for a good one
	}{
		{Standard, true, "whsec_" + b64(24), ""},
		{Standard, true, "whsec_" + b64(64), ""},
		{Standard, true, b64(32), ""},
		{Standard, true, "whsec_" + b64(23), "decodes to 23 bytes"},
		{Standard, true, "whsec_" + b64(65), "decodes to 65 bytes"},
		{Standard, true, "whsec_", "decodes to 0 bytes"},
		{Standard, true, "whsec_" + strings.TrimRight(b64(32), "="), "padding"},
		{Standard, true, "whsec_" + strings.Repeat("-_", 22), "URL-safe"},
		{Standard, true, "whsec_" + b64(24)[:10] + "\n" + b64(24)[10:], "line break"},
		{Standard, true, "v1,whsec_" + b64(24), `"v1,"`},
		{Standard, true, "whsec_" + b64(32) + "\n", "white space"},
		{Standard, true, vectorSeed, "key pair"},
		{Standard, false, "not base64!", "base64"},
		{StandardEd25519, true, vectorSeed, ""},
		{StandardEd25519, true, strings.TrimPrefix(vectorSeed, "whsk_"), ""},
		{StandardEd25519, true, "whsk_" + b64(31), "31 bytes"},
		{StandardEd25519, true, "whsk_" + b64(64), "does not belong"},
		{StandardEd25519, true, "whpk_" + b64(32), "public key"},
		{StandardEd25519, false, "whpk_" + b64(32), ""},
		{StandardEd25519, false, "whpk_" + b64(31), "not an Ed25519 public key"},
		{StandardEd25519, false, vectorSeed, "private key"},
		{StandardEd25519, false, standardSecret, "shared secret"},
		{GitHub, true, "It's a Secret to Everybody", ""},
		{GitHub, true, standardSecret, ""},
		{GitHub, true, "whpk_" + b64(32), "key pair"},
		{GitHub, true, "a\x00b", "NUL"},
		{GitHub, true, strings.Repeat("x", 5000), "longer"},
		{GitHub, true, " x", "white space"},
		{Stripe, true, "whsec_stripe_literal", ""},
		{Discord, false, strings.Repeat("0a", 32), ""},
		{Discord, false, strings.Repeat("0A", 32), ""},
		{Discord, true, strings.Repeat("0a", 32), ""},
		{Telnyx, false, b64(32), ""},
		{Telnyx, false, strings.Repeat("0a", 32), "44 characters"},
		{"nope", false, "x", "not a signing scheme"},
	} {
		err := CheckSecret(tc.scheme, NewSecret(tc.text), tc.sign)
		if tc.fault == "" {
			if err != nil {
				t.Errorf("%s %.20q: %v", tc.scheme, tc.text, err)
			}
			continue
		}
		if ce, ok := errors.AsType[*ConfigError](err); !ok || !strings.Contains(ce.Error(), tc.fault) {
			t.Errorf("%s %.20q: %v, want %q", tc.scheme, tc.text, err, tc.fault)
		} else if len(tc.text) > 6 && strings.Contains(ce.Error(), tc.text) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}

// A private key in the 64-byte form is the same key as its seed.
func TestBothFormsOfAPrivateKeySignAlike(t *testing.T) {
	seed, err := parsePrivate(vectorSeed, keyEd25519)
	if err != nil {
		t.Fatal(err)
	}
	long := "whsk_" + base64.StdEncoding.EncodeToString(seed.priv)
	pub, err := PublicKey(NewSecret(long))
	if err != nil || pub != "whpk_I7xUkSwebpLEqGglyGfif/3FVb/71CRPF6Jqv//ull0=" {
		t.Errorf("%s, %v", pub, err)
	}
	for _, bad := range []string{"", "***", "whsk_x", pub} {
		if _, err := PublicKey(NewSecret(bad)); err == nil {
			t.Errorf("%q has a public key", bad)
		}
	}
}

func TestGeneratedSecretsWorkAndDiffer(t *testing.T) {
	seen := make(map[string]bool)
	for _, scheme := range Schemes() {
		for range 3 {
			s, err := GenerateSecret(scheme)
			if err != nil {
				t.Fatal(err)
			}
			if err := CheckSecret(scheme, s, true); err != nil {
				t.Errorf("%s: %v", scheme, err)
			}
			if seen[s.Reveal()] || len(s.Reveal()) < 44 {
				t.Errorf("%s: twice the same, or short", scheme)
			}
			seen[s.Reveal()] = true
		}
	}
	if _, err := GenerateSecret("nope"); err == nil {
		t.Error("a secret for no scheme")
	}
}

func TestEachRotationKeepsItsOwnWindow(t *testing.T) {
	start := vectorTime
	at := func(h float64) time.Time { return start.Add(time.Duration(h * float64(time.Hour))) }
	rotate := func(r Ring, next string, now time.Time, window time.Duration) Ring {
		t.Helper()
		out, err := r.Rotate(NewSecret(next), now, window)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	active := func(r Ring, now time.Time) string {
		var out []string
		for _, s := range r.Active(now) {
			out = append(out, s.Reveal())
		}
		return strings.Join(out, " ")
	}
	r := NewRing(NewSecret("first"))
	r = rotate(r, "second", at(0), DefaultRotationWindow)
	r = rotate(r, "third", at(6), DefaultRotationWindow)
	for hours, want := range map[float64]string{6: "third second first", 23.9: "third second first", 24: "third second", 29.9: "third second", 30: "third", 10000: "third"} {
		if got := active(r, at(hours)); got != want {
			t.Errorf("after %g h: %s, want %s", hours, got, want)
		}
	}
	if next, ok := r.NextExpiry(at(6)); !ok || !next.Equal(at(24)) {
		t.Errorf("next expiry %v", next)
	}
	if _, ok := r.NextExpiry(at(30)); ok {
		t.Error("the current secret expires")
	}
	if got := rotate(r, "fourth", at(25), time.Hour); len(got) != 3 {
		t.Errorf("expired secrets stay: %d", len(got))
	}
	if got := active(rotate(r, "fourth", at(7), 0), at(7)); got != "fourth" {
		t.Errorf("a window of zero leaves %s", got)
	}
	if r.Current().Reveal() != "third" || !(Ring{}).Current().IsZero() {
		t.Error("Current is not the newest")
	}
	if len(r) != 3 || r[1].Secret.Reveal() != "second" {
		t.Error("Rotate changed its receiver")
	}
}

func TestRotationsAreRefusedRatherThanLosingASecret(t *testing.T) {
	r := NewRing(NewSecret("0"))
	var err error
	for i := 1; i < MaxKeys; i++ {
		if r, err = r.Rotate(NewSecret(fmt.Sprint(i)), vectorTime, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Rotate(NewSecret("one more"), vectorTime, time.Hour); err == nil {
		t.Error("a secret in its window was dropped")
	}
	if _, err := r.Rotate(NewSecret("one more"), vectorTime, 0); err != nil {
		t.Errorf("a leak cannot be answered: %v", err)
	}
	if _, err := r.Rotate(NewSecret("3"), vectorTime, time.Hour); err == nil {
		t.Error("a secret in use is rotated in")
	}
	if _, err := r.Rotate(NewSecret("x"), vectorTime, -time.Hour); err == nil {
		t.Error("a negative window is accepted")
	}
}
