package transport

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestHTTP2FailureSaysWhatThePeerProved holds the rows of HTTP/2, and pins what
// net/http makes of each frame.
func TestHTTP2FailureSaysWhatThePeerProved(t *testing.T) {
	reset := func(code http2.ErrCode) http2Script {
		return func(p *http2Peer, stream uint32) { _ = p.WriteRSTStream(stream, code) }
	}
	cases := []struct {
		name   string
		script http2Script
		sent   delivery.Sent
		cause  delivery.Cause
		keeps  bool
	}{
		{"REFUSED_STREAM", reset(http2.ErrCodeRefusedStream), delivery.SentRefused, delivery.CauseReset, true},
		{"PROTOCOL_ERROR", reset(http2.ErrCodeProtocol), delivery.SentAmbiguous, delivery.CauseReset, false},
		{"INTERNAL_ERROR", reset(http2.ErrCodeInternal), delivery.SentAmbiguous, delivery.CauseReset, true},
		{"CANCEL", reset(http2.ErrCodeCancel), delivery.SentAmbiguous, delivery.CauseReset, true},
		{"HTTP_1_1_REQUIRED", reset(http2.ErrCodeHTTP11Required), delivery.SentAmbiguous, delivery.CauseReset, true},
		{"GOAWAY below our id", func(p *http2Peer, _ uint32) {
			_ = p.WriteGoAway(0, http2.ErrCodeNo, nil)
		}, delivery.SentRefused, delivery.CauseGoAway, false},
		{"GOAWAY with an error below our first id", func(p *http2Peer, _ uint32) {
			_ = p.WriteGoAway(0, http2.ErrCodeEnhanceYourCalm, []byte("too\nmuch"))
		}, delivery.SentRefused, delivery.CauseGoAway, false},
		{"GOAWAY that includes us, then close", func(p *http2Peer, stream uint32) {
			_ = p.WriteGoAway(stream, http2.ErrCodeNo, nil)
			_ = p.conn.Close()
		}, delivery.SentAmbiguous, delivery.CauseReset, false},
		{"GOAWAY with an error that includes us, then close", func(p *http2Peer, stream uint32) {
			_ = p.WriteGoAway(stream, http2.ErrCodeInternal, nil)
			_ = p.conn.Close()
		}, delivery.SentAmbiguous, delivery.CauseReset, false},
		{"close", func(p *http2Peer, _ uint32) { _ = p.conn.Close() }, delivery.SentAmbiguous, delivery.CauseReset, false},
		{"no status", func(p *http2Peer, stream uint32) { p.answer(stream, true, "a", "b") }, delivery.SentAmbiguous, delivery.CauseProtocol, true},
		{"a frame for a stream that is idle", func(p *http2Peer, stream uint32) {
			_ = p.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, 0, nil)
		}, delivery.SentAmbiguous, delivery.CauseProtocol, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			peer := serveRawHTTP2(t, c.script)
			ep := endpoint(peer.port)
			ctx := within(t, 5*time.Second)
			conn := b.tcp(ctx, ep)
			if conn.Protocol() != delivery.ProtocolHTTP2 {
				t.Fatalf("the connection speaks %v", conn.Protocol())
			}
			_, err := conn.RoundTrip(ctx, post(ep, "body"))
			se := wantSent(t, err, c.sent, c.cause)
			if n := peer.whole.Load(); n != 1 {
				t.Fatalf("the peer got %d requests, want 1", n)
			}
			next, warm := b.tr.Warm(ep, Want{})
			if warm {
				next.Release()
			}
			if warm != c.keeps {
				t.Fatalf("the connection is warm: %v, want %v (%s)", warm, c.keeps, se.Detail)
			}
		})
	}
}

// TestHTTP1FailureIsAmbiguousOnceAByteLeft holds the rows of HTTP/1.1.
func TestHTTP1FailureIsAmbiguousOnceAByteLeft(t *testing.T) {
	answerOnce := func(s *rawTCP, conn net.Conn, then func(r *bufio.Reader)) {
		r := bufio.NewReader(conn)
		if s.readHTTP1(r) {
			_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
		}
		then(r)
	}
	cases := []struct {
		name   string
		script func(s *rawTCP, conn net.Conn, number int64)
		sent   delivery.Sent
		cause  delivery.Cause
		reads  int64
	}{
		{"closed after the second request", func(s *rawTCP, conn net.Conn, _ int64) {
			answerOnce(s, conn, func(r *bufio.Reader) { s.readHTTP1(r) })
		}, delivery.SentAmbiguous, delivery.CauseReset, 2},
		{"reset while the second request arrives", func(s *rawTCP, conn net.Conn, _ int64) {
			answerOnce(s, conn, func(r *bufio.Reader) {
				_, _ = r.ReadByte()
				_ = conn.(*net.TCPConn).SetLinger(0)
			})
		}, delivery.SentAmbiguous, delivery.CauseReset, 1},
		{"not HTTP", func(s *rawTCP, conn net.Conn, _ int64) {
			answerOnce(s, conn, func(r *bufio.Reader) {
				s.readHTTP1(r)
				_, _ = io.WriteString(conn, "220 mail.example ESMTP\r\n")
			})
		}, delivery.SentAmbiguous, delivery.CauseProtocol, 2},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			peer := serveRawTCP(t, c.script)
			ep := plainEndpoint(peer.port)
			ctx := within(t, 5*time.Second)
			if _, err := b.tcp(ctx, ep).RoundTrip(ctx, post(ep, "one")); err != nil {
				t.Fatal(err)
			}
			conn, warm := b.tr.Warm(ep, Want{})
			if !warm {
				t.Fatal("the connection was not kept")
			}
			if !conn.Reused() {
				t.Fatal("the connection does not know that it is reused")
			}
			_, err := conn.RoundTrip(ctx, post(ep, "two"))
			wantSent(t, err, c.sent, c.cause)
			if n := peer.whole.Load(); n != c.reads || peer.conns.Load() != 1 {
				t.Fatalf("the peer got %d whole requests on %d connections, want %d on 1", n, peer.conns.Load(), c.reads)
			}
			if _, warm := b.tr.Warm(ep, Want{}); warm {
				t.Fatal("a broken connection is warm")
			}
		})
	}
}

