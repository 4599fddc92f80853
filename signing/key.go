package signing

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// The prefixes of Standard Webhooks' serialised secrets.
const (
	prefixSymmetric = "whsec_"
	prefixPrivate   = "whsk_"
	prefixPublic    = "whpk_"
)

// Bounds of a secret. Standard Webhooks asks for 24 to 64 random bytes.
const (
	minStandardKey = 24
	maxStandardKey = 64
	maxSecretText  = 4096
)

// material is a parsed secret. Exactly one of mac and pub is set; priv is set
// beside pub when the secret can sign.
type material struct {
	mac  []byte
	priv ed25519.PrivateKey
	pub  ed25519.PublicKey
}

// use says what a key is for: an Ed25519 scheme signs with one half and
// verifies with the other.
type use int

const (
	useSign use = iota
	useVerify
)

// CheckSecret reports whether secret can verify (or, with sign, produce)
// signatures of scheme. The error is a [*ConfigError] without the value in it.
func CheckSecret(scheme Scheme, secret Secret, sign bool) error {
	sp, ok := specs[scheme]
	if !ok {
		return unknownScheme(scheme)
	}
	u := useVerify
	if sign {
		u = useSign
	}
	_, err := parseKey(sp, "", secret, u)
	return err
}

// parseKey turns a secret's text into a key. encoding is Layout.SecretEncoding.
func parseKey(sp *spec, encoding string, secret Secret, u use) (material, error) {
	text := secret.Reveal()
	if err := checkText(text); err != nil {
		return material{}, err
	}
	switch sp.key {
	case keyStandard:
		return parseStandard(text)
	case keyEd25519, keyEdHex, keyEdBase64:
		if u == useSign {
			return parsePrivate(text, sp.key)
		}
		return parsePublic(text, sp.key)
	default:
		return parseLiteral(text, encoding)
	}
}

func secretError(m Mistake, rule, hint string) error {
	return &ConfigError{Field: "secret", Rule: rule, Hint: hint, mistake: m}
}

// checkText refuses what is a mistake under every scheme.
func checkText(text string) error {
	switch {
	case text == "":
		return secretError(MistakeConfig, "is empty", "an empty key would let anyone sign")
	case strings.TrimSpace(text) == "":
		return secretError(MistakeSecretSpace, "is blank", "a key of white space would let anyone sign")
	case strings.TrimSpace(text) != text:
		return secretError(MistakeSecretSpace, "begins or ends with white space", "remove it; a line break at the end often comes from a file or a copied cell")
	case text == redacted:
		return secretError(MistakeConfig, "is the placeholder ***", "that stands for a secret which is not shown; leave the field out to keep it")
	case strings.HasPrefix(text, "v1,"):
		return secretError(MistakeSecretPrefix, `begins with "v1,"`, `"v1," is the label of a signature, not a part of the secret: remove it, so that it begins with whsec_`)
	case len(text) > maxSecretText:
		return secretError(MistakeConfig, fmt.Sprintf("is longer than %d bytes", maxSecretText), "")
	case strings.ContainsAny(text, "\x00\r\n"):
		return secretError(MistakeSecretSpace, "has a line break or NUL in it", "")
	}
	return nil
}

// parseStandard reads whsec_ and base64. The prefix may be missing, as the
// official libraries allow.
func parseStandard(text string) (material, error) {
	if err := refusePair(text, "the scheme standard takes the shared secret (whsec_…); for a key pair choose standard-ed25519"); err != nil {
		return material{}, err
	}
	key, err := decodeBase64(strings.TrimPrefix(text, prefixSymmetric))
	if err != nil {
		return material{}, secretError(MistakeSecretNotDecoded, "is not whsec_ followed by base64", base64Hint(strings.TrimPrefix(text, prefixSymmetric)))
	}
	if len(key) < minStandardKey || len(key) > maxStandardKey {
		return material{}, secretError(MistakeSecretKind,
			fmt.Sprintf("decodes to %d bytes, must be %d to %d", len(key), minStandardKey, maxStandardKey),
			"let one be generated")
	}
	return material{mac: key}, nil
}

// base64Hint names the usual reason why text is not standard base64.
func base64Hint(text string) string {
	switch {
	case strings.ContainsAny(text, "-_"):
		return "it has - or _ in it, the URL-safe alphabet; the standard one with + and / is due"
	case len(text)%4 != 0:
		return "its length is not a multiple of four: cut off, or its = padding is missing"
	default:
		return "the standard alphabet, padded with ="
	}
}

