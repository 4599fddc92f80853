package engine

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"
)

// TokenScope says what an API token may do.
type TokenScope string

// The scopes of API tokens.
const (
	// TokenAdmin may do everything.
	TokenAdmin TokenScope = "admin"
	// TokenPublish may publish events of its one tenant, and nothing else.
	TokenPublish TokenScope = "publish"
	// TokenRead may look at everything but payloads and tokens, of one tenant or
	// of the whole node.
	TokenRead TokenScope = "read"
)

// Token is an API token as it is listed: never the token itself, of which only a
// hash is kept.
type Token struct {
	ID     string
	Name   string
	Scope  TokenScope
	Tenant string // "" = every tenant
	// CreatedAt is when it was made, RotatedAt when its secret was last changed.
	CreatedAt, RotatedAt time.Time
	// ExpiresAt is when it ends; zero = never.
	ExpiresAt time.Time
	// OverlapUntil is how long the one before the last rotation is valid; zero =
	// there is none.
	OverlapUntil time.Time
	// LastUsedAt is the hour it was last used in; zero = never.
	LastUsedAt time.Time
}

// TokenInput is a token to make.
type TokenInput struct {
	Name      string
	Scope     TokenScope
	Tenant    string
	ExpiresIn time.Duration // 0 = never
}

// tokenHash is one text of a token that is accepted. SHA-256 is enough: the text
// has 256 random bits, so that there is nothing to guess that a slow hash would
// slow down.
type tokenHash struct {
	Sum   []byte    `json:"sum"`
	Until time.Time `json:"until,omitzero"` // zero = as long as the token
}

// A token's text is "dsp_", its id, "_" and a secret: the prefix lets scanners of
// leaked credentials find it, the id lets it be found without trying all hashes.
const (
	tokenPrefix      = "dsp_"
	tokenIDBytes     = 10
	tokenIDLen       = tokenIDBytes * 8 / 5
	tokenSecretBytes = 32
)

// tokenIDs keeps the order of the bytes, so that ids sort by time.
var tokenIDs = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// newTokenID begins with the second it is made in, so that lists are in the order
// of making.
func newTokenID(now time.Time) string {
	var b [tokenIDBytes]byte
	_, _ = rand.Read(b[4:])                               // never fails: crypto/rand ends the process instead
	binary.BigEndian.PutUint32(b[:4], uint32(now.Unix())) //nolint:gosec // until 2106, and then only the order is lost
	return tokenIDs.EncodeToString(b[:])
}

func newTokenText(id string) (text string, hash tokenHash) {
	var secret [tokenSecretBytes]byte
	_, _ = rand.Read(secret[:])
	text = tokenPrefix + id + "_" + base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(text))
	return text, tokenHash{Sum: sum[:]}
}

// tokenID returns the id in a token's text, "" if it is not of our form.
func tokenID(text string) string {
	rest, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok || len(rest) <= tokenIDLen+1 || rest[tokenIDLen] != '_' {
		return ""
	}
	return rest[:tokenIDLen]
}

// matches compares with every hash that is valid now, in constant time each.
func matches(hashes []tokenHash, text string, now time.Time) bool {
	sum := sha256.Sum256([]byte(text))
	found := 0
	for _, h := range hashes {
		if h.Until.IsZero() || now.Before(h.Until) {
			found |= subtle.ConstantTimeCompare(sum[:], h.Sum)
		}
	}
	return found == 1
}
