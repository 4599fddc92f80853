package signing

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// misreadings calls add for each key that a secret's text may have been taken
// for, by either side.
func misreadings(text string, kind keyKind, add func([]byte, *Finding)) {
	finding := func(m Mistake, format string, args ...any) *Finding {
		return &Finding{Mistake: m, Message: fmt.Sprintf(format, args...)}
	}
	trimmed := strings.TrimSpace(text)
	if trimmed != text {
		misreadTrimmed(trimmed, kind, add, finding(MistakeSecretSpace, "the secret has white space around it that the sender's has not: remove it."))
	}
	if bare, ok := strings.CutPrefix(trimmed, "v1,"); ok {
		misreadTrimmed(bare, kind, add, finding(MistakeSecretPrefix, `the secret begins with "v1,", the label of a signature: remove it.`))
		return
	}
	misreadTrimmed(trimmed, kind, add, nil)
}

// readings says of each kind of secret what it means when the signature comes
// out right with another reading of its text.
var readings = map[keyKind]struct{ decoded, hex, literal, bare string }{
	keyLiteral: {
		decoded: "the sender decoded the secret's base64 before using it; this scheme's key is the text as it is written.",
		hex:     "the sender decoded the secret's hex before using it; this scheme's key is the text as it is written.",
		literal: "the sender used the text of the secret as the key.",
		bare:    "the sender used the secret without its prefix as the key; this scheme's key is the text as it is written.",
	},
	keyStandard: {
		decoded: "the secret's base64 is not the standard one (another alphabet, or no padding); the sender reads it all the same. Write it in standard base64.",
		hex:     "the secret is in hex, and the sender decodes it as such; whsec_ and base64 are due.",
		literal: "the sender used the text of the secret as the key, prefix included; the base64 behind whsec_ must be decoded first.",
		bare:    "the sender used the text behind whsec_ as the key; its base64 must be decoded first.",
	},
	keyEd25519:  edReadings,
	keyEdHex:    edReadings,
	keyEdBase64: edReadings,
}

var edReadings = struct{ decoded, hex, literal, bare string }{
	decoded: "the public key is in base64, which is not how this scheme writes it.",
	hex:     "the public key is in hex, which is not how this scheme writes it.",
	literal: "the sender used the text of the key as an HMAC secret.",
	bare:    "the sender used the text of the key as an HMAC secret.",
}

// misreadTrimmed adds the readings of text. With f all of them are f's mistake;
// without it each is its own.
func misreadTrimmed(text string, kind keyKind, add func([]byte, *Finding), f *Finding) {
	or := func(m Mistake, message string) *Finding {
		if f != nil {
			return f
		}
		return &Finding{Mistake: m, Message: message}
	}
	say := readings[kind]
	bare := text
	for _, prefix := range [...]string{prefixSymmetric, prefixPrivate, prefixPublic} {
		bare = strings.TrimPrefix(bare, prefix)
	}
	for _, enc := range [...]*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if raw, err := enc.DecodeString(bare); err == nil {
			add(raw, or(MistakeSecretNotDecoded, say.decoded))
			addSeed(raw, add, f)
		}
	}
	if raw, err := hex.DecodeString(bare); err == nil {
		add(raw, or(MistakeSecretNotDecoded, say.hex))
		addSeed(raw, add, f)
	}
	add([]byte(text), or(MistakeSecretNotDecoded, say.literal))
	if bare != text {
		add([]byte(bare), or(MistakeSecretPrefix, say.bare))
	}
}

// addSeed adds the public key of a private one given in its place.
func addSeed(raw []byte, add func([]byte, *Finding), f *Finding) {
	if len(raw) != ed25519.SeedSize && len(raw) != ed25519.PrivateKeySize {
		return
	}
	if f == nil {
		f = &Finding{Mistake: MistakeSecretKind, Message: "the secret is the private key; a receiver verifies with the public one."}
	}
	pub := ed25519.NewKeyFromSeed(raw[:ed25519.SeedSize]).Public().(ed25519.PublicKey)
	add(pub, f)
}

// maxVariantBody bounds the bodies that are re-encoded in every way.
const maxVariantBody = 1 << 20

