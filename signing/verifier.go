package signing

import (
	"cmp"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// DefaultTolerance is how far a timestamp may be from now, in either direction.
const DefaultTolerance = 5 * time.Minute

// VerifierConfig is what a [Verifier] is made of.
type VerifierConfig struct {
	// Scheme the sender uses. Required.
	Scheme Scheme
	// Secrets that are accepted, in any order: during a rotation the old and
	// the new one. Required, at most [MaxKeys]. For Ed25519 schemes these are
	// public keys.
	Secrets []Secret
	// Tolerance is how far a timestamp may be from now, in the past or the
	// future, in whole seconds. nil means [DefaultTolerance]. Zero is zero: only
	// this very second is accepted. There is no value that switches it off.
	// Schemes without a timestamp (github, shopify, twilio) do not use it.
	Tolerance *time.Duration
	// Layout changes header names, the signed content and the public URL.
	Layout
}

// Verifier checks requests of one sender. Prepare it once; it may be used by
// many goroutines.
//
// It fails closed: no secret, no signature, a header sent twice, an encoding
// that is not exactly the scheme's, a body the signature does not cover; none
// of these is ever a pass. Every secret is tried with every signature of the
// request, always, and compared in constant time.
type Verifier struct {
	*layout
	tolerance time.Duration
	keys      []verifyKey
}

type verifyKey struct {
	mac    *macKey // HMAC schemes
	mac256 *macKey // Twilio, when the request asks for SHA-256
	pub    ed25519.PublicKey
}

// NewVerifier prepares a Verifier. All faults of cfg are reported, joined; each
// is a [*ConfigError].
func NewVerifier(cfg VerifierConfig) (*Verifier, error) {
	l, err := cfg.resolve(cfg.Scheme)
	if l == nil {
		return nil, err
	}
	v := &Verifier{layout: l, tolerance: DefaultTolerance}
	errs := []error{err}
	if cfg.Tolerance != nil {
		if v.tolerance = *cfg.Tolerance; v.tolerance < 0 {
			errs = append(errs, &ConfigError{Field: "tolerance", Rule: "is negative", Hint: "0 accepts this very second only"})
		}
	}
	if n := len(cfg.Secrets); n == 0 || n > MaxKeys {
		errs = append(errs, &ConfigError{Field: "secrets", Rule: fmt.Sprintf("%d are given", n), Hint: fmt.Sprintf("1 to %d", MaxKeys)})
	}
	for _, s := range cfg.Secrets {
		m, err := parseKey(l.spec, l.encoding, s, useVerify)
		errs = append(errs, err)
		v.keys = append(v.keys, l.verifyKey(m))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return v, nil
}

func (l *layout) verifyKey(m material) verifyKey {
	switch l.spec.alg {
	case algEd25519:
		return verifyKey{pub: m.pub}
	case algTwilio:
		return verifyKey{mac: newSHA1Key(m.mac), mac256: newMACKey(m.mac)}
	default:
		return verifyKey{mac: newMACKey(m.mac)}
	}
}

// Scheme returns the scheme that v checks.
func (v *Verifier) Scheme() Scheme { return v.scheme }

// Headers returns the names of the headers that v reads, canonical, the
// signature's first. They are of no use behind the check and need not be kept.
func (v *Verifier) Headers() []string { return v.headers() }

// Buffers reports whether the scheme needs the whole body in memory: Ed25519
// reads its message twice, and Twilio sorts form fields. A caller that has the
// body in memory anyway passes it to [Check.FinishBody] instead of writing it;
// one that does not should allow such schemes smaller bodies.
func (v *Verifier) Buffers() bool {
	return v.spec.alg == algEd25519 || v.spec.alg == algTwilio
}

// Begin checks everything that can be checked before the body is read: that
// the headers are there, well formed and of now. A request that fails here
// costs no hashing and no reading.
//
// A nil error means only that the request may be genuine. Write the body to
// the Check and call [Check.Finish].
func (v *Verifier) Begin(h http.Header, now time.Time) (*Check, error) {
	return v.begin(h, "", now)
}

// BeginRequest is [Verifier.Begin] for a request. It differs for Twilio only,
// whose signature covers the query of the URL.
func (v *Verifier) BeginRequest(r *http.Request, now time.Time) (*Check, error) {
	return v.begin(r.Header, r.URL.RawQuery, now)
}

func (v *Verifier) begin(h http.Header, query string, now time.Time) (*Check, error) {
	env, err := v.open(h)
	if err != nil {
		return nil, err
	}
	c := &Check{v: v, env: env}
	if v.spec.alg == algTwilio {
		c.twilio, err = v.beginTwilio(h, query, &c.env)
		return c, err
	}
	if v.content.usesTimestamp {
		if err := v.checkTimestamp(env.timestamp, now); err != nil {
			return nil, err
		}
	}
	prefix := appendParts(nil, v.content.before, env.id, []byte(env.timestamp))
	if v.spec.alg == algEd25519 {
		c.message = prefix
		return c, nil
	}
	c.macs = make([]*macState, len(v.keys))
	for i, k := range v.keys {
		c.macs[i] = k.mac.get()
		c.macs[i].Write(prefix)
	}
	return c, nil
}

// open reads the headers.
func (v *Verifier) open(h http.Header) (envelope, error) {
	var env envelope
	value, err := v.single(h, v.sigHeader)
	if err != nil {
		return env, err
	}
	if v.tsHeader != "" {
		if env.timestamp, err = v.single(h, v.tsHeader); err != nil {
			return env, err
		}
	}
	if v.content.usesID {
		if env.id, err = v.single(h, v.idHeader); err != nil {
			return env, err
		}
		if fault := v.idFault(env.id); fault != "" {
			return env, v.fail(ReasonMalformed, v.idHeader, fault)
		}
	}
	if v.spec.alg != algTwilio { // whose length of signature depends on another header
		err = v.parseSignatures(&env, value)
	}
	return env, err
}

// Verify checks a whole request at once. body is what was received, byte for
// byte. For Twilio use [Verifier.VerifyRequest]: the query is signed too.
func (v *Verifier) Verify(h http.Header, body []byte, now time.Time) error {
	c, err := v.Begin(h, now)
	if err != nil {
		return err
	}
	return c.FinishBody(body)
}

// DefaultMaxBody is the limit of [Verifier.VerifyRequest] when none is given.
const DefaultMaxBody = 1 << 20

// VerifyRequest reads the body of r, at most maxBody bytes of it (0 for
// [DefaultMaxBody]), and checks the request. It returns the body, which r no
// longer has, only if the request is genuine. The body is not read when the
// headers are refused; one over maxBody is a [*http.MaxBytesError].
func (v *Verifier) VerifyRequest(r *http.Request, maxBody int64, now time.Time) ([]byte, error) {
	c, err := v.BeginRequest(r, now)
	if err != nil {
		return nil, err
	}
	maxBody = cmp.Or(maxBody, DefaultMaxBody)
	if r.ContentLength > maxBody {
		return nil, fmt.Errorf("verify %s: %w", v.scheme, &http.MaxBytesError{Limit: maxBody})
	}
	var body []byte
	if r.Body != nil {
		body, err = io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	}
	if err != nil {
		return nil, fmt.Errorf("verify %s: read the body: %w", v.scheme, err)
	}
	if err := c.FinishBody(body); err != nil {
		return nil, err
	}
	return body, nil
}
