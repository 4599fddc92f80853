package origin

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(body []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
}

// decoded is what an origin's own decoder makes of a batch.
type decoded struct {
	Events []struct {
		EventID       string            `json:"eventId"`
		ReceivedAt    time.Time         `json:"receivedAt"`
		ContentType   string            `json:"contentType"`
		Headers       map[string]string `json:"headers"`
		RawBody       *string           `json:"rawBody"`
		RawBodyBase64 *string           `json:"rawBodyBase64"`
	} `json:"events"`
}

func decode(t *testing.T, text []byte) decoded {
	t.Helper()
	var d decoded
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		t.Fatalf("an origin cannot read %.200q: %v", text, err)
	}
	return d
}

func encode(t *testing.T, events ...Event) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, events); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestBatchHasExactlyTheDocumentedForm(t *testing.T) {
	at := time.Date(2024, 5, 6, 7, 8, 9, 123_456_789, time.UTC)
	got := encode(t,
		Event{ID: "shop:1", ReceivedAt: at, ContentType: "application/json", Open: open([]byte(`{"a":"é"}`))},
		Event{ID: "shop:2", ReceivedAt: at, ContentType: "application/octet-stream", Open: open([]byte{0xff, 0})},
		Event{ID: "shop:3", ReceivedAt: at, ContentType: "text/plain", Headers: map[string]string{"X-B": "2", "X-A": "1"}, Open: open(nil)},
	)
	want := `{"events":[` +
		`{"eventId":"shop:1","receivedAt":"2024-05-06T07:08:09.123Z","contentType":"application/json","rawBody":"{\"a\":\"é\"}"},` +
		`{"eventId":"shop:2","receivedAt":"2024-05-06T07:08:09.123Z","contentType":"application/octet-stream","rawBodyBase64":"/wA="},` +
		`{"eventId":"shop:3","receivedAt":"2024-05-06T07:08:09.123Z","contentType":"text/plain","headers":{"X-A":"1","X-B":"2"},"rawBody":""}]}`
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if empty := encode(t); string(empty) != `{"events":[]}` {
		t.Errorf("an empty batch is %s", empty)
	}
}

// body returns the bytes that an origin gets of the only event of a batch.
func body(t *testing.T, text []byte) (got []byte, isText bool) {
	t.Helper()
	d := decode(t, text)
	if len(d.Events) != 1 {
		t.Fatalf("%d events", len(d.Events))
	}
	e := d.Events[0]
	switch {
	case e.RawBody != nil && e.RawBodyBase64 == nil:
		return []byte(*e.RawBody), true
	case e.RawBody == nil && e.RawBodyBase64 != nil:
		got, err := base64.StdEncoding.DecodeString(*e.RawBodyBase64)
		if err != nil {
			t.Fatal(err)
		}
		return got, false
	}
	t.Fatal("exactly one of rawBody and rawBodyBase64 is wanted")
	return nil, false
}

func TestCases(t *testing.T) {
	t.Run("S11", func(t *testing.T) {
		// The emoji body of a real report: the same bytes, each of three times.
		payload := []byte("{\"text\":\"Zoë 😊 \u2028\", \"n\": 1.0}\r\n")
		var first []byte
		for range 3 {
			text := encode(t, Event{ID: "github:1", Open: open(payload)})
			if first == nil {
				first = text
			}
			got, isText := body(t, text)
			if !isText || !bytes.Equal(got, payload) || !bytes.Equal(text, first) {
				t.Errorf("got %q, want %q", got, payload)
			}
		}
	})
}

func TestBodyThatIsNoTextTravelsAsBase64(t *testing.T) {
	for name, payload := range map[string][]byte{
		"lone continuation": {'a', 0x80},
		"cut rune":          []byte("ok 😊")[:5],
		"surrogate":         {0xed, 0xa0, 0x80},
		"utf-16":            {0xff, 0xfe, '{', 0},
		"late":              append(bytes.Repeat([]byte("x"), 3*chunk), 0xc3),
	} {
		if got, isText := body(t, encode(t, Event{Open: open(payload)})); isText || !bytes.Equal(got, payload) {
			t.Errorf("%s: text %v, got %.20q", name, isText, got)
		}
	}
}

// A rune may lie across any boundary of reads, and reads may be of one byte.
func TestRunesAcrossReadsStayWhole(t *testing.T) {
	for shift := range 5 {
		payload := []byte(strings.Repeat("a", chunk-shift) + "😊é\"\\\n" + strings.Repeat("é", chunk))
		for name, wrap := range map[string]func(io.Reader) io.Reader{
			"one byte": iotest.OneByteReader, "half": iotest.HalfReader, "with EOF": iotest.DataErrReader,
		} {
			e := Event{Open: func() (io.ReadCloser, error) {
				return io.NopCloser(wrap(bytes.NewReader(payload))), nil
			}}
			if got, isText := body(t, encode(t, e)); !isText || !bytes.Equal(got, payload) {
				t.Errorf("%s, shift %d: not the same bytes", name, shift)
			}
		}
	}
}

func TestFailureToReadABodyFailsTheBatchAndNamesTheEvent(t *testing.T) {
	broken := errors.New("disk gone")
	for name, e := range map[string]Event{
		"open": {ID: "shop:9", Open: func() (io.ReadCloser, error) { return nil, broken }},
		"read": {ID: "shop:9", Open: func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(broken)), nil }},
	} {
		err := Write(io.Discard, []Event{e})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "shop:9") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if err := Write(failingWriter{broken}, []Event{{Open: open(bytes.Repeat([]byte("x"), 1<<20))}}); !errors.Is(err, broken) {
		t.Errorf("write: got %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestSizeIsEstimatedFromAbove(t *testing.T) {
	for _, payload := range [][]byte{nil, []byte(`{"a":"b","c":[1,2,3],"d":"\n"}`), bytes.Repeat([]byte{0xff}, 1000)} {
		e := Event{ID: "shop:1", ContentType: "application/json", Headers: map[string]string{"X-Name": "value"}, Open: open(payload)}
		one, two := encode(t, e), encode(t, e, e)
		if got := EncodedSize(&e, int64(len(payload))); got < int64(len(two)-len(one)) {
			t.Errorf("%d bytes of body: estimated %d, are %d", len(payload), got, len(two)-len(one))
		}
	}
}

func FuzzWrite(f *testing.F) {
	f.Add([]byte(`{"a":1}`), "evt", "application/json")
	f.Add([]byte("Zoë 😊\x00\x1f\x7f\"\\/\u2028"), "a\"b", "text/plain; charset=\xff")
	f.Add([]byte{0xff, 0xfe}, "", "")
	f.Fuzz(func(t *testing.T, payload []byte, id, kind string) {
		got, isText := body(t, encode(t, Event{ID: id, ContentType: kind, Open: open(payload)}))
		if !bytes.Equal(got, payload) || isText != utf8.Valid(payload) {
			t.Errorf("text %v: %q became %q", isText, payload, got)
		}
	})
}
