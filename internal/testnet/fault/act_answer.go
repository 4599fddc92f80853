package fault

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// answerNow sends the healthy answer from where the request is.
func (x *exchange) answerNow() {
	if x.process() {
		x.reply(x.s.config.Status, x.s.healthyFields(x.proto), []byte("ok"))
	}
}

// interim is a status that an informational answer can have; 101 would change
// the protocol.
func interim(n uint64) int {
	if n < 100 || n > 199 || n == http.StatusSwitchingProtocols {
		return http.StatusEarlyHints
	}
	return int(n) //nolint:gosec // three digits
}

func actStorm(x *exchange, f Fault) {
	if !x.process() {
		return
	}
	h := head{status: interim(f.num("status")), fields: []field{{"link", "</style.css>; rel=preload"}}, length: -1}
	for range f.count("count") {
		if x.head(h) != nil {
			return
		}
	}
	x.answerNow()
}

func actHeaderFlood(x *exchange, f Fault) {
	if !x.process() {
		return
	}
	value := strings.Repeat("v", f.count("size"))
	fields := make([]field, f.count("count"))
	for i := range fields {
		fields[i] = field{"x-flood-" + strconv.Itoa(i), value}
	}
	x.reply(http.StatusOK, fields, []byte("ok"))
}

func actHugeHeader(x *exchange, f Fault) {
	if x.process() {
		x.reply(http.StatusOK, []field{{"x-huge", strings.Repeat("v", f.count("size"))}}, []byte("ok"))
	}
}

func actDripHeaders(x *exchange, f Fault) {
	if !x.process() || x.head(head{status: http.StatusOK, length: 2, drip: f.dur("interval")}) != nil {
		return
	}
	x.status = http.StatusOK
	if x.data([]byte("ok")) == nil {
		_ = x.end() // the peer may have left
	}
}

// begin sends 200 and a head without an end.
func (x *exchange) begin(length int64, fields ...field) bool {
	if !x.process() || x.head(head{status: http.StatusOK, fields: fields, length: length}) != nil {
		return false
	}
	x.status = http.StatusOK
	return true
}

func actDripBody(x *exchange, f Fault) {
	for ok := x.begin(-1); ok; ok = x.pause(f.dur("interval")) {
		if x.data([]byte{'.'}) != nil {
			return
		}
	}
}

func actEndlessBody(x *exchange, _ Fault) {
	if !x.begin(-1) {
		return
	}
	for chunk := bytes.Repeat([]byte{'.'}, 16<<10); x.data(chunk) == nil; {
	}
}

func actTruncatedBody(x *exchange, f Fault) {
	announced := f.num("announced")
	sent := min(f.num("sent"), announced)
	if x.begin(int64(announced)) && //nolint:gosec // parsed below 2^62
		x.data(bytes.Repeat([]byte{'.'}, int(sent))) == nil { //nolint:gosec // a test's own number
		_ = x.end() // too early is the point
	}
}

func actResetAfterHeaders(x *exchange, f Fault) {
	code := f.num("code")
	switch {
	case code == 0 && x.proto == delivery.ProtocolHTTP3:
		code = h3InternalError
	case code == 0:
		code = h2InternalError
	}
	if x.begin(1000) && x.data([]byte("begun")) == nil && x.pause(flight) {
		x.resetWith(code)
	}
}

// flight is long enough for what was written to be on its way: a reset drops
// what a stream has not sent yet.
const flight = 100 * time.Millisecond

func actEarlyAnswer(x *exchange, _ Fault) {
	x.mu.Lock()
	x.runLocked() // it decided without the body
	x.mu.Unlock()
	x.status = http.StatusOK
	if x.head(head{status: http.StatusOK, length: 2}) == nil && x.data([]byte("ok")) == nil {
		_ = x.endEarly() // the peer may have left
	}
}

func actGzipBomb(x *exchange, f Fault) {
	if x.process() {
		x.reply(http.StatusOK, []field{{"content-encoding", "gzip"}}, bomb(f.num("size")))
	}
}

// bombUnit is what one member of a gzip bomb expands to.
const bombUnit = 1 << 20

// bombMember is that many zeroes, a thousandth of it when compressed.
var bombMember = sync.OnceValue(func() []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(make([]byte, bombUnit)) // into memory
	_ = z.Close()                          // into memory
	return out.Bytes()
})

// bomb expands to size bytes at least: members of gzip may follow each other
// (RFC 1952 section 2.2).
func bomb(size uint64) []byte {
	const most = 64 << 10                                                         // 64 GiB
	return bytes.Repeat(bombMember(), int(min((size+bombUnit-1)/bombUnit, most))) //nolint:gosec // bounded
}

