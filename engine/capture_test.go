package engine

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// received is a request that a receiver got. Of a large body only sum and size
// are kept.
type received struct {
	header http.Header
	body   []byte
	size   int64
	sum    [sha256.Size]byte
}

func sumOf(body []byte) [sha256.Size]byte { return sha256.Sum256(body) }

// keepBody is up to what size a body is kept.
const keepBody = 1 << 20

// capture starts a receiver that accepts everything, and returns its URL.
func capture(t *testing.T, out chan<- received) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var kept bytes.Buffer
		hash := sha256.New()
		n, err := io.Copy(hash, io.TeeReader(r.Body, &limited{&kept, keepBody}))
		if err != nil {
			t.Error(err)
		}
		got := received{header: r.Header, body: kept.Bytes(), size: n}
		hash.Sum(got.sum[:0])
		out <- got
	}))
	t.Cleanup(s.Close)
	return s.URL + "/hook"
}

// limited keeps the first bytes and drops the others.
type limited struct {
	w    *bytes.Buffer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	keep := min(len(b), l.left)
	l.left -= keep
	_, _ = l.w.Write(b[:keep])
	return len(b), nil
}
