package ingress

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/signing"
)

func fullSource() *Source {
	return &Source{
		Scheme: signing.HMACHex, Secrets: signing.Secrets("first-secret", "second-secret"),
		Destination: Destination{Type: DestinationOrigin, URL: "https://origin.test/in?x=1", Token: signing.NewSecret("origin-token")},
		MaxBody:     2 << 20, ContentTypes: []string{"application/json", "text/*"}, Tolerance: new(Duration(90 * time.Second)),
		SignatureHeader: "X-Sig", TimestampHeader: "X-Time", SignaturePrefix: "sha256=", SignedContent: "{timestamp}.{body}",
		DedupeHeader: "X-Event", DedupeBody: true, ForwardHeaders: []string{"X-Kind"}, AllowIPs: []string{"192.0.2.1", "2001:db8::/32"},
		Decompress: true, RateLimit: &RateLimit{PerSecond: 2.5, Burst: 10}, RejectOverQuota: true,
	}
}

// tlsSource is fullSource with an origin that wants a certificate.
func tlsSource() *Source {
	s := fullSource()
	s.Destination.TLS = &OriginTLS{CAPEM: "ca", ClientCertPEM: "cert", ClientKeyPEM: signing.NewSecret("client-key")}
	return s
}

func TestSourceHasTheFieldsOfTheContract(t *testing.T) {
	data, err := tlsSource().MarshalStored()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"scheme":"hmac-hex","max_body":2097152,"content_types":["application/json","text/*"],"tolerance":"1m30s",` +
		`"signature_header":"X-Sig","timestamp_header":"X-Time","signature_prefix":"sha256=","signed_content":"{timestamp}.{body}",` +
		`"dedupe_header":"X-Event","dedupe_body":true,"forward_headers":["X-Kind"],"allow_ips":["192.0.2.1","2001:db8::/32"],` +
		`"decompress":true,"rate_limit":{"per_second":2.5,"burst":10},"reject_over_quota":true,"secrets":["first-secret","second-secret"],` +
		`"destination":{"type":"origin","url":"https://origin.test/in?x=1","token":"origin-token","tls":{"ca_pem":"ca","client_cert_pem":"cert","client_key_pem":"client-key"}}}`
	if string(data) != want {
		t.Errorf("got\n%s\nwant\n%s", data, want)
	}
}

func TestSourceSurvivesStorageAndHidesItsSecretsElsewhere(t *testing.T) {
	s := tlsSource()
	data, err := s.MarshalStored()
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseSource(data)
	if err != nil {
		t.Fatal(err)
	}
	again, err := back.MarshalStored()
	if err != nil || string(again) != string(data) {
		t.Errorf("%v\n%s\n%s", err, data, again)
	}
	shown, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(shown), fmt.Sprintf("%v %+v %#v", s, *s, s.Destination)} {
		for _, secret := range []string{"first-secret", "second-secret", "origin-token", "client-key"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %s", text, secret)
			}
		}
	}
	if !strings.Contains(string(shown), `"***"`) {
		t.Errorf("shown as %s", shown)
	}
}

func TestSourceThatIsSentBackAsShownKeepsItsSecrets(t *testing.T) {
	old := tlsSource()
	edited := &Source{Scheme: old.Scheme, Destination: Destination{
		Type: old.Destination.Type, URL: old.Destination.URL, TLS: &OriginTLS{CAPEM: "other ca", ClientCertPEM: "cert"},
	}}
	edited.KeepSecrets(old)
	if got := edited.Destination.TLS.ClientKeyPEM.Reveal(); got != "client-key" {
		t.Errorf("kept the key %q", got)
	}
	if len(edited.Secrets) != 2 || edited.Destination.Token.Reveal() != "origin-token" {
		t.Errorf("kept %d secrets, token %q", len(edited.Secrets), edited.Destination.Token.Reveal())
	}
	moved := &Source{Secrets: signing.Secrets("new"), Destination: Destination{
		Type: DestinationOrigin, URL: "https://elsewhere.test/", TLS: &OriginTLS{ClientCertPEM: "another"},
	}}
	moved.KeepSecrets(old)
	if len(moved.Secrets) != 1 || !moved.Destination.Token.IsZero() || !moved.Destination.TLS.ClientKeyPEM.IsZero() {
		t.Error("a token went along to another origin")
	}
	// The placeholder itself is never taken for a secret.
	shown, _ := json.Marshal(old)
	if _, err := ParseSource(shown); err == nil {
		t.Error("*** was accepted as a secret")
	}
}

func TestUnknownAndMisspeltFieldsAreRefused(t *testing.T) {
	for _, text := range []string{
		`{"scheme":"github","allow_ip":["192.0.2.1"]}`, `{"scheme":"github"} {}`, `[]`, `{"max_body":"1"}`, `{"secrets":"x"}`,
		`{"tolerance":"5"}`, `{"tolerance":300}`, ``, `{"secrets":[7]}`, `{"rate_limit":{"per_minute":1}}`,
	} {
		if _, err := ParseSource([]byte(text)); err == nil {
			t.Errorf("%s was accepted", text)
		}
	}
	_, err := ParseSource([]byte(`{"secrets":[{"my-secret":"value-of-it"}]}`))
	if err == nil || strings.Contains(err.Error(), "value-of-it") {
		t.Errorf("error %v", err)
	}
}

func TestFaultsNameFieldValueRuleAndMend(t *testing.T) {
	for _, c := range []struct {
		field string
		edit  func(s *Source)
	}{
		{"scheme", func(s *Source) { s.Scheme = "paypal" }},
		{"secrets", func(s *Source) { s.Secrets = nil }},
		{"secrets[1]", func(s *Source) { s.Secrets = signing.Secrets("good", " bad") }},
		{"destination.type", func(s *Source) { s.Destination.Type = "" }},
		{"destination.type", func(s *Source) { s.Destination.Type = "queue" }},
		{"destination", func(s *Source) { s.Destination.Type = DestinationFanOut }},
		{"destination.url", func(s *Source) { s.Destination.URL = "" }},
		{"destination.url", func(s *Source) { s.Destination.URL = "ftp://x/" }},
		{"destination.url", func(s *Source) { s.Destination.URL = "https://user:pass@x/" }},
		{"destination.url", func(s *Source) { s.Destination.URL = "https://x/#y" }},
		{"destination.token", func(s *Source) { s.Destination.Token = signing.NewSecret("a\r\nb") }},
		{"destination.token", func(s *Source) { s.Destination.Token = signing.NewSecret("") }},
		{"destination.tls.ca_pem", func(s *Source) { s.Destination.TLS = &OriginTLS{CAPEM: "first-secret"} }},
		{"destination.tls", func(s *Source) { s.Destination.TLS = &OriginTLS{ClientCertPEM: "first-secret"} }},
		{"destination.tls.client_key_pem", func(s *Source) {
			s.Destination.TLS = &OriginTLS{ClientCertPEM: "x", ClientKeyPEM: signing.NewSecret("first-secret")}
		}},
		{"destination", func(s *Source) { s.Destination = Destination{Type: DestinationFanOut, TLS: &OriginTLS{}} }},
		{"max_body", func(s *Source) { s.MaxBody = -1 }},
		{"max_body", func(s *Source) { s.MaxBody = nodeMaxBody + 1 }},
		{"content_types[1]", func(s *Source) { s.ContentTypes = []string{"text/plain", "json"} }},
		{"content_types[0]", func(s *Source) { s.ContentTypes = []string{"text/plain; charset=utf-8"} }},
		{"content_types[0]", func(s *Source) { s.ContentTypes = []string{"*/json"} }},
		{"content_types", func(s *Source) { s.ContentTypes = slices.Repeat([]string{"text/plain"}, 65) }},
		{"tolerance", func(s *Source) { s.Tolerance = new(Duration(-time.Second)) }},
		{"tolerance", func(s *Source) { s.Tolerance = new(Duration(25 * time.Hour)) }},
		{"signature_header", func(s *Source) { s.SignatureHeader = "X Sig" }},
		{"timestamp_header", func(s *Source) { s.SignedContent = "{body}" }},
		{"signed_content", func(s *Source) { s.SignedContent = "{timestamp}" }},
		{"signature_prefix", func(s *Source) { s.SignaturePrefix, s.TimestampHeader = "a\n", "" }},
		{"secret_encoding", func(s *Source) { s.SecretEncoding, s.TimestampHeader = "rot13", "" }},
		{"dedupe_header", func(s *Source) { s.DedupeHeader = "X:Y" }},
		{"dedupe_header", func(s *Source) {
			*s = Source{Scheme: signing.GitHub, Secrets: s.Secrets, Destination: s.Destination, DedupeHeader: "X Y"}
		}},
		{"public_url", func(s *Source) { s.PublicURL = "not a url" }},
		{"public_url", func(s *Source) {
			*s = Source{Scheme: signing.Twilio, Secrets: s.Secrets, Destination: s.Destination}
		}},
		{"forward_headers[0]", func(s *Source) { s.ForwardHeaders = []string{"Cookie"} }},
		{"forward_headers[0]", func(s *Source) { s.ForwardHeaders = []string{"authorization"} }},
		{"forward_headers[0]", func(s *Source) { s.ForwardHeaders = []string{"x-sig"} }},
		{"forward_headers[0]", func(s *Source) { s.ForwardHeaders = []string{"webhook-id"} }},
		{"forward_headers[0]", func(s *Source) { s.ForwardHeaders = []string{"Content-Length"} }},
		{"forward_headers[1]", func(s *Source) { s.ForwardHeaders = []string{"X-A", ""} }},
		{"forward_headers", func(s *Source) { s.ForwardHeaders = slices.Repeat([]string{"X-A"}, 65) }},
		{"allow_ips[0]", func(s *Source) { s.AllowIPs = []string{"10.0.0.1/8"} }},
		{"allow_ips[0]", func(s *Source) { s.AllowIPs = []string{"example.test"} }},
		{"allow_ips[0]", func(s *Source) { s.AllowIPs = []string{"::ffff:10.0.0.0/104"} }},
		{"allow_ips[0]", func(s *Source) { s.AllowIPs = []string{"fe80::1%eth0"} }},
		{"allow_ips", func(s *Source) { s.AllowIPs = slices.Repeat([]string{"10.0.0.1"}, 1025) }},
		{"rate_limit.per_second", func(s *Source) { s.RateLimit = &RateLimit{} }},
		{"rate_limit.per_second", func(s *Source) { s.RateLimit = &RateLimit{PerSecond: math.NaN()} }},
		{"rate_limit.burst", func(s *Source) { s.RateLimit = &RateLimit{PerSecond: 1, Burst: -1} }},
	} {
		s := fullSource()
		c.edit(s)
		f := fieldsOf(t, s.Validate(0))
		if len(f) != 1 || f[0].Field != c.field || f[0].Rule == "" || f[0].Hint == "" {
			t.Errorf("%s: %+v", c.field, f)
		}
		for _, secret := range []string{"first-secret", "pass", "origin-token"} {
			if len(f) > 0 && strings.Contains(f[0].Error(), secret) && secret != "pass" {
				t.Errorf("%s: %v shows a secret", c.field, f[0])
			}
		}
	}
	if err := fullSource().Validate(0); err != nil {
		t.Errorf("the source that is edited: %v", err)
	}
}

func TestAllFaultsAreReportedAtOnce(t *testing.T) {
	s := &Source{Scheme: signing.GitHub, Secrets: signing.Secrets("", "ok", " "), MaxBody: -1, AllowIPs: []string{"x"}}
	var names []string
	for _, f := range fieldsOf(t, s.Validate(0)) {
		names = append(names, f.Field)
	}
	want := []string{"secrets[0]", "secrets[2]", "max_body", "allow_ips[0]", "destination.type"}
	if !slices.Equal(names, want) {
		t.Errorf("got %v, want %v", names, want)
	}
}

func TestSchemesThatNeedMemoryHaveALowerCap(t *testing.T) {
	for _, s := range standardSources() {
		s.MaxBody = MaxBuffered + 1
		err := s.Validate(0)
		buffers := s.Scheme == signing.StandardEd25519 || s.Scheme == signing.Discord || s.Scheme == signing.Telnyx || s.Scheme == signing.Twilio
		if (err != nil) != buffers {
			t.Errorf("%s: %v", s.Scheme, err)
		}
	}
}

func TestContentTypesMatchWithoutParametersAndCase(t *testing.T) {
	s := fullSource()
	p, err := prepare("acme", "x", s, nodeMaxBody)
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]bool{
		"application/json": true, "Application/JSON; charset=utf-8": true, "text/plain": true, "TEXT/csv": true,
		"application/jsonx": false, "application/xml": false, "texts/plain": false, "": false, "json": false, "application/json;;": false,
	} {
		if got := p.accepts(kind); got != want {
			t.Errorf("%q: %v", kind, got)
		}
	}
	s.ContentTypes = []string{"*/*"}
	if p, err = prepare("acme", "x", s, nodeMaxBody); err != nil || !p.accepts("a/b") || p.accepts("") {
		t.Errorf("*/*: %v", err)
	}
}

func TestForwardedHeadersAreBoundedAndCarryOnUnchanged(t *testing.T) {
	s := fullSource()
	s.ForwardHeaders = []string{"x-b", "X-A", "x-B"}
	p, err := prepare("acme", "x", s, nodeMaxBody)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{
		"X-A": {"one", "two\r\nX-Evil: 1", "", "zoë", "three"}, "X-B": {strings.Repeat("v", 3000), strings.Repeat("v", 3000), strings.Repeat("v", 3000)},
		"X-C": {"not asked for"},
	}
	var got []string
	for _, header := range p.forwarded(h) {
		got = append(got, fmt.Sprintf("%s=%.5s", header.Name, header.Value))
	}
	want := []string{"X-A=one", "X-A=three", "X-B=vvvvv", "X-B=vvvvv"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestContentTypeThatCannotBeSentOnBecomesBinary(t *testing.T) {
	for value, want := range map[string]string{
		"application/json": "application/json", "": defaultBinaryType, "a\x00b": defaultBinaryType, strings.Repeat("a", 300): defaultBinaryType,
	} {
		if got := contentType(http.Header{"Content-Type": {value}}); got != want {
			t.Errorf("%q became %q", value, got)
		}
	}
}

func TestEventIDsKeepSourcesApartAndAreAlwaysValid(t *testing.T) {
	for _, c := range [][2]string{
		{eventID("a", "1"), "a:1"}, {eventID("a", ""), ""}, {eventID("a", "x~y:z-_"), "a:x~y:z-_"},
	} {
		if c[0] != c[1] {
			t.Errorf("got %q, want %q", c[0], c[1])
		}
	}
	long, dotted := eventID("a", strings.Repeat("x", 300)), eventID("a", "evt.1")
	if long == dotted || long != eventID("a", strings.Repeat("x", 300)) || !strings.HasPrefix(dotted, "a:") || len(dotted) != 2+32 {
		t.Errorf("%q, %q", long, dotted)
	}
}

func FuzzParseSource(f *testing.F) {
	data, err := fullSource().MarshalStored()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"scheme":"twilio","secrets":["x"],"public_url":"https://a@b/","tolerance":"-1ns","destination":{"type":"fanout"}}`))
	f.Add([]byte(`{"allow_ips":["::/0","%"],"forward_headers":["\u0000"],"content_types":["/"],"rate_limit":{"per_second":1e308}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSource(data)
		if err != nil {
			return
		}
		valid := s.Validate(0)
		stored, err := s.MarshalStored()
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseSource(stored)
		if err != nil {
			// The placeholder is the one secret that cannot come back.
			if !strings.Contains(string(stored), `"***"`) {
				t.Fatalf("cannot be read back: %v\n%s", err, stored)
			}
			return
		}
		if (back.Validate(0) == nil) != (valid == nil) {
			t.Errorf("valid before: %v, after: %v", valid, back.Validate(0))
		}
	})
}
