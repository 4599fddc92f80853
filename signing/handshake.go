package signing

import (
	"bytes"
	"encoding/json"
	"net/http"
)

// Reply is the answer to a provider's handshake.
type Reply struct {
	Status      int
	ContentType string // "" without a body
	Body        []byte
}

// ServeHTTP writes the reply.
func (r Reply) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if r.ContentType != "" {
		w.Header().Set("Content-Type", r.ContentType)
		w.Header().Set("X-Content-Type-Options", "nosniff")
	}
	w.WriteHeader(r.Status)
	if len(r.Body) > 0 {
		_, _ = w.Write(r.Body)
	}
}

// Handshake recognises a request by which a provider only tries out the URL,
// and returns the answer it waits for. Such a request is not an event. Call it
// after the request was verified: providers sign these too, Discord in order to
// see that a wrong signature is refused.
//
//   - Slack, "url_verification": 200 and the challenge as text.
//   - Discord, an interaction of type 1 (PING): 200 and {"type":1}.
//   - Discord, a webhook event of type 0 (PING): 204.
func (v *Verifier) Handshake(body []byte) (Reply, bool) {
	if len(body) > maxHandshake {
		return Reply{}, false
	}
	switch v.scheme {
	case Slack:
		return slackHandshake(body)
	case Discord:
		return discordHandshake(body)
	default:
		return Reply{}, false
	}
}

// maxHandshake is far above what any provider sends for one.
const maxHandshake = 64 << 10

func slackHandshake(body []byte) (Reply, bool) {
	found := scanJSON(bytes.NewReader(body), "type", "challenge")
	challenge := found["challenge"]
	// The challenge goes back as it came, so it is plain text or nothing.
	if found["type"] != "url_verification" || challenge == "" || valueFault(challenge) != "" {
		return Reply{}, false
	}
	return Reply{Status: http.StatusOK, ContentType: "text/plain; charset=utf-8", Body: []byte(challenge)}, true
}

// discordHandshake tells two kinds of body apart that share the field "type":
// an interaction (1 is PING) and a webhook event (0 is PING, 1 an event, which
// then has the member "event").
func discordHandshake(body []byte) (Reply, bool) {
	var m struct {
		Type  *int             `json:"type"`
		Event *json.RawMessage `json:"event"` // nil for null too
	}
	if json.Unmarshal(body, &m) != nil || m.Type == nil || m.Event != nil {
		return Reply{}, false
	}
	switch *m.Type {
	case 0:
		return Reply{Status: http.StatusNoContent}, true
	case 1:
		return Reply{Status: http.StatusOK, ContentType: "application/json", Body: []byte(`{"type":1}`)}, true
	default:
		return Reply{}, false
	}
}
