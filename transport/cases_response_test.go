package transport

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// roundTrip sends one request over a slot that open makes.
func roundTrip(t *testing.T, open func() (*Conn, delivery.Endpoint), d time.Duration) *delivery.Response {
	t.Helper()
	conn, ep := open()
	resp, err := conn.RoundTrip(within(t, d), post(ep, "body"))
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func redirectIsAnAnswer(t *testing.T, proto delivery.Protocol) {
	var hits counter
	b := setup(t)
	open := opener(t, b, proto, hits.handler(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.Header.Get("X-Status"))
		w.Header().Set("Location", "http://169.254.169.254/")
		w.WriteHeader(status)
	}))
	for i, status := range []int{301, 302, 303, 307, 308} {
		conn, ep := open()
		req := post(ep, "body")
		setHeader(req, "X-Status", strconv.Itoa(status))
		resp, err := conn.RoundTrip(within(t, 5*time.Second), req)
		if err != nil || resp.Status != status || resp.Header.Get("Location") != "http://169.254.169.254/" {
			t.Fatalf("%d: %+v, %v", status, resp, err)
		}
		hits.want(t, int64(i+1))
	}
	if b.guard.lookups != 1 {
		t.Fatalf("%d lookups: something was followed", b.guard.lookups)
	}
}

