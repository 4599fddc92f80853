package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http/httpguts"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Header values that are shared by all requests; nobody writes to them.
var (
	identityEncoding = []string{"identity"}
	noUserAgent      = []string{""} // suppresses the stacks' own, which differ
)

// checkHeaders refuses headers that belong to the connection: HTTP/3 would drop
// them silently and HTTP/1.1 would obey them.
func checkHeaders(headers []delivery.Header) error {
	for i := range headers {
		switch name := headers[i].Name; name {
		case "Connection", "Proxy-Connection", "Keep-Alive", "Upgrade", "Te", "Trailer", "Transfer-Encoding", "Expect":
			return fmt.Errorf("header %s belongs to the connection", name)
		}
	}
	return nil
}

// ours reports whether a header is what we alone say: no encoding of the answer is
// asked for (Accept-Encoding), and which alternative is in use (Alt-Used).
func ours(name string) bool { return name == "Accept-Encoding" || name == "Alt-Used" }

// stackHeader is the header as the stacks of HTTP/2 and HTTP/3 take it.
func stackHeader(req *delivery.Request, l *link) http.Header {
	header := make(http.Header, len(req.Headers)+3)
	values := make([]string, len(req.Headers)) // one array for all of them
	for i := range req.Headers {
		f := &req.Headers[i]
		if ours(f.Name) {
			continue
		}
		if before := header[f.Name]; before != nil {
			header[f.Name] = append(before, f.Value)
			continue
		}
		values[i] = f.Value
		header[f.Name] = values[i : i+1 : i+1]
	}
	header["Accept-Encoding"] = identityEncoding
	if header["User-Agent"] == nil {
		header["User-Agent"] = noUserAgent
	}
	if l.proto == delivery.ProtocolHTTP3 {
		header["Alt-Used"] = altUsedValue(req, l)
	}
	return header
}

// linkNames is what every request on a link says the same of it. Nobody writes to
// them.
type linkNames struct {
	authority string
	altUsed   []string
}

func (l *link) named() *linkNames {
	if n := l.names.Load(); n != nil {
		return n
	}
	n := &linkNames{authority: l.route.Origin.Authority(), altUsed: []string{l.alternative()}}
	l.names.Store(n) // whoever is at it at the same time makes the same
	return n
}

// altUsedValue names the alternative service in use (RFC 7838 section 5).
func altUsedValue(req *delivery.Request, l *link) []string {
	if req.AltUsed != "" {
		return []string{req.AltUsed}
	}
	return l.named().altUsed
}

// alternative is the authority of the alternative that the link leads to.
func (l *link) alternative() string {
	host := l.alt.Host
	if host == "" {
		host = l.route.Origin.Host
	}
	if l.alt.Port == 443 {
		if strings.Contains(host, ":") {
			return "[" + host + "]"
		}
		return host
	}
	return net.JoinHostPort(host, strconv.Itoa(int(l.alt.Port)))
}

// httpRequest builds what the protocol stacks take.
func (ex *exchange) httpRequest(ctx context.Context, l *link) (*http.Request, error) {
	req := ex.req
	u, err := requestURL(l.route.Origin.Scheme, l.named().authority, req.Path)
	if err != nil {
		return nil, err
	}
	r := blankPost.WithContext(ctx)
	r.URL, r.Header, r.Host, r.ContentLength = u, stackHeader(req, l), req.Host, req.Length
	if req.Length > 0 {
		r.Body = &ex.body
	}
	return r, nil
}

// blankPost is what every request begins as. Only a copy of a request can be given
// a context, so that copying this one spares another.
var blankPost = &http.Request{Method: http.MethodPost, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}