func actDoubleAnswer(x *exchange, _ Fault) {
	x.answerNow()
	x.reply(http.StatusOK, []field{{"x-second", "true"}}, []byte("not asked for"))
}

func actConnectionClose(x *exchange, _ Fault) {
	if x.process() {
		x.reply(x.s.config.Status, []field{{"connection", "close"}}, []byte("ok"))
	}
}

// actStatus answers with a status that says "not processed".
func actStatus(status int) func(*exchange, Fault) {
	return func(x *exchange, f Fault) {
		if f.is("when", "before") && !x.read() || !x.until(f) {
			return
		}
		x.refuse()
		x.reply(status, x.s.healthyFields(x.proto), nil)
	}
}

// final is a status that an answer can have.
func final(n uint64) int {
	if n < 200 || n > 999 {
		return http.StatusInternalServerError
	}
	return int(n)
}

func actAnyStatus(x *exchange, f Fault) {
	if x.process() {
		x.reply(final(f.num("status")), x.s.healthyFields(x.proto), []byte("status"))
	}
}

func actRedirect(x *exchange, f Fault) {
	if x.process() {
		x.reply(final(f.num("status")), []field{{"location", oneLine(f.word("location"))}}, nil)
	}
}

// oneLine keeps a field inside its line: a fault is not to be a request
// splitter by accident.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s)
}

// retryAfterForms are the values that real servers send, and some that no
// server should.
var retryAfterForms = []string{
	"seconds", "imf-date", "rfc850-date", "asctime-date", "past-date", "zero", "negative", "float", "plus", "exponent", "huge", "words", "empty",
}

func actRetryAfter(x *exchange, f Fault) {
	if !x.process() {
		return
	}
	value := retryAfter(f.word("form"), f.num("seconds"), time.Now().UTC())
	fields := append(x.s.healthyFields(x.proto), field{"retry-after", value},
		field{"date", time.Now().UTC().Format(http.TimeFormat)})
	x.reply(final(f.num("status")), fields, nil)
}

func retryAfter(form string, seconds uint64, now time.Time) string {
	wait := time.Duration(min(seconds, 1<<30)) * time.Second //nolint:gosec // bounded
	switch form {
	case "imf-date":
		return now.Add(wait).Format(http.TimeFormat)
	case "rfc850-date":
		return now.Add(wait).Format("Monday, 02-Jan-06 15:04:05 GMT")
	case "asctime-date":
		return now.Add(wait).Format(time.ANSIC)
	case "past-date":
		return now.Add(-wait - time.Hour).Format(http.TimeFormat)
	case "zero":
		return "0"
	case "negative":
		return "-3"
	case "float":
		return "1.5"
	case "plus":
		return "+3"
	case "exponent":
		return "1e300"
	case "huge":
		return strings.Repeat("9", 40)
	case "words":
		return "soon"
	case "empty":
		return ""
	default:
		return strconv.FormatUint(seconds, 10)
	}
}

// altSvcForms are variants of RFC 7838's field.
var altSvcForms = []string{
	"h3", "clear", "clear-lower-than-h3", "short", "quoted-ma", "persist", "draft-first", "other-port", "other-host", "literal-host",
	"many", "no-value", "garbage", "empty", "value",
}

func actAltSvc(x *exchange, f Fault) {
	if !x.process() {
		return
	}
	value := altSvc(f.word("form"), x.s.Port())
	if f.is("form", "value") {
		value = oneLine(f.word("value"))
	}
	x.reply(http.StatusOK, []field{{"alt-svc", value}}, []byte("ok"))
}

func altSvc(form string, port int) string {
	own := fmt.Sprintf(`h3=":%d"`, port)
	switch form {
	case "clear":
		return "clear"
	case "clear-lower-than-h3":
		return own + "; ma=60, clear"
	case "short":
		return own + "; ma=1"
	case "quoted-ma":
		return own + `; ma="3600"; persist="1"`
	case "persist":
		return own + "; persist=1"
	case "draft-first":
		return `h3-29=":1", ` + own
	case "other-port":
		return `h3=":1"; ma=60`
	case "other-host":
		return `h3="elsewhere.invalid:443"; ma=60`
	case "literal-host":
		return fmt.Sprintf(`h3="127.0.0.1:%d"; ma=60`, port)
	case "many":
		return strings.Repeat(`h3=":1"; ma=60, `, 100) + own
	case "no-value":
		return `h3, h3=, =":443"`
	case "garbage":
		return `;;,,"""\\h3=`
	case "empty":
		return ""
	default:
		return own + "; ma=86400"
	}
}
