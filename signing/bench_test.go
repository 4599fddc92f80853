package signing

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"
)

var benchSizes = []int{1 << 10, 64 << 10}

func BenchmarkSignerHeaders(b *testing.B) {
	for _, schemes := range []string{"standard", "standard-ed25519", "github", "stripe", "slack", "both standards"} {
		cfg := outboundConfigs(b)[schemes]
		for _, size := range benchSizes {
			b.Run(fmt.Sprintf("%s/%dKiB", schemes, size>>10), func(b *testing.B) {
				s, body, h := mustSigner(b, cfg...), bytes.Repeat([]byte("x"), size), make(http.Header)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if err := s.Headers(h, vectorID, vectorTime, body); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkSignerAppendParallel(b *testing.B) {
	s, body := mustSigner(b, one(Standard, standardSecret)), bytes.Repeat([]byte("x"), 1<<10)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		fields := make([]Field, 0, 4)
		for pb.Next() {
			var err error
			if fields, err = s.Append(fields[:0], vectorID, vectorTime, body); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkNewSigner(b *testing.B) {
	cfg := SignerConfig{Schemes: []SchemeConfig{one(Standard, standardSecret)}}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewSigner(cfg); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVerifier measures what a genuine request costs and what a forged one
// does, at the headers and at the body.
func BenchmarkVerifier(b *testing.B) {
	body := bytes.Repeat([]byte("x"), 1<<10)
	v := mustVerifier(b, VerifierConfig{Scheme: Standard, Secrets: Secrets(standardSecret)})
	genuine := make(http.Header)
	if err := mustSigner(b, one(Standard, standardSecret)).Headers(genuine, vectorID, vectorTime, body); err != nil {
		b.Fatal(err)
	}
	for _, bm := range []struct {
		name string
		now  time.Time
		body []byte
		pass bool
	}{
		{"genuine", vectorTime, body, true},
		{"forged", vectorTime, body[1:], false},
		{"old", vectorTime.Add(time.Hour), body, false},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := v.Verify(genuine, bm.body, bm.now); (err == nil) != bm.pass {
					b.Fatal(err)
				}
			}
		})
	}
}
