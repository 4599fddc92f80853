package storage

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// filler sets every field of a value to something that is not its zero, so that
// a field that a codec forgets shows up.
type filler struct{ n int }

func (f *filler) fill(v reflect.Value) {
	f.n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000+int64(f.n), 123_000_000).UTC()))
		return
	case []byte:
		v.SetBytes(fmt.Appendf(nil, "secret bytes %d \xff", f.n))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("secret-text-%d", f.n))
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(f.n))
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.n))
	case reflect.Float64:
		v.SetFloat(float64(f.n) + 0.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key)
		f.fill(value)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for _, field := range v.Fields() {
			f.fill(field)
		}
	default:
		panic("no filling for " + v.Type().String())
	}
}

func filledSubscriber() *delivery.Subscriber {
	var s delivery.Subscriber
	(&filler{}).fill(reflect.ValueOf(&s).Elem())
	s.URL = "https://hooks.example.com:8443/services/secret-text-in-path?token=secret-text-in-query"
	return &s
}

func TestNoFieldOfASubscriberIsLostByItsCodec(t *testing.T) {
	want := filledSubscriber()
	key := keyOfSubscriber(regSubscriber, want.Num)
	seal := testSealer(t, NewNodeKey())
	value, err := encodeSubscriber(want, seal, key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeSubscriber(want.Num, value, seal, key)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %#v\nwant %#v", got, want)
	}
}

