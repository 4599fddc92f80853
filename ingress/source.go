package ingress

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// Source says how the requests of one provider for one tenant are checked, and
// where they go on to. Field by field it is the JSON of the API.
//
// Secrets encode as "***": json.Marshal of a Source is safe to show.
// [Source.MarshalStored] is for the (sealed) disk.
type Source struct {
	// Scheme is the provider's way of signing. Required.
	Scheme signing.Scheme `json:"scheme"`
	// Secrets that are valid, in any order: two of them during a rotation.
	// Required, at most eight. Public keys for the Ed25519 schemes.
	Secrets []signing.Secret `json:"secrets"`
	// Destination is where its events go. Required.
	Destination Destination `json:"destination"`

	// MaxBody is the largest body in bytes, after expansion; 0 = 1 MiB. At most
	// the node's cap, and 1 MiB for schemes that need the body in memory.
	MaxBody int64 `json:"max_body,omitzero"`
	// ContentTypes that are accepted, without parameters; "text/*" is every text.
	// Empty = all.
	ContentTypes []string `json:"content_types,omitempty"`
	// Tolerance is how far a signed time may be from now; nil = 5 min. Zero is
	// zero: only this very second.
	Tolerance *Duration `json:"tolerance,omitempty"`
	// SignatureHeader, TimestampHeader, SignaturePrefix, SignedContent and
	// SecretEncoding change the scheme where it allows that; see [signing.Layout].
	SignatureHeader string `json:"signature_header,omitempty"`
	TimestampHeader string `json:"timestamp_header,omitempty"`
	SignaturePrefix string `json:"signature_prefix,omitempty"`
	SignedContent   string `json:"signed_content,omitempty"`
	SecretEncoding  string `json:"secret_encoding,omitempty"`
	// DedupeHeader names the header with the provider's id; "" = the scheme's way.
	DedupeHeader string `json:"dedupe_header,omitempty"`
	// DedupeBody also recognises the same body under another id, where the
	// signature does not cover the id. Without any id the body is always used.
	DedupeBody bool `json:"dedupe_body,omitempty"`
	// PublicURL is the URL that was given to the provider, where it is signed.
	PublicURL string `json:"public_url,omitempty"`
	// ForwardHeaders are the request's headers that go on with the event.
	ForwardHeaders []string `json:"forward_headers,omitempty"`
	// AllowIPs are addresses and prefixes that may send. Empty = all.
	AllowIPs []string `json:"allow_ips,omitempty"`
	// Decompress accepts gzip and zstd. What is signed is the expanded body.
	Decompress bool `json:"decompress,omitempty"`
	// RateLimit is how many events are processed; nil = all.
	RateLimit *RateLimit `json:"rate_limit,omitempty"`
	// RejectOverQuota answers 429 above RateLimit or the tenant's quota, instead
	// of accepting the event and processing it later. A copy of an event that is
	// stored already may get the 429, too.
	RejectOverQuota bool `json:"reject_over_quota,omitempty"`
}

// Kinds of [Destination].
const (
	DestinationFanOut = "fanout" // to the tenant's subscribers, by topic
	DestinationOrigin = "origin" // in batches to one URL
)

// Destination is where the events of a source go.
type Destination struct {
	// Type is [DestinationFanOut] or [DestinationOrigin].
	Type string `json:"type"`
	// URL of the origin.
	URL string `json:"url,omitempty"`
	// Token is sent to the origin as "Authorization: Bearer …"; unset = no header.
	Token signing.Secret `json:"token,omitzero"`
	// TLS is for an origin with a CA of its own, or one that wants a client
	// certificate; nil = the system's roots.
	TLS *OriginTLS `json:"tls,omitempty"`
}

// OriginTLS is how an origin and the node know each other, all in PEM.
type OriginTLS struct {
	// CAPEM are the certificates that the origin's has to come from.
	CAPEM string `json:"ca_pem,omitempty"`
	// ClientCertPEM and ClientKeyPEM are what the node shows; both or none.
	ClientCertPEM string         `json:"client_cert_pem,omitempty"`
	ClientKeyPEM  signing.Secret `json:"client_key_pem,omitzero"`
}

