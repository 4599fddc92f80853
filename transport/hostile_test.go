package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

var protocols = []delivery.Protocol{delivery.ProtocolHTTP1, delivery.ProtocolHTTP2, delivery.ProtocolHTTP3}

// overEach runs a test for each protocol.
func overEach(t *testing.T, f func(t *testing.T, proto delivery.Protocol)) {
	for _, p := range protocols {
		t.Run(p.String(), func(t *testing.T) {
			t.Parallel()
			f(t, p)
		})
	}
}

func TestInformationalAnswersAreBounded(t *testing.T) {
	overEach(t, func(t *testing.T, proto delivery.Protocol) {
		var hits counter
		b := setup(t)
		open := opener(t, b, proto, hits.handler(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			n := max1xx
			if r.Header.Get("X-Storm") != "" {
				n = 100
			}
			for range n {
				w.WriteHeader(http.StatusEarlyHints)
			}
			ok200(w, r)
		}))
		if resp := roundTrip(t, open, 5*time.Second); resp.Status != 200 || string(resp.Body) != "ok" {
			t.Fatalf("a few hints: %+v", resp)
		}
		conn, ep := open()
		req := post(ep, "body")
		setHeader(req, "X-Storm", "1")
		_, err := conn.RoundTrip(within(t, 5*time.Second), req)
		wantSent(t, err, delivery.SentAmbiguous, delivery.CauseProtocol)
		hits.want(t, 2)
	})
}

func TestResponseHeadersAreCapped(t *testing.T) {
	overEach(t, func(t *testing.T, proto delivery.Protocol) {
		var hits counter
		b := setup(t)
		open := opener(t, b, proto, hits.handler(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			size := 30 << 10
			if r.Header.Get("X-Huge") != "" {
				size = 200 << 10
			}
			for i := range size >> 10 {
				w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("h", 1<<10))
			}
		}))
		if resp := roundTrip(t, open, 5*time.Second); len(resp.Header.Get("X-1")) != 1<<10 {
			t.Fatal("headers below the cap did not arrive")
		}
		conn, ep := open()
		req := post(ep, "body")
		setHeader(req, "X-Huge", "1")
		_, err := conn.RoundTrip(within(t, 5*time.Second), req)
		wantSent(t, err, delivery.SentAmbiguous, delivery.CauseProtocol)
		hits.want(t, 2)
	})
}

func TestBodyThatBreaksOffDoesNotUndoTheAnswer(t *testing.T) {
	overEach(t, func(t *testing.T, proto delivery.Protocol) {
		b := setup(t)
		open := opener(t, b, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, "partial")
			_ = http.NewResponseController(w).Flush()
			// A reset of HTTP/3 overtakes what was written just before it.
			<-time.After(100 * time.Millisecond)
			panic(http.ErrAbortHandler)
		}))
		resp := roundTrip(t, open, 5*time.Second)
		if resp.Status != 200 || string(resp.Body) != "partial" || !resp.Truncated || resp.BodyErr == nil {
			t.Fatalf("%+v", resp)
		}
		if s := b.tr.Stats(); s.InFlight != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// TestBodyJustAboveTheExcerptKeepsTheConnection: HTTP/1.1 has to read on to be
// reused, and does so up to a bound.
func TestBodyJustAboveTheExcerptKeepsTheConnection(t *testing.T) {
	for size, keeps := range map[int]bool{
		maxBodyExcerpt: true, maxBodyExcerpt + 1: true, maxBodyDrain - 1: true, 2 * maxBodyDrain: false,
	} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			for _, chunked := range []bool{false, true} {
				b := setup(t)
				open := opener(t, b, delivery.ProtocolHTTP1, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					if chunked {
						_ = http.NewResponseController(w).Flush()
					}
					_, _ = w.Write(bytes.Repeat([]byte("x"), size))
				}))
				resp := roundTrip(t, open, 5*time.Second)
				if len(resp.Body) != maxBodyExcerpt || resp.Truncated != (size > maxBodyExcerpt) || resp.BodyErr != nil {
					t.Fatalf("chunked %v: %d bytes, truncated %v, %v", chunked, len(resp.Body), resp.Truncated, resp.BodyErr)
				}
				eventually(t, "the connection is kept or closed", func() bool {
					s := b.tr.Stats()
					return s.HTTP1.Live == s.HTTP1.Idle && (s.HTTP1.Live == 1) == keeps
				})
			}
		})
	}
}

