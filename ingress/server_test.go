package ingress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
	"github.com/dispatcher-engine/dispatcher/signing"
)

// guard is far longer than anything that is waited for: it only keeps a broken
// test from hanging.
const guard = 20 * time.Second

// authority makes certificates for 127.0.0.1.
func authority(t *testing.T) *testnet.CA {
	t.Helper()
	ca, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// writeCertificate writes a fresh key pair and returns the files' names.
func writeCertificate(t *testing.T, ca *testnet.CA, dir string, leaf testnet.Leaf) (certFile, keyFile string) {
	t.Helper()
	leaf.Names = []string{"127.0.0.1"}
	cert, err := ca.Issue(leaf)
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := testnet.EncodeKeyPair(cert)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, data := range map[string][]byte{certFile: certPEM, keyFile: keyPEM} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// listening is a node with its listeners open, on free ports.
type listening struct {
	*node
	ca *testnet.CA // nil without TLS
}

func listen(t *testing.T, cfg Config, secure bool) *listening {
	t.Helper()
	l := &listening{}
	cfg.Addr = "127.0.0.1:0"
	if cfg.KernelEvery == 0 {
		cfg.KernelEvery = -1
	}
	if secure {
		l.ca = authority(t)
		cfg.CertFile, cfg.KeyFile = writeCertificate(t, l.ca, t.TempDir(), testnet.Leaf{})
	}
	l.node = setup(t, cfg)
	if err := l.in.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l
}

// client speaks one protocol: "h1", "h2" or "h3".
func (l *listening) client(proto string) *http.Client {
	l.t.Helper()
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if l.ca != nil {
		conf.RootCAs = l.ca.Pool()
	}
	if proto == "h3" {
		tr := &http3.Transport{TLSClientConfig: conf}
		l.t.Cleanup(func() { _ = tr.Close() })
		return &http.Client{Transport: tr, Timeout: guard}
	}
	tr := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: proto == "h2", MaxIdleConnsPerHost: 100}
	l.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: guard}
}

// send posts a body and returns the answer, read to its end.
func (l *listening) send(c *http.Client, source string, h http.Header, body io.Reader) (*http.Response, error) {
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, l.in.URL("acme", source), body)
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Header, h)
	resp, err := c.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, err
}

func (l *listening) mustSend(c *http.Client, source string, h http.Header, body io.Reader) *http.Response {
	l.t.Helper()
	resp, err := l.send(c, source, h, body)
	if err != nil {
		l.t.Fatal(err)
	}
	return resp
}

func TestEventsArriveOverEveryProtocolAndHTTP3IsAdvertised(t *testing.T) {
	l := listen(t, Config{}, true)
	for i, proto := range []string{"h1", "h2", "h3"} {
		c := l.client(proto)
		resp := l.mustSend(c, "standard", genuine(t, "msg_"+proto, vectorBody), bytes.NewReader(vectorBody))
		if resp.StatusCode != http.StatusAccepted || resp.ProtoMajor != i+1 {
			t.Errorf("%s: %d over HTTP/%d", proto, resp.StatusCode, resp.ProtoMajor)
		}
		want := ""
		if proto != "h3" {
			want = fmt.Sprintf(`h3=":%d"; ma=86400`, l.in.Addr().Port())
		}
		if got := resp.Header.Get("Alt-Svc"); got != want {
			t.Errorf("%s: Alt-Svc %q, want %q", proto, got, want)
		}
		if got := l.last().Protocol; got != []delivery.Protocol{delivery.ProtocolHTTP1, delivery.ProtocolHTTP2, delivery.ProtocolHTTP3}[i] {
			t.Errorf("%s is reported as %v", proto, got)
		}
		resp = l.mustSend(c, "standard", genuine(t, "msg_bad", vectorBody), strings.NewReader("other"))
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: a forged one: %d", proto, resp.StatusCode)
		}
	}
}

func TestWithoutACertificateHTTP1IsServedAndNothingAdvertised(t *testing.T) {
	l := listen(t, Config{}, false)
	resp := l.mustSend(l.client("h1"), "standard", genuine(t, "msg_1", vectorBody), bytes.NewReader(vectorBody))
	if resp.StatusCode != http.StatusAccepted || resp.Header.Get("Alt-Svc") != "" || resp.ProtoMajor != 1 {
		t.Errorf("%d, Alt-Svc %q", resp.StatusCode, resp.Header.Get("Alt-Svc"))
	}
}

