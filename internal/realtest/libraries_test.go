//go:build real

package realtest

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/payloads"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// library is an official implementation of one scheme.
type library struct {
	name   string
	scheme signing.Scheme
	// private is what we sign with, and public what the peer verifies with;
	// the same text for HMAC schemes.
	private, public string
	// signs says that the library can sign, too.
	signs bool
}

const keyBytes = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

var libraries = []library{
	{"standardwebhooks", signing.Standard, "whsec_" + keyBytes, "whsec_" + keyBytes, true},
	{"stripe", signing.Stripe, "whsec_stripe_literal", "whsec_stripe_literal", true},
	{"svix", signing.Standard, "whsec_" + keyBytes, "whsec_" + keyBytes, true},
	{"openssl", signing.StandardEd25519, "whsk_" + keyBytes, "whpk_I7xUkSwebpLEqGglyGfif/3FVb/71CRPF6Jqv//ull0=", true},
	{"octokit", signing.GitHub, "s3cret-for-test", "s3cret-for-test", true},
	{"shopify", signing.Shopify, "s3cret-for-test", "s3cret-for-test", true},
	{"slack", signing.Slack, "slack-signing-secret", "slack-signing-secret", false},
	{"telnyx", signing.Telnyx, keyBytes, "I7xUkSwebpLEqGglyGfif/3FVb/71CRPF6Jqv//ull0=", false},
	{"discord", signing.Discord, "3031323334353637383961626364656630313233343536373839616263646566",
		"23bc54912c1e6e92c4a86825c867e27ffdc555bffbd4244f17a26abfffee965d", false},
}

// bodies are real ones, and the one that any re-encoding breaks.
func bodies(t *testing.T) map[string][]byte {
	t.Helper()
	out := map[string][]byte{"not ASCII": vectors(t).Body}
	for _, p := range payloads.GitHub() {
		out[p.Name] = p.Body
	}
	return out
}

func sign(t *testing.T, l library, id string, now time.Time, body []byte) http.Header {
	t.Helper()
	signed, err := signing.Sign(
		signing.SchemeConfig{Scheme: l.scheme, Keys: signing.NewRing(signing.NewSecret(l.private))},
		signing.Message{ID: id, Time: now, ContentType: "application/json", Body: body})
	if err != nil {
		t.Fatal(err)
	}
	return signed.Header
}

func TestRealLibraryAcceptsWhatWeSign(t *testing.T) {
	node := start(t)
	now := time.Now()
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			for name, body := range bodies(t) {
				r := request{Library: l.name, Action: "verify", Secret: l.public, Now: now.Unix(), Body: body}
				r.Headers = flat(sign(t, l, "msg_"+l.name, now, body))
				if a := node.ask(t, r); !a.OK {
					t.Errorf("%s: the library refuses: %s", name, a.Error)
				}
				r.Body = append(bytes.Clone(body), ' ')
				if a := node.ask(t, r); a.OK {
					t.Errorf("%s: the library accepts another body", name)
				}
			}
		})
	}
}

func TestRealLibrarySignsWhatWeAccept(t *testing.T) {
	node := start(t)
	now := time.Now()
	for _, l := range libraries {
		if !l.signs {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			verifier, err := signing.NewVerifier(signing.VerifierConfig{Scheme: l.scheme, Secrets: signing.Secrets(l.public)})
			if err != nil {
				t.Fatal(err)
			}
			for name, body := range bodies(t) {
				a := node.ask(t, request{Library: l.name, Action: "sign", Secret: l.private, ID: "msg_" + l.name, Now: now.Unix(), Body: body})
				if !a.OK {
					t.Fatalf("%s: the library does not sign: %s", name, a.Error)
				}
				h := http.Header{}
				for name, value := range a.Headers {
					h.Set(name, value)
				}
				if err := verifier.Verify(h, body, now); err != nil {
					t.Errorf("%s: we refuse: %v", name, err)
				}
				if err := verifier.Verify(h, append(bytes.Clone(body), ' '), now); err == nil {
					t.Errorf("%s: we accept another body", name)
				}
			}
		})
	}
}

// The vectors were computed apart from both sides: library, vector and our own
// signature must be one.
func TestRealLibraryAgreesWithTheVectors(t *testing.T) {
	node := start(t)
	file := vectors(t)
	at := time.Unix(file.Timestamp, 0)
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			v := file.find(t, l.scheme)
			r := request{Library: l.name, Action: "verify", Secret: l.public, Now: file.Timestamp, Headers: flat(v), Body: file.Body}
			if a := node.ask(t, r); !a.OK {
				t.Errorf("the library refuses the vector: %s", a.Error)
			}
			ours := flat(sign(t, l, file.ID, at, file.Body))
			for name, want := range flat(v) {
				if ours[name] != want {
					t.Errorf("we sign %s: %s, the vector is %s", name, ours[name], want)
				}
			}
		})
	}
}

// During a rotation a receiver that knows either secret must be served.
func TestRealLibraryAcceptsEitherSecretOfARotation(t *testing.T) {
	node := start(t)
	now := time.Now()
	for _, l := range libraries[:3] {
		t.Run(l.name, func(t *testing.T) {
			next := strings.Replace(l.private, "M", "N", 1) + strings.Repeat("x", strings.Count(l.name, "stripe"))
			ring, err := signing.NewRing(signing.NewSecret(l.private)).Rotate(signing.NewSecret(next), now, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			signed, err := signing.Sign(signing.SchemeConfig{Scheme: l.scheme, Keys: ring},
				signing.Message{ID: "msg_rotated", Time: now, Body: []byte(`{}`)})
			if err != nil {
				t.Fatal(err)
			}
			for _, secret := range []string{l.private, next} {
				r := request{Library: l.name, Action: "verify", Secret: secret, Now: now.Unix(), Headers: flat(signed.Header), Body: []byte(`{}`)}
				if a := node.ask(t, r); !a.OK {
					t.Errorf("with %q the library refuses: %s", secret, a.Error)
				}
			}
		})
	}
}
