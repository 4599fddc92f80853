package origin

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// ContentType is the media type of a batch.
const ContentType = "application/json"

// Event is one event of a batch, with all that goes to the origin.
type Event struct {
	ID          string // public event id: the same each time the event is sent
	ReceivedAt  time.Time
	ContentType string
	Headers     map[string]string // forwarded headers; nil = none
	// Open reads the body from its start. It is called twice: what the body is
	// decides how it is written.
	Open func() (io.ReadCloser, error)
}

// Write writes a batch:
//
//	{"events":[{"eventId":"…","receivedAt":"2006-01-02T15:04:05.000Z","contentType":"…",
//	  "headers":{"X-Name":"…"},"rawBody":"…"},…]}
//
// A body that is valid UTF-8 is in rawBody, and decodes from JSON to the very
// bytes that were received; any other is in rawBodyBase64. "headers" is left out
// where there are none. The same events give the same bytes.
//
// Bodies are streamed: at no time is one of them in memory.
func Write(w io.Writer, events []Event) error {
	out := bufio.NewWriter(w)
	_, _ = out.WriteString(`{"events":[`) // a bufio.Writer keeps its error for Flush
	for i := range events {
		if i > 0 {
			_ = out.WriteByte(',')
		}
		if err := writeEvent(out, &events[i]); err != nil {
			return fmt.Errorf("encode event %s: %w", events[i].ID, err)
		}
	}
	_, _ = out.WriteString(`]}`)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write batch: %w", err)
	}
	return nil
}

// head is the part of an event before its body.
type head struct {
	EventID     string            `json:"eventId"`
	ReceivedAt  string            `json:"receivedAt"`
	ContentType string            `json:"contentType"`
	Headers     map[string]string `json:"headers,omitempty"`
}

const timeLayout = "2006-01-02T15:04:05.000Z"

func writeEvent(out *bufio.Writer, e *Event) error {
	text, err := json.Marshal(head{e.ID, e.ReceivedAt.UTC().Format(timeLayout), e.ContentType, e.Headers})
	if err != nil {
		return err
	}
	isText := false
	if err := e.each(func(body io.Reader) (err error) {
		isText, err = isUTF8(body)
		return err
	}); err != nil {
		return err
	}
	_, _ = out.Write(text[:len(text)-1]) // without the closing brace
	if isText {
		_, _ = out.WriteString(`,"rawBody":"`)
		err = e.each(func(body io.Reader) error { return escape(out, body) })
	} else {
		_, _ = out.WriteString(`,"rawBodyBase64":"`)
		err = e.each(func(body io.Reader) error {
			enc := base64.NewEncoder(base64.StdEncoding, out)
			if _, err := io.Copy(enc, body); err != nil {
				return err
			}
			return enc.Close()
		})
	}
	if err != nil {
		return err
	}
	_, err = out.WriteString(`"}`)
	return err
}

// each opens the body for one pass over it.
func (e *Event) each(pass func(io.Reader) error) error {
	body, err := e.Open()
	if err != nil {
		return fmt.Errorf("open body: %w", err)
	}
	defer body.Close()
	return pass(body)
}

const chunk = 16 << 10

// isUTF8 reads to the end of r, or to the first byte that is no UTF-8.
func isUTF8(r io.Reader) (bool, error) {
	buf, kept := make([]byte, chunk), 0
	for {
		n, err := r.Read(buf[kept:])
		b := buf[:kept+n]
		whole := len(b)
		if err == nil {
			whole = wholeRunes(b)
		}
		switch {
		case err != nil && err != io.EOF: //nolint:errorlint // io.Reader returns it bare
			return false, err
		case !utf8.Valid(b[:whole]):
			return false, nil
		case err != nil:
			return true, nil
		}
		kept = copy(buf, b[whole:])
	}
}

// wholeRunes is the length of b without a rune at its end that is not complete.
func wholeRunes(b []byte) int {
	for i := len(b) - 1; i >= max(0, len(b)-utf8.UTFMax); i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) {
				break
			}
			return i
		}
	}
	return len(b)
}

const hexDigits = "0123456789abcdef"

// escape writes valid UTF-8 as the inside of a JSON string (RFC 8259 section 7):
// the quotation mark, the backslash and control characters, and nothing else.
func escape(out *bufio.Writer, r io.Reader) error {
	buf := make([]byte, chunk)
	for {
		n, err := r.Read(buf)
		plain := 0
		for i, c := range buf[:n] {
			if c >= 0x20 && c != '"' && c != '\\' {
				continue
			}
			_, _ = out.Write(buf[plain:i])
			plain = i + 1
			if c < 0x20 {
				_, _ = out.WriteString(`\u00`)
				_ = out.WriteByte(hexDigits[c>>4])
				_ = out.WriteByte(hexDigits[c&15])
				continue
			}
			_, _ = out.Write([]byte{'\\', c})
		}
		_, werr := out.Write(buf[plain:n])
		switch {
		case werr != nil:
			return werr
		case err == io.EOF: //nolint:errorlint // io.Reader returns it bare
			return nil
		case err != nil:
			return err
		}
	}
}

// EncodedSize estimates what an event with a body of that many bytes adds to a
// batch, without reading the body. It allows for base64, which
// makes four bytes of three, and for the escapes of usual text; a text of control
// characters can be larger.
func EncodedSize(e *Event, body int64) int64 {
	const frame = 128
	n := frame + int64(len(e.ID)+len(e.ContentType)) + body + body/2
	for name, value := range e.Headers {
		n += int64(len(name)+len(value)) + 8
	}
	return n
}
