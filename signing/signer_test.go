package signing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// layouts are outbound schemes in every shape a subscriber can give them.
func outboundConfigs(t testing.TB) map[string][]SchemeConfig {
	t.Helper()
	out := make(map[string][]SchemeConfig)
	for _, s := range OutboundSchemes() {
		secret, err := GenerateSecret(s)
		if err != nil {
			t.Fatal(err)
		}
		out[string(s)] = []SchemeConfig{{Scheme: s, Keys: NewRing(secret)}}
	}
	template := one(HMACBase64, "a secret")
	template.Layout = Layout{SignatureHeader: "X-Sig", TimestampHeader: "X-Time", IDHeader: "X-Id", SignaturePrefix: "sig=", SignedContent: "{id}.{timestamp}\n{body}.end", SecretEncoding: "text"}
	out["template"] = []SchemeConfig{template}
	renamed := one(Standard, standardSecret)
	renamed.Layout = Layout{SignatureHeader: "svix-signature", TimestampHeader: "svix-timestamp", IDHeader: "svix-id"}
	out["renamed"] = []SchemeConfig{renamed}
	out["both standards"] = []SchemeConfig{one(Standard, standardSecret), one(StandardEd25519, vectorSeed)}
	out["two"] = []SchemeConfig{one(StandardEd25519, vectorSeed), one(Slack, "slack-secret")}
	return out
}

// verifierFor is the receiver of one scheme of a subscriber.
func verifierFor(t testing.TB, cfg SchemeConfig) *Verifier {
	t.Helper()
	secret := cfg.Keys.Current()
	if specs[cfg.Scheme].alg == algEd25519 {
		pub, err := PublicKey(secret)
		if err != nil {
			t.Fatal(err)
		}
		secret = NewSecret(pub)
	}
	return mustVerifier(t, VerifierConfig{Scheme: cfg.Scheme, Secrets: []Secret{secret}, Layout: cfg.Layout})
}

func TestWhatIsSignedVerifiesInEveryShape(t *testing.T) {
	now := time.Now()
	for name, schemes := range outboundConfigs(t) {
		t.Run(name, func(t *testing.T) {
			s := mustSigner(t, schemes...)
			for _, body := range [][]byte{nil, []byte("{}"), vectorBody(t), bytes.Repeat([]byte("x"), 200_000)} {
				h := make(http.Header)
				if err := s.Headers(h, "evt_1", now, body); err != nil {
					t.Fatal(err)
				}
				if h.Get("webhook-id") != "evt_1" || h.Get("webhook-timestamp") != fmt.Sprint(now.Unix()) {
					t.Errorf("id and timestamp are not always there: %v", h)
				}
				for _, cfg := range schemes {
					if err := verifierFor(t, cfg).Verify(h, body, now); err != nil {
						t.Errorf("%s, %d bytes: %v", cfg.Scheme, len(body), err)
					}
				}
				for name, values := range h {
					if name != canonical(name) || len(values) != 1 || valueFault(values[0]) != "" {
						t.Errorf("header %q: %q", name, values)
					}
				}
			}
		})
	}
}

// All ways to sign give the same headers, however the body is cut.
func TestStreamAppendAndHeadersAgree(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 1000)
	for name, schemes := range outboundConfigs(t) {
		s := mustSigner(t, schemes...)
		want := make(http.Header)
		if err := s.Headers(want, vectorID, vectorTime, body); err != nil {
			t.Fatal(err)
		}
		got := make(http.Header)
		if err := s.HeadersFrom(got, vectorID, vectorTime, iotest.OneByteReader(bytes.NewReader(body))); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: stream %v, want %v", name, got, want)
		}
		fields, err := s.Append([]Field{{"X-Before", "1"}}, vectorID, vectorTime, body)
		if err != nil {
			t.Fatal(err)
		}
		read, err := s.AppendFrom([]Field{{"X-Before", "1"}}, vectorID, vectorTime, iotest.OneByteReader(bytes.NewReader(body)))
		if err != nil || !slices.Equal(read, fields) {
			t.Errorf("%s: fields %v, %v, want %v", name, read, err, fields)
		}
		if fields[0] != (Field{"X-Before", "1"}) || len(fields) != len(want)+1 {
			t.Errorf("%s: fields %v", name, fields)
		}
		for _, f := range fields[1:] {
			if want.Get(f.Name) != f.Value {
				t.Errorf("%s: %s is %q, want %q", name, f.Name, f.Value, want.Get(f.Name))
			}
		}
	}
}

