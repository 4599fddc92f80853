package transport

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestHTTP1AnswerBeforeTheWholeRequestCounts: a peer may refuse a large body by
// its head, and close; the answer stands, and the connection is not used again.
func TestHTTP1AnswerBeforeTheWholeRequestCounts(t *testing.T) {
	for name, then := range map[string]func(conn net.Conn, leave <-chan struct{}){
		"and closes":        func(net.Conn, <-chan struct{}) {},
		"and reads no more": func(_ net.Conn, leave <-chan struct{}) { <-leave },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			leave := make(chan struct{})
			defer close(leave)
			peer := serveRawTCP(t, func(_ *rawTCP, conn net.Conn, _ int64) {
				if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
					return
				}
				_, _ = io.WriteString(conn, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig")
				then(conn, leave)
			})
			ep := plainEndpoint(peer.port)
			ctx := within(t, 10*time.Second)
			resp, err := b.tcp(ctx, ep).RoundTrip(ctx, post(ep, strings.Repeat("x", 64<<20)))
			// A reset may overtake the answer in the kernel: then nothing is known.
			if err != nil && name == "and closes" {
				wantSent(t, err, delivery.SentAmbiguous, delivery.CauseReset)
			} else if err != nil || resp.Status != http.StatusRequestEntityTooLarge || string(resp.Body) != "big" {
				t.Fatalf("%+v, %v", resp, err)
			}
			eventually(t, "the connection is closed", func() bool { return b.tr.Stats().HTTP1.Live == 0 })
		})
	}
}

func TestHTTP1LargeBodyArrivesWhole(t *testing.T) {
	for _, size := range []int{oneWrite, oneWrite + 1, 3 << 20} {
		body := strings.Repeat("0123456789abcdef", size/16+1)[:size]
		got := make(chan []byte, 1)
		b := setup(t)
		open := opener(t, b, delivery.ProtocolHTTP1, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			read, _ := io.ReadAll(r.Body)
			got <- read
		}))
		ctx := within(t, 10*time.Second)
		conn, ep := open()
		resp, err := conn.RoundTrip(ctx, post(ep, body))
		if err != nil || resp.Status != 200 || resp.BytesSent != int64(size) {
			t.Fatalf("%d bytes: %+v, %v", size, resp, err)
		}
		if !bytes.Equal(<-got, []byte(body)) {
			t.Fatalf("%d bytes: the body is another", size)
		}
		again, warm := b.tr.Warm(ep, Want{TCP: TCPOptions{Protocol: delivery.ProtocolHTTP1}})
		if !warm {
			t.Fatalf("%d bytes: the connection was not kept", size)
		}
		again.Release()
	}
}

// TestHTTP1UnaskedBytesEndTheConnection: what lies in the connection when a
// request begins would be taken for its answer.
func TestHTTP1UnaskedBytesEndTheConnection(t *testing.T) {
	const answer = "HTTP/1.1 204 No Content\r\n\r\n"
	for name, extra := range map[string]string{"with the answer": answer, "later": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			more := make(chan struct{})
			peer := serveRawTCP(t, func(s *rawTCP, conn net.Conn, _ int64) {
				if !s.readHTTP1(bufio.NewReader(conn)) {
					return
				}
				_, _ = io.WriteString(conn, answer+extra)
				<-more
				_, _ = io.WriteString(conn, answer)
				_, _ = conn.Read(make([]byte, 1))
			})
			ep := plainEndpoint(peer.port)
			ctx := within(t, 5*time.Second)
			conn := b.tcp(ctx, ep)
			if resp, err := conn.RoundTrip(ctx, post(ep, "x")); err != nil || resp.Status != http.StatusNoContent {
				t.Fatalf("%+v, %v", resp, err)
			}
			close(more)
			eventually(t, "the connection is closed", func() bool { return conn.link.dead.Load() })
			if _, warm := b.tr.Warm(ep, Want{}); warm {
				t.Fatal("it is still handed out")
			}
		})
	}
}

func TestHTTP1HeadIsTheSameEveryTimeAndLeavesFramingToUs(t *testing.T) {
	req := &delivery.Request{Path: "//a/%2e?b=%20", Host: "h.test:8443", Length: 7, Headers: []delivery.Header{
		{Name: "User-Agent"}, {Name: "Content-Length", Value: "1"}, {Name: "Transfer-Encoding", Value: "chunked"},
		{Name: "Host", Value: "other"}, {Name: "Trailer", Value: "X"}, {Name: "Webhook-Signature", Value: "v1,a v1,b"},
		{Name: "X-Two", Value: "1"}, {Name: "X-Two", Value: "2"}, {Name: "Accept-Encoding", Value: "gzip"}, {Name: "Alt-Used", Value: "x"},
	}}
	const want = "POST //a/%2e?b=%20 HTTP/1.1\r\nHost: h.test:8443\r\nContent-Length: 7\r\nAccept-Encoding: identity\r\n" +
		"Webhook-Signature: v1,a v1,b\r\nX-Two: 1\r\nX-Two: 2\r\n\r\n"
	for range 10 {
		got, err := appendHead(nil, req)
		if err != nil || string(got) != want {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

// FuzzHTTP1Head: whatever a subscriber's URL and headers are, the head is refused
// or it is exactly one request with the fields that were given.
func FuzzHTTP1Head(f *testing.F) {
	f.Add("/hook?x=1", "h.test", "X-A", "b")
	f.Add("/a b", "h.test\r\nX: y", "X\r\nY", "v\r\nEvil: 1")
	f.Add("/\x00", "", "Content-Length", "3")
	f.Fuzz(func(t *testing.T, path, host, name, value string) {
		given := &delivery.Request{Path: path, Host: host, Headers: []delivery.Header{{Name: name, Value: value}}}
		head, err := appendHead(nil, given)
		if err != nil {
			return
		}
		lines := strings.Split(string(head), "\r\n")
		if n := len(lines); n < 6 || n > 7 || lines[n-1] != "" || lines[n-2] != "" {
			t.Fatalf("%q", head)
		}
		r := bufio.NewReader(bytes.NewReader(head))
		req, err := http.ReadRequest(r)
		if err != nil {
			// net/http's server is stricter about targets and hosts than its client.
			if !strings.Contains(err.Error(), "invalid URI") && !strings.Contains(err.Error(), "parse") && !strings.Contains(err.Error(), "malformed Host") {
				t.Fatalf("%q: %v", head, err)
			}
			return
		}
		if _, err := r.ReadByte(); err != io.EOF {
			t.Fatalf("%q: there is something behind it", head)
		}
		names := []string{"Content-Length", "Accept-Encoding", http.CanonicalHeaderKey(name)}
		for got := range req.Header {
			if !slices.Contains(names, got) {
				t.Fatalf("%q has field %q", head, got)
			}
		}
	})
}
