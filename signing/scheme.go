package signing

import (
	"crypto/ed25519"
	"crypto/sha1" // Twilio's default algorithm; nothing else uses it.
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
)

// Scheme names one way of signing a webhook: what is hashed, with which key,
// and in which header the result travels.
type Scheme string

// The schemes. The comment of each gives its signed content and its header.
const (
	// Standard is Standard Webhooks v1: HMAC-SHA256 over "{id}.{timestamp}.{body}",
	// base64, as "v1,…" in webhook-signature.
	Standard Scheme = "standard"
	// StandardEd25519 is Standard Webhooks v1a: Ed25519 over the same content,
	// as "v1a,…" in webhook-signature.
	StandardEd25519 Scheme = "standard-ed25519"
	// GitHub is HMAC-SHA256 over the body, "sha256=" and hex in X-Hub-Signature-256.
	GitHub Scheme = "github"
	// Stripe is HMAC-SHA256 over "{timestamp}.{body}", as "t=…,v1=hex" in
	// Stripe-Signature. Its secret is used as it is written, prefix included.
	Stripe Scheme = "stripe"
	// Shopify is HMAC-SHA256 over the body, base64 in X-Shopify-Hmac-Sha256.
	Shopify Scheme = "shopify"
	// Slack is HMAC-SHA256 over "v0:{timestamp}:{body}", "v0=" and hex in X-Slack-Signature.
	Slack Scheme = "slack"
	// Discord is Ed25519 over "{timestamp}{body}", hex in X-Signature-Ed25519.
	Discord Scheme = "discord"
	// Telnyx is Ed25519 over "{timestamp}|{body}", base64 in Telnyx-Signature-Ed25519.
	Telnyx Scheme = "telnyx"
	// Twilio is HMAC-SHA1 over the public URL and the sorted form fields, base64
	// in X-Twilio-Signature; a JSON body is covered by its hash in the query.
	Twilio Scheme = "twilio"
	// HMACHex is HMAC-SHA256 in hex. Header names, a prefix and the signed
	// content are configurable; by default it covers the body, in X-Signature.
	HMACHex Scheme = "hmac-hex"
	// HMACBase64 is HMACHex with base64 instead of hex.
	HMACBase64 Scheme = "hmac-base64"
)

// algorithm is how signed bytes become a signature.
type algorithm int

const (
	algHMACSHA256 algorithm = iota
	algEd25519
	algTwilio // HMAC-SHA1, or HMAC-SHA256 where the request says so
)

// size is the length of a raw signature; Twilio's depends on the request.
func (a algorithm) size() int {
	switch a {
	case algEd25519:
		return ed25519.SignatureSize
	case algTwilio:
		return sha1.Size
	default:
		return sha256.Size
	}
}

// layoutFormat is how the signature header is put together.
type layoutFormat int

const (
	formatPlain  layoutFormat = iota // prefix + encoded signature
	formatList                       // "tag,signature tag,signature …"
	formatStripe                     // "t=…,v1=…,v1=…"
)

// keyKind is how a secret's text becomes a key.
type keyKind int

const (
	keyLiteral  keyKind = iota // the text itself, prefix included
	keyStandard                // whsec_ + base64 of 24 to 64 bytes
	keyEd25519                 // whsk_/whpk_ + base64
	keyEdHex                   // 32 bytes in hex
	keyEdBase64                // 32 bytes in base64
)

// spec is one row of the scheme table. What the rows cannot say (Twilio's URL
// and form fields) is in twilio.go, and nowhere else.
type spec struct {
	alg      algorithm
	format   layoutFormat
	codec    codec
	key      keyKind
	outbound bool // a subscriber may choose it
	generic  bool // header names, prefix and content are the user's to set

	sigHeader string
	tsHeader  string // "" where the scheme has none, or has it in sigHeader
	idHeader  string // part of the signed content
	prefix    string // formatPlain: before the signature; formatList: the tag
	content   string // template, see parseTemplate

	identify identifier // event id and type, see identify.go
}

// overlaps reports whether the header can hold several signatures, so that a
// rotation needs no moment at which sender and receiver change together.
func (s *spec) overlaps() bool { return s.format != formatPlain }

