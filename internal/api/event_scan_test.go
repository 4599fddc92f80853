package api

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// plainEvents are read by scanEvent.
var plainEvents = []string{
	`{"topic":"order.created","payload":{"a":1}}`,
	" {\n\t\"payload\" : [ ] ,\r\"topic\":\"t\" } \n",
	`{"id":"e-1","topic":"t","ordering_key":"kü","priority":"high","content_type":"application/x+json","payload":"a\"b\\\u00e9\n"}`,
	`{"topic":"t","payload":{"a":[1,-0.5e+3,0,10E2,true,false,null,{}],"b":{"c":"d"}}}`,
	`{"topic":"t","payload":-1}`, `{"topic":"t","payload":true}`, `{"payload":""}`,
	"{\"topic\":\"t\",\"payload\":\"\xff\"}", // what is no UTF-8 stays as it came
}

// otherEvents are not, whether they are right or wrong.
var otherEvents = []string{
	``, ` `, `{`, `{}`, `null`, `[]`, `{"topic":"t"}`, `{"topic":"t","payload":null}`, `{"topic":"t","payload":nul}`,
	`{"topic":"t","payload":1}x`, `{"topic":"t","payload":1}{}`, `{"topic":"t","payload":1,}`, `{,"payload":1}`,
	`{"Topic":"t","payload":1}`, `{"topic":"t","topic":"u","payload":1}`, `{"payload":1,"payload":2}`,
	`{"to\u0070ic":"t","payload":1}`, `{"topic":"a\tb","payload":1}`, "{\"topic\":\"\xff\",\"payload\":1}",
	`{"topic":null,"payload":1}`, `{"topic":1,"payload":1}`, `{"payload_base64":"YQ=="}`, `{"topics":"t","payload":1}`,
	`{"topic":"t","subscribers":["a"],"payload":1}`, `{"topic":"t","payload":1,"deliver_at":"2030-01-01T00:00:00Z"}`,
	`{"payload":01}`, `{"payload":1.}`, `{"payload":.5}`, `{"payload":1e}`, `{"payload":-}`, `{"payload":+1}`, `{"payload":"a`,
	`{"payload":"\x"}`, `{"payload":"\u12"}`, `{"payload":"\u12G4"}`, "{\"payload\":\"\n\"}", `{"payload":[1,]}`, `{"payload":[1 2]}`,
	`{"payload":{"a"}}`, `{"payload":{a:1}}`, `{"payload":{"a":1,}}`, `{"payload":{1:1}}`, `{"payload":[}}`, `{"payload":{]}`,
	`{"payload":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, "\ufeff{\"payload\":1}",
}

func TestPlainEventsAreScanned(t *testing.T) {
	for _, body := range plainEvents {
		if _, ok := scanEvent([]byte(body)); !ok {
			t.Errorf("%s is not read in one pass", body)
		}
	}
	for _, body := range otherEvents {
		if _, ok := scanEvent([]byte(body)); ok {
			t.Errorf("%s is read in one pass", body)
		}
	}
}

// FuzzScanEvent: what is scanned is what encoding/json would have read, and valid.
func FuzzScanEvent(f *testing.F) {
	for _, body := range append(plainEvents, otherEvents...) {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok := scanEvent(bytes.Clone(body))
		if !ok {
			return
		}
		want, err := parseEvent(body)
		if err != nil {
			t.Fatalf("%q is scanned; encoding/json: %v", body, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is scanned as %+v, not %+v", body, got, want)
		}
		if !json.Valid(got.Payload) {
			t.Fatalf("%q is no JSON", got.Payload)
		}
	})
}

func BenchmarkDecodeEvent(b *testing.B) {
	payload := `{"id":12345,"text":"` + strings.Repeat("0123456789abcdef", 60) + `","list":[1,2,3]}`
	body := []byte(`{"topic":"order.created","id":"e-1","payload":` + payload + `}`)
	for name, decode := range map[string]func([]byte) error{
		"scan":  func(body []byte) error { _, err := decodeEvent(body); return err },
		"parse": func(body []byte) error { _, err := parseEvent(body); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if err := decode(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