// Material returns d's TLS in the form that connections take, nil for none.
func (d *Destination) Material() *delivery.TLSMaterial {
	if d.TLS == nil || *d.TLS == (OriginTLS{}) {
		return nil
	}
	return &delivery.TLSMaterial{
		CAPEM: []byte(d.TLS.CAPEM), ClientCertPEM: []byte(d.TLS.ClientCertPEM), ClientKeyPEM: []byte(d.TLS.ClientKeyPEM.Reveal()),
	}
}

// RateLimit is a token bucket.
type RateLimit struct {
	// PerSecond is the rate at which it fills.
	PerSecond float64 `json:"per_second"`
	// Burst is its size; 0 = what comes in a second, at least 1.
	Burst int `json:"burst,omitzero"`
}

// limit returns the bucket with its default filled in; the zero value for none.
func (r *RateLimit) limit() delivery.RateLimit {
	if r == nil {
		return delivery.RateLimit{}
	}
	burst := r.Burst
	if burst == 0 {
		burst = max(1, int(r.PerSecond))
	}
	return delivery.RateLimit{PerSecond: r.PerSecond, Burst: burst}
}

// Duration is a [time.Duration] that JSON writes like "5m".
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.40q is not a duration such as 5m", text)
	}
	*d = Duration(v)
	return nil
}

// ParseSource reads the JSON of a source, secrets in plain text. A field that it
// does not know is an error: a misspelt allow_ips must not let everyone in. It
// does not validate; see [Source.Validate].
func ParseSource(data []byte) (*Source, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	s := new(Source)
	if err := dec.Decode(s); err != nil {
		return nil, fmt.Errorf("parse source: %w", plain(err))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("parse source: something follows the object")
	}
	return s, nil
}

// plain makes sure that an error of the JSON decoder quotes no secret: it may
// quote field names and types, never values.
func plain(err error) error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: cannot be a JSON %s", e.Field, strings.SplitN(e.Value, " ", 2)[0])
	}
	return err
}

// MarshalStored returns the JSON that [ParseSource] reads, secrets included. It
// must not be shown or lie on a disk in plain text.
func (s *Source) MarshalStored() ([]byte, error) {
	type bare Source // without methods; shadowed fields reveal what Source hides
	type bareDestination Destination
	secrets := make([]string, len(s.Secrets))
	for i, secret := range s.Secrets {
		secrets[i] = secret.Reveal()
	}
	stored := struct {
		*bare
		Secrets     []string `json:"secrets"`
		Destination struct {
			*bareDestination
			Token string     `json:"token,omitempty"`
			TLS   *storedTLS `json:"tls,omitempty"`
		} `json:"destination"`
	}{bare: (*bare)(s), Secrets: secrets}
	stored.Destination.bareDestination = (*bareDestination)(&s.Destination)
	stored.Destination.Token = s.Destination.Token.Reveal()
	if t := s.Destination.TLS; t != nil {
		stored.Destination.TLS = &storedTLS{t.CAPEM, t.ClientCertPEM, t.ClientKeyPEM.Reveal()}
	}
	data, err := json.Marshal(stored)
	if err != nil {
		return nil, fmt.Errorf("encode source: %w", err)
	}
	return data, nil
}

// storedTLS is [OriginTLS] with its key.
type storedTLS struct {
	CAPEM         string `json:"ca_pem,omitempty"`
	ClientCertPEM string `json:"client_cert_pem,omitempty"`
	ClientKeyPEM  string `json:"client_key_pem,omitempty"`
}

// KeepSecrets fills in what s leaves out because it is shown to nobody: the
// secrets, if it names none, the token of the same origin, and the key of the same
// client certificate.
func (s *Source) KeepSecrets(old *Source) {
	if len(s.Secrets) == 0 {
		s.Secrets = old.Secrets
	}
	if s.Destination.Token.IsZero() && s.Destination.Type == old.Destination.Type && s.Destination.URL == old.Destination.URL {
		s.Destination.Token = old.Destination.Token
	}
	if now, before := s.Destination.TLS, old.Destination.TLS; now != nil && before != nil && now.ClientKeyPEM.IsZero() && now.ClientCertPEM == before.ClientCertPEM {
		now.ClientKeyPEM = before.ClientKeyPEM
	}
}
