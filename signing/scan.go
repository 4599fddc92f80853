package signing

import (
	"encoding/json"
	"io"
	"strings"
)

// maxDepth bounds the nesting that is followed through parts of no interest.
// The decoder keeps a little for each level, and a body of brackets has many.
const maxDepth = 256

// scanJSON finds strings and numbers in a JSON object at the paths given, each
// "key" or "key.key", without holding the document. It stops when it has them
// all, or at the first thing that is not JSON; what it has by then is right.
// A key that occurs twice counts the first time.
func scanJSON(r io.Reader, paths ...string) map[string]string {
	s := scanner{dec: json.NewDecoder(r), want: paths, found: make(map[string]string, len(paths))}
	s.dec.UseNumber()
	if t, err := s.dec.Token(); err == nil && t == json.Delim('{') {
		s.object("")
	}
	return s.found
}

type scanner struct {
	dec   *json.Decoder
	want  []string
	found map[string]string
}

// object reads the members of an object whose { was read. It reports whether
// to go on.
func (s *scanner) object(prefix string) bool {
	for s.dec.More() {
		t, err := s.dec.Token()
		key, ok := t.(string)
		if err != nil || !ok || !s.member(prefix+key) {
			return false
		}
	}
	_, err := s.dec.Token() // }
	return err == nil
}

// member reads the value at path.
func (s *scanner) member(path string) bool {
	t, err := s.dec.Token()
	if err != nil {
		return false
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '{' && s.leads(path+".") {
			return s.object(path + ".")
		}
		return s.skip()
	case string:
		return s.take(path, t)
	case json.Number:
		return s.take(path, t.String())
	default:
		return true
	}
}

// leads reports whether a wanted path begins with prefix.
func (s *scanner) leads(prefix string) bool {
	for _, w := range s.want {
		if strings.HasPrefix(w, prefix) {
			return true
		}
	}
	return false
}

// take keeps a wanted value. It reports whether any is still missing.
func (s *scanner) take(path, value string) bool {
	for _, w := range s.want {
		if w != path {
			continue
		}
		if _, have := s.found[w]; !have {
			s.found[w] = value
		}
	}
	return len(s.found) < len(s.want)
}

// skip reads to the end of the array or object whose first delimiter was read.
func (s *scanner) skip() bool {
	for depth := 1; depth > 0; {
		t, err := s.dec.Token()
		if err != nil || depth > maxDepth {
			return false
		}
		if d, ok := t.(json.Delim); ok {
			if d == '{' || d == '[' {
				depth++
			} else {
				depth--
			}
		}
	}
	return true
}