// TestStalledPeerDoesNotHoldTheCaller: the peer answers and then reads nothing,
// while the rest of the request fills every buffer on the way. The stack's write
// lock is held, and still the deadline is kept.
func TestStalledPeerDoesNotHoldTheCaller(t *testing.T) {
	b := setup(t)
	leave := make(chan struct{})
	peer := serveRawTCP(t, func(_ *rawTCP, conn net.Conn, _ int64) {
		if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		fr := http2.NewFramer(conn, conn)
		p := &http2Peer{Framer: fr, conn: conn}
		_ = p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		_ = p.WriteWindowUpdate(0, 1<<30)
		for {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			if f, ok := f.(*http2.DataFrame); ok {
				p.answer(f.StreamID, false, ":status", "200")
				<-leave
				return
			}
		}
	}, protoHTTP2)
	t.Cleanup(func() { close(leave) })
	ep := endpoint(peer.port)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	req := post(ep, "")
	const size = 64 << 20
	req.Body, req.Length = nil, size
	req.Open = func() (io.ReadCloser, error) { return io.NopCloser(io.LimitReader(zeros{}, size)), nil }
	conn := b.tcp(ctx, ep)
	started := time.Now()
	resp, err := conn.RoundTrip(ctx, req)
	if took := time.Since(started); took > 2*time.Second {
		t.Fatalf("the caller was held for %v", took)
	}
	if err != nil || resp.Status != 200 || resp.BodyErr == nil {
		t.Fatalf("%+v, %v", resp, err)
	}
	eventually(t, "the connection is closed", func() bool { return b.tr.Stats().HTTP2.Live == 0 })
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestPeerThatChangesProtocolIsLetGo: 101 is an answer, and its connection is not
// HTTP any more.
func TestPeerThatChangesProtocolIsLetGo(t *testing.T) {
	b := setup(t)
	peer := serveRawTCP(t, func(s *rawTCP, conn net.Conn, _ int64) {
		r := bufio.NewReader(conn)
		if s.readHTTP1(r) {
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n")
		}
		_, _ = r.ReadByte()
	})
	ep := plainEndpoint(peer.port)
	ctx := within(t, 5*time.Second)
	resp, err := b.tcp(ctx, ep).RoundTrip(ctx, post(ep, "body"))
	if err != nil || resp.Status != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", resp, err)
	}
	eventually(t, "the connection is closed", func() bool { return b.tr.Stats().HTTP1.Live == 0 })
}

// TestLeaseThatEndedSendsNothing: before, and at the last moment.
func TestLeaseThatEndedSendsNothing(t *testing.T) {
	overEach(t, func(t *testing.T, proto delivery.Protocol) {
		var hits counter
		b := setup(t)
		open := opener(t, b, proto, hits.handler(ok200))
		for _, validFor := range []int32{0, 1} {
			conn, ep := open()
			var asked atomic.Int32
			req := post(ep, "body")
			req.Valid = func() bool { return asked.Add(1) <= validFor }
			_, err := conn.RoundTrip(within(t, 5*time.Second), req)
			wantSent(t, err, delivery.SentNever, delivery.CauseShutdown)
			if asked.Load() != validFor+1 {
				t.Fatalf("asked %d times", asked.Load())
			}
		}
		hits.want(t, 0)
		roundTrip(t, open, 5*time.Second)
		hits.want(t, 1)
	})
}

// brokenFile fails where its reader ends.
type brokenFile struct{ good io.Reader }

func (f brokenFile) Read(p []byte) (int, error) {
	n, err := f.good.Read(p)
	if errors.Is(err, io.EOF) {
		return n, errors.New("disk on fire")
	}
	return n, err
}

type countedClose struct {
	io.Reader
	closed *atomic.Int64
}

func (c countedClose) Close() error { c.closed.Add(1); return nil }

// TestBodyThatCannotBeReadIsOurOwnFault: not opened means never sent; broken off
// means that a part has left.
func TestBodyThatCannotBeReadIsOurOwnFault(t *testing.T) {
	overEach(t, func(t *testing.T, proto delivery.Protocol) {
		var whole atomic.Int64
		b := setup(t)
		open := opener(t, b, proto, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if n, err := io.Copy(io.Discard, r.Body); err == nil && n > 0 {
				whole.Add(1)
			}
		}))
		conn, ep := open()
		req := post(ep, "")
		req.Body, req.Length = nil, 1<<20
		req.Open = func() (io.ReadCloser, error) { return nil, errors.New("no such file") }
		_, err := conn.RoundTrip(within(t, 5*time.Second), req)
		wantSent(t, err, delivery.SentNever, delivery.CauseLocal)

		for name, file := range map[string]func() io.Reader{
			"breaks off":   func() io.Reader { return brokenFile{io.LimitReader(zeros{}, 100<<10)} },
			"is too short": func() io.Reader { return io.LimitReader(zeros{}, 1<<20-1) },
			"is too long":  func() io.Reader { return io.LimitReader(zeros{}, 1<<20+1) },
		} {
			var closed atomic.Int64
			conn, _ = open()
			req.Open = func() (io.ReadCloser, error) { return countedClose{file(), &closed}, nil }
			_, err = conn.RoundTrip(within(t, 5*time.Second), req)
			if se := sendError(t, err); se.Sent != delivery.SentAmbiguous || se.Cause != delivery.CauseLocal {
				t.Fatalf("%s: %v, %v (%s)", name, se.Sent, se.Cause, se.Detail)
			}
			if closed.Load() != 1 {
				t.Fatalf("%s: the file was closed %d times", name, closed.Load())
			}
		}
		if whole.Load() != 0 {
			t.Fatal("the peer took half a body for a whole one")
		}
		roundTrip(t, open, 5*time.Second)
	})
}