// TestHTTP1CloseBeforeAByteIsNeverSent: the slot was reserved, then the peer
// closed, and only then is the request to be written.
func TestHTTP1CloseBeforeAByteIsNeverSent(t *testing.T) {
	b := setup(t)
	leave := make(chan struct{})
	peer := serveRawTCP(t, func(_ *rawTCP, _ net.Conn, _ int64) { <-leave })
	ep := plainEndpoint(peer.port)
	ctx := within(t, 5*time.Second)
	conn := b.tcp(ctx, ep)
	close(leave)
	eventually(t, "the close was noticed", func() bool { return conn.link.dead.Load() })
	_, err := conn.RoundTrip(ctx, post(ep, "x"))
	wantSent(t, err, delivery.SentNever, delivery.CauseReset)
}

func TestTCPDialFailureIsNeverSent(t *testing.T) {
	closed := func(t *testing.T) int {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		return portOf(ln.Addr())
	}
	served := func(option serverOption) func(*testing.T) int {
		return func(t *testing.T) int {
			return serveTLS(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") }), option).port
		}
	}
	cases := []struct {
		name  string
		port  func(*testing.T) int
		opts  TCPOptions
		cause delivery.Cause
	}{
		{"closed port", closed, TCPOptions{}, delivery.CauseConnect},
		{"certificate for another name", served(func(s *http.Server) {
			s.TLSConfig.Certificates[0] = testCA().issue("other.test")
		}), TCPOptions{}, delivery.CauseTLS},
		{"only HTTP/1.1 where HTTP/2 was asked for", served(http1Only), TCPOptions{Protocol: delivery.ProtocolHTTP2}, delivery.CauseTLS},
		{"no common ALPN", func(t *testing.T) int {
			return serveRawTCP(t, func(*rawTCP, net.Conn, int64) { t.Error("the handshake succeeded") }, "other").port
		}, TCPOptions{}, delivery.CauseTLS},
		{"not TLS", func(t *testing.T) int {
			return serveRawTCP(t, func(_ *rawTCP, conn net.Conn, _ int64) { _, _ = io.WriteString(conn, "220 mail.example ESMTP\r\n") }).port
		}, TCPOptions{}, delivery.CauseTLS},
		{"closed during the TLS handshake", func(t *testing.T) int {
			return serveRawTCP(t, func(_ *rawTCP, conn net.Conn, _ int64) { _, _ = conn.Read(make([]byte, 1)) }).port
		}, TCPOptions{}, delivery.CauseConnect},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			_, err := b.tr.DialTCP(within(t, 5*time.Second), endpoint(c.port(t)), c.opts)
			wantSent(t, err, delivery.SentNever, c.cause)
		})
	}
}

// TestDeadlineBeforeAndAfterTheHeaders: before, the answer is unknown; after, it
// is known, whatever the body does.
func TestDeadlineBeforeAndAfterTheHeaders(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Query().Get("x") == "after" {
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	})
	for _, proto := range []delivery.Protocol{delivery.ProtocolHTTP1, delivery.ProtocolHTTP2, delivery.ProtocolHTTP3} {
		t.Run(proto.String(), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			open := opener(t, b, proto, handler)
			for _, path := range []string{"/hook?x=before", "/hook?x=after"} {
				conn, ep := open()
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				started := time.Now()
				req := post(ep, "body")
				req.Path = path
				resp, err := conn.RoundTrip(ctx, req)
				if took := time.Since(started); took < 250*time.Millisecond || took > 2*time.Second {
					t.Fatalf("%s: returned after %v", path, took)
				}
				if path == "/hook?x=before" {
					wantSent(t, err, delivery.SentAmbiguous, delivery.CauseTimeout)
					continue
				}
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				if resp.Status != 200 || string(resp.Body) != "begun" || !resp.Truncated || resp.BodyErr == nil {
					t.Fatalf("%s: %+v", path, resp)
				}
			}
			if s := b.tr.Stats(); s.InFlight != 0 {
				t.Fatalf("slots are still taken: %+v", s)
			}
		})
	}
}

// opener starts a server that speaks proto and returns what makes slots on it.
func opener(t *testing.T, b *bundle, proto delivery.Protocol, h http.Handler) func() (*Conn, delivery.Endpoint) {
	t.Helper()
	if proto == delivery.ProtocolHTTP3 {
		ep := endpoint(serveQUIC(t, h).port)
		return func() (*Conn, delivery.Endpoint) { return b.quic(within(t, 5*time.Second), ep), ep }
	}
	ep := endpoint(serveTLS(t, h).port)
	return func() (*Conn, delivery.Endpoint) {
		if c, ok := b.tr.Warm(ep, Want{TCP: TCPOptions{Protocol: proto}}); ok {
			return c, ep
		}
		c, err := b.tr.DialTCP(within(t, 5*time.Second), ep, TCPOptions{Protocol: proto})
		if err != nil {
			t.Fatal(err)
		}
		return c, ep
	}
}
