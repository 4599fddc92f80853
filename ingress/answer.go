package ingress

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"time"
)

// success is the answer to an event that is durable.
type success struct {
	Status string `json:"status"`
	ID     string `json:"id"`
}

// problem is the answer to a refused request, an RFC 9457 problem document.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Reason string `json:"reason"`
}

// drainLimit is how much of a body that nobody wants is read so that the
// connection can be used again; drainTimeout is for how long. A handshake costs
// more than a small body, and a large body more than a handshake.
const (
	drainLimit   = 64 << 10
	drainTimeout = 2 * time.Second
	writeTimeout = 5 * time.Second
)

// answer writes the response and returns its status.
func (x *exchange) answer(v verdict) int {
	x.abandonBody(v.outcome)
	_ = x.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	h := x.w.Header()
	h.Set("Cache-Control", "no-store")
	if v.reply != nil {
		v.reply.ServeHTTP(x.w, x.r)
		return v.reply.Status
	}
	status := v.outcome.Status()
	var body any = success{v.outcome.String(), v.id}
	h.Set("Content-Type", "application/json")
	if !v.outcome.Stored() {
		h.Set("Content-Type", "application/problem+json")
		detail := v.detail
		if detail == "" {
			detail = outcomes[v.outcome].title
		}
		body = problem{"about:blank", http.StatusText(status), status, detail, v.outcome.String()}
		x.hint(h, v, status)
	}
	text, err := json.Marshal(body)
	if err != nil {
		text = nil // two structs of strings cannot fail
	}
	text = append(text, '\n')
	h.Set("Content-Length", strconv.Itoa(len(text)))
	x.w.WriteHeader(status)
	_, _ = x.w.Write(text) // a sender that left asks again
	return status
}

// hint sets the headers that tell a sender what to do.
func (x *exchange) hint(h http.Header, v verdict, status int) {
	switch status {
	case http.StatusMethodNotAllowed:
		h.Set("Allow", http.MethodPost)
	case http.StatusTooManyRequests:
		h.Set("Retry-After", seconds(v.retryAfter))
	case http.StatusServiceUnavailable:
		h.Set("Retry-After", seconds(x.in.cfg.RetryAfter))
	case http.StatusUnsupportedMediaType:
		if v.outcome == OutcomeContentEncoding {
			h.Set("Accept-Encoding", x.acceptEncoding()) // RFC 9110 section 12.5.3
		}
	}
}

func (x *exchange) acceptEncoding() string {
	if x.source.Decompress {
		return "gzip, zstd"
	}
	return "identity"
}

// seconds rounds up: a sender that comes back too early is refused again.
func seconds(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}

// abandonBody bounds what the rest of a body may cost that was not read to its
// end. net/http reads some of it before it answers over HTTP/1; HTTP/2 and
// HTTP/3 reset the stream instead.
func (x *exchange) abandonBody(o Outcome) {
	if x.r.ProtoMajor != 1 || x.r.ContentLength == 0 || x.received != nil && x.received.ended {
		return
	}
	wait := drainTimeout
	// Who was too slow gets no more time, and who waits to be asked sends nothing.
	if o == OutcomeBodyTimeout || x.received == nil && x.r.Header.Get("Expect") != "" {
		wait = 0
	}
	_ = x.conn.SetReadDeadline(time.Now().Add(wait))
	if x.received != nil || x.r.ContentLength < 0 || x.r.ContentLength > drainLimit {
		x.w.Header().Set("Connection", "close")
	}
}
