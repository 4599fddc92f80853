package signing

import (
	"fmt"
	"time"
)

// DefaultRotationWindow is how long a replaced secret stays valid.
const DefaultRotationWindow = 24 * time.Hour

// MaxKeys bounds how many secrets one scheme may have at once. Every one of
// them costs a hash of the body for each message.
const MaxKeys = 8

// RingKey is one secret of a [Ring].
type RingKey struct {
	Secret Secret
	// Expires is the first moment at which the secret is no longer used.
	// Zero: never, as for the newest one.
	Expires time.Time
}

// Valid reports whether the key may be used at now.
func (k RingKey) Valid(now time.Time) bool {
	return k.Expires.IsZero() || now.Before(k.Expires)
}

// Ring is the secrets of one scheme during rotations: the current one first,
// then those it replaced, newest first, each until its own expiry. Rings are
// values; the methods return new ones.
//
//	rotate at 0 h and at 6 h, window 24 h
//
//	 first  ────────────────────────┤ 24 h
//	 second       ────────────────────────┤ 30 h
//	 third            ──────────────────────────►
type Ring []RingKey

// NewRing returns a ring with one secret that does not expire.
func NewRing(current Secret) Ring { return Ring{{Secret: current}} }

// Current returns the newest secret, or the zero Secret of an empty ring.
func (r Ring) Current() Secret {
	if len(r) == 0 {
		return Secret{}
	}
	return r[0].Secret
}

// Active returns the secrets valid at now, newest first.
func (r Ring) Active(now time.Time) []Secret {
	var out []Secret
	for _, k := range r {
		if k.Valid(now) {
			out = append(out, k.Secret)
		}
	}
	return out
}

// Rotate puts next in front. The secret that was current stays valid until
// now+window and no longer than it already had; those before it keep their own
// expiry; what has expired is dropped. A window of zero ends the old secret at
// once, and all earlier ones too: that is the answer to a leak, and a leak of
// the current secret says nothing good of its predecessors.
//
// It refuses a secret that is in the ring already, and a ring of more than
// [MaxKeys]: dropping one that receivers still rely on would not be told to anyone.
func (r Ring) Rotate(next Secret, now time.Time, window time.Duration) (Ring, error) {
	if window < 0 {
		return nil, &ConfigError{Field: "window", Rule: "is negative", Hint: "0 ends the old secret at once"}
	}
	out := Ring{{Secret: next}}
	end := now.Add(window)
	for i, k := range r {
		if !k.Valid(now) || window == 0 {
			continue
		}
		if k.Secret.Equal(next) {
			return nil, secretError(MistakeConfig, "is in use already", "a rotation needs a new one")
		}
		if i == 0 && (k.Expires.IsZero() || end.Before(k.Expires)) {
			k.Expires = end
		}
		out = append(out, k)
	}
	if len(out) > MaxKeys {
		return nil, secretError(MistakeConfig,
			fmt.Sprintf("would be one of %d that are valid at once, at most %d are allowed", len(out), MaxKeys),
			"wait until the oldest expires, or rotate with a window of 0 to end them all")
	}
	return out, nil
}

// NextExpiry returns when the next secret valid at now stops being so; false
// when none of them expires.
func (r Ring) NextExpiry(now time.Time) (time.Time, bool) {
	var next time.Time
	for _, k := range r {
		if k.Expires.IsZero() || !now.Before(k.Expires) {
			continue
		}
		if next.IsZero() || k.Expires.Before(next) {
			next = k.Expires
		}
	}
	return next, !next.IsZero()
}
