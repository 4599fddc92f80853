package signing

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

func TestTheBodyIsNotReadWhenTheHeadersAreRefused(t *testing.T) {
	v := mustVerifier(t, VerifierConfig{Scheme: Standard, Secrets: Secrets(standardSecret)})
	for name, tc := range map[string]struct {
		change func(http.Header)
		want   error
		at     time.Duration
	}{
		"no signature": {func(h http.Header) { h.Del(HeaderSignature) }, ErrMissingHeader, 0},
		"no id":        {func(h http.Header) { h.Del(HeaderID) }, ErrMissingHeader, 0},
		"no timestamp": {func(h http.Header) { h.Del(HeaderTimestamp) }, ErrMissingHeader, 0},
		"too old":      {func(http.Header) {}, ErrTimestamp, 301 * time.Second},
		"too new":      {func(http.Header) {}, ErrTimestamp, -301 * time.Second},
		"other scheme": {func(h http.Header) { h.Set(HeaderSignature, "v1a,x") }, ErrMalformed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodPost, "/", iotest.ErrReader(errors.New("the body was read")))
			r.Header = http.Header{HeaderID: {vectorID}, HeaderTimestamp: {"1700000000"}, HeaderSignature: {vectorV1}}
			tc.change(r.Header)
			if _, err := v.VerifyRequest(r, 0, vectorTime.Add(tc.at)); !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
			}
		})
	}
}

func TestVerifyRequestReturnsTheBodyOnlyIfGenuine(t *testing.T) {
	v := mustVerifier(t, VerifierConfig{Scheme: Standard, Secrets: Secrets(standardSecret)})
	request := func(body io.Reader) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/", body)
		r.Header = http.Header{HeaderID: {vectorID}, HeaderTimestamp: {"1700000000"}, HeaderSignature: {vectorV1}}
		return r
	}
	body := vectorBody(t)
	got, err := v.VerifyRequest(request(bytes.NewReader(body)), 0, vectorTime)
	if err != nil || !bytes.Equal(got, body) {
		t.Errorf("genuine: %q, %v", got, err)
	}
	got, err = v.VerifyRequest(request(strings.NewReader("forged")), 0, vectorTime)
	if !errors.Is(err, ErrMismatch) || got != nil {
		t.Errorf("forged: %q, %v", got, err)
	}
	for name, r := range map[string]*http.Request{
		"declared": request(bytes.NewReader(body)),
		"streamed": request(iotest.OneByteReader(bytes.NewReader(body))),
	} {
		got, err = v.VerifyRequest(r, int64(len(body)-1), vectorTime)
		if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); !ok || tooLarge.Limit != int64(len(body)-1) || got != nil {
			t.Errorf("%s, over the limit: %q, %v", name, got, err)
		}
	}
	if got, err = v.VerifyRequest(request(bytes.NewReader(body)), int64(len(body)), vectorTime); err != nil {
		t.Errorf("just the limit: %q, %v", got, err)
	}
	r := request(nil)
	r.Body = nil
	if _, err := v.VerifyRequest(r, 0, vectorTime); !errors.Is(err, ErrMismatch) {
		t.Errorf("no body: %v", err)
	}
}

