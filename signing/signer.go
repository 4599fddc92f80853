package signing

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// maxSchemes is how many schemes one subscriber may have at once: two, for
// moving from one to another.
const maxSchemes = 2

// SchemeConfig is one scheme with its secrets.
type SchemeConfig struct {
	// Scheme has no default here; an empty SignerConfig.Schemes is refused too.
	Scheme Scheme
	// Keys are the secrets, newest first. Required.
	Keys Ring
	// Layout changes header names and, for the generic schemes, the content.
	Layout
}

// SignerConfig is what a [Signer] is made of.
type SignerConfig struct {
	// Schemes is one scheme, or two during a migration. Both sign the same
	// bytes and stand side by side on the request. Required.
	Schemes []SchemeConfig
}

// Signer signs what is sent to one subscriber. Prepare it once: keys are
// decoded and hashes keyed then. It may be used by many goroutines.
//
// Which secrets are used is decided at each call by the time it is given, so
// that a Signer stays right when an old secret expires. During a rotation
//
//   - standard, standard-ed25519 and stripe carry one signature for each valid
//     secret, newest first, and a receiver with either is served;
//   - all other schemes have room for one signature: the newest secret's.
//     Their receivers must accept both secrets before the sender rotates.
//
// Every request carries webhook-id and webhook-timestamp, whatever the schemes.
type Signer struct {
	schemes []*schemeSigner
	fields  []field
}

// Field is one header field.
type Field struct {
	Name  string // in net/http's canonical form
	Value string
}

// fieldKind is what a planned header holds.
type fieldKind int

const (
	fieldID fieldKind = iota
	fieldTimestamp
	fieldSignature
)

// field is one header that the signer writes. Its signature may be of two
// schemes: v1 and v1a share webhook-signature.
type field struct {
	name    string
	kind    fieldKind
	schemes []int
}

// schemeSigner is one scheme with parsed keys.
type schemeSigner struct {
	*layout
	keys []signKey
}

type signKey struct {
	mac     *macKey            // HMAC schemes
	priv    ed25519.PrivateKey // Ed25519 schemes
	pub     ed25519.PublicKey
	expires time.Time
}

func (k *signKey) valid(now time.Time) bool {
	return RingKey{Expires: k.expires}.Valid(now)
}

// NewSigner prepares a Signer. All faults of cfg are reported, joined; each is
// a [*ConfigError].
func NewSigner(cfg SignerConfig) (*Signer, error) {
	if n := len(cfg.Schemes); n == 0 || n > maxSchemes {
		return nil, &ConfigError{Field: "signing", Rule: fmt.Sprintf("has %d schemes", n), Hint: "one, or two during a migration"}
	}
	s := &Signer{fields: []field{{name: HeaderID, kind: fieldID}, {name: HeaderTimestamp, kind: fieldTimestamp}}}
	if err := errors.Join(cfg.validate(), s.add(cfg.Schemes)); err != nil {
		return nil, err
	}
	return s, nil
}

// validate checks what concerns subscribers; add checks each scheme.
func (cfg SignerConfig) validate() error {
	var errs []error
	for _, sc := range cfg.Schemes {
		if _, ok := specs[sc.Scheme]; ok && !sc.Scheme.Outbound() {
			errs = append(errs, &ConfigError{Field: "scheme", Rule: fmt.Sprintf("%s is for receiving only", sc.Scheme)})
		}
		for _, h := range [...]struct{ field, name, own string }{
			{"signature_header", sc.SignatureHeader, HeaderSignature},
			{"timestamp_header", sc.TimestampHeader, HeaderTimestamp},
			{"id_header", sc.IDHeader, HeaderID},
		} {
			if h.name != "" && ReservedHeader(h.name) && canonical(h.name) != h.own {
				errs = append(errs, &ConfigError{Field: h.field, Rule: fmt.Sprintf("%.80q is set by the sender", h.name)})
			}
		}
	}
	return errors.Join(errs...)
}

// add resolves the schemes and plans their headers.
func (s *Signer) add(schemes []SchemeConfig) error {
	var errs []error
	for _, sc := range schemes {
		one, err := newSchemeSigner(sc)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		s.schemes = append(s.schemes, one)
		i := len(s.schemes) - 1
		errs = append(errs, s.plan(field{name: one.sigHeader, kind: fieldSignature, schemes: []int{i}}))
		if one.tsHeader != "" {
			errs = append(errs, s.plan(field{name: one.tsHeader, kind: fieldTimestamp}))
		}
		if one.idHeader != "" {
			errs = append(errs, s.plan(field{name: one.idHeader, kind: fieldID}))
		}
	}
	return errors.Join(errs...)
}