// requestURL keeps the target byte for byte as it was registered: an opaque URL
// is sent as it is, where a parsed one would be encoded anew.
func requestURL(scheme, authority, target string) (*url.URL, error) {
	if err := checkTarget(target); err != nil {
		return nil, err
	}
	u := &url.URL{Scheme: scheme, Host: authority, Opaque: target}
	if strings.HasPrefix(target, "//") {
		// An opaque target would become scheme-relative here.
		parsed, err := url.ParseRequestURI(target)
		if err != nil {
			return nil, errors.New("request target does not parse")
		}
		u.Opaque, u.Path, u.RawPath, u.RawQuery = "", parsed.Path, parsed.RawPath, parsed.RawQuery
		u.ForceQuery = parsed.ForceQuery
	}
	return u, nil
}

// checkTarget refuses what is no request target in origin form.
func checkTarget(target string) error {
	if target == "" || target[0] != '/' {
		return errors.New("request target does not begin with a slash")
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f {
			return errors.New("request target contains a space or control character")
		}
	}
	return nil
}

// invalidRequest looks for what a protocol stack refuses to encode. It is asked
// only after a failure, to tell our mistake from the network's.
func invalidRequest(req *delivery.Request) error {
	if !httpguts.ValidHostHeader(req.Host) {
		return errors.New("host is not valid")
	}
	for _, f := range req.Headers {
		if err := checkField(f); err != nil {
			return err
		}
	}
	return nil
}

// checkField refuses a field that cannot be encoded.
func checkField(f delivery.Header) error {
	if !httpguts.ValidHeaderFieldName(f.Name) {
		return fmt.Errorf("header name %q is not valid", f.Name)
	}
	if !httpguts.ValidHeaderFieldValue(f.Value) {
		return fmt.Errorf("value of header %s is not valid", f.Name) // it may be a secret
	}
	return nil
}

// requestBody feeds a request's body to a protocol stack: once, from memory or
// from a file. The stacks read on goroutines of their own and do not always close
// what they were given, so it can be ended from outside.
type requestBody struct {
	sent atomic.Int64

	mu   sync.Mutex
	rest []byte
	file io.ReadCloser // nil = from memory
	left int64         // of the file
	over bool
	fail error // of reading the file: our side's
}

// begin opens the body. It is done before anything is written: over HTTP/2 and
// HTTP/3 the headers leave before the body is read, and a file that cannot be
// opened would leave the peer with half a request.
func (b *requestBody) begin(req *delivery.Request) error {
	if req.Open == nil || req.Length == 0 {
		b.rest = req.Body
		return nil
	}
	file, err := req.Open()
	if err != nil {
		return fmt.Errorf("open body: %w", err)
	}
	b.file, b.left = file, req.Length
	return nil
}

// Read implements io.Reader.
func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, io.ErrClosedPipe
	}
	n, err := b.readLocked(p)
	b.sent.Add(int64(n))
	return n, err
}

func (b *requestBody) readLocked(p []byte) (int, error) {
	if b.file != nil {
		n, err := b.readFileLocked(p)
		if err != nil && !errors.Is(err, io.EOF) {
			b.fail = fmt.Errorf("read body: %w", err)
			return 0, b.fail
		}
		return n, err
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if len(b.rest) == 0 {
		return n, io.EOF // at once: it spares the stacks a second call
	}
	return n, nil
}

// readFileLocked reads on. A file that is not as long as was announced is an
// error before its last piece is handed out: a peer that answers without minding
// the length must not make a delivery of half a payload, or of something else.
func (b *requestBody) readFileLocked(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.file.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	switch {
	case b.left > 0 && errors.Is(err, io.EOF):
		return n, fmt.Errorf("%w: %d bytes are missing", io.ErrUnexpectedEOF, b.left)
	case b.left > 0 || err != nil && !errors.Is(err, io.EOF):
		return n, err
	}
	if more, _ := io.ReadFull(b.file, make([]byte, 1)); more > 0 {
		return n, errors.New("it is longer than announced")
	}
	return n, io.EOF
}

// Close implements io.Closer.
func (b *requestBody) Close() error {
	b.end()
	return nil
}

// end stops reading for good and closes the file.
func (b *requestBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.file != nil {
		_ = b.file.Close() // it was only read
		b.file, b.rest = nil, nil
	}
}

// failure returns what went wrong on our side.
func (b *requestBody) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fail
}
