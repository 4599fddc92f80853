package signing

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// vector is one row of testdata/signatures.json.
type vector struct {
	Scheme       Scheme            `json:"scheme"`
	Secret       string            `json:"secret"`
	PrivateSeed  string            `json:"private_seed_base64"`
	PublicBase64 string            `json:"public_key_base64"`
	PublicHex    string            `json:"public_key_hex"`
	BodyText     string            `json:"body_text"`
	Headers      map[string]string `json:"headers"`

	body []byte
}

// vectorSeed is the private key of all Ed25519 vectors.
const vectorSeed = "whsk_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// signSecret is what the vector's sender holds.
func (v vector) signSecret() Secret {
	if v.Secret != "" {
		return NewSecret(v.Secret)
	}
	return NewSecret(vectorSeed)
}

// verifySecret is what its receiver holds.
func (v vector) verifySecret() Secret {
	switch {
	case v.Secret != "":
		return NewSecret(v.Secret)
	case v.PublicHex != "":
		return NewSecret(v.PublicHex)
	default:
		return NewSecret(v.PublicBase64)
	}
}

func (v vector) header() http.Header {
	h := make(http.Header)
	for name, value := range v.Headers {
		h.Set(name, value)
	}
	return h
}

func (v vector) signature() string {
	return v.header().Get(specs[v.Scheme].sigHeader)
}

// The message of all vectors but GitHub's own.
const vectorID = "msg_test1"

var vectorTime = time.Unix(1700000000, 0)

func loadVectors(t testing.TB) (vectors []vector, mustNot []struct {
	Scheme    Scheme `json:"scheme"`
	Signature string `json:"signature"`
}) {
	t.Helper()
	data, err := os.ReadFile("testdata/signatures.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		BodyHex        string   `json:"body_hex"`
		ID             string   `json:"id"`
		Timestamp      int64    `json:"timestamp"`
		Vectors        []vector `json:"vectors"`
		MustNotProduce []struct {
			Scheme    Scheme `json:"scheme"`
			Signature string `json:"signature"`
		} `json:"must_not_produce"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	body, err := hex.DecodeString(file.BodyHex)
	if err != nil {
		t.Fatal(err)
	}
	if file.ID != vectorID || file.Timestamp != vectorTime.Unix() {
		t.Fatalf("vectors are for %s at %d", file.ID, file.Timestamp)
	}
	for i := range file.Vectors {
		v := &file.Vectors[i]
		v.body = body
		if v.BodyText != "" {
			v.body = []byte(v.BodyText)
		}
	}
	return file.Vectors, file.MustNotProduce
}

func mustVerifier(t testing.TB, cfg VerifierConfig) *Verifier {
	t.Helper()
	v, err := NewVerifier(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func mustSigner(t testing.TB, schemes ...SchemeConfig) *Signer {
	t.Helper()
	s, err := NewSigner(SignerConfig{Schemes: schemes})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// one is a scheme with one secret that does not expire.
func one(scheme Scheme, secret string) SchemeConfig {
	return SchemeConfig{Scheme: scheme, Keys: NewRing(NewSecret(secret))}
}