// plan adds f to the headers, merging it with one of the same name and meaning.
func (s *Signer) plan(f field) error {
	at := slices.IndexFunc(s.fields, func(have field) bool { return have.name == f.name })
	if at < 0 {
		s.fields = append(s.fields, f)
		return nil
	}
	have := &s.fields[at]
	if have.kind == f.kind && f.kind != fieldSignature {
		return nil
	}
	if have.kind == fieldSignature && f.kind == fieldSignature &&
		s.listTag(have.schemes[0]) != "" && s.listTag(f.schemes[0]) != "" && s.listTag(have.schemes[0]) != s.listTag(f.schemes[0]) {
		have.schemes = append(have.schemes, f.schemes...)
		return nil
	}
	return &ConfigError{
		Field: "signature_header", Rule: fmt.Sprintf("two values would share %s", f.name),
		Hint: "give one of the schemes another header",
	}
}

// listTag is the version label of a scheme whose header is a list, else "".
func (s *Signer) listTag(i int) string {
	if l := s.schemes[i].layout; l.spec.format == formatList {
		return l.prefix
	}
	return ""
}

func newSchemeSigner(cfg SchemeConfig) (*schemeSigner, error) {
	l, err := cfg.resolve(cfg.Scheme)
	if l == nil {
		return nil, err
	}
	out, errs := &schemeSigner{layout: l}, []error{err}
	if sep := l.content.ambiguousSeparator(); sep != "" {
		errs = append(errs, templateError(fmt.Sprintf("separates {id} by %.40q, which an id may contain", sep), "a dot never is in an id"))
	}
	if n := len(cfg.Keys); n == 0 || n > MaxKeys {
		errs = append(errs, secretError(MistakeConfig, fmt.Sprintf("%d secrets are given", n), fmt.Sprintf("1 to %d", MaxKeys)))
	}
	for _, k := range cfg.Keys {
		m, err := parseKey(l.spec, l.encoding, k.Secret, useSign)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		key := signKey{priv: m.priv, pub: m.pub, expires: k.Expires}
		if m.mac != nil {
			key.mac = newMACKey(m.mac)
		}
		out.keys = append(out.keys, key)
	}
	return out, errors.Join(errs...)
}

// Append signs body and appends the header fields to dst. id must follow
// [ErrInvalidID]; now becomes webhook-timestamp, in whole seconds.
func (s *Signer) Append(dst []Field, id string, now time.Time, body []byte) ([]Field, error) {
	p, err := s.begin(id, now)
	if err != nil {
		return dst, err
	}
	p.write(body)
	return p.appendFields(dst), nil
}

// Headers signs body and sets the header fields in dst, which must not be nil,
// replacing any of the same name in whatever spelling: what the sender says
// wins over what was there. The values share memory and must not be changed.
func (s *Signer) Headers(dst http.Header, id string, now time.Time, body []byte) error {
	p, err := s.begin(id, now)
	if err != nil {
		return err
	}
	p.write(body)
	p.setHeaders(dst)
	return nil
}

// HeadersFrom is [Signer.Headers] for a body too large to hold: it reads body
// to its end and leaves sending it again to the caller. With standard-ed25519
// the body is held in memory all the same, since Ed25519 reads its message twice.
func (s *Signer) HeadersFrom(dst http.Header, id string, now time.Time, body io.Reader) error {
	st, err := s.Stream(id, now)
	if err != nil {
		return err
	}
	if _, err := io.Copy(st, body); err != nil {
		return fmt.Errorf("sign %s: read the body: %w", id, err)
	}
	return st.Headers(dst)
}

// AppendFrom is [Signer.Append] for a body too large to hold, as
// [Signer.HeadersFrom] is [Signer.Headers].
func (s *Signer) AppendFrom(dst []Field, id string, now time.Time, body io.Reader) ([]Field, error) {
	st, err := s.Stream(id, now)
	if err != nil {
		return dst, err
	}
	if _, err := io.Copy(st, body); err != nil {
		return dst, fmt.Errorf("sign %s: read the body: %w", id, err)
	}
	return st.Append(dst)
}

// OwnsHeader reports whether the signer writes the header of that name, so that
// a subscriber's own headers cannot have it. [ReservedHeader] knows the names
// that are the same for all.
func (s *Signer) OwnsHeader(name string) bool {
	name = canonical(name)
	return slices.ContainsFunc(s.fields, func(f field) bool { return f.name == name })
}

// PublicKeys returns the public halves (whpk_…) of the Ed25519 keys valid at
// now, newest first: what a receiver verifies with. Empty for HMAC schemes.
func (s *Signer) PublicKeys(now time.Time) []string {
	var out []string
	for _, sc := range s.schemes {
		for i := range sc.keys {
			if k := &sc.keys[i]; k.pub != nil && k.valid(now) {
				out = append(out, formatPublic(k.pub))
			}
		}
	}
	return out
}
