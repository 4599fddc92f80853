package ingress

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/dispatcher-engine/dispatcher/signing"
)

func pack(t testing.TB, encoding string, body []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&out)
	if encoding == encodingZstd {
		z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := w.Write(body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// packing is a source that accepts compressed bodies.
func packing(scheme signing.Scheme, secret string) *Source {
	return &Source{
		Scheme: scheme, Secrets: signing.Secrets(secret), Destination: Destination{Type: DestinationFanOut},
		Decompress: true, MaxBody: 300 << 10,
	}
}

func TestCompressedBodyIsVerifiedAndStoredAsItExpands(t *testing.T) {
	n := setup(t, Config{})
	n.sources.set("acme", "packed", packing(signing.HMACHex, vectorSecret))
	n.sources.set("acme", "buffered", packing(signing.Telnyx, vectorPublic))
	for i, body := range [][]byte{vectorBody, {}, pattern(64 << 10), pattern(65<<10 + 1), pattern(300 << 10)} {
		for _, encoding := range []string{"gzip", "x-GZIP", "zstd", " identity"} {
			packed := body
			if encoding != " identity" {
				packed = pack(t, strings.ToLower(encoding), body)
			}
			for source, h := range map[string]http.Header{
				"packed":   signed(t, signing.HMACHex, vectorSecret, "", body, time.Now()),
				"buffered": signed(t, signing.Telnyx, vectorSeed, "", body, time.Now()),
			} {
				h.Set("Content-Encoding", encoding)
				if w := n.post(source, h, packed); w.Code/100 != 2 {
					t.Errorf("%s, body %d, %s: %d %s", source, i, encoding, w.Code, w.Body)
				}
				// Over the compressed bytes it is no signature.
				h = signed(t, signing.HMACHex, vectorSecret, "", packed, time.Now())
				h.Set("Content-Encoding", encoding)
				if w := n.post("packed", h, packed); encoding != " identity" && w.Code != http.StatusUnauthorized {
					t.Errorf("body %d, %s, signed as it is sent: %d", i, encoding, w.Code)
				}
			}
		}
	}
	for _, r := range n.store.stored() {
		if r.Digest != r.digest {
			t.Error("the digest is not of what is stored")
		}
	}
}

func TestEncodingsThatAreNotOneWeKnowAre415(t *testing.T) {
	n := setup(t, Config{})
	n.sources.set("acme", "packed", packing(signing.GitHub, vectorSecret))
	for _, c := range []struct {
		source string
		values []string
		accept string
	}{
		{"packed", []string{"br"}, "gzip, zstd"}, {"packed", []string{"gzip, gzip"}, "gzip, zstd"}, {"packed", []string{"gzip", "zstd"}, "gzip, zstd"},
		{"github", []string{"gzip"}, "identity"}, {"github", []string{"zstd"}, "identity"},
	} {
		h := signed(t, signing.GitHub, vectorSecret, "", vectorBody, time.Now())
		h["Content-Encoding"] = c.values
		w := n.post(c.source, h, vectorBody)
		n.expect(w, http.StatusUnsupportedMediaType, OutcomeContentEncoding)
		if got := w.Header().Get("Accept-Encoding"); got != c.accept {
			t.Errorf("%s %q: Accept-Encoding %q", c.source, c.values, got)
		}
	}
}

func TestBodyThatIsNotWhatItsEncodingSaysIs400(t *testing.T) {
	n := setup(t, Config{})
	n.sources.set("acme", "packed", packing(signing.GitHub, vectorSecret))
	for _, encoding := range []string{"gzip", "zstd"} {
		good := pack(t, encoding, pattern(10_000))
		for name, body := range map[string][]byte{
			"nothing": nil, "text": []byte("hello"), "cut": good[:len(good)-5], "flipped": append(bytes.Clone(good[:len(good)-2]), 0xff, 0xff),
			"trailing": append(bytes.Clone(good), "trailing garbage"...),
		} {
			h := signed(t, signing.GitHub, vectorSecret, "", pattern(10_000), time.Now())
			h.Set("Content-Encoding", encoding)
			w := n.post("packed", h, body)
			// zstd reads an empty body as no frame at all: an empty event, which the
			// signature refuses.
			if w.Code != http.StatusBadRequest && (len(body) > 0 || w.Code != http.StatusUnauthorized) {
				t.Errorf("%s, %s: %d, %v", encoding, name, w.Code, n.last().Outcome)
			}
		}
	}
	if n.store.enqueue.Load() != 0 {
		t.Error("something was stored")
	}
}

func TestFrameThatClaimsAHugeWindowIsRefusedUnread(t *testing.T) {
	n := setup(t, Config{})
	n.sources.set("acme", "packed", packing(signing.GitHub, vectorSecret))
	// One segment that says it has 512 MiB, of which nothing follows.
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x20, 3, 0, 0}
	h := signed(t, signing.GitHub, vectorSecret, "", frame, time.Now())
	h.Set("Content-Encoding", "zstd")
	n.expect(n.post("packed", h, frame), http.StatusRequestEntityTooLarge, OutcomeTooLarge)
}

func FuzzExpand(f *testing.F) {
	for _, encoding := range []string{encodingGzip, encodingZstd} {
		f.Add(encoding, pack(f, encoding, []byte(`{"a":1}`)))
	}
	f.Add(encodingGzip, gzipBomb(f, 2))
	f.Add(encodingZstd, zstdBomb(64))
	f.Fuzz(func(t *testing.T, encoding string, body []byte) {
		if encoding != encodingGzip && encoding != encodingZstd {
			return
		}
		in, err := expander(encoding, bytes.NewReader(body))
		if err != nil {
			return
		}
		defer in.Close()
		b := &receiver{limit: 1 << 20, inRAM: 1 << 20, memory: &budget{max: 1 << 20}, disk: &budget{}}
		if err := b.readAll(t.Context(), in); err == nil && b.size > b.limit {
			t.Errorf("expanded to %d bytes", b.size)
		}
	})
}
