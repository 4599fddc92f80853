package signing

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// redacted is what every accidental use of a Secret shows.
const redacted = "***"

// Secret is a signing secret or key that shows itself only to [Secret.Reveal].
// Printed, logged or encoded in any way it is "***".
//
// The text is behind a pointer on purpose: fmt does not call methods on
// unexported fields of a struct it prints, and would show a plain string there.
//
// The zero Secret is no secret; every scheme refuses it.
type Secret struct {
	text *string
}

// NewSecret wraps text. It accepts anything; whether a scheme can use it is
// decided by [NewSigner], [NewVerifier] and [CheckSecret].
func NewSecret(text string) Secret { return Secret{text: &text} }

// Secrets wraps each text, in order.
func Secrets(texts ...string) []Secret {
	out := make([]Secret, len(texts))
	for i, t := range texts {
		out[i] = NewSecret(t)
	}
	return out
}

// Reveal returns the text. It is the only way to it, so that a search for its
// name finds every place where a secret leaves.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether s was never set. It makes the omitzero tag work.
func (s Secret) IsZero() bool { return s.text == nil }

// Equal compares two secrets in constant time.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// String returns "***".
func (s Secret) String() string { return redacted }

// GoString returns "***".
func (s Secret) GoString() string { return redacted }

// Format writes "***" for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue returns "***".
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON returns "***" in quotes.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalText returns "***".
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// errRedacted stops a redacted answer that is sent back from becoming the secret.
var errRedacted = errors.New(`"***" stands for a secret that is not shown; leave the field out to keep it`)

// UnmarshalText takes the text as it is, except "***".
func (s *Secret) UnmarshalText(text []byte) error {
	if string(text) == redacted {
		return errRedacted
	}
	*s = NewSecret(string(text))
	return nil
}

// UnmarshalJSON takes a JSON string, except "***".
func (s *Secret) UnmarshalJSON(data []byte) error {
	var text *string
	if err := json.Unmarshal(data, &text); err != nil {
		// The decoder's own message may quote the value.
		return errors.New("a secret must be a JSON string")
	}
	if text == nil {
		*s = Secret{}
		return nil
	}
	return s.UnmarshalText([]byte(*text))
}
