//go:build real

package realtest

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v84/webhook"

	"github.com/dispatcher-engine/dispatcher/signing"
)

// Stripe's library for Go reads the header apart from its library for Node.js,
// several signatures and all.
func TestRealLibraryOfStripeForGoAgreesInBothDirections(t *testing.T) {
	const secret, next = "whsec_stripe_literal", "whsec_stripe_next"
	now := time.Now()
	ring, err := signing.NewRing(signing.NewSecret(secret)).Rotate(signing.NewSecret(next), now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := signing.NewVerifier(signing.VerifierConfig{Scheme: signing.Stripe, Secrets: ring.Active(now)})
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range bodies(t) {
		signed, err := signing.Sign(signing.SchemeConfig{Scheme: signing.Stripe, Keys: ring}, signing.Message{Time: now, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		other := append(bytes.Clone(body), ' ')
		for _, each := range []string{secret, next} {
			if err := webhook.ValidatePayload(body, signed.Header.Get("Stripe-Signature"), each); err != nil {
				t.Errorf("%s: with %q the library refuses: %v", name, each, err)
			}
			if webhook.ValidatePayload(other, signed.Header.Get("Stripe-Signature"), each) == nil {
				t.Errorf("%s: the library accepts another body", name)
			}
			theirs := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: body, Secret: each, Timestamp: now})
			h := http.Header{"Stripe-Signature": {theirs.Header}}
			if err := verifier.Verify(h, body, now); err != nil {
				t.Errorf("%s: we refuse: %v", name, err)
			}
			if verifier.Verify(h, other, now) == nil {
				t.Errorf("%s: we accept another body", name)
			}
		}
	}
}
