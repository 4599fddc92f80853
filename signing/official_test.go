package signing

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"
)

// officialVector is a row of testdata/official.json: a signature that a
// provider's own library made. `make test-real` checks that it still does.
type officialVector struct {
	Name        string            `json:"name"`
	Library     string            `json:"library"`
	Scheme      Scheme            `json:"scheme"`
	Secret      string            `json:"secret"`
	PublicURL   string            `json:"public_url"`
	Content     string            `json:"signed_content"`
	Prefix      string            `json:"signature_prefix"`
	Encoding    string            `json:"secret_encoding"`
	ContentType string            `json:"content_type"`
	Body        string            `json:"body"`
	URL         string            `json:"url"`
	Headers     map[string]string `json:"headers"`
}

func (v *officialVector) layout() Layout {
	return Layout{PublicURL: v.PublicURL, SignedContent: v.Content, SignaturePrefix: v.Prefix, SecretEncoding: v.Encoding}
}

// verify is the vector as a request that came through a proxy.
func (v *officialVector) verify(verifier *Verifier, body string) error {
	_, query, _ := strings.Cut(v.URL, "?")
	r := httptest.NewRequest(http.MethodPost, "http://10.0.0.1/elsewhere?"+query, strings.NewReader(body))
	r.Header = http.Header{"Content-Type": {v.ContentType}}
	for name, value := range v.Headers {
		r.Header.Set(name, value)
	}
	_, err := verifier.VerifyRequest(r, 0, vectorTime)
	return err
}

func officialVectors(t *testing.T) []officialVector {
	t.Helper()
	text, err := os.ReadFile("testdata/official.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		ID        string           `json:"id"`
		Timestamp int64            `json:"timestamp"`
		Vectors   []officialVector `json:"vectors"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if file.ID != vectorID || file.Timestamp != vectorTime.Unix() || len(file.Vectors) < 9 {
		t.Fatalf("%d vectors for %s at %d", len(file.Vectors), file.ID, file.Timestamp)
	}
	return file.Vectors
}

func TestSignaturesOfOfficialLibrariesVerify(t *testing.T) {
	for _, v := range officialVectors(t) {
		t.Run(string(v.Scheme)+"/"+v.Name, func(t *testing.T) {
			verifier := mustVerifier(t, VerifierConfig{Scheme: v.Scheme, Secrets: Secrets(v.Secret), Layout: v.layout()})
			if err := v.verify(verifier, v.Body); err != nil {
				t.Fatalf("what %s signed: %v", v.Library, err)
			}
			if err := v.verify(verifier, v.Body+"&X=1"); !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrMalformed) {
				t.Errorf("another body: %v", err)
			}
			other := mustVerifier(t, VerifierConfig{Scheme: v.Scheme, Secrets: Secrets("c" + v.Secret[1:]), Layout: v.layout()})
			if err := v.verify(other, v.Body); !errors.Is(err, ErrMismatch) {
				t.Errorf("another secret: %v", err)
			}
		})
	}
}

func TestWeSignWhatOfficialLibrariesSign(t *testing.T) {
	for _, v := range officialVectors(t) {
		if v.Headers[twilioSettingsHeader] != "" {
			continue // SHA-256 is Twilio's own to use: it comes with keys that only Twilio has
		}
		t.Run(string(v.Scheme)+"/"+v.Name, func(t *testing.T) {
			got, err := Sign(SchemeConfig{Scheme: v.Scheme, Keys: NewRing(NewSecret(v.Secret)), Layout: v.layout()},
				Message{ID: vectorID, Time: time.Unix(vectorTime.Unix(), 0), ContentType: v.ContentType, Body: []byte(v.Body)})
			if err != nil {
				t.Fatal(err)
			}
			for name, want := range v.Headers {
				if have := got.Header.Get(name); have != want {
					t.Errorf("%s: %q, %s signs %q", name, have, v.Library, want)
				}
			}
			if got.URL != v.URL {
				t.Errorf("URL %q, want %q", got.URL, v.URL)
			}
		})
	}
}