// refusePair keeps Ed25519 keys out of HMAC schemes. A public key that became
// an HMAC key by mistake would let everyone who knows it sign.
func refusePair(text, hint string) error {
	if strings.HasPrefix(text, prefixPublic) || strings.HasPrefix(text, prefixPrivate) {
		return secretError(MistakeSecretKind, "is half of an Ed25519 key pair", hint)
	}
	return nil
}

// parseLiteral uses the text itself, unless encoding says what it stands for.
func parseLiteral(text, encoding string) (material, error) {
	if err := refusePair(text, "this scheme takes a shared secret"); err != nil {
		return material{}, err
	}
	var key []byte
	var err error
	switch encoding {
	case "base64":
		if key, err = decodeBase64(text); err != nil {
			return material{}, secretError(MistakeSecretNotDecoded, "is not base64, though secret_encoding says so", base64Hint(text))
		}
	case "hex":
		if key, err = hex.DecodeString(text); err != nil {
			return material{}, secretError(MistakeSecretNotDecoded, "is not hex, though secret_encoding says so", "")
		}
	default:
		key = []byte(text)
	}
	if len(key) == 0 {
		return material{}, secretError(MistakeConfig, "decodes to nothing", "an empty key would let anyone sign")
	}
	return material{mac: key}, nil
}

// parsePrivate reads a signing key: whsk_ and base64 of the 32-byte seed, or of
// the 64 bytes seed‖public; Discord's and Telnyx's kinds also take the seed in
// the provider's own encoding.
func parsePrivate(text string, kind keyKind) (material, error) {
	if strings.HasPrefix(text, prefixPublic) {
		return material{}, secretError(MistakeSecretKind, "is a public key (whpk_)", "signing needs the private one (whsk_…)")
	}
	raw, err := decodeEd(text, prefixPrivate, kind)
	if err != nil {
		return material{}, secretError(MistakeSecretKind, "is not an Ed25519 private key", "whsk_ followed by base64 of the 32-byte seed")
	}
	switch len(raw) {
	case ed25519.SeedSize, ed25519.PrivateKeySize:
	default:
		return material{}, secretError(MistakeSecretKind,
			fmt.Sprintf("decodes to %d bytes, an Ed25519 private key has %d or %d", len(raw), ed25519.SeedSize, ed25519.PrivateKeySize), "")
	}
	priv := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize])
	// A public half that belongs to another seed gives signatures from which
	// the private key can be computed. Never use one.
	if len(raw) == ed25519.PrivateKeySize && !bytes.Equal(priv, raw) {
		return material{}, secretError(MistakeSecretKind, "has a public half that does not belong to its private half", "")
	}
	pub := priv.Public().(ed25519.PublicKey)
	return material{priv: priv, pub: pub}, nil
}

// parsePublic reads a verification key. A private key is refused rather than
// reduced: a receiver that has it is a place it can leak from.
func parsePublic(text string, kind keyKind) (material, error) {
	if strings.HasPrefix(text, prefixPrivate) {
		return material{}, secretError(MistakeSecretKind, "is a private key (whsk_)", "a receiver verifies with the public one (whpk_…); keep this one at the sender")
	}
	if strings.HasPrefix(text, prefixSymmetric) {
		return material{}, secretError(MistakeSecretKind, "is a shared secret (whsec_)", "this scheme verifies with an Ed25519 public key")
	}
	raw, err := decodeEd(text, prefixPublic, kind)
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return material{}, secretError(MistakeSecretKind, "is not an Ed25519 public key", publicHint(kind))
	}
	return material{pub: raw}, nil
}

func publicHint(kind keyKind) string {
	switch kind {
	case keyEdHex:
		return "32 bytes, written as 64 hex digits"
	case keyEdBase64:
		return "32 bytes in base64, 44 characters"
	default:
		return "whpk_ followed by 32 bytes in base64"
	}
}

// decodeEd decodes the text of an Ed25519 key. With the prefix it is base64
// under every scheme, without it in the encoding that the provider shows.
func decodeEd(text, prefix string, kind keyKind) ([]byte, error) {
	bare, prefixed := strings.CutPrefix(text, prefix)
	if kind == keyEdHex && !prefixed {
		return hex.DecodeString(bare)
	}
	return decodeBase64(bare)
}

// PublicKey returns the public half of an Ed25519 private key (whsk_…) as
// whpk_ and base64. It is what a receiver is given.
func PublicKey(private Secret) (string, error) {
	text := private.Reveal()
	if err := checkText(text); err != nil {
		return "", err
	}
	m, err := parsePrivate(text, keyEd25519)
	if err != nil {
		return "", err
	}
	return formatPublic(m.pub), nil
}

func formatPublic(pub ed25519.PublicKey) string {
	return prefixPublic + base64.StdEncoding.EncodeToString(pub)
}
