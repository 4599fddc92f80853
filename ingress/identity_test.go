package ingress

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// delivered sends a GitHub delivery with an id, which GitHub does not sign.
func (n *node) delivered(source, id string, body string) int {
	n.t.Helper()
	h := signed(n.t, signing.GitHub, vectorSecret, "", []byte(body), time.Now())
	if id != "" {
		h.Set("X-GitHub-Delivery", id)
	}
	return n.post(source, h, []byte(body)).Code
}

func TestReplayUnderAnotherIDIsRecognisedByItsBody(t *testing.T) {
	n := setup(t, Config{})
	careful := standardSources()["github"]
	careful.DedupeBody = true
	n.sources.set("acme", "careful", careful)
	for _, c := range []struct {
		source string
		want   int
	}{{"careful", http.StatusOK}, {"github", http.StatusAccepted}} {
		if got := n.delivered(c.source, "id-1", `{"a":1}`); got != http.StatusAccepted {
			t.Fatalf("%s: %d", c.source, got)
		}
		if got := n.delivered(c.source, "id-2", `{"a":1}`); got != c.want {
			t.Errorf("%s: the same body under another id: %d, want %d", c.source, got, c.want)
		}
		if got := n.delivered(c.source, "id-3", `{"a":2}`); got != http.StatusAccepted {
			t.Errorf("%s: another body: %d", c.source, got)
		}
	}
}

func TestWithoutAnyIDTheBodyIsRecognised(t *testing.T) {
	n := setup(t, Config{})
	for i, want := range []int{http.StatusAccepted, http.StatusOK, http.StatusOK} {
		if got := n.delivered("github", "", `{"a":1}`); got != want {
			t.Errorf("copy %d: %d, want %d", i, got, want)
		}
	}
	if got := n.delivered("github", "", `{"a":2}`); got != http.StatusAccepted {
		t.Errorf("another body: %d", got)
	}
}

// Stripe's retries differ in the count of deliveries that are pending, under an
// id that the signature covers: they are one event.
func TestSignedIDWithAnotherBodyIsTheSameEvent(t *testing.T) {
	n := setup(t, Config{})
	for i, body := range []string{`{"id":"evt_1","pending_webhooks":2}`, `{"id":"evt_1","pending_webhooks":1}`} {
		w := n.post("stripe", signed(t, signing.Stripe, vectorStripe, "", []byte(body), time.Now()), []byte(body))
		if a := answerOf(t, w); w.Code/100 != 2 || a.ID != "stripe:evt_1" {
			t.Errorf("attempt %d: %d, %+v", i, w.Code, a)
		}
	}
	if rows := len(n.store.stored()); rows != 1 {
		t.Errorf("%d rows", rows)
	}
}

// An unsigned id proves nothing, while the body is genuine: dropping the second
// event because of the first one's id would lose it.
func TestUnsignedIDWithAnotherBodyIsAnotherEvent(t *testing.T) {
	n := setup(t, Config{})
	for i, c := range []struct {
		body string
		want int
	}{
		{`{"a":1}`, http.StatusAccepted}, {`{"a":2}`, http.StatusAccepted}, {`{"a":2}`, http.StatusOK}, {`{"a":1}`, http.StatusOK},
	} {
		if got := n.delivered("github", "id-1", c.body); got != c.want {
			t.Errorf("request %d: %d, want %d", i, got, c.want)
		}
	}
	rows := n.store.stored()
	if len(rows) != 2 || rows[0].ID == rows[1].ID || delivery.CheckEventID(rows[1].ID) != nil {
		t.Errorf("%d rows, ids %q", len(rows), []string{rows[0].ID, rows[len(rows)-1].ID})
	}
}

func TestDedupeHeaderIsReadWhereTheSchemeDoesNotKnowIt(t *testing.T) {
	n := setup(t, Config{})
	for _, scheme := range []signing.Scheme{signing.GitHub, signing.HMACHex} {
		name := string(scheme)
		n.sources.set("acme", name, &Source{
			Scheme: scheme, Secrets: signing.Secrets(vectorSecret), Destination: Destination{Type: DestinationFanOut}, DedupeHeader: "x-my-id",
		})
		send := func(id, body string) int {
			h := signed(t, scheme, vectorSecret, "", []byte(body), time.Now())
			h.Set("X-My-Id", id)
			h.Set("X-GitHub-Delivery", "always-the-same")
			return n.post(name, h, []byte(body)).Code
		}
		for i, c := range []struct {
			id, body string
			want     int
		}{{"1", "a", 202}, {"1", "a", 200}, {"2", "b", 202}, {"2", "b", 200}} {
			if got := send(c.id, c.body); got != c.want {
				t.Errorf("%s, request %d: %d, want %d", name, i, got, c.want)
			}
		}
	}
	// In the signed content of standard, it is the id that is signed.
	n.sources.set("acme", "renamed", &Source{
		Scheme: signing.Standard, Secrets: signing.Secrets(vectorStandard), Destination: Destination{Type: DestinationFanOut}, DedupeHeader: "Svix-Id",
	})
	h := genuine(t, "msg_1", vectorBody)
	h.Set("Svix-Id", "msg_1")
	h.Del("Webhook-Id")
	n.expect(n.post("renamed", h, vectorBody), http.StatusAccepted, OutcomeBuffered)
	h.Set("Svix-Id", "msg_2")
	n.expect(n.post("renamed", h, vectorBody), http.StatusUnauthorized, OutcomeMismatch)
}

func TestIDThatNoHeaderCouldCarryOnIsNotUsed(t *testing.T) {
	p, err := prepare("acme", "x", &Source{
		Scheme: signing.GitHub, Secrets: signing.Secrets(vectorSecret), Destination: Destination{Type: DestinationFanOut}, DedupeHeader: "X-My-Id",
	}, nodeMaxBody)
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]string{"ok": "ok", "a\x01b": "gh", "": "gh", string(make([]byte, 300)): "gh"} {
		h := http.Header{"X-My-Id": {value}, "X-Github-Delivery": {"gh"}}
		if got := p.identify(h, NewBody(nil)); got.id != want {
			t.Errorf("%.20q: id %q, want %q", value, got.id, want)
		}
	}
}

func TestConflictThatCannotBeResolvedIsNo2xx(t *testing.T) {
	n := setup(t, Config{})
	n.store.setFail(errors.Join(errDown, &delivery.ConflictError{ID: "x"}))
	if got := n.delivered("github", "id-1", `{"a":1}`); got != http.StatusServiceUnavailable {
		t.Errorf("%d", got)
	}
}
