package engine

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// tls checks a subscriber's own CA and client certificate.
func (f *faults) tls(sub *delivery.Subscriber, m *delivery.TLSMaterial) {
	for _, fault := range m.Faults() {
		f.add(strings.TrimSuffix("tls."+fault.Field, "."), "***", fault.Rule, fault.Hint)
	}
	if len(m.CAPEM)+len(m.ClientCertPEM) == 0 {
		sub.TLS = nil
		return
	}
	sub.TLS = m
}

// signing applies the signing list, or the plain secret of the default scheme.
// A scheme that stays keeps its secrets unless new ones are given; changing a
// secret at once is rotation with no window.
func (f *faults) signing(sub *delivery.Subscriber, in SubscriberInput, now time.Time) {
	list := signingList(sub, in)
	if list == nil {
		return
	}
	if len(list) == 0 || len(list) > maxSigning {
		f.add("signing", strconv.Itoa(len(list)), "one or two schemes", `leave it out for [{"scheme":"standard"}]`)
		return
	}
	before := len(*f)
	var schemes []delivery.SigningScheme
	for i, entry := range list {
		if s, ok := f.signingEntry(sub, fmt.Sprintf("signing[%d]", i), entry, now); ok {
			schemes = append(schemes, s)
		}
	}
	if len(*f) > before {
		return
	}
	signer, err := newSigner(schemes)
	if err != nil {
		f.signingFault("signing", err)
		return
	}
	sub.Signing = schemes
	for name := range sub.Headers {
		if signer.OwnsHeader(name) {
			f.add("headers."+name, "***", "the signing scheme writes this header", "rename it, or choose another signature header")
		}
	}
}

// signingList returns the entries to apply, nil for "leave as it is".
func signingList(sub *delivery.Subscriber, in SubscriberInput) []SigningInput {
	switch {
	case in.Signing != nil:
		list := append([]SigningInput{}, *in.Signing...)
		if in.Secret != nil && len(list) > 0 && list[0].Secret == "" {
			list[0].Secret = *in.Secret
		}
		return list
	case in.Secret != nil:
		first := SigningInput{Scheme: string(signing.Standard)}
		if len(sub.Signing) > 0 {
			first = SigningInput{Scheme: sub.Signing[0].Scheme, Header: sub.Signing[0].Header}
		}
		first.Secret = *in.Secret
		list := []SigningInput{first}
		for _, s := range sub.Signing[min(1, len(sub.Signing)):] {
			list = append(list, SigningInput{Scheme: s.Scheme, Header: s.Header})
		}
		return list
	case len(sub.Signing) == 0:
		return []SigningInput{{Scheme: string(signing.Standard)}}
	}
	return nil
}

func (f *faults) signingEntry(sub *delivery.Subscriber, field string, in SigningInput, now time.Time) (delivery.SigningScheme, bool) {
	scheme, err := signing.ParseScheme(in.Scheme)
	if err != nil || !scheme.Outbound() {
		f.add(field+".scheme", in.Scheme, fmt.Sprintf("one of %v", signing.OutboundSchemes()), `"standard" is the default`)
		return delivery.SigningScheme{}, false
	}
	out := delivery.SigningScheme{Scheme: in.Scheme, Header: in.Header}
	if in.Secret == "" {
		for _, old := range sub.Signing {
			if old.Scheme == in.Scheme && len(old.Secrets) > 0 {
				out.Secrets = old.Secrets
				return out, true
			}
		}
		made, err := signing.GenerateSecret(scheme)
		if err != nil {
			f.signingFault(field, err)
			return out, false
		}
		in.Secret = made.Reveal()
	}
	if err := signing.CheckSecret(scheme, signing.NewSecret(in.Secret), true); err != nil {
		f.signingFault(field, err)
		return out, false
	}
	out.Secrets = []delivery.Secret{{Value: in.Secret, CreatedAt: now}}
	return out, true
}

// signingFault adds what package signing refused; it never holds a secret.
func (f *faults) signingFault(field string, err error) {
	all := signing.ConfigErrors(err)
	for _, ce := range all {
		name := field
		if ce.Field == "secret" && field == "signing[0]" {
			name = "secret"
		} else if ce.Field != "" && ce.Field != field {
			name += "." + ce.Field
		}
		f.add(name, "***", ce.Rule, ce.Hint)
	}
	if len(all) == 0 {
		f.add(field, "***", err.Error(), "change it")
	}
}

// newSigner prepares the signer of a signing list.
func newSigner(schemes []delivery.SigningScheme) (*signing.Signer, error) {
	config := signing.SignerConfig{Schemes: make([]signing.SchemeConfig, len(schemes))}
	for i, s := range schemes {
		ring := make(signing.Ring, len(s.Secrets))
		for j, secret := range s.Secrets {
			ring[j] = signing.RingKey{Secret: signing.NewSecret(secret.Value), Expires: secret.ExpiresAt}
		}
		config.Schemes[i] = signing.SchemeConfig{
			Scheme: signing.Scheme(s.Scheme), Keys: ring, Layout: signing.Layout{SignatureHeader: s.Header},
		}
	}
	return signing.NewSigner(config)
}

// rotate puts a new secret in front of one scheme's secrets and keeps the
// others until their own expiry, the current one for keep.
func rotate(sub *delivery.Subscriber, in RotateInput, now time.Time) error {
	var f faults
	index := 0
	if in.Scheme != "" {
		index = -1
		for i, s := range sub.Signing {
			if s.Scheme == in.Scheme {
				index = i
			}
		}
	}
	if index < 0 || index >= len(sub.Signing) {
		f.add("scheme", in.Scheme, "a scheme of this subscriber's signing list", "leave it out for the first one")
		return f.err()
	}
	s := sub.Signing[index]
	next := signing.NewSecret(in.Secret)
	if in.Secret == "" {
		made, err := signing.GenerateSecret(signing.Scheme(s.Scheme))
		if err != nil {
			return fmt.Errorf("make secret: %w", err)
		}
		next = made
	} else if err := signing.CheckSecret(signing.Scheme(s.Scheme), next, true); err != nil {
		f.signingFault("secret", err)
		return f.err()
	}
	if in.Keep == 0 {
		in.Keep = signing.DefaultRotationWindow
	}
	f.span("keep", in.Keep, time.Second, 30*24*time.Hour)
	if len(f) > 0 {
		return f.err()
	}
	return applyRotation(sub, index, next, now, in.Keep)
}

func applyRotation(sub *delivery.Subscriber, index int, next signing.Secret, now time.Time, keep time.Duration) error {
	s := sub.Signing[index]
	ring := make(signing.Ring, len(s.Secrets))
	made := map[string]time.Time{next.Reveal(): now}
	for i, old := range s.Secrets {
		ring[i] = signing.RingKey{Secret: signing.NewSecret(old.Value), Expires: old.ExpiresAt}
		made[old.Value] = old.CreatedAt
	}
	ring, err := ring.Rotate(next, now, keep)
	if err != nil {
		var f faults
		f.signingFault("secret", err)
		return f.err()
	}
	secrets := make([]delivery.Secret, len(ring))
	for i, k := range ring {
		secrets[i] = delivery.Secret{Value: k.Secret.Reveal(), ExpiresAt: k.Expires, CreatedAt: made[k.Secret.Reveal()]}
	}
	signingList := append([]delivery.SigningScheme{}, sub.Signing...)
	signingList[index] = delivery.SigningScheme{Scheme: s.Scheme, Header: s.Header, Secrets: secrets}
	sub.Signing = signingList
	return nil
}
