package signing

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
)

func TestVectorsAreSignedExactly(t *testing.T) {
	vectors, _ := loadVectors(t)
	if len(vectors) < 10 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	for _, vec := range vectors {
		t.Run(string(vec.Scheme), func(t *testing.T) {
			got, err := Sign(SchemeConfig{Scheme: vec.Scheme, Keys: NewRing(vec.signSecret())},
				Message{ID: vectorID, Time: vectorTime, Body: vec.body})
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range vec.Headers {
				if have := got.Header.Get(name); have != want {
					t.Errorf("%s: %q, want %q", name, have, want)
				}
			}
			if len(got.Header) != len(vec.Headers) {
				t.Errorf("headers %v, want just those of %v", got.Header, vec.Headers)
			}
		})
	}
}

func TestVectorsVerify(t *testing.T) {
	vectors, _ := loadVectors(t)
	for _, vec := range vectors {
		t.Run(string(vec.Scheme), func(t *testing.T) {
			v := mustVerifier(t, VerifierConfig{Scheme: vec.Scheme, Secrets: []Secret{vec.verifySecret()}})
			if err := v.Verify(vec.header(), vec.body, vectorTime); err != nil {
				t.Fatalf("genuine: %v", err)
			}
			for i := range vec.body {
				forged := []byte(string(vec.body))
				forged[i] ^= 1
				if err := v.Verify(vec.header(), forged, vectorTime); !errors.Is(err, ErrMismatch) {
					t.Fatalf("byte %d changed: %v", i, err)
				}
			}
			for _, forged := range [][]byte{nil, vec.body[1:], vec.body[:len(vec.body)-1], append([]byte(" "), vec.body...)} {
				if err := v.Verify(vec.header(), forged, vectorTime); !errors.Is(err, ErrMismatch) {
					t.Fatalf("body %q: %v", forged, err)
				}
			}
		})
	}
}

// Every bit of a signature counts, in every scheme.
func TestSignaturesWithOneBitChangedFail(t *testing.T) {
	vectors, _ := loadVectors(t)
	for _, vec := range vectors {
		v := mustVerifier(t, VerifierConfig{Scheme: vec.Scheme, Secrets: []Secret{vec.verifySecret()}})
		sp := specs[vec.Scheme]
		text := vec.signature()
		at := strings.LastIndexAny(text, ",=") + 1
		if sp.codec == codecBase64 {
			at = strings.LastIndex(strings.TrimRight(text, "="), ",") + 1
		}
		raw, ok := sp.codec.decode(text[at:], sp.alg.size())
		if !ok {
			t.Fatalf("%s: cannot read %q", vec.Scheme, text)
		}
		for bit := range len(raw) * 8 {
			forged := []byte(string(raw))
			forged[bit/8] ^= 1 << (bit % 8)
			h := vec.header()
			h.Set(sp.sigHeader, text[:at]+string(sp.codec.appendTo(nil, forged)))
			if err := v.Verify(h, vec.body, vectorTime); !errors.Is(err, ErrMismatch) {
				t.Fatalf("%s: bit %d: %v", vec.Scheme, bit, err)
			}
		}
	}
}

// crossKey is a secret that other can be configured with and that has the same
// key bytes as the vector's where that is possible.
func crossKey(t testing.TB, vec vector, other Scheme) Secret {
	t.Helper()
	raw, err := hex.DecodeString("23bc54912c1e6e92c4a86825c867e27ffdc555bffbd4244f17a26abfffee965d")
	if err != nil {
		t.Fatal(err)
	}
	switch specs[other].key {
	case keyStandard:
		return NewSecret("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	case keyEd25519, keyEdBase64:
		return NewSecret(string(codecBase64.appendTo(nil, raw)))
	case keyEdHex:
		return NewSecret(hex.EncodeToString(raw))
	default:
		if vec.Secret == "" {
			return NewSecret("s3cret-for-test")
		}
		return vec.signSecret()
	}
}

// equalRule reports pairs whose rules are the same on purpose: hmac-base64
// without settings is Shopify's rule under another header.
func equalRule(a, b Scheme) bool {
	return a == b || a == Shopify && b == HMACBase64 || a == HMACBase64 && b == Shopify
}

// crossMatrix hands every vector to every other scheme's verifier: as it is,
// and with its signature copied into the header where the other looks.
func crossMatrix(t *testing.T) {
	vectors, _ := loadVectors(t)
	for _, vec := range vectors {
		for _, other := range Schemes() {
			v := mustVerifier(t, VerifierConfig{
				Scheme: other, Secrets: []Secret{crossKey(t, vec, other)},
				Layout: Layout{PublicURL: map[Scheme]string{Twilio: "https://h.example/"}[other]},
			})
			if other == vec.Scheme {
				continue
			}
			if err := v.Verify(vec.header(), vec.body, vectorTime); err == nil && v.sigHeader != specs[vec.Scheme].sigHeader {
				t.Errorf("%s passes as %s", vec.Scheme, other)
			}
			if equalRule(vec.Scheme, other) {
				continue
			}
			h := vec.header()
			h.Set(v.sigHeader, vec.signature())
			if v.tsHeader != "" {
				h.Set(v.tsHeader, "1700000000")
			}
			if v.idHeader != "" {
				h.Set(v.idHeader, vectorID)
			}
			if err := v.Verify(h, vec.body, vectorTime); err == nil {
				t.Errorf("%s passes as %s with its signature moved", vec.Scheme, other)
			}
		}
	}
}