func TestHTTP3CanBeOffAndItsPortMapped(t *testing.T) {
	l := listen(t, Config{DisableHTTP3: true}, true)
	resp := l.mustSend(l.client("h2"), "nobody", nil, nil)
	if resp.Header.Get("Alt-Svc") != "" {
		t.Errorf("Alt-Svc %q", resp.Header.Get("Alt-Svc"))
	}
	mapped := listen(t, Config{AltSvcPort: 443, AltSvcMaxAge: time.Hour}, true)
	resp = mapped.mustSend(mapped.client("h2"), "nobody", nil, nil)
	if got := resp.Header.Get("Alt-Svc"); got != `h3=":443"; ma=3600` {
		t.Errorf("Alt-Svc %q", got)
	}
}

func TestFiftyCopiesOverEveryProtocolGiveOneRow(t *testing.T) {
	l := listen(t, Config{}, true)
	clients := []*http.Client{l.client("h1"), l.client("h2"), l.client("h3")}
	h := genuine(t, "msg_copy", vectorBody)
	codes := make([]int, 50)
	var wg sync.WaitGroup
	for i := range codes {
		wg.Go(func() {
			resp, err := l.send(clients[i%len(clients)], "standard", h, bytes.NewReader(vectorBody))
			if err != nil {
				t.Error(err)
				return
			}
			codes[i] = resp.StatusCode
		})
	}
	wg.Wait()
	for i, code := range codes {
		if code/100 != 2 {
			t.Errorf("copy %d: %d", i, code)
		}
	}
	if rows := len(l.store.stored()); rows != 1 {
		t.Errorf("%d rows", rows)
	}
}

// dialRaw opens a connection that says what it is told.
func (l *listening) dialRaw() net.Conn {
	l.t.Helper()
	conn, err := net.Dial("tcp", l.in.Addr().String())
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(guard)); err != nil {
		l.t.Fatal(err)
	}
	return conn
}

// ends reads until the other side closes and returns what it said.
func ends(t *testing.T, conn net.Conn) string {
	t.Helper()
	text, err := io.ReadAll(conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection is still open; it said %.200q", text)
	}
	return string(text)
}

func TestClientsThatSendSlowlyAreCutAndOthersServed(t *testing.T) {
	l := listen(t, Config{HeaderTimeout: 300 * time.Millisecond, BodyTimeout: 300 * time.Millisecond, IdleTimeout: 300 * time.Millisecond}, false)
	slow := map[string]string{
		"nothing":       "",
		"half a line":   "POST /webhook/acme/git",
		"half headers":  "POST /webhook/acme/github HTTP/1.1\r\nHost: x\r\nX-A: b",
		"no body":       "POST /webhook/acme/github HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: sha256=" + strings.Repeat("0", 64) + "\r\nContent-Length: 100\r\n\r\n",
		"half a body":   "POST /webhook/acme/github HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: sha256=" + strings.Repeat("0", 64) + "\r\nContent-Length: 100\r\n\r\nabc",
		"half a chunk":  "POST /webhook/acme/github HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: sha256=" + strings.Repeat("0", 64) + "\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
		"refused early": "POST /webhook/acme/nobody HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc",
		"idle":          "POST /webhook/acme/nobody HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
	}
	conns := map[string][]net.Conn{}
	for name, text := range slow {
		for range 5 {
			conn := l.dialRaw()
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			conns[name] = append(conns[name], conn)
		}
	}
	resp := l.mustSend(l.client("h1"), "standard", genuine(t, "msg_1", vectorBody), bytes.NewReader(vectorBody))
	if resp.StatusCode != http.StatusAccepted {
		t.Errorf("meanwhile: %d", resp.StatusCode)
	}
	for name, list := range conns {
		for _, conn := range list {
			said := ends(t, conn)
			if strings.Contains(name, "body") || strings.Contains(name, "chunk") {
				if !strings.HasPrefix(said, "HTTP/1.1 408 ") {
					t.Errorf("%s: said %.100q", name, said)
				}
			}
		}
	}
	if got := l.count(OutcomeBodyTimeout); got != 15 {
		t.Errorf("%d body timeouts, want 15", got)
	}
}

func TestSlowBodiesAreCutOverHTTP2AndHTTP3(t *testing.T) {
	l := listen(t, Config{BodyTimeout: 300 * time.Millisecond}, true)
	for _, proto := range []string{"h2", "h3"} {
		body, feed := io.Pipe()
		t.Cleanup(func() { _ = feed.Close() })
		go func() { _, _ = io.WriteString(feed, "abc") }() // and never more
		h := http.Header{"X-Hub-Signature-256": {"sha256=" + strings.Repeat("0", 64)}}
		resp, err := l.send(l.client(proto), "github", h, body)
		if err != nil || resp.StatusCode != http.StatusRequestTimeout {
			t.Errorf("%s: %v, %v", proto, resp, err)
		}
	}
}