// Pieces, one piece, written or handed over: the answer is the same.
func TestStreamedBodiesVerifyLikeWholeOnes(t *testing.T) {
	vectors, _ := loadVectors(t)
	for _, vec := range vectors {
		v := mustVerifier(t, VerifierConfig{Scheme: vec.Scheme, Secrets: []Secret{vec.verifySecret()}})
		if v.Buffers() != (specs[vec.Scheme].alg == algEd25519) {
			t.Errorf("%s: Buffers is %v", vec.Scheme, v.Buffers())
		}
		begin := func() *Check {
			c, err := v.Begin(vec.header(), vectorTime)
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		c := begin()
		if _, err := io.Copy(c, iotest.OneByteReader(bytes.NewReader(vec.body))); err != nil {
			t.Fatal(err)
		}
		if err := c.Finish(); err != nil {
			t.Errorf("%s in pieces: %v", vec.Scheme, err)
		}
		if err := c.Finish(); !errors.Is(err, ErrFinished) {
			t.Errorf("%s: a second Finish gives %v", vec.Scheme, err)
		}
		if _, err := c.Write(nil); !errors.Is(err, ErrFinished) {
			t.Errorf("%s: Write after Finish gives %v", vec.Scheme, err)
		}
		if err := c.FinishBody(vec.body); !errors.Is(err, ErrFinished) {
			t.Errorf("%s: FinishBody after Finish gives %v", vec.Scheme, err)
		}
		c = begin()
		if _, err := c.Write(vec.body[:5]); err != nil {
			t.Fatal(err)
		}
		if err := c.FinishBody(vec.body[5:]); err != nil {
			t.Errorf("%s, half written: %v", vec.Scheme, err)
		}
		c = begin() // given up
		if _, err := c.Write(vec.body); err != nil {
			t.Fatal(err)
		}
		if v.content.usesTimestamp && !c.Timestamp().Equal(vectorTime) || v.content.usesID && c.ID() != vectorID {
			t.Errorf("%s: id %q, time %v", vec.Scheme, c.ID(), c.Timestamp())
		}
	}
}

func TestHeadersSentTwiceAreRefused(t *testing.T) {
	vectors, _ := loadVectors(t)
	for _, vec := range vectors {
		v := mustVerifier(t, VerifierConfig{Scheme: vec.Scheme, Secrets: []Secret{vec.verifySecret()}})
		for name := range vec.Headers {
			h := vec.header()
			h.Add(name, h.Get(name))
			if err := v.Verify(h, vec.body, vectorTime); !errors.Is(err, ErrMalformed) {
				t.Errorf("%s with %s twice: %v", vec.Scheme, name, err)
			}
			h = vec.header()
			h[strings.ToLower(name)] = h.Values(name)
			h.Del(name)
			if err := v.Verify(h, vec.body, vectorTime); err != nil {
				t.Errorf("%s with %s in lower case: %v", vec.Scheme, name, err)
			}
		}
	}
}

func TestOneOfSeveralSignaturesIsEnough(t *testing.T) {
	v := mustVerifier(t, VerifierConfig{Scheme: Standard, Secrets: Secrets(secondSecret, standardSecret)})
	zero := "v1," + b64(32)
	for value, want := range map[string]error{
		zero + " " + vectorV1:                           nil,
		vectorV1 + " " + zero:                           nil,
		"v2,xyz v1a,abc v1 v1, x " + vectorV1:           nil,
		"  " + vectorV1 + "  ":                          nil,
		strings.Repeat(zero+" ", 31) + vectorV1:         nil,
		strings.Repeat(zero+" ", 32) + vectorV1:         ErrMalformed,
		zero:                                            ErrMismatch,
		"v1 " + vectorV1[3:]:                            ErrMalformed,
		vectorV1[3:]:                                    ErrMalformed,
		vectorV1 + "=":                                  ErrMalformed,
		vectorV1 + ",x":                                 ErrMalformed,
		strings.TrimSuffix(vectorV1, "=") + "A":         ErrMalformed,
		"v1," + strings.Repeat("0", 64):                 ErrMalformed,
		strings.Replace(vectorV1, "v1,", "V1,", 1):      ErrMalformed,
		strings.Replace(vectorV1, ",", ", ", 1):         ErrMalformed,
		strings.Replace(vectorV1, "Ck=", "Cl=", 1):      ErrMalformed, // padding bits that are not zero
		vectorV1[:20] + "\n" + vectorV1[20:]:            ErrMalformed,
		vectorV1[:20] + "\n" + vectorV1[21:]:            ErrMalformed,
		strings.Repeat("v1a,x ", 1000):                  ErrMalformed,
		"\x00" + vectorV1:                               ErrMalformed,
		strings.NewReplacer("+", "-").Replace(vectorV1): ErrMalformed,
	} {
		h := http.Header{HeaderID: {vectorID}, HeaderTimestamp: {"1700000000"}, HeaderSignature: {value}}
		if err := v.Verify(h, vectorBody(t), vectorTime); !errors.Is(err, want) {
			t.Errorf("%.60q: %v, want %v", value, err, want)
		}
	}
}

// Each Ed25519 candidate costs a verification per key, so there are few.
func TestEd25519CandidatesAreBounded(t *testing.T) {
	v := mustVerifier(t, VerifierConfig{Scheme: StandardEd25519, Secrets: Secrets("whpk_" + b64(32))})
	h := http.Header{HeaderID: {vectorID}, HeaderTimestamp: {"1700000000"}, HeaderSignature: {strings.Repeat("v1a,"+b64(64)+" ", maxEdCandidates+1)}}
	if _, err := v.Begin(h, vectorTime); !errors.Is(err, ErrMalformed) {
		t.Errorf("%v", err)
	}
}

// The same signed bytes must not read as another message.
func TestTheCutBetweenIDTimestampAndBodyCannotMove(t *testing.T) {
	v := mustVerifier(t, VerifierConfig{Scheme: Standard, Secrets: Secrets(standardSecret)})
	body := []byte("1700000001.evil")
	h := make(http.Header)
	if err := mustSigner(t, one(Standard, standardSecret)).Headers(h, "a", vectorTime, body); err != nil {
		t.Fatal(err)
	}
	h.Set(HeaderID, "a.1700000000")
	h.Set(HeaderTimestamp, "1700000001")
	if err := v.Verify(h, []byte("evil"), vectorTime); !errors.Is(err, ErrMalformed) {
		t.Errorf("moved cut: %v", err)
	}
}

func TestGenericSchemesFollowTheirTemplate(t *testing.T) {
	now := time.UnixMilli(1700000000123)
	for name, tc := range map[string]struct {
		layout Layout
		header func(sig string) http.Header
		signed string
	}{
		"body and prefix": {
			Layout{SignatureHeader: "X-Acme", SignaturePrefix: "sha256="},
			func(sig string) http.Header { return http.Header{"X-Acme": {"sha256=" + sig}} },
			"BODY",
		},
		"milliseconds": {
			Layout{TimestampHeader: "X-Time", SignedContent: "{timestamp}.{body}"},
			func(sig string) http.Header {
				return http.Header{"X-Signature": {sig}, "X-Time": {"1700000000123"}}
			},
			"1700000000123.BODY",
		},
		"default headers": {
			Layout{SignedContent: "{id}|{timestamp}|{body}"},
			func(sig string) http.Header {
				return http.Header{"X-Signature": {sig}, HeaderTimestamp: {"1700000000"}, HeaderID: {"e.1"}}
			},
			"e.1|1700000000|BODY",
		},
		"url in front": {
			Layout{SignedContent: "{url}{body}", PublicURL: "https://h.example/hook?x=1"},
			func(sig string) http.Header { return http.Header{"X-Signature": {sig}} },
			"https://h.example/hook?x=1BODY",
		},
		"body in the middle": {
			Layout{SignedContent: "POST\n{body}\n{timestamp}", TimestampHeader: "X-Time"},
			func(sig string) http.Header { return http.Header{"X-Signature": {sig}, "X-Time": {"1700000000"}} },
			"POST\nBODY\n1700000000",
		},
	} {
		for _, scheme := range []Scheme{HMACHex, HMACBase64} {
			m := newMACKey([]byte("secret")).get()
			m.Write([]byte(tc.signed))
			sig := string(specs[scheme].codec.appendTo(nil, m.finish()))
			v := mustVerifier(t, VerifierConfig{Scheme: scheme, Secrets: Secrets("secret"), Layout: tc.layout})
			if err := v.Verify(tc.header(sig), []byte("BODY"), now); err != nil {
				t.Errorf("%s %s: %v", scheme, name, err)
			}
			if err := v.Verify(tc.header(sig), []byte("BODy"), now); !errors.Is(err, ErrMismatch) {
				t.Errorf("%s %s, forged: %v", scheme, name, err)
			}
		}
	}
}

func TestSecretEncodingOfGenericSchemes(t *testing.T) {
	for encoding, secret := range map[string]string{"": "key", "text": "key", "base64": "a2V5", "hex": "6b6579"} {
		cfg := SchemeConfig{Scheme: HMACHex, Keys: NewRing(NewSecret(secret)), Layout: Layout{SecretEncoding: encoding}}
		signed, err := Sign(cfg, Message{Body: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		plain := mustVerifier(t, VerifierConfig{Scheme: HMACHex, Secrets: Secrets("key")})
		if err := plain.Verify(signed.Header, []byte("x"), vectorTime); err != nil {
			t.Errorf("%q: %v", encoding, err)
		}
	}
}

func TestTemplatesThatCannotBeTrustedAreRefused(t *testing.T) {
	for content, want := range map[string]string{
		"":                                   "{body} exactly once",
		"{timestamp}":                        "{body} exactly once",
		"{body}{body}":                       "{body} exactly once",
		"{id}{body}":                         "between {id}",
		"{body}{id}":                         "between {id}",
		"{timestamp}{id}.{body}":             "between {id}",
		"{nonce}.{body}":                     "unknown placeholder",
		"{body":                              "without a }",
		"body}":                              "without a {",
		"{{body}}":                           "unknown placeholder",
		"{url}{body}":                        "public_url",
		strings.Repeat("x", 2000) + "{body}": "longer",
	} {
		if _, err := parseTemplate(content, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", content, err, want)
		}
	}
	for _, content := range []string{"{body}", "{timestamp}{body}", "{id}.{body}", "id={id};{body}", "{body}.{id}"} {
		if _, err := parseTemplate(content, ""); err != nil {
			t.Errorf("%q: %v", content, err)
		}
	}
}

func TestVerifierConfigNamesEveryFault(t *testing.T) {
	_, err := NewVerifier(VerifierConfig{
		Scheme: GitHub, Secrets: Secrets("", "ok-secret", " "), Tolerance: new(-time.Minute),
		Layout: Layout{SignedContent: "{body}", TimestampHeader: "X-Time", SignatureHeader: "a b", PublicURL: "ftp://x"},
	})
	var fields []string
	for _, ce := range ConfigErrors(err) {
		fields = append(fields, ce.Field)
	}
	slices.Sort(fields)
	want := []string{"public_url", "secret", "secret", "signature_header", "signed_content", "timestamp_header", "tolerance"}
	if !slices.Equal(fields, want) {
		t.Errorf("faults of %v, want %v\n%v", fields, want, err)
	}
	if _, err := NewVerifier(VerifierConfig{Scheme: GitHub, Secrets: make([]Secret, MaxKeys+1)}); err == nil {
		t.Error("too many secrets are accepted")
	}
	if _, err := NewVerifier(VerifierConfig{Scheme: "nope", Secrets: Secrets("x")}); err == nil {
		t.Error("an unknown scheme is accepted")
	}
	for _, u := range []string{"x", "https://", "https://u:p@h.example/", "https://h.example/#f", "HTTPS://h.example/", "javascript:1", "https://h.example/%zz"} {
		if _, err := NewVerifier(VerifierConfig{Scheme: Twilio, Secrets: Secrets("x"), Layout: Layout{PublicURL: u}}); err == nil {
			t.Errorf("public URL %s is accepted", u)
		}
	}
	if _, err := NewVerifier(VerifierConfig{Scheme: Twilio, Secrets: Secrets("x")}); err == nil {
		t.Error("twilio without a public URL is accepted")
	}
}

func TestVerifierIsSafeForManyGoroutines(t *testing.T) {
	vectors, _ := loadVectors(t)
	for _, vec := range vectors {
		v := mustVerifier(t, VerifierConfig{Scheme: vec.Scheme, Secrets: []Secret{vec.verifySecret()}})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					if err := v.Verify(vec.header(), vec.body, vectorTime); err != nil {
						t.Error(err)
					}
					if err := v.Verify(vec.header(), vec.body[1:], vectorTime); !errors.Is(err, ErrMismatch) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	}
}

func TestSchemesAreListedAndParsed(t *testing.T) {
	if len(Schemes()) != len(specs) {
		t.Errorf("%d schemes listed, %d in the table", len(Schemes()), len(specs))
	}
	want := []Scheme{Standard, StandardEd25519, GitHub, Stripe, Shopify, Slack, HMACHex, HMACBase64}
	if got := OutboundSchemes(); !slices.Equal(got, want) {
		t.Errorf("outbound: %v", got)
	}
	for _, s := range Schemes() {
		if got, err := ParseScheme(string(s)); err != nil || got != s {
			t.Errorf("%s: %v", s, err)
		}
		sp := specs[s]
		for _, h := range []string{sp.sigHeader, sp.tsHeader, sp.idHeader} {
			if h != canonical(h) {
				t.Errorf("%s: %s is not canonical", s, h)
			}
		}
	}
	for _, s := range []string{"", "Standard", "sha256"} {
		if _, err := ParseScheme(s); err == nil || !strings.Contains(err.Error(), "hmac-base64") {
			t.Errorf("%q: %v", s, err)
		}
	}
	v := mustVerifier(t, VerifierConfig{Scheme: Slack, Secrets: Secrets("x")})
	if got := v.Headers(); !slices.Equal(got, []string{"X-Slack-Signature", "X-Slack-Request-Timestamp"}) || v.Scheme() != Slack {
		t.Errorf("%s reads %v", v.Scheme(), got)
	}
}

func TestErrorsMatchTheirSentinelOnly(t *testing.T) {
	all := map[Reason]error{ReasonMissingHeader: ErrMissingHeader, ReasonMalformed: ErrMalformed, ReasonTimestamp: ErrTimestamp, ReasonMismatch: ErrMismatch}
	for reason := range all {
		err := error(&VerifyError{Scheme: GitHub, Reason: reason, Detail: "x"})
		for other, sentinel := range all {
			if errors.Is(err, sentinel) != (reason == other) {
				t.Errorf("%s and %v", reason, sentinel)
			}
		}
	}
	if errors.Is(&VerifyError{}, ErrMismatch) {
		t.Error("no reason matches")
	}
}
