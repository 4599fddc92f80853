package signing

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
)

// generatedBytes is the entropy of a generated secret: 256 bits, the size of
// the hash it keys.
const generatedBytes = 32

// GenerateSecret makes a new random secret of the shape that scheme signs
// with: whsec_ and base64 for [Standard], a private key (whsk_) for the Ed25519
// schemes, a whsec_ literal for [Stripe], 64 hex digits for the rest. The only
// error is for a scheme that does not exist.
func GenerateSecret(scheme Scheme) (Secret, error) {
	sp, ok := specs[scheme]
	if !ok {
		return Secret{}, unknownScheme(scheme)
	}
	raw := make([]byte, generatedBytes)
	rand.Read(raw) // never fails: it ends the process instead
	switch {
	case sp.key == keyStandard:
		return NewSecret(prefixSymmetric + base64.StdEncoding.EncodeToString(raw)), nil
	case sp.alg == algEd25519:
		return NewSecret(prefixPrivate + base64.StdEncoding.EncodeToString(raw[:ed25519.SeedSize])), nil
	case scheme == Stripe:
		return NewSecret(prefixSymmetric + hex.EncodeToString(raw)), nil
	default:
		return NewSecret(hex.EncodeToString(raw)), nil
	}
}