// bodyVariants are the body as received and what it may have been before
// something on the way read it and wrote it anew.
func bodyVariants(h http.Header, body []byte) []variant {
	out := []variant{{data: body}}
	add := func(b []byte, what string) {
		for _, v := range out {
			if bytes.Equal(v.data, b) {
				return
			}
		}
		out = append(out, variant{data: b, finding: &Finding{Mistake: MistakeBody, Message: "the signature covers other bytes than these: " + what}})
	}
	if len(body) > maxVariantBody {
		return out
	}
	const raw = " Verify the raw body, before any middleware parses it."
	add(bytes.TrimRight(body, "\r\n"), "a line break was added at the end.")
	add(append(bytes.Clone(body), '\n'), "the line break at the end was cut off.")
	add(bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n")), "line breaks were turned from LF into CR LF.")
	add(bytes.ReplaceAll(bytes.ReplaceAll(body, []byte("\r\n"), []byte("\n")), []byte("\n"), []byte("\r\n")), "line breaks were turned from CR LF into LF.")
	add(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), "a byte order mark was put in front.")
	if json.Valid(body) {
		jsonVariants(body, func(b []byte, how string) {
			add(b, "the JSON was parsed and written anew; what was signed is "+how+"."+raw)
			add(append(bytes.Clone(b), '\n'), "the JSON was parsed and written anew; what was signed is "+how+" and a line break."+raw)
		})
	}
	if isForm(h) {
		if payload := parseForm(bytes.NewReader(body)).Get("payload"); payload != "" {
			add([]byte(payload), "the sender signed the JSON inside the form; the form body as it is sent must be signed.")
		}
	}
	add(nil, "the signature covers an empty body: it was read before it was verified (or before it was signed).")
	return out
}

// jsonVariants calls add with the ways in which other libraries write the same
// document.
func jsonVariants(body []byte, add func([]byte, string)) {
	var compact bytes.Buffer
	if json.Compact(&compact, body) != nil {
		return
	}
	c := compact.Bytes()
	add(c, "the compact form")
	for _, indent := range [...]struct{ text, name string }{{"  ", "two spaces"}, {"    ", "four spaces"}, {"\t", "tabs"}} {
		var b bytes.Buffer
		if json.Indent(&b, c, "", indent.text) == nil {
			add(b.Bytes(), "the form indented by "+indent.name)
		}
	}
	add(spacedJSON(c), "the form with a space after : and ,")
	add(asciiJSON(c), `the compact form with \u escapes`)
	add(asciiJSON(spacedJSON(c)), `the form with a space after : and , and with \u escapes`)
	var html bytes.Buffer
	json.HTMLEscape(&html, c)
	add(html.Bytes(), `the compact form with <, > and & as \u escapes`)
	add(bytes.ReplaceAll(c, []byte("/"), []byte(`\/`)), `the compact form with / written \/`)
	add(bytes.ReplaceAll(c, []byte(`\/`), []byte("/")), "the compact form with unescaped /")
	for _, escapeHTML := range [...]bool{false, true} {
		if plain, ok := rewriteJSON(c, escapeHTML); ok {
			add(plain, "the compact form with sorted keys and resolved escapes")
			add(spacedJSON(plain), "the form with sorted keys, resolved escapes and a space after : and ,")
		}
	}
}

// rewriteJSON decodes and encodes the document: keys sorted, escapes resolved.
func rewriteJSON(doc []byte, escapeHTML bool) ([]byte, bool) {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.UseNumber()
	var value any
	if dec.Decode(&value) != nil {
		return nil, false
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(escapeHTML)
	if enc.Encode(value) != nil {
		return nil, false
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), true
}

// spacedJSON puts a space behind each : and , of compact JSON.
func spacedJSON(compact []byte) []byte {
	out := make([]byte, 0, len(compact)+len(compact)/8)
	inString := false
	for i := 0; i < len(compact); i++ {
		c := compact[i]
		out = append(out, c)
		switch {
		case inString && c == '\\' && i+1 < len(compact):
			i++
			out = append(out, compact[i])
		case c == '"':
			inString = !inString
		case !inString && (c == ':' || c == ','):
			out = append(out, ' ')
		}
	}
	return out
}

// asciiJSON writes everything beyond ASCII as \u escapes. In valid JSON it can
// only stand in strings.
func asciiJSON(doc []byte) []byte {
	out := make([]byte, 0, len(doc))
	for i := 0; i < len(doc); {
		r, size := utf8.DecodeRune(doc[i:])
		switch {
		case r < utf8.RuneSelf:
			out = append(out, byte(r))
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		i += size
	}
	return out
}