func TestNoFieldOfATenantIsLostByItsCodec(t *testing.T) {
	var want delivery.Tenant
	(&filler{}).fill(reflect.ValueOf(&want).Elem())
	value, err := encodeTenant(&want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeTenant(want.Num, value)
	if err != nil || !reflect.DeepEqual(got, &want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestZeroRecordsSurviveTheirCodec(t *testing.T) {
	seal := testSealer(t, NewNodeKey())
	value, err := encodeSubscriber(&delivery.Subscriber{}, seal, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeSubscriber(0, value, seal, nil); err != nil || !reflect.DeepEqual(got, &delivery.Subscriber{}) {
		t.Errorf("subscriber: got %#v, %v", got, err)
	}
	value, err = encodeTenant(&delivery.Tenant{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeTenant(0, value); err != nil || !reflect.DeepEqual(got, &delivery.Tenant{}) {
		t.Errorf("tenant: got %#v, %v", got, err)
	}
}

func TestSecretsAreNotInTheEncodedRecord(t *testing.T) {
	s := filledSubscriber()
	// What is not secret gets another spelling, so that the rest must not appear.
	s.ID, s.Topics = "open", []string{"order.*"}
	for i := range s.Signing {
		s.Signing[i].Scheme, s.Signing[i].Header = "hmac-hex", "x-sig"
	}
	s.TLS.CAPEM, s.TLS.ClientCertPEM = []byte("ca"), []byte("cert")
	value, err := encodeSubscriber(s, testSealer(t, NewNodeKey()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if i := bytes.Index(value, []byte("secret-text")); i >= 0 {
		t.Errorf("record shows a secret: %q", value[i:min(i+60, len(value))])
	}
	for _, hidden := range []string{"secret bytes", "c2VjcmV0", "token="} {
		if bytes.Contains(value, []byte(hidden)) {
			t.Errorf("record shows %q", hidden)
		}
	}
}

func TestASubscriberWithALostKeyIsShownWithoutItsSecrets(t *testing.T) {
	want := filledSubscriber()
	value, err := encodeSubscriber(want, testSealer(t, NewNodeKey()), nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeSubscriber(want.Num, value, testSealer(t, NewNodeKey()), nil)
	if !errors.Is(err, ErrWrongKey) {
		t.Fatalf("got %v, want ErrWrongKey", err)
	}
	if got == nil || got.ID != want.ID || got.Version != want.Version || !reflect.DeepEqual(got.Topics, want.Topics) {
		t.Errorf("the open part is missing: %#v", got)
	}
	if got.URL != "https://hooks.example.com:8443" {
		t.Errorf("URL is %q, want the origin alone", got.URL)
	}
	if got.Headers != nil || got.TLS.ClientKeyPEM != nil || got.Signing[0].Secrets[0].Value != "" {
		t.Errorf("secrets appear from nowhere: %#v", got)
	}
}

func TestSecretsThatAreNotUTF8KeepTheirBytes(t *testing.T) {
	seal := testSealer(t, NewNodeKey())
	want := &delivery.Subscriber{
		URL:     "https://h.example/\xff",
		Headers: map[string]string{"X-Key": "\x80\xfe"},
		Signing: []delivery.SigningScheme{{Scheme: "github", Secrets: []delivery.Secret{{Value: "\xc3\x28\x00"}}}},
	}
	value, err := encodeSubscriber(want, seal, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeSubscriber(0, value, seal, nil)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, %v", got, err)
	}
}

func TestWhatJSONCannotHoldIsRefusedNotStored(t *testing.T) {
	seal := testSealer(t, NewNodeKey())
	s := filledSubscriber()
	s.Retry.Factor = math.Inf(1)
	if _, err := encodeSubscriber(s, seal, nil); !errors.Is(err, ErrBadRecord) {
		t.Errorf("infinite factor: %v", err)
	}
	if _, err := encodeTenant(&delivery.Tenant{RateLimit: delivery.RateLimit{PerSecond: math.NaN()}}); !errors.Is(err, ErrBadRecord) {
		t.Errorf("rate that is no number: %v", err)
	}
}

func TestCopiesShareNoMemory(t *testing.T) {
	s := filledSubscriber()
	c := copySubscriber(s)
	if !reflect.DeepEqual(s, c) {
		t.Fatalf("copy differs: %#v", c)
	}
	// Overwrite everything that the copy refers to.
	c.Topics[0], c.Retry.Schedule[0] = "x", 0
	c.Signing[0].Secrets[0].Value, c.Signing[0].Scheme = "x", "x"
	c.TLS.CAPEM[0], c.TLS.ClientCertPEM[0], c.TLS.ClientKeyPEM[0] = 0, 0, 0
	clear(c.Headers)
	if !reflect.DeepEqual(s, filledSubscriber()) {
		t.Errorf("the original changed with its copy: %#v", s)
	}
}

func TestOriginOfShowsNothingThatLetsIn(t *testing.T) {
	for raw, want := range map[string]string{
		"https://h.example/a?b#c":         "https://h.example",
		"https://user:pass@h.example:1/x": "https://h.example:1",
		"https://[::1]:8443/x":            "https://[::1]:8443",
		"":                                "",
		"token-only":                      "",
		"https://h.example/%zz":           "",
	} {
		if got := originOf(raw); got != want {
			t.Errorf("originOf(%q) = %q, want %q", raw, got, want)
		}
	}
}

func TestDamagedRecordsAreErrorsNotPanics(t *testing.T) {
	seal := testSealer(t, NewNodeKey())
	value, err := encodeSubscriber(filledSubscriber(), seal, []byte("k"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range value {
		if _, err := decodeSubscriber(1, value[:n], seal, []byte("k")); err == nil && n != len(value) {
			// Cut exactly after the open part it reads as a record without secrets.
			if rec, sealed, _ := splitSubscriber(1, value[:n]); rec == nil || len(sealed) != 0 {
				t.Fatalf("cut to %d of %d bytes: no error", n, len(value))
			}
		}
	}
	for name, bad := range map[string][]byte{
		"empty": {}, "version 2": {2, 0}, "length beyond the end": {1, 0xff, 0xff, 0x03, '{'}, "endless length": bytes.Repeat([]byte{0xff}, 12),
	} {
		if _, err := decodeSubscriber(1, bad, seal, nil); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := decodeTenant(1, []byte("\x01{")); !errors.Is(err, ErrDamaged) {
		t.Errorf("tenant: %v", err)
	}
	if _, err := decodeTenant(1, nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("empty tenant: %v", err)
	}
}

func TestARecordWhoseSecretsDoNotFitIsDamaged(t *testing.T) {
	seal := testSealer(t, NewNodeKey())
	s := filledSubscriber()
	a, err := encodeSubscriber(s, seal, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Signing = s.Signing[:1]
	b, err := encodeSubscriber(s, seal, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, sealedB, _ := splitSubscriber(1, b)
	_, sealedA, _ := splitSubscriber(1, a)
	mixed := append(bytes.Clone(a[:len(a)-len(sealedA)]), sealedB...)
	if got, err := decodeSubscriber(1, mixed, seal, nil); !errors.Is(err, ErrDamaged) || got == nil {
		t.Errorf("got %v, %v", got, err)
	}
}

func FuzzDecodeSubscriber(f *testing.F) {
	seal, err := newSealer(NodeKey{})
	if err != nil {
		f.Fatal(err)
	}
	value, err := encodeSubscriber(filledSubscriber(), seal, []byte("k"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	f.Add([]byte("\x01\x02{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeSubscriber(1, b, seal, []byte("k"))
		if s == nil && err == nil {
			t.Fatal("neither a subscriber nor an error")
		}
		if s == nil {
			return
		}
		_ = strings.ToLower(s.ID)
		if rec, _, err := splitSubscriber(1, b); err == nil {
			_ = tombstone(rec, 1, time.Time{})
		}
	})
}
