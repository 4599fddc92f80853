package ingress

import (
	"net/http"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// What the specification's own library signs is accepted here.
func TestOfficialStandardWebhooksLibraryIsAccepted(t *testing.T) {
	n := setup(t, Config{})
	lib, err := standardwebhooks.NewWebhook(vectorStandard)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	sig, err := lib.Sign("msg_lib", now, vectorBody)
	if err != nil {
		t.Fatal(err)
	}
	h := genuine(t, "msg_lib", []byte("for its headers"))
	h.Set("Webhook-Signature", sig)
	n.expect(n.post("standard", h, vectorBody), http.StatusAccepted, OutcomeBuffered)
}