func TestStreamGivesItsResultOnce(t *testing.T) {
	s := mustSigner(t, one(Standard, standardSecret))
	st, err := s.Stream(vectorID, vectorTime)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Headers(make(http.Header)); err != nil {
		t.Fatal(err)
	}
	if err := st.Headers(make(http.Header)); !errors.Is(err, ErrFinished) {
		t.Errorf("second Headers: %v", err)
	}
	if _, err := st.Write([]byte("x")); !errors.Is(err, ErrFinished) {
		t.Errorf("Write after Headers: %v", err)
	}
	broken := errors.New("disk gone")
	h := make(http.Header)
	if err := s.HeadersFrom(h, vectorID, vectorTime, iotest.ErrReader(broken)); !errors.Is(err, broken) || len(h) != 0 {
		t.Errorf("a body that cannot be read: %v, headers %v", err, h)
	}
	if err := s.HeadersFrom(h, vectorID, vectorTime, io.LimitReader(strings.NewReader("abc"), 2)); err != nil {
		t.Error(err)
	}
}

func TestBothStandardsShareOneHeader(t *testing.T) {
	s := mustSigner(t, one(Standard, standardSecret), one(StandardEd25519, vectorSeed))
	h := make(http.Header)
	if err := s.Headers(h, vectorID, vectorTime, vectorBody(t)); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(h.Get(HeaderSignature), " ")
	if len(parts) != 2 || parts[0] != vectorV1 || !strings.HasPrefix(parts[1], "v1a,Tsw") {
		t.Errorf("%q", parts)
	}
	if keys := s.PublicKeys(vectorTime); !slices.Equal(keys, []string{"whpk_I7xUkSwebpLEqGglyGfif/3FVb/71CRPF6Jqv//ull0="}) {
		t.Errorf("public keys %q", keys)
	}
}

