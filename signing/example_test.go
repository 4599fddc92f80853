package signing_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/signing"
)

// A receiver: verify first, then parse. During a rotation it lists the old
// secret and the new one.
func Example_receiver() {
	verifier, err := signing.NewVerifier(signing.VerifierConfig{
		Scheme:  signing.Standard,
		Secrets: signing.Secrets("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="),
	})
	if err != nil {
		panic(err)
	}
	logger := slog.New(slog.DiscardHandler)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := verifier.VerifyRequest(r, 1<<20, time.Now())
		if err != nil {
			// The error holds nothing secret. It is for the log all the same:
			// a forger need not be told more than no.
			logger.Debug("webhook refused", "error", err)
			http.Error(w, "signature", http.StatusUnauthorized)
			return
		}
		event := verifier.Identify(r.Header, strings.NewReader(string(body)))
		fmt.Println("event", event.ID, "of type", event.Type)
		w.WriteHeader(http.StatusNoContent)
	})

	// The sender's half, to have something to receive.
	signer, err := signing.NewSigner(signing.SignerConfig{Schemes: []signing.SchemeConfig{{
		Scheme: signing.Standard,
		Keys:   signing.NewRing(signing.NewSecret("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")),
	}}})
	if err != nil {
		panic(err)
	}
	payload := `{"type":"order.paid","data":{"id":7}}`
	for _, sent := range []string{payload, `{"type":"order.paid","data":{"id":8}}`} {
		r := httptest.NewRequest(http.MethodPost, "/hooks", strings.NewReader(sent))
		if err := signer.Headers(r.Header, "evt_42", time.Now(), []byte(payload)); err != nil {
			panic(err)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// event evt_42 of type order.paid
	// 204
	// 401
}

// A body that is large or comes slowly is checked while it arrives, and the
// headers before any of it is read.
func ExampleVerifier_Begin() {
	verifier, err := signing.NewVerifier(signing.VerifierConfig{
		Scheme: signing.GitHub, Secrets: signing.Secrets("It's a Secret to Everybody"),
	})
	if err != nil {
		panic(err)
	}
	header := http.Header{}
	header.Set("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")

	check, err := verifier.Begin(header, time.Now())
	if err != nil {
		panic(err)
	}
	for _, piece := range []string{"Hello, ", "World!"} {
		fmt.Fprint(check, piece)
	}
	fmt.Println(check.Finish())
	// Output: <nil>
}

// The reasons are a closed list.
func ExampleVerifyError() {
	verifier, err := signing.NewVerifier(signing.VerifierConfig{
		Scheme: signing.Stripe, Secrets: signing.Secrets("whsec_stripe_literal"),
	})
	if err != nil {
		panic(err)
	}
	err = verifier.Verify(http.Header{}, nil, time.Now())
	if refused, ok := errors.AsType[*signing.VerifyError](err); ok {
		fmt.Println(refused.Reason, refused.Header, errors.Is(err, signing.ErrMissingHeader))
	}
	// Output: missing_header Stripe-Signature true
}

// A signature that ought to be right and is not usually has one of few reasons.
func ExampleExplain() {
	cfg := signing.VerifierConfig{Scheme: signing.GitHub, Secrets: signing.Secrets("It's a Secret to Everybody")}
	header := http.Header{}
	header.Set("X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17")

	d := signing.Explain(cfg, signing.Evidence{Header: header, Body: []byte("Hello, World!\n"), Now: time.Now()})
	fmt.Println(d.Err)
	for _, f := range d.Findings {
		fmt.Println(f.Mistake, f.Proven, f.Message)
	}
	// Output:
	// verify github: X-Hub-Signature-256: does not match the body under any active secret
	// body_altered true the signature covers other bytes than these: a line break was added at the end.
}

// An old secret stays valid for a while after it was replaced.
func ExampleRing_Rotate() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ring := signing.NewRing(signing.NewSecret("old-secret"))
	ring, err := ring.Rotate(signing.NewSecret("new-secret"), now, signing.DefaultRotationWindow)
	if err != nil {
		panic(err)
	}
	fmt.Println(len(ring.Active(now)), len(ring.Active(now.Add(24*time.Hour))), ring.Current())
	// Output: 2 1 ***
}
