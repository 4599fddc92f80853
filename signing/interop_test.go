package signing

import (
	"bytes"
	"net/http"
	"strconv"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The reference implementation of Standard Webhooks accepts what we sign, for
// either secret of a rotation, and we accept what it signs.
func TestReferenceImplementationAgrees(t *testing.T) {
	now := time.Now()
	current, err := GenerateSecret(Standard)
	if err != nil {
		t.Fatal(err)
	}
	ring, err := NewRing(NewSecret(standardSecret)).Rotate(current, now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	signer := mustSigner(t, SchemeConfig{Scheme: Standard, Keys: ring}, one(StandardEd25519, vectorSeed))
	verifier := mustVerifier(t, VerifierConfig{Scheme: Standard, Secrets: ring.Active(now)})
	for _, body := range [][]byte{nil, []byte("{}"), vectorBody(t), bytes.Repeat([]byte{0, 0xff, '\n'}, 5000)} {
		h := make(http.Header)
		if err := signer.Headers(h, "evt_1", now, body); err != nil {
			t.Fatal(err)
		}
		for _, secret := range ring.Active(now) {
			theirs, err := standardwebhooks.NewWebhook(secret.Reveal())
			if err != nil {
				t.Fatal(err)
			}
			if err := theirs.Verify(body, h); err != nil {
				t.Errorf("%d bytes: the reference refuses ours: %v", len(body), err)
			}
			if err := theirs.Verify(append(bytes.Clone(body), ' '), h); err == nil {
				t.Errorf("%d bytes: the reference accepts another body", len(body))
			}
			sig, err := theirs.Sign("msg_2", now, body)
			if err != nil {
				t.Fatal(err)
			}
			got := http.Header{HeaderID: {"msg_2"}, HeaderTimestamp: {strconv.FormatInt(now.Unix(), 10)}, HeaderSignature: {sig}}
			if err := verifier.Verify(got, body, now); err != nil {
				t.Errorf("%d bytes: we refuse the reference's: %v", len(body), err)
			}
		}
	}
}
