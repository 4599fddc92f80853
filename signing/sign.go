package signing

import (
	"fmt"
	"net/http"
	"time"
)

// Message is one message to be signed by [Sign].
type Message struct {
	// ID is the message id, for schemes that sign one.
	ID string
	// Time is the timestamp, for schemes that have one, and decides which keys
	// are valid. Zero means now.
	Time time.Time
	// ContentType decides how Twilio covers the body; the others ignore it.
	ContentType string
	// Body is signed as it is.
	Body []byte
}

// Signed is a signature on its way to a receiver.
type Signed struct {
	// Header has exactly the headers that a provider of the scheme would set.
	Header http.Header
	// URL is where the request must go, for Twilio: the public URL, with the
	// hash of the body in its query unless the body is a form. Else "".
	URL string
}

// Sign signs one message the way a provider of that scheme does, with any
// scheme: those that are for receiving only are what tests and the command
// line need it for. What is sent to subscribers is signed by a [Signer].
func Sign(cfg SchemeConfig, m Message) (Signed, error) {
	if m.Time.IsZero() {
		m.Time = time.Now()
	}
	s := &Signer{}
	if cfg.Scheme == Twilio {
		return signedTwilio(cfg, m)
	}
	if err := s.add([]SchemeConfig{cfg}); err != nil {
		return Signed{}, err
	}
	id := m.ID
	if s.schemes[0].idHeader == "" {
		id = unsentID
	}
	out := Signed{Header: make(http.Header)}
	return out, s.Headers(out.Header, id, m.Time, m.Body)
}

// unsentID stands in where a scheme has no use for an id. It goes nowhere.
const unsentID = "-"

func signedTwilio(cfg SchemeConfig, m Message) (Signed, error) {
	l, err := cfg.resolve(cfg.Scheme)
	if err != nil {
		return Signed{}, err
	}
	active := cfg.Keys.Active(m.Time)
	if len(active) == 0 {
		return Signed{}, fmt.Errorf("sign with %s: %w", cfg.Scheme, ErrNoActiveSecret)
	}
	key, err := parseKey(l.spec, l.encoding, active[0], useSign)
	if err != nil {
		return Signed{}, err
	}
	sig, target, err := l.signTwilio(key.mac, m.ContentType, m.Body)
	if err != nil {
		return Signed{}, fmt.Errorf("sign with %s: read the form: %w", cfg.Scheme, err)
	}
	return Signed{Header: http.Header{l.sigHeader: {sig}}, URL: target}, nil
}
