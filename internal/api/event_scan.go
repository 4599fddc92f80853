package api

import (
	"unicode/utf8"

	"github.com/dispatcher-engine/dispatcher/engine"
)

// scanEvent reads an event that is written in the plain way: known fields, each
// once, their names and strings without escapes and in valid UTF-8. It looks at
// each byte once and copies no payload, where encoding/json looks three times and
// copies twice. ok is false for whatever is not plain or not right: decodeEvent
// then reads it with encoding/json, which also says what is wrong.
//
// The payload is a part of body, which the caller must not use any more.
func scanEvent(body []byte) (in engine.EventInput, ok bool) {
	s := scanner{b: body}
	var seen uint
	s.space()
	if !s.is('{') {
		return in, false
	}
	s.space()
	for first := true; !s.is('}'); first = false {
		if !first && !s.is(',') {
			return in, false
		}
		s.space()
		name, ok := s.plain()
		if s.space(); !ok || !s.is(':') {
			return in, false
		}
		s.space()
		if !s.field(name, &in, &seen) {
			return in, false
		}
		s.space()
	}
	s.space()
	if s.at != len(body) || in.Payload == nil {
		return in, false
	}
	if in.ContentType == "" {
		in.ContentType = "application/json"
	}
	return in, true
}

// field reads the value of one field of an event.
func (s *scanner) field(name []byte, in *engine.EventInput, seen *uint) bool {
	var to *string
	var bit uint
	switch string(name) {
	case "payload":
		start := s.at
		if !s.value(0) {
			return false
		}
		in.Payload = s.b[start:s.at:s.at]
		bit = 1
	case "topic":
		to, bit = &in.Topic, 2
	case "id":
		to, bit = &in.ID, 4
	case "ordering_key":
		to, bit = &in.OrderingKey, 8
	case "priority":
		to, bit = &in.Priority, 16
	case "content_type":
		to, bit = &in.ContentType, 32
	default:
		return false // base64, subscribers, due times: seldom, and not worth it
	}
	if *seen&bit != 0 {
		return false
	}
	*seen |= bit
	if to == nil {
		return true
	}
	text, ok := s.plain()
	*to = string(text)
	return ok
}

// maxScanDepth is how deep a payload may be nested; encoding/json allows more.
const maxScanDepth = 100

// scanner moves over JSON (RFC 8259).
type scanner struct {
	b  []byte
	at int
}

// is moves over one byte if it is c.
func (s *scanner) is(c byte) bool {
	if s.at < len(s.b) && s.b[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) space() {
	for s.at < len(s.b) {
		switch s.b[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// plain moves over a string without escapes and returns what is in it.
func (s *scanner) plain() ([]byte, bool) {
	if !s.is('"') {
		return nil, false
	}
	ascii := true
	for i := s.at; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			text := s.b[s.at:i]
			s.at = i + 1
			return text, ascii || utf8.Valid(text)
		case c == '\\' || c < 0x20:
			return nil, false
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	return nil, false
}

// text moves over any string. As in encoding/json, bytes that are no UTF-8 are
// not its concern.
func (s *scanner) text() bool {
	b := s.b
	for i := s.at + 1; i < len(b); i++ {
		c := b[i]
		if c == '"' {
			s.at = i + 1
			return true
		}
		if c < 0x20 {
			return false
		}
		if c != '\\' {
			continue
		}
		if i++; i == len(b) {
			return false
		}
		switch b[i] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		case 'u':
			if i+4 >= len(b) || !hexDigit(b[i+1]) || !hexDigit(b[i+2]) || !hexDigit(b[i+3]) || !hexDigit(b[i+4]) {
				return false
			}
			i += 4
		default:
			return false
		}
	}
	return false
}

func hexDigit(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// value moves over any value. A null is left to encoding/json, outermost.
func (s *scanner) value(depth int) bool {
	if s.at == len(s.b) || depth > maxScanDepth {
		return false
	}
	switch c := s.b[s.at]; c {
	case '"':
		return s.text()
	case '{', '[':
		return s.list(c, depth)
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return depth > 0 && s.word("null")
	default:
		return s.number()
	}
}

// list moves over an object or an array.
func (s *scanner) list(open byte, depth int) bool {
	closing := open + 2 // of both pairs, in ASCII
	s.at++
	if s.space(); s.is(closing) {
		return true
	}
	for {
		if open == '{' {
			if s.at == len(s.b) || s.b[s.at] != '"' || !s.text() {
				return false
			}
			if s.space(); !s.is(':') {
				return false
			}
			s.space()
		}
		if !s.value(depth + 1) {
			return false
		}
		if s.space(); s.is(closing) {
			return true
		}
		if !s.is(',') {
			return false
		}
		s.space()
	}
}

func (s *scanner) word(w string) bool {
	if len(s.b)-s.at < len(w) || string(s.b[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	return true
}

// number moves over a number: -? (0 | [1-9][0-9]*) (.[0-9]+)? ([eE][+-]?[0-9]+)?
func (s *scanner) number() bool {
	s.is('-')
	if !s.is('0') && !s.digits() {
		return false
	}
	if s.is('.') && !s.digits() {
		return false
	}
	if s.is('e') || s.is('E') {
		if !s.is('+') {
			s.is('-')
		}
		return s.digits()
	}
	return true
}

// digits moves over at least one digit.
func (s *scanner) digits() bool {
	start := s.at
	for s.at < len(s.b) && s.b[s.at] >= '0' && s.b[s.at] <= '9' {
		s.at++
	}
	return s.at > start
}
