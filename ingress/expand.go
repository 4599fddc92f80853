package ingress

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Content encodings that a source with Decompress accepts.
const (
	encodingNone = ""
	encodingGzip = "gzip"
	encodingZstd = "zstd"
)

// contentEncoding returns how the body is compressed; false for anything that is
// not one encoding we know. Two in a row are refused: each multiplies what a
// byte can become, and no provider does it.
func contentEncoding(h http.Header) (string, bool) {
	values := h["Content-Encoding"]
	switch {
	case len(values) == 0:
		return encodingNone, true
	case len(values) > 1:
		return "", false
	}
	switch strings.ToLower(strings.TrimSpace(values[0])) {
	case "", "identity":
		return encodingNone, true
	case "gzip", "x-gzip":
		return encodingGzip, true
	case "zstd":
		return encodingZstd, true
	default:
		return "", false
	}
}

// maxZstdWindow is what a decoder must support and need not exceed (RFC 9659
// section 3). It bounds the memory of one expansion, whatever a frame claims.
const maxZstdWindow = 8 << 20

// expander reads what a compressed body holds.
func expander(encoding string, body io.Reader) (io.ReadCloser, error) {
	if encoding == encodingGzip {
		return gzip.NewReader(body)
	}
	dec, err := zstd.NewReader(body,
		zstd.WithDecoderConcurrency(1), // no goroutines, no read-ahead
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxZstdWindow),
	)
	if err != nil {
		return nil, err
	}
	return dec.IOReadCloser(), nil
}

// bomb reports whether expanding failed because a frame claims more than may be
// expanded.
func bomb(err error) bool {
	return errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded)
}
