package signing

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
)

// codec is the text encoding of a raw signature.
type codec int

const (
	codecHex codec = iota
	codecBase64
)

func (c codec) String() string {
	if c == codecHex {
		return "hex"
	}
	return "base64"
}

// appendTo encodes raw behind dst.
func (c codec) appendTo(dst, raw []byte) []byte {
	if c == codecHex {
		return hex.AppendEncode(dst, raw)
	}
	return base64.StdEncoding.AppendEncode(dst, raw)
}

// encodedLen is the length of the text that stands for raw bytes.
func (c codec) encodedLen(raw int) int {
	if c == codecHex {
		return hex.EncodedLen(raw)
	}
	return base64.StdEncoding.EncodedLen(raw)
}

// decode returns the raw bytes of text if it is exactly one encoding of size
// bytes. The length is checked first: a header of any size costs nothing.
func (c codec) decode(text string, size int) ([]byte, bool) {
	if len(text) != c.encodedLen(size) {
		return nil, false
	}
	var raw []byte
	var err error
	if c == codecHex {
		raw, err = hex.DecodeString(text)
	} else {
		raw, err = decodeBase64(text)
	}
	if err != nil || len(raw) != size {
		return nil, false
	}
	return raw, true
}

var errLineBreak = errors.New("line break in base64")

// strictBase64 refuses padding bits that are not zero: one key, one spelling.
var strictBase64 = base64.StdEncoding.Strict()

// decodeBase64 decodes standard, padded base64. The standard library skips
// line breaks inside; here they are an error, since what a receiver sees must
// be what was signed.
func decodeBase64(text string) ([]byte, error) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, errLineBreak
	}
	return strictBase64.DecodeString(text)
}
