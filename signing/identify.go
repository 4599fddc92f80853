package signing

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Event is what a request says about itself, in the provider's own words.
type Event struct {
	// ID is the same for every attempt to deliver the same event, for the
	// receiver to recognise one it has. "" if the request has none that is
	// usable: the hash of the body is the way then.
	ID string
	// IDSigned reports whether the signature covers ID. GitHub's, Shopify's and
	// Twilio's are headers outside it: who replays a request may change them.
	IDSigned bool
	// Type is the kind of event as a topic: segments of [A-Za-z0-9_-] with dots
	// between them. "" if the request does not say.
	Type string
}

// UnknownType is the last segment of [Event.Topic] for an event without a type.
const UnknownType = "unknown"

// Topic returns "SOURCE.TYPE", or "SOURCE.unknown" for an event without a type.
func (e Event) Topic(source string) string {
	if e.Type == "" {
		return source + "." + UnknownType
	}
	return source + "." + e.Type
}

// identifier finds the event of one scheme.
type identifier func(l *layout, h http.Header, body io.Reader) Event

// Identify reads an event's id and type from a request, after it was verified.
// body is nil or the whole body; it is read at most once, and only where the
// answer is in it (see [Verifier.IdentifiesByBody]). What cannot be found is
// left empty: a genuine request that looks unfamiliar is still an event.
func (v *Verifier) Identify(h http.Header, body io.Reader) Event {
	if body == nil {
		body = bytes.NewReader(nil)
	}
	e := v.spec.identify(v.layout, h, body)
	if len(e.ID) > maxID || valueFault(e.ID) != "" {
		e.ID = ""
	}
	e.IDSigned = e.IDSigned && e.ID != ""
	e.Type = topicOf(e.Type)
	return e
}

// IdentifiesByBody reports whether [Verifier.Identify] reads the body.
func (v *Verifier) IdentifiesByBody() bool {
	switch v.scheme {
	case GitHub, Shopify, HMACHex, HMACBase64:
		return false
	default:
		return true
	}
}

const maxType = 128

// topicOf makes a provider's name of a kind of event usable as a topic:
// "orders/create" becomes "orders.create". Empty segments vanish.
func topicOf(kind string) string {
	if len(kind) > maxType {
		return ""
	}
	cut := func(r rune) bool { return r == '.' || r == '/' }
	var b strings.Builder
	for segment := range strings.FieldsFuncSeq(kind, cut) {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		for _, r := range segment {
			if r != '_' && r != '-' && (r > 0x7e || !isAlphanumeric(byte(r))) {
				r = '_'
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// first returns the first value of a header, without the demands that
// verification makes: a doubtful id only costs a duplicate.
func first(h http.Header, name string) string {
	if v := headerValues(h, canonical(name)); len(v) > 0 {
		return v[0]
	}
	return ""
}

func identifyStandard(l *layout, h http.Header, body io.Reader) Event {
	found := scanJSON(body, "type")
	return Event{ID: first(h, l.idHeader), IDSigned: true, Type: found["type"]}
}

func identifyGitHub(_ *layout, h http.Header, _ io.Reader) Event {
	return Event{ID: first(h, "X-GitHub-Delivery"), Type: first(h, "X-GitHub-Event")}
}

func identifyStripe(_ *layout, _ http.Header, body io.Reader) Event {
	found := scanJSON(body, "id", "type")
	return Event{ID: found["id"], IDSigned: true, Type: found["type"]}
}

func identifyShopify(_ *layout, h http.Header, _ io.Reader) Event {
	return Event{ID: first(h, "X-Shopify-Webhook-Id"), Type: first(h, "X-Shopify-Topic")}
}

// identifySlack knows the Events API (JSON), interactions (a form with JSON in
// "payload") and slash commands (a form).
func identifySlack(_ *layout, h http.Header, body io.Reader) Event {
	if isForm(h) {
		form := parseForm(body)
		if payload := form.Get("payload"); payload != "" {
			return Event{Type: scanJSON(strings.NewReader(payload), "type")["type"]}
		}
		if form.Has("command") {
			return Event{ID: form.Get("trigger_id"), IDSigned: true, Type: "command"}
		}
		return Event{}
	}
	found := scanJSON(body, "event_id", "type", "event.type")
	e := Event{ID: found["event_id"], IDSigned: true, Type: found["event.type"]}
	if e.Type == "" {
		e.Type = found["type"]
	}
	return e
}

// interactionTypes are Discord's kinds of interaction by number.
var interactionTypes = map[string]string{
	"1": "interaction.ping", "2": "interaction.application_command", "3": "interaction.message_component",
	"4": "interaction.application_command_autocomplete", "5": "interaction.modal_submit",
}

// identifyDiscord knows webhook events, which have no id, and interactions.
func identifyDiscord(_ *layout, _ http.Header, body io.Reader) Event {
	found := scanJSON(body, "id", "type", "event.type")
	if kind := found["event.type"]; kind != "" {
		return Event{Type: kind}
	}
	return Event{ID: found["id"], IDSigned: true, Type: interactionTypes[found["type"]]}
}

func identifyTelnyx(_ *layout, _ http.Header, body io.Reader) Event {
	found := scanJSON(body, "data.id", "data.event_type")
	return Event{ID: found["data.id"], IDSigned: true, Type: found["data.event_type"]}
}

// identifyTwilio takes the type from the form field that says what happened.
func identifyTwilio(_ *layout, h http.Header, body io.Reader) Event {
	e := Event{ID: first(h, "I-Twilio-Idempotency-Token")}
	if !isForm(h) {
		e.Type = scanJSON(body, "type")["type"]
		return e
	}
	form := parseForm(body)
	for _, f := range [...]struct{ field, prefix string }{
		{"EventType", ""}, {"MessageStatus", "message."}, {"SmsStatus", "message."}, {"CallStatus", "call."},
	} {
		if value := form.Get(f.field); value != "" {
			e.Type = f.prefix + value
			break
		}
	}
	return e
}

func identifyGeneric(l *layout, h http.Header, _ io.Reader) Event {
	if l.idHeader != "" {
		return Event{ID: first(h, l.idHeader), IDSigned: l.content.usesID, Type: first(h, "X-Event-Type")}
	}
	return Event{ID: first(h, "X-Event-ID"), Type: first(h, "X-Event-Type")}
}

// maxForm bounds the form that is read for an event's type. Forms of events
// are far smaller; of a larger one nothing is known.
const maxForm = 256 << 10

func parseForm(r io.Reader) url.Values {
	text, err := io.ReadAll(io.LimitReader(r, maxForm+1))
	if err != nil || len(text) > maxForm {
		return nil
	}
	form, err := url.ParseQuery(string(text))
	if err != nil {
		return nil
	}
	return form
}
