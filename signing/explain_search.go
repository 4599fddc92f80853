package signing

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha1" // Tried, to say that it is the wrong one.
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strings"
)

// variant is one thing done differently from what the settings say: a key, a
// body or a signed content. The first of each list is what is right, with no
// finding.
type variant struct {
	finding *Finding
	data    []byte // key or body
	content *layout
}

// candidate is a signature read from a header without the scheme's strictness.
type candidate struct {
	raw   []byte
	codec string // hex, base64 or URL-safe base64
}

// explainer makes mistakes until a signature comes out right.
type explainer struct {
	cfg    VerifierConfig
	ev     Evidence
	layout *layout
	solved bool // nothing is left to search for

	id, timestamp string
	candidates    []candidate
	otherHeader   *Finding // the signature was found where another scheme has it
	hashed        int      // bytes, against hashBudget
}

// hashBudget bounds the work of one explanation, in bytes hashed.
const hashBudget = 256 << 20

func newExplainer(cfg VerifierConfig, ev Evidence) *explainer {
	x := &explainer{cfg: cfg, ev: ev}
	l, err := cfg.resolve(cfg.Scheme)
	if err != nil {
		return x
	}
	x.layout = l
	x.timestamp = x.firstOf(l.tsHeader, "Webhook-Timestamp", "X-Slack-Request-Timestamp", "X-Signature-Timestamp", "Telnyx-Timestamp", "Svix-Timestamp")
	x.id = x.firstOf(l.idHeader, HeaderID, "Svix-Id")
	x.readSignature()
	return x
}

// firstOf returns the first value that one of the headers has.
func (x *explainer) firstOf(names ...string) string {
	for _, n := range names {
		if n == "" {
			continue
		}
		if value := first(x.ev.Header, n); value != "" {
			return value
		}
	}
	return ""
}

// readSignature finds signatures in the scheme's own header or, if there is
// none, in that of another scheme.
func (x *explainer) readSignature() {
	value := first(x.ev.Header, x.layout.sigHeader)
	for _, s := range order {
		if value != "" {
			break
		}
		if sp := specs[s]; sp.sigHeader != x.layout.sigHeader {
			if value = first(x.ev.Header, sp.sigHeader); value != "" {
				x.otherHeader = &Finding{Mistake: MistakeScheme, Proven: true, Message: fmt.Sprintf(
					"the request has %s, the header of %s, and not %s, that of %s: it is signed by another scheme than the settings say, or by the right one under another header's name.",
					sp.sigHeader, s, x.layout.sigHeader, x.layout.scheme)}
			}
		}
	}
	split := func(r rune) bool { return r == ' ' || r == ',' || r == ';' }
	for item := range strings.FieldsFuncSeq(value, split) {
		if name, text, ok := strings.Cut(item, "="); ok && text != "" && len(name) <= 6 {
			if name == "t" && x.timestamp == "" {
				x.timestamp = text
			}
			x.addCandidate(text)
		}
		x.addCandidate(item)
	}
}

// addCandidate decodes text in every encoding in which it is a signature.
func (x *explainer) addCandidate(text string) {
	const most = 8
	for _, c := range [...]struct {
		name   string
		decode func(string) ([]byte, error)
	}{
		{"hex", hex.DecodeString},
		{"base64", base64.StdEncoding.DecodeString},
		{"base64 without padding", base64.RawStdEncoding.DecodeString},
		{"URL-safe base64", base64.URLEncoding.DecodeString},
		{"URL-safe base64 without padding", base64.RawURLEncoding.DecodeString},
	} {
		raw, err := c.decode(text)
		if err != nil || len(x.candidates) == most {
			continue
		}
		if n := len(raw); n == sha1.Size || n == sha256.Size || n == sha512.Size {
			x.candidates = append(x.candidates, candidate{raw, c.name})
		}
		if twice, err := hex.DecodeString(string(raw)); err == nil && len(twice) == sha256.Size {
			x.candidates = append(x.candidates, candidate{twice, "hex, and that again in " + c.name})
		}
	}
}

// search tries keys, contents and bodies, those with the fewest mistakes first,
// and returns the mistakes of the first combination that gives the signature.
func (x *explainer) search() []Finding {
	if x.solved || len(x.candidates) == 0 {
		return x.suspicions()
	}
	keys, contents, bodies := x.keyVariants(), x.contentVariants(), bodyVariants(x.ev.Header, x.ev.Body)
	type combination struct{ key, content, body variant }
	var all []combination
	for _, k := range keys {
		for _, c := range contents {
			for _, b := range bodies {
				all = append(all, combination{k, c, b})
			}
		}
	}
	mistakes := func(c combination) int {
		n := 0
		for _, v := range [...]variant{c.key, c.content, c.body} {
			if v.finding != nil {
				n++
			}
		}
		return n
	}
	slices.SortStableFunc(all, func(a, b combination) int { return cmp.Compare(mistakes(a), mistakes(b)) })
	for _, c := range all {
		if mistakes(c) > 2 || x.hashed > hashBudget {
			break
		}
		if hit := x.try(c.key.data, c.content.content, c.body.data); hit != nil {
			return x.findings(*hit, c.key, c.content, c.body)
		}
	}
	return x.suspicions()
}

