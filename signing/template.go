package signing

import (
	"fmt"
	"strings"
)

// partKind is one element of a signed content.
type partKind int

const (
	partText partKind = iota
	partID
	partTimestamp
	partBody
)

type part struct {
	kind partKind
	text string
}

// template is a signed content, cut at the body: what is hashed before it and
// what after. Most have nothing after it.
type template struct {
	before, after []part
	usesID        bool
	usesTimestamp bool
	// separators are the texts between {id} and its neighbours. An id that has
	// one in it would make the content ambiguous.
	separators []string
}

const maxTemplate = 1024

// parseTemplate reads a signed content such as "{timestamp}.{body}". The
// placeholders are {id}, {timestamp}, {body} (exactly once) and {url}, which is
// publicURL; everything else stands for itself. Braces cannot be written
// otherwise.
//
// An {id} must have text between it and a neighbouring placeholder: it has no
// fixed shape, so that without a separator "ab"+"c" and "a"+"bc" would be
// signed alike.
func parseTemplate(content, publicURL string) (template, error) {
	var t template
	parts, err := splitTemplate(content, publicURL)
	if err != nil {
		return t, err
	}
	bodies := 0
	dst := &t.before
	for i, p := range parts {
		switch p.kind {
		case partBody:
			bodies++
			dst = &t.after
			continue
		case partTimestamp:
			t.usesTimestamp = true
		case partID:
			t.usesID = true
			if err := t.separate(parts, i); err != nil {
				return t, err
			}
		}
		*dst = append(*dst, p)
	}
	if bodies != 1 {
		return t, templateError("must have {body} exactly once", "a body outside the signature could be exchanged")
	}
	return t, nil
}

// separate notes what stands between the {id} at i and its neighbours.
func (t *template) separate(parts []part, i int) error {
	for _, step := range [...]int{-1, 1} {
		near, far := i+step, i+2*step
		if near < 0 || near >= len(parts) {
			continue
		}
		if parts[near].kind != partText {
			return templateError("has nothing between {id} and a neighbouring placeholder", "put a separator there, or the content is ambiguous")
		}
		if far >= 0 && far < len(parts) {
			t.separators = append(t.separators, parts[near].text)
		}
	}
	return nil
}

// ambiguousSeparator returns a separator that may occur in an id of ours, "" if
// there is none.
func (t *template) ambiguousSeparator() string {
	for _, sep := range t.separators {
		if validID(sep) {
			return sep
		}
	}
	return ""
}

// splitTemplate cuts content into texts and placeholders; neighbouring texts
// become one.
func splitTemplate(content, publicURL string) ([]part, error) {
	if len(content) > maxTemplate {
		return nil, templateError(fmt.Sprintf("is longer than %d bytes", maxTemplate), "")
	}
	var parts []part
	text := ""
	for rest := content; rest != ""; {
		plain, after, found := strings.Cut(rest, "{")
		if strings.Contains(plain, "}") {
			return nil, templateError("has a } without a {", "")
		}
		text += plain
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed {
			return nil, templateError("has a { without a }", "")
		}
		rest = tail
		if name == "url" {
			if publicURL == "" {
				return nil, templateError("uses {url}", "set public_url")
			}
			text += publicURL
			continue
		}
		kind, ok := placeholders[name]
		if !ok {
			return nil, templateError(fmt.Sprintf("has the unknown placeholder {%.40s}", name), "{id}, {timestamp}, {body} and {url} are known")
		}
		if text != "" {
			parts = append(parts, part{kind: partText, text: text})
			text = ""
		}
		parts = append(parts, part{kind: kind})
	}
	if text != "" {
		parts = append(parts, part{kind: partText, text: text})
	}
	return parts, nil
}

var placeholders = map[string]partKind{"id": partID, "timestamp": partTimestamp, "body": partBody}

func templateError(rule, hint string) error {
	return &ConfigError{Field: "signed_content", Rule: rule, Hint: hint}
}

// appendParts writes parts behind dst.
func appendParts(dst []byte, parts []part, id string, timestamp []byte) []byte {
	for _, p := range parts {
		switch p.kind {
		case partID:
			dst = append(dst, id...)
		case partTimestamp:
			dst = append(dst, timestamp...)
		default:
			dst = append(dst, p.text...)
		}
	}
	return dst
}
