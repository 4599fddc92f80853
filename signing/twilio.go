package signing

import (
	"crypto/hmac"
	"crypto/sha1" // Twilio's default algorithm.
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Twilio signs a URL and not a body. What is appended to the URL depends on the
// body's type:
//
//	form   URL ‖ name1 ‖ value1 ‖ name2 ‖ value2 …   sorted by name, then value
//	other  URL with ?bodySHA256=hex in its query; the body must have that hash
//
// The URL is the configured one, its query the request's. Twilio is not of one
// mind about the default port, so the URL is tried with it and without it.

// twilioSettingsHeader names the algorithm where it is not HMAC-SHA1:
// "key=…,algorithm=HMAC_SHA256".
const twilioSettingsHeader = "X-Twilio-Webhooks-Signature-Settings"

const bodyHashParam = "bodySHA256"

func newSHA1Key(key []byte) *macKey { return &macKey{key: key, hash: sha1.New} }

// publicURL is the configured URL in the spellings that may have been signed,
// each without the query.
type publicURL struct {
	bases []string
	query string // used if the request has none
}

func newPublicURL(text string, u *url.URL) *publicURL {
	base, query, _ := strings.Cut(text, "?")
	p := &publicURL{bases: []string{base}, query: query}
	host := u.Hostname()
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	port := map[string]string{"https": "443", "http": "80"}[u.Scheme]
	// Cut the host out of the text instead of printing u again: escapes in the
	// path must stay as they were given to Twilio.
	rest := strings.TrimPrefix(base, u.Scheme+"://"+u.Host)
	if rest == "" { // a path is never empty in a request
		base, rest = base+"/", "/"
		p.bases = append(p.bases, base)
	}
	switch u.Port() {
	case "":
		p.bases = append(p.bases, u.Scheme+"://"+net.JoinHostPort(u.Hostname(), port)+rest)
	case port:
		p.bases = append(p.bases, u.Scheme+"://"+host+rest)
	}
	return p
}

// urls returns the URLs that may have been signed for a request with query.
func (p *publicURL) urls(query string) []string {
	if query == "" {
		query = p.query
	}
	out := slices.Clone(p.bases)
	if query != "" {
		for i := range out {
			out[i] += "?" + query
		}
	}
	return out
}

// twilioCheck is the part of a Check that only Twilio has.
type twilioCheck struct {
	urls   []string
	sha256 bool
	form   bool
	body   []byte    // form fields
	sum    hash.Hash // any other body
	length int
	want   []byte // bodySHA256 of the query, nil if there is none
}

func (v *Verifier) beginTwilio(h http.Header, query string, env *envelope) (*twilioCheck, error) {
	t := &twilioCheck{urls: v.publicURL.urls(query), sum: sha256.New()}
	if settings := headerValues(h, twilioSettingsHeader); len(settings) > 0 {
		alg, ok := twilioAlgorithm(settings)
		if !ok {
			return nil, v.fail(ReasonMalformed, twilioSettingsHeader, "names an algorithm that is not known")
		}
		t.sha256 = alg
	}
	value, err := v.single(h, v.sigHeader)
	if err != nil {
		return nil, err
	}
	size := sha1.Size
	if t.sha256 {
		size = sha256.Size
	}
	sig, ok := codecBase64.decode(value, size)
	if !ok {
		return nil, v.fail(ReasonMalformed, v.sigHeader, "is not a signature in base64")
	}
	env.sigs = [][]byte{sig}
	if t.want, ok = bodyHash(query); !ok {
		return nil, v.fail(ReasonMalformed, v.sigHeader, bodyHashParam+" in the query is not one SHA-256 in hex")
	}
	t.form = isForm(h) && t.want == nil
	return t, nil
}

// twilioAlgorithm reads the settings header: true for SHA-256.
func twilioAlgorithm(values []string) (sha256, ok bool) {
	if len(values) != 1 {
		return false, false
	}
	for item := range strings.SplitSeq(values[0], ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		if name != "algorithm" {
			continue
		}
		switch value {
		case "HMAC_SHA256":
			return true, true
		case "HMAC_SHA1":
			return false, true
		}
	}
	return false, false
}

// bodyHash finds the hash of the body in a query; false if it is there but is
// not exactly one.
func bodyHash(query string) ([]byte, bool) {
	var found []byte
	for item := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(item, "=")
		if name != bodyHashParam {
			continue
		}
		raw, ok := codecHex.decode(value, sha256.Size)
		if !ok || found != nil {
			return nil, false
		}
		found = raw
	}
	return found, true
}

func isForm(h http.Header) bool {
	values := headerValues(h, "Content-Type")
	if len(values) != 1 {
		return false
	}
	kind, _, err := mime.ParseMediaType(values[0])
	return err == nil && kind == "application/x-www-form-urlencoded"
}

func (t *twilioCheck) write(b []byte) {
	t.length += len(b)
	if t.form {
		t.body = append(t.body, b...)
		return
	}
	t.sum.Write(b)
}

// take is write without a copy, for a body that comes in one piece.
func (t *twilioCheck) take(b []byte) {
	if t.form && t.length == 0 {
		t.body, t.length = b, len(b)
		return
	}
	t.write(b)
}

func (c *Check) finishTwilio() error {
	t := c.twilio
	fields, err := t.fields()
	if err != nil {
		return c.v.fail(ReasonMalformed, "", "the form in the body cannot be read")
	}
	covered := t.form || t.length == 0 && t.want == nil
	if !covered && t.want == nil {
		return c.v.fail(ReasonMalformed, "", "the signature does not cover the body: it is no form, and the query has no "+bodyHashParam)
	}
	match := false
	for _, k := range c.v.keys {
		mac := k.mac
		if t.sha256 {
			mac = k.mac256
		}
		for _, u := range t.urls {
			m := mac.get()
			m.Write([]byte(u))
			m.Write(fields)
			match = matchAny(m.finish(), c.env.sigs) || match
			mac.put(m)
		}
	}
	if !covered {
		match = hmac.Equal(t.sum.Sum(nil), t.want) && match
	}
	if !match {
		return c.mismatch()
	}
	return nil
}

// fields returns what is appended to the URL.
func (t *twilioCheck) fields() ([]byte, error) {
	if !t.form {
		return nil, nil
	}
	return twilioFields(t.body)
}

// twilioFields sorts a form's fields by name and writes each with its values,
// sorted, without repetitions: what Twilio's own libraries do.
func twilioFields(form []byte) ([]byte, error) {
	values, err := url.ParseQuery(string(form))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	var out []byte
	for _, name := range names {
		list := values[name]
		slices.Sort(list)
		for _, value := range slices.Compact(list) {
			out = append(out, name...)
			out = append(out, value...)
		}
	}
	return out, nil
}

// signTwilio gives the signature and the URL that a Twilio request has: for a
// body that is not a form the URL gets its hash.
func (l *layout) signTwilio(key []byte, contentType string, body []byte) (sig, signedURL string, err error) {
	target := l.publicURL.urls("")[0]
	var fields []byte
	if isForm(http.Header{"Content-Type": {contentType}}) {
		if fields, err = twilioFields(body); err != nil {
			return "", "", err
		}
	} else if len(body) > 0 {
		sep := "?"
		if strings.Contains(target, "?") {
			sep = "&"
		}
		sum := sha256.Sum256(body)
		target += sep + bodyHashParam + "=" + hex.EncodeToString(sum[:])
	}
	m := newSHA1Key(key).get()
	m.Write([]byte(target))
	m.Write(fields)
	return string(codecBase64.appendTo(nil, m.finish())), target, nil
}