func emptyAnswerDoesNotWait(t *testing.T, proto delivery.Protocol) {
	var hits counter
	b := setup(t)
	open := opener(t, b, proto, hits.handler(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if hits.n.Load()%2 == 1 {
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	for i := range 4 {
		started := time.Now()
		resp := roundTrip(t, open, 5*time.Second)
		if want := []int{204, 200}[i%2]; resp.Status != want || resp.Body != nil || resp.Truncated || resp.BodyErr != nil {
			t.Fatalf("%+v", resp)
		}
		if took := time.Since(started); took > 3*time.Second {
			t.Fatalf("took %v", took)
		}
	}
	if live := b.tr.Stats(); live.HTTP1.Live+live.HTTP2.Live+live.HTTP3.Live != 1 {
		t.Fatalf("%+v", live)
	}
}

func goneIsAnAnswer(t *testing.T, proto delivery.Protocol) {
	b := setup(t)
	open := opener(t, b, proto, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	if resp := roundTrip(t, open, 5*time.Second); resp.Status != http.StatusGone {
		t.Fatalf("%+v", resp)
	}
}

// drip writes a byte now and then until the peer has had enough.
func drip(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	out := http.NewResponseController(w)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := io.WriteString(w, "."); err != nil {
			return
		}
		_ = out.Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

func drippingBodyIsCutAtTheDeadline(t *testing.T, proto delivery.Protocol) {
	b := setup(t)
	open := opener(t, b, proto, http.HandlerFunc(drip))
	conn, ep := open()
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	started := time.Now()
	resp, err := conn.RoundTrip(ctx, post(ep, "body"))
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(started); took < 350*time.Millisecond || took > 3*time.Second {
		t.Fatalf("returned after %v", took)
	}
	if resp.Status != 200 || !resp.Truncated || resp.BodyErr == nil || len(resp.Body) == 0 || resp.FirstByte > 350*time.Millisecond {
		t.Fatalf("%+v", resp)
	}
	if s := b.tr.Stats(); s.InFlight != 0 {
		t.Fatalf("the slot is still taken: %+v", s)
	}
}

func endlessBodyIsCutAtTheCap(t *testing.T, proto delivery.Protocol) {
	var written atomic.Int64
	ended := make(chan struct{})
	b := setup(t)
	open := opener(t, b, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		_, _ = io.Copy(io.Discard, r.Body)
		chunk := bytes.Repeat([]byte("x"), 32<<10)
		for written.Load() < 10<<30 {
			n, err := w.Write(chunk)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	started := time.Now()
	resp := roundTrip(t, open, 10*time.Second)
	if resp.Status != 200 || !resp.Truncated || len(resp.Body) != maxBodyExcerpt || resp.BodyErr != nil {
		t.Fatalf("status %d, truncated %v, %d bytes, %v", resp.Status, resp.Truncated, len(resp.Body), resp.BodyErr)
	}
	if took := time.Since(started); took > 5*time.Second {
		t.Fatalf("took %v", took)
	}
	<-ended // the peer was stopped, not drained
	if n := written.Load(); n > 64<<20 {
		t.Fatalf("the peer could write %d bytes", n)
	}
}

// gzipBomb is a few dozen kilobytes that expand to 32 MiB.
var gzipBomb = sync.OnceValue(func() []byte {
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	zeros := make([]byte, 1<<20)
	for range 32 {
		_, _ = z.Write(zeros)
	}
	_ = z.Close()
	return bomb.Bytes()
})

func encodedBodyStaysEncoded(t *testing.T, proto delivery.Protocol) {
	bomb := gzipBomb()
	asked := make(chan string, 1)
	b := setup(t)
	open := opener(t, b, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- strings.Join(r.Header["Accept-Encoding"], ",")
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(bomb)
	}))
	resp := roundTrip(t, open, 5*time.Second)
	if got := <-asked; got != "identity" {
		t.Fatalf("asked for %q", got)
	}
	if resp.Header.Get("Content-Encoding") != "gzip" || !bytes.HasPrefix(bomb, resp.Body) || len(resp.Body) != maxBodyExcerpt || !resp.Truncated {
		t.Fatalf("%v, %d bytes, truncated %v", resp.Header, len(resp.Body), resp.Truncated)
	}
}

func smallBodiesKeepOneConnection(t *testing.T, proto delivery.Protocol) {
	var remotes sync.Map
	body := strings.Repeat("b", 2<<10)
	b := setup(t)
	open := opener(t, b, proto, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		remotes.Store(r.RemoteAddr, true)
		_, _ = io.WriteString(w, body)
	}))
	for range 100 {
		if resp := roundTrip(t, open, 5*time.Second); string(resp.Body) != body || resp.Truncated {
			t.Fatalf("%d bytes, truncated %v", len(resp.Body), resp.Truncated)
		}
	}
	if s := b.tr.Stats(); s.HTTP1.Live+s.HTTP2.Live+s.HTTP3.Live != 1 {
		t.Fatalf("%+v", s)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.shakes) != 1 {
		t.Fatalf("%d handshakes", len(b.shakes))
	}
}

func burstStaysBelowTheCap(t *testing.T) {
	b := setup(t, func(c *Config) { c.MaxTCPConnsPerRoute = 6 })
	var now, most atomic.Int64
	srv := serveTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		ok200(w, r)
	}), http1Only)
	ep := endpoint(srv.port)
	burst := func() {
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				ctx := within(t, 10*time.Second)
				conn, err := b.tr.DialTCP(ctx, ep, TCPOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := conn.RoundTrip(ctx, post(ep, "body")); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	burst()
	if n := srv.conns.Load(); n > 6 || most.Load() > 6 {
		t.Fatalf("%d connections, %d requests at a time", n, most.Load())
	}
	before := srv.conns.Load()
	burst()
	if n := srv.conns.Load(); n > 6 || n < before {
		t.Fatalf("%d connections after the second burst, %d before", n, before)
	}
	t.Run("port_exhausted", func(t *testing.T) {
		b := setup(t, func(c *Config) {
			c.DialTCP = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("connect: %w", syscall.EADDRNOTAVAIL)}
			}
		})
		_, err := b.tr.DialTCP(within(t, time.Second), ep, TCPOptions{})
		if se := wantSent(t, err, delivery.SentNever, delivery.CausePorts); !strings.Contains(se.Detail, "port_exhausted") {
			t.Fatalf("detail %q", se.Detail)
		}
	})
}

func badHeaderValueFailsAlikeEverywhere(t *testing.T) {
	var hits counter
	details := map[string]bool{}
	for _, proto := range []delivery.Protocol{delivery.ProtocolHTTP1, delivery.ProtocolHTTP2, delivery.ProtocolHTTP3} {
		b := setup(t)
		open := opener(t, b, proto, hits.handler(ok200))
		for _, bad := range []string{"a\r\nB: c", "a\x00b", "a\nb"} {
			conn, ep := open()
			req := post(ep, "body")
			setHeader(req, "X-Tenant", bad)
			_, err := conn.RoundTrip(within(t, 5*time.Second), req)
			se := wantSent(t, err, delivery.SentNever, delivery.CauseLocal)
			if strings.Contains(se.Detail, bad) {
				t.Errorf("the detail shows the value: %q", se.Detail)
			}
			details[se.Detail] = true
		}
		// The connection is as good as before.
		roundTrip(t, open, 5*time.Second)
	}
	if len(details) != 1 {
		t.Fatalf("told differently by protocol: %v", details)
	}
	hits.want(t, 3)
}