// During a rotation a header with room for several signatures has them all,
// one without has the newest.
func TestRotationPerScheme(t *testing.T) {
	now := vectorTime
	for _, scheme := range OutboundSchemes() {
		var ring Ring
		var secrets []Secret
		for i := range 3 {
			secret, err := GenerateSecret(scheme)
			if err != nil {
				t.Fatal(err)
			}
			secrets = append(secrets, secret)
			if i == 0 {
				ring = NewRing(secret)
				continue
			}
			if ring, err = ring.Rotate(secret, now, 24*time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		s := mustSigner(t, SchemeConfig{Scheme: scheme, Keys: ring})
		h := make(http.Header)
		if err := s.Headers(h, vectorID, now, []byte("body")); err != nil {
			t.Fatal(err)
		}
		for i, secret := range secrets {
			err := verifierFor(t, SchemeConfig{Scheme: scheme, Keys: NewRing(secret)}).Verify(h, []byte("body"), now)
			wantPass := i == len(secrets)-1 || specs[scheme].overlaps()
			if (err == nil) != wantPass {
				t.Errorf("%s, secret %d of 3: %v", scheme, i+1, err)
			}
		}
	}
}

func TestNothingIsSignedWithoutAValidSecret(t *testing.T) {
	expired := Ring{{Secret: NewSecret(standardSecret), Expires: vectorTime}}
	s := mustSigner(t, SchemeConfig{Scheme: Standard, Keys: expired})
	h := make(http.Header)
	if err := s.Headers(h, vectorID, vectorTime, nil); !errors.Is(err, ErrNoActiveSecret) || len(h) != 0 {
		t.Errorf("at the moment of expiry: %v, headers %v", err, h)
	}
	if err := s.Headers(h, vectorID, vectorTime.Add(-time.Nanosecond), nil); err != nil {
		t.Errorf("just before: %v", err)
	}
	// One scheme without a secret is not made up for by another with one.
	s = mustSigner(t, one(GitHub, "x-secret"), SchemeConfig{Scheme: Standard, Keys: expired})
	if err := s.Headers(make(http.Header), vectorID, vectorTime, nil); !errors.Is(err, ErrNoActiveSecret) {
		t.Errorf("with another scheme: %v", err)
	}
}

func TestIDsThatMakeTheContentAmbiguousAreRefused(t *testing.T) {
	s := mustSigner(t, one(Standard, standardSecret))
	for _, id := range []string{"", "a.b", "a b", "a\r\nb", "é", strings.Repeat("a", 257)} {
		if err := s.Headers(make(http.Header), id, vectorTime, nil); !errors.Is(err, ErrInvalidID) {
			t.Errorf("%q: %v", id, err)
		}
	}
	if err := s.Headers(make(http.Header), "AZaz09_~:-", vectorTime, nil); err != nil {
		t.Error(err)
	}
	if err := s.Headers(make(http.Header), "a", time.Time{}, nil); err == nil {
		t.Error("a time before 1970 is signed")
	}
}

func TestSignerConfigNamesEveryFault(t *testing.T) {
	with := func(c SchemeConfig, l Layout) SchemeConfig { c.Layout = l; return c }
	hex := one(HMACHex, "secret")
	for name, tc := range map[string]struct {
		schemes []SchemeConfig
		field   string
	}{
		"no scheme":             {nil, "signing"},
		"three schemes":         {[]SchemeConfig{hex, hex, hex}, "signing"},
		"unknown scheme":        {[]SchemeConfig{one("md5", "secret")}, "scheme"},
		"receiving only":        {[]SchemeConfig{one(Discord, vectorSeed)}, "scheme"},
		"no secret":             {[]SchemeConfig{{Scheme: GitHub}}, "secret"},
		"too many secrets":      {[]SchemeConfig{{Scheme: GitHub, Keys: make(Ring, MaxKeys+1)}}, "secret"},
		"public key to sign":    {[]SchemeConfig{one(StandardEd25519, "whpk_I7xUkSwebpLEqGglyGfif/3FVb/71CRPF6Jqv//ull0=")}, "secret"},
		"short standard secret": {[]SchemeConfig{one(Standard, "whsec_c2hvcnQ=")}, "secret"},
		"reserved header":       {[]SchemeConfig{with(hex, Layout{SignatureHeader: "Content-Length"})}, "signature_header"},
		"id as signature":       {[]SchemeConfig{with(hex, Layout{SignatureHeader: "webhook-id"})}, "signature_header"},
		"bad header":            {[]SchemeConfig{with(hex, Layout{SignatureHeader: "X Sig"})}, "signature_header"},
		"same header twice":     {[]SchemeConfig{hex, one(HMACBase64, "secret")}, "signature_header"},
		"standard twice":        {[]SchemeConfig{one(Standard, standardSecret), one(Standard, secondSecret)}, "signature_header"},
		"standard and legacy":   {[]SchemeConfig{one(Standard, standardSecret), with(hex, Layout{SignatureHeader: HeaderSignature})}, "signature_header"},
		"two values, one name":  {[]SchemeConfig{with(hex, Layout{SignatureHeader: "X-A", TimestampHeader: "x-a", SignedContent: "{timestamp}.{body}"})}, "signature_header"},
		"template elsewhere":    {[]SchemeConfig{with(one(GitHub, "secret"), Layout{SignedContent: "{body}"})}, "signed_content"},
		"prefix elsewhere":      {[]SchemeConfig{with(one(GitHub, "secret"), Layout{SignaturePrefix: "x"})}, "signature_prefix"},
		"encoding elsewhere":    {[]SchemeConfig{with(one(GitHub, "secret"), Layout{SecretEncoding: "hex"})}, "secret_encoding"},
		"unknown encoding":      {[]SchemeConfig{with(hex, Layout{SecretEncoding: "rot13"})}, "secret_encoding"},
		"secret not hex":        {[]SchemeConfig{with(hex, Layout{SecretEncoding: "hex"})}, "secret"},
		"prefix with CR":        {[]SchemeConfig{with(hex, Layout{SignaturePrefix: "a\r\n"})}, "signature_prefix"},
		"timestamp unsigned":    {[]SchemeConfig{with(hex, Layout{TimestampHeader: "X-Time"})}, "timestamp_header"},
		"stripe timestamp":      {[]SchemeConfig{with(one(Stripe, "secret"), Layout{TimestampHeader: "X-Time"})}, "timestamp_header"},
		"github id":             {[]SchemeConfig{with(one(GitHub, "secret"), Layout{IDHeader: "X-Id"})}, "id_header"},
		"separator in ids":      {[]SchemeConfig{with(hex, Layout{SignedContent: "{id}:{body}"})}, "signed_content"},
		"no body":               {[]SchemeConfig{with(hex, Layout{SignedContent: "{id}"})}, "signed_content"},
		"relative URL":          {[]SchemeConfig{with(hex, Layout{PublicURL: "/x"})}, "public_url"},
	} {
		s, err := NewSigner(SignerConfig{Schemes: tc.schemes})
		faults := ConfigErrors(err)
		if s != nil || len(faults) == 0 {
			t.Errorf("%s: accepted (%v)", name, err)
			continue
		}
		if !slices.ContainsFunc(faults, func(c *ConfigError) bool { return c.Field == tc.field }) {
			t.Errorf("%s: %v, want a fault of %s", name, err, tc.field)
		}
	}
	_, err := NewSigner(SignerConfig{Schemes: []SchemeConfig{
		with(one(HMACHex, " "), Layout{SignatureHeader: "Host"}), one(Standard, "x")}})
	if n := len(ConfigErrors(err)); n != 3 {
		t.Errorf("%d faults: %v", n, err)
	}
}

func TestSignerIsSafeForManyGoroutines(t *testing.T) {
	for name, schemes := range outboundConfigs(t) {
		s := mustSigner(t, schemes...)
		bodies := [][]byte{[]byte("one"), []byte("another, longer one"), bytes.Repeat([]byte("z"), 5000)}
		want := make([]http.Header, len(bodies))
		for i, b := range bodies {
			want[i] = make(http.Header)
			if err := s.Headers(want[i], vectorID, vectorTime, b); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for n := range 40 {
					i := (g + n) % len(bodies)
					h := make(http.Header)
					if err := s.Headers(h, vectorID, vectorTime, bodies[i]); err != nil || !reflect.DeepEqual(h, want[i]) {
						t.Errorf("%s: %v %v", name, h, err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// The hot path allocates the one string with all values and the one slice that
// holds them, nothing for hashing.
func TestSigningAllocatesOnlyWhatItHandsOut(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 1024)
	s := mustSigner(t, one(Standard, standardSecret), one(GitHub, "secret"))
	h := make(http.Header)
	fields := make([]Field, 0, 8)
	sign := func() {
		if err := s.Headers(h, vectorID, vectorTime, body); err != nil {
			t.Fatal(err)
		}
	}
	appendTo := func() {
		var err error
		if fields, err = s.Append(fields[:0], vectorID, vectorTime, body); err != nil {
			t.Fatal(err)
		}
	}
	// The race detector makes sync.Pool drop at random, hence a little room.
	if n := testing.AllocsPerRun(200, sign); n > 2+raceAllocs {
		t.Errorf("Headers: %.1f allocations", n)
	}
	if n := testing.AllocsPerRun(200, appendTo); n > 1+raceAllocs {
		t.Errorf("Append: %.1f allocations", n)
	}
}

func TestLargeBodiesDoNotStayInThePool(t *testing.T) {
	p := &pass{signer: &Signer{}, message: make([]byte, 0, maxPooled+1)}
	p.release()
	if p.message != nil {
		t.Error("a large buffer went back to the pool")
	}
}
