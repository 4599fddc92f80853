//go:build real

package realtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/signing"
)

var update = flag.Bool("update", false, "write the signatures of the official libraries into signing/testdata/official.json")

const officialFile = "../../signing/testdata/official.json"

// officialVectors are signatures that only the libraries made: ours did not
// exist when they were written down. Package signing checks itself against them
// without the libraries.
type officialVectors struct {
	About     string           `json:"about"`
	ID        string           `json:"id"`
	Timestamp int64            `json:"timestamp"`
	Vectors   []officialVector `json:"vectors"`
}

// officialVector is one of them.
type officialVector struct {
	Name        string            `json:"name"`
	Library     string            `json:"library"` // package and version
	Scheme      signing.Scheme    `json:"scheme"`
	Secret      string            `json:"secret"`
	PublicURL   string            `json:"public_url,omitempty"`
	Content     string            `json:"signed_content,omitempty"`
	Prefix      string            `json:"signature_prefix,omitempty"`
	Encoding    string            `json:"secret_encoding,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Body        string            `json:"body"`
	URL         string            `json:"url,omitempty"` // that was signed
	Headers     map[string]string `json:"headers"`
}

// official is what the libraries are asked to sign.
type official struct {
	officialVector
	peer   string            // the library's name in node/peer.mjs
	header map[string]string // given to it
	as     string            // the header that its signature goes into, if not its own
}

const (
	formType   = "application/x-www-form-urlencoded; charset=UTF-8"
	twilioURL  = "https://hooks.example.com/webhook/acme/voice"
	notASCII   = "{\"a\":1,\"name\":\"Zoë 🙂\"}"
	twilioForm = "ToCountry=US&From=%2B15551234567&Body=Zo%C3%AB+%F0%9F%99%82&To=%2B15557654321&MessageSid=SM00&Empty="
)

func officials() []official {
	twilio := func(name, contentType, url, body string, header map[string]string) official {
		return official{peer: "twilio", header: header, officialVector: officialVector{
			Name: name, Scheme: signing.Twilio, Secret: "12345", PublicURL: url, ContentType: contentType, Body: body,
		}}
	}
	return []official{
		twilio("form", formType, twilioURL, twilioForm, nil),
		twilio("repeated fields", formType, twilioURL, "MediaUrl=b&MediaUrl=a&MediaUrl=b&A=1", nil),
		twilio("query and port", formType, "https://hooks.example.com:8443/voice?tenant=acme&x=%27", "CallStatus=ringing", nil),
		twilio("no body", formType, twilioURL, "", nil),
		twilio("JSON", "application/json", twilioURL, notASCII, nil),
		twilio("JSON and query", "application/json", twilioURL+"?x=1", notASCII, nil),
		twilio("form with SHA-256", formType, twilioURL, twilioForm,
			map[string]string{"X-Twilio-Webhooks-Signature-Settings": "key=webhooks_sharedkey_1,algorithm=HMAC_SHA256"}),
		{peer: "shopify", as: "X-Signature", officialVector: officialVector{
			Name: "body", Scheme: signing.HMACBase64, Secret: "s3cret-for-test", Body: notASCII,
		}},
		{peer: "standardwebhooks", as: "X-Signature", officialVector: officialVector{
			Name: "id, timestamp and body", Scheme: signing.HMACBase64, Secret: keyBytes, Encoding: "base64",
			Content: "{id}.{timestamp}.{body}", Prefix: "v1,", Body: notASCII,
		}},
	}
}

func (o *official) layout() signing.Layout {
	return signing.Layout{PublicURL: o.PublicURL, SignedContent: o.Content, SignaturePrefix: o.Prefix, SecretEncoding: o.Encoding}
}

// sign asks the library and completes the vector.
func (o *official) sign(t *testing.T, node *peer, id string, at int64) {
	t.Helper()
	given := map[string]string{"content-type": o.ContentType}
	for name, value := range o.header {
		given[strings.ToLower(name)] = value
	}
	a := node.ask(t, request{Library: o.peer, Action: "sign", Secret: o.Secret, ID: id, Now: at, Headers: given, URL: o.PublicURL, Body: []byte(o.Body)})
	if !a.OK {
		t.Fatalf("%s does not sign %s: %s", o.peer, o.Name, a.Error)
	}
	o.Library, o.URL, o.Headers = o.peer+" "+node.version(t, o.peer), a.URL, map[string]string{}
	maps.Copy(o.Headers, o.header)
	for name, value := range a.Headers {
		name = http.CanonicalHeaderKey(name)
		if o.as != "" && strings.Contains(strings.ToLower(name), "signature") || strings.Contains(name, "Hmac") {
			name = o.as
		}
		o.Headers[name] = value
	}
}

// version reads the library's version from what was installed.
func (p *peer) version(t *testing.T, library string) string {
	t.Helper()
	if library == "shopify" {
		library = "@shopify/shopify-api"
	}
	text, err := os.ReadFile(filepath.Join(p.dir, "node_modules", library, "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var about struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(text, &about); err != nil {
		t.Fatal(err)
	}
	return about.Version
}

// What package signing is tested with is what the libraries sign today.
func TestRealLibraryMadeTheOfficialVectors(t *testing.T) {
	node := start(t)
	file := officialVectors{
		About: "Signatures made by official libraries alone; scripts/test-real node checks that they still make them.",
		ID:    "msg_test1", Timestamp: 1_700_000_000,
	}
	for _, o := range officials() {
		o.sign(t, node, file.ID, file.Timestamp)
		file.Vectors = append(file.Vectors, o.officialVector)
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(file); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(officialFile, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(officialFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored, text.Bytes()) {
		t.Errorf("%s differs from what the libraries sign:\n%s", officialFile, text.Bytes())
	}
}

// Twilio's library takes what we sign, and what it signs reaches us as a request.
func TestRealLibraryOfTwilioAgreesInBothDirections(t *testing.T) {
	node := start(t)
	now := time.Now()
	for _, o := range officials() {
		if o.Scheme != signing.Twilio {
			continue
		}
		t.Run(o.Name, func(t *testing.T) {
			o.sign(t, node, "unused", now.Unix())
			verifier, err := signing.NewVerifier(signing.VerifierConfig{Scheme: o.Scheme, Secrets: signing.Secrets(o.Secret), Layout: o.layout()})
			if err != nil {
				t.Fatal(err)
			}
			receive := func(body string) error {
				r := httptest.NewRequest(http.MethodPost, o.URL, strings.NewReader(body))
				r.Host, r.URL.Host = "10.0.0.1", "10.0.0.1" // a proxy's idea of where it is
				r.Header.Set("Content-Type", o.ContentType)
				for name, value := range o.Headers {
					r.Header.Set(name, value)
				}
				_, err := verifier.VerifyRequest(r, 1<<20, now)
				return err
			}
			if err := receive(o.Body); err != nil {
				t.Errorf("we refuse: %v", err)
			}
			if err := receive(o.Body + "&X=1"); err == nil {
				t.Error("we accept another body")
			}
			o.takesOurs(t, node, now)
		})
	}
}

func (o *official) takesOurs(t *testing.T, node *peer, now time.Time) {
	t.Helper()
	ours, err := signing.Sign(
		signing.SchemeConfig{Scheme: o.Scheme, Keys: signing.NewRing(signing.NewSecret(o.Secret)), Layout: o.layout()},
		signing.Message{Time: now, ContentType: o.ContentType, Body: []byte(o.Body)})
	if err != nil {
		t.Fatal(err)
	}
	ours.Header.Set("Content-Type", o.ContentType)
	r := request{Library: o.peer, Action: "verify", Secret: o.Secret, Now: now.Unix(), Headers: flat(ours.Header), URL: ours.URL, Body: []byte(o.Body)}
	if a := node.ask(t, r); !a.OK {
		t.Errorf("the library refuses ours: %s", a.Error)
	}
	r.Body = append(r.Body, "&X=1"...)
	if a := node.ask(t, r); a.OK {
		t.Error("the library accepts another body")
	}
}