// A client that opens a stream, sends no headers and keeps the connection alive
// with pings is idle to us, though not to QUIC.
func TestQUICConnectionWithoutRequestsIsClosed(t *testing.T) {
	l := listen(t, Config{IdleTimeout: 500 * time.Millisecond}, true)
	conn, err := quic.DialAddr(t.Context(), l.in.Addr().String(),
		&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: l.ca.Pool(), NextProtos: []string{http3.NextProtoH3}},
		&quic.Config{KeepAlivePeriod: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseWithError(0, "") }()
	str, err := conn.OpenStreamSync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := str.Write([]byte{1}); err != nil { // the type of a HEADERS frame, and no more
		t.Fatal(err)
	}
	select {
	case <-conn.Context().Done():
	case <-time.After(guard):
		t.Fatal("the connection is still open")
	}
	if e, ok := errors.AsType[*quic.ApplicationError](context.Cause(conn.Context())); !ok || !e.Remote {
		t.Errorf("closed by %v", context.Cause(conn.Context()))
	}
}

func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	l := listen(t, Config{}, false)
	for _, c := range []struct{ path, length, want string }{
		{"/webhook/acme/nobody", "20000000", "404"},
		{"/webhook/acme/github", "20000000", "413"},
		{"/webhook/acme/github", "99999999999", "413"},
		{"/webhook/acme/github", "1000000", "401"},
	} {
		conn := l.dialRaw()
		if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %s\r\n\r\n", c.path, c.length); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 "+c.want+" ") {
			t.Errorf("%s, %s bytes: %q, %v, want %s", c.path, c.length, line, err, c.want)
		}
		_ = conn.Close()
	}
}

func TestBodyIsAskedForOnlyWhenItIsWanted(t *testing.T) {
	l := listen(t, Config{}, false)
	refused := l.dialRaw()
	if _, err := io.WriteString(refused, "POST /webhook/acme/github HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if said := ends(t, refused); !strings.HasPrefix(said, "HTTP/1.1 401 ") || strings.Contains(said, "100 Continue") {
		t.Errorf("unsigned: %.100q", said)
	}
	wanted := l.dialRaw()
	sig := signed(t, signing.GitHub, vectorSecret, "", []byte("0123456789"), time.Now()).Get("X-Hub-Signature-256")
	if _, err := fmt.Fprintf(wanted, "POST /webhook/acme/github HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nExpect: 100-continue\r\nX-Hub-Signature-256: %s\r\n\r\n", sig); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(wanted)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("signed: %q, %v", line, err)
	}
	if _, err := io.WriteString(wanted, "0123456789"); err != nil {
		t.Fatal(err)
	}
	_, _ = r.ReadString('\n')
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 202 ") {
		t.Errorf("signed: %q, %v", line, err)
	}
}

func TestOneAddressCannotHoldAllConnections(t *testing.T) {
	var mu sync.Mutex
	refused := map[ConnRefusal]int{}
	l := listen(t, Config{MaxConnsPerClient: 2, Observer: Observer{ConnRefused: func(c ConnRefusal) {
		mu.Lock()
		defer mu.Unlock()
		refused[c]++
	}}}, false)
	first, second := l.dialRaw(), l.dialRaw()
	// Both are known to be counted once they were answered.
	for _, conn := range []net.Conn{first, second} {
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 405 ") {
			t.Fatalf("%q, %v", line, err)
		}
	}
	if said := ends(t, l.dialRaw()); said != "" {
		t.Errorf("the third: %q", said)
	}
	mu.Lock()
	if refused[ConnClientLimit] != 1 {
		t.Errorf("counted %v", refused)
	}
	mu.Unlock()
	// When one leaves there is room for another.
	_ = first.Close()
	for deadline := time.Now().Add(guard); ; {
		conn := l.dialRaw()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if strings.HasPrefix(ends(t, conn), "HTTP/1.1 405 ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the place was not given back")
		}
	}
}

func TestQUICConnectionsAreBounded(t *testing.T) {
	refused := make(chan ConnRefusal, 100)
	l := listen(t, Config{MaxQUICConns: 1, Observer: Observer{ConnRefused: func(c ConnRefusal) {
		select {
		case refused <- c:
		default:
		}
	}}}, true)
	if resp := l.mustSend(l.client("h3"), "nobody", nil, nil); resp.StatusCode != http.StatusNotFound {
		t.Fatalf("the first: %d", resp.StatusCode)
	}
	ctx, cancel := context.WithTimeout(t.Context(), guard)
	defer cancel()
	_, err := quic.DialAddr(ctx, l.in.Addr().String(),
		&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: l.ca.Pool(), NextProtos: []string{http3.NextProtoH3}}, nil)
	if err == nil {
		t.Error("the second was let in")
	}
	if c := <-refused; c != ConnQUICLimit || c.String() != "quic_limit" {
		t.Errorf("refused for %v", c)
	}
}
