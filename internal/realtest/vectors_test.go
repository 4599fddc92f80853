//go:build real

package realtest

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"testing"

	"github.com/dispatcher-engine/dispatcher/signing"
)

// vectorFile is testdata/signatures.json.
type vectorFile struct {
	ID        string `json:"id"`
	Timestamp int64  `json:"timestamp"`
	BodyHex   string `json:"body_hex"`
	Body      []byte `json:"-"`
	Vectors   []struct {
		Scheme   string            `json:"scheme"`
		BodyText string            `json:"body_text"` // instead of Body
		Headers  map[string]string `json:"headers"`
	} `json:"vectors"`
}

func vectors(t *testing.T) vectorFile {
	t.Helper()
	text, err := os.ReadFile("testdata/signatures.json")
	if err != nil {
		t.Fatal(err)
	}
	var file vectorFile
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	if file.Body, err = hex.DecodeString(file.BodyHex); err != nil {
		t.Fatal(err)
	}
	return file
}

// find returns the headers of the scheme's vector over the common body.
func (file vectorFile) find(t *testing.T, scheme signing.Scheme) http.Header {
	t.Helper()
	for _, v := range file.Vectors {
		if v.Scheme == string(scheme) && v.BodyText == "" {
			h := http.Header{}
			for name, value := range v.Headers {
				h.Set(name, value)
			}
			return h
		}
	}
	t.Fatalf("testdata/signatures.json has no vector for %s", scheme)
	return nil
}