var specs = map[Scheme]*spec{
	Standard: {
		alg: algHMACSHA256, format: formatList, codec: codecBase64, key: keyStandard, outbound: true,
		sigHeader: "Webhook-Signature", tsHeader: "Webhook-Timestamp", idHeader: "Webhook-Id",
		prefix: "v1", content: "{id}.{timestamp}.{body}", identify: identifyStandard,
	},
	StandardEd25519: {
		alg: algEd25519, format: formatList, codec: codecBase64, key: keyEd25519, outbound: true,
		sigHeader: "Webhook-Signature", tsHeader: "Webhook-Timestamp", idHeader: "Webhook-Id",
		prefix: "v1a", content: "{id}.{timestamp}.{body}", identify: identifyStandard,
	},
	GitHub: {
		alg: algHMACSHA256, codec: codecHex, outbound: true,
		sigHeader: "X-Hub-Signature-256", prefix: "sha256=", content: "{body}", identify: identifyGitHub,
	},
	Stripe: {
		alg: algHMACSHA256, format: formatStripe, codec: codecHex, outbound: true,
		sigHeader: "Stripe-Signature", content: "{timestamp}.{body}", identify: identifyStripe,
	},
	Shopify: {
		alg: algHMACSHA256, codec: codecBase64, outbound: true,
		sigHeader: "X-Shopify-Hmac-Sha256", content: "{body}", identify: identifyShopify,
	},
	Slack: {
		alg: algHMACSHA256, codec: codecHex, outbound: true,
		sigHeader: "X-Slack-Signature", tsHeader: "X-Slack-Request-Timestamp",
		prefix: "v0=", content: "v0:{timestamp}:{body}", identify: identifySlack,
	},
	Discord: {
		alg: algEd25519, codec: codecHex, key: keyEdHex,
		sigHeader: "X-Signature-Ed25519", tsHeader: "X-Signature-Timestamp",
		content: "{timestamp}{body}", identify: identifyDiscord,
	},
	Telnyx: {
		alg: algEd25519, codec: codecBase64, key: keyEdBase64,
		sigHeader: "Telnyx-Signature-Ed25519", tsHeader: "Telnyx-Timestamp",
		content: "{timestamp}|{body}", identify: identifyTelnyx,
	},
	Twilio: {
		alg: algTwilio, codec: codecBase64,
		sigHeader: "X-Twilio-Signature", identify: identifyTwilio,
	},
	HMACHex: {
		alg: algHMACSHA256, codec: codecHex, outbound: true, generic: true,
		sigHeader: "X-Signature", content: "{body}", identify: identifyGeneric,
	},
	HMACBase64: {
		alg: algHMACSHA256, codec: codecBase64, outbound: true, generic: true,
		sigHeader: "X-Signature", content: "{body}", identify: identifyGeneric,
	},
}

// order is the order in which lists and messages name the schemes.
var order = [...]Scheme{
	Standard, StandardEd25519, GitHub, Stripe, Shopify, Slack,
	Discord, Telnyx, Twilio, HMACHex, HMACBase64,
}

// Schemes returns every scheme, in a fixed order. All of them can be verified.
func Schemes() []Scheme { return slices.Clone(order[:]) }

// OutboundSchemes returns the schemes a subscriber may choose for what is sent
// to it, in the order of [Schemes].
func OutboundSchemes() []Scheme {
	return slices.DeleteFunc(Schemes(), func(s Scheme) bool { return !s.Outbound() })
}

// Outbound reports whether a subscriber may choose s for what is sent to it.
func (s Scheme) Outbound() bool {
	sp, ok := specs[s]
	return ok && sp.outbound
}

// ParseScheme returns the scheme of that name, or a [*ConfigError] that lists
// the names there are.
func ParseScheme(name string) (Scheme, error) {
	s := Scheme(name)
	if _, ok := specs[s]; !ok {
		return "", unknownScheme(s)
	}
	return s, nil
}

func unknownScheme(s Scheme) error {
	names := make([]string, len(order))
	for i, known := range order {
		names[i] = string(known)
	}
	return &ConfigError{
		Field: "scheme",
		Rule:  fmt.Sprintf("%q is not a signing scheme", string(s)),
		Hint:  "one of " + strings.Join(names, ", "),
	}
}