// hit is a candidate that came out right, and how.
type hit struct {
	candidate
	algorithm string
}

// try computes the signature of one combination with every hash of a
// candidate's length.
func (x *explainer) try(key []byte, l *layout, body []byte) *hit {
	message := appendParts(nil, l.content.before, x.id, []byte(x.timestamp))
	message = append(message, body...)
	message = appendParts(message, l.content.after, x.id, []byte(x.timestamp))
	for _, c := range x.candidates {
		x.hashed += len(message)
		if len(c.raw) == ed25519.SignatureSize && len(key) == ed25519.PublicKeySize && ed25519.Verify(key, message, c.raw) {
			return &hit{c, "Ed25519"}
		}
		newHash, name := hashOf(len(c.raw))
		m := hmac.New(newHash, key)
		m.Write(message)
		if hmac.Equal(m.Sum(nil), c.raw) {
			return &hit{c, name}
		}
	}
	return nil
}

func hashOf(size int) (func() hash.Hash, string) {
	switch size {
	case sha1.Size:
		return sha1.New, "HMAC-SHA1"
	case sha512.Size:
		return sha512.New, "HMAC-SHA512"
	default:
		return sha256.New, "HMAC-SHA256"
	}
}

// findings turns a combination into what to say about it.
func (x *explainer) findings(h hit, used ...variant) []Finding {
	var out []Finding
	if x.otherHeader != nil {
		out = append(out, *x.otherHeader)
	}
	for _, v := range used {
		if v.finding == nil || x.otherHeader != nil && v.finding.Mistake == MistakeScheme {
			continue // the other scheme's header says it already
		}
		f := *v.finding
		f.Proven = true
		out = append(out, f)
	}
	if x.otherHeader != nil {
		return out // whose encoding and algorithm are right for its scheme
	}
	due := "HMAC-SHA256"
	if x.layout.spec.alg == algEd25519 {
		due = "Ed25519"
	}
	if h.algorithm != due {
		out = append(out, Finding{MistakeAlgorithm, true, fmt.Sprintf("the signature is made with %s; %s asks for %s.", h.algorithm, x.layout.scheme, due)})
	}
	if codec := x.layout.spec.codec.String(); h.codec != codec {
		out = append(out, Finding{MistakeEncoding, true, fmt.Sprintf("the signature is written in %s; %s asks for %s.", h.codec, x.layout.scheme, codec)})
	}
	return out
}

// suspicions is what can be said when nothing came out right.
func (x *explainer) suspicions() []Finding {
	var out []Finding
	if x.otherHeader != nil {
		f := *x.otherHeader
		f.Proven = false
		out = append(out, f)
	}
	if x.solved {
		return out
	}
	for _, s := range x.cfg.Secrets {
		if !strings.HasPrefix(s.Reveal(), prefixSymmetric) {
			continue
		}
		switch x.cfg.Scheme {
		case GitHub, Shopify, Slack:
			out = append(out, Finding{MistakeSecretKind, false, fmt.Sprintf(
				"the secret begins with whsec_, which %s does not use: it may be the secret of another source.", x.cfg.Scheme)})
		}
	}
	return out
}

// contentVariants are the scheme's own signed content and those of the others.
func (x *explainer) contentVariants() []variant {
	out := []variant{{content: x.layout}}
	seen := []string{x.layout.spec.content}
	if x.layout.spec.generic {
		seen = nil
	}
	for _, s := range order {
		sp := specs[s]
		if sp.generic || s == Twilio || slices.Contains(seen, sp.content) {
			continue
		}
		seen = append(seen, sp.content)
		l, err := Layout{}.resolve(s)
		if err != nil {
			continue
		}
		out = append(out, variant{content: l, finding: &Finding{Mistake: MistakeScheme, Message: fmt.Sprintf(
			"what was signed is %q, as %s does it, and not the signed content that the settings give.", sp.content, s)}})
	}
	return out
}

// keyVariants are the keys that the secrets' texts can be taken for.
func (x *explainer) keyVariants() []variant {
	var right, wrong []variant
	add := func(key []byte, f *Finding) {
		if len(key) == 0 || slices.ContainsFunc(right, func(v variant) bool { return bytes.Equal(v.data, key) }) ||
			slices.ContainsFunc(wrong, func(v variant) bool { return bytes.Equal(v.data, key) }) {
			return
		}
		wrong = append(wrong, variant{data: key, finding: f})
	}
	for _, s := range x.cfg.Secrets {
		if m, err := parseKey(x.layout.spec, x.layout.encoding, s, useVerify); err == nil {
			right = append(right, variant{data: append(m.mac, m.pub...)})
		}
	}
	for _, s := range x.cfg.Secrets {
		misreadings(s.Reveal(), x.layout.spec.key, add)
	}
	return append(right, wrong...)
}
