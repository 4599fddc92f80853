package fault

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// rawHTTP1 is a connection that is written to by hand.
func (b *peerBench) rawHTTP1() (net.Conn, *bufio.Reader) {
	b.t.Helper()
	conn, err := tls.Dial("tcp", b.Addr(), b.tls("http/1.1"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(enough))
	return conn, bufio.NewReader(conn)
}

func request(id string) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: h.test\r\nWebhook-Id: %s\r\nContent-Length: 2\r\n\r\n{}", id)
}

// read returns a response with its body.
func read(r *bufio.Reader) (string, error) {
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, body), err
}

func TestHTTP1BytesAreAsTold(t *testing.T) {
	cases := []struct {
		spec string
		want string // answer and error of the first read
		runs int
	}{
		{"tcp-close:how=fin,when=before", "EOF", 0},
		{"tcp-close:how=fin,when=after", "EOF", 1},
		{"tcp-close:how=rst,when=after", "connection reset", 1},
		{"restart:when=before", "connection reset", 0},
		{"truncated-body:announced=9,sent=4", "200 .... unexpected EOF", 1},
		{"reset-after-headers", "200 begun read", 1},
		{"noise:form=bytes", "malformed", 1},
		{"noise:form=no-status", "malformed", 1},
		{"noise:form=empty", "EOF", 1},
		{"1xx-storm:count=1,status=100", "100", 1},
	}
	for _, c := range cases {
		t.Run(c.spec, func(t *testing.T) {
			t.Parallel()
			b := start(t, nil, c.spec)
			conn, r := b.rawHTTP1()
			if _, err := io.WriteString(conn, request("evt")); err != nil {
				t.Fatal(err)
			}
			got, err := read(r)
			if line := strings.TrimSpace(fmt.Sprint(got, " ", err)); !strings.Contains(line, c.want) {
				t.Errorf("%q, want %q", line, c.want)
			}
			if b.Tally().Runs("evt") != c.runs {
				t.Errorf("the handler ran %d times", b.Tally().Runs("evt"))
			}
		})
	}
}

func TestHTTP1ConnectionEndsOnReuse(t *testing.T) {
	for spec, runs := range map[string]int{
		"h1-close-reuse:when=before": 0, "h1-close-reuse:when=after": 1,
		"h1-close-reuse:when=before,how=fin": 0, "h1-close-reuse:when=after,how=fin": 1,
	} {
		b := start(t, nil, spec)
		conn, r := b.rawHTTP1()
		if _, err := io.WriteString(conn, request("first")); err != nil {
			t.Fatal(err)
		}
		if got, err := read(r); got != "200 ok" || err != nil {
			t.Fatalf("%s: %q, %v", spec, got, err)
		}
		if _, err := io.WriteString(conn, request("second")); err != nil {
			t.Fatal(err)
		}
		_, err := read(r)
		if reset := errors.Is(err, syscall.ECONNRESET); err == nil || !reset && strings.Contains(spec, "before") && !strings.Contains(spec, "fin") {
			t.Errorf("%s: %v", spec, err)
		}
		if n := b.Tally().Runs("second"); n != runs {
			t.Errorf("%s: the handler ran %d times, want %d", spec, n, runs)
		}
	}
}

func TestHTTP1SecondAnswerFollowsTheFirst(t *testing.T) {
	b := start(t, nil, "h1-double-answer")
	conn, r := b.rawHTTP1()
	if _, err := io.WriteString(conn, request("evt")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"200 ok", "200 not asked for"} {
		if got, err := read(r); got != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
}

func TestHTTP1LastAnswerSaysSo(t *testing.T) {
	b := start(t, nil, "h1-connection-close")
	conn, r := b.rawHTTP1()
	if _, err := io.WriteString(conn, request("evt")); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil || !resp.Close {
		t.Fatalf("%+v, %v", resp, err)
	}
	if rest, err := io.ReadAll(r); string(rest) != "ok" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestHTTP1AnswerBeforeTheBodyIsReadable: a server that closes with unread bytes
// would reset the connection under its own answer.
func TestHTTP1AnswerBeforeTheBodyIsReadable(t *testing.T) {
	b := start(t, nil, "early-answer")
	conn, r := b.rawHTTP1()
	head := strings.Replace(request("evt"), "Content-Length: 2", "Content-Length: 10000000", 1)
	if _, err := io.WriteString(conn, head); err != nil {
		t.Fatal(err)
	}
	if got, err := read(r); got != "200 ok" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if b.Tally().Bytes("evt") != 0 {
		t.Error("the body was read")
	}
}

func TestHTTP1StopReadingFillsTheWindow(t *testing.T) {
	b := start(t, nil, "stop-reading")
	conn, _ := b.rawHTTP1()
	head := strings.Replace(request("evt"), "Content-Length: 2", "Content-Length: 100000000", 1)
	_ = conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
	_, err := io.Copy(conn, io.MultiReader(strings.NewReader(head), io.LimitReader(zeroReader{}, 100000000)))
	if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() {
		t.Errorf("the body went out: %v", err)
	}
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestBlackHoleOverTCPSaysNothing(t *testing.T) {
	b := start(t, nil, "black-hole:over=tcp")
	dialer := &net.Dialer{Timeout: 200 * time.Millisecond}
	_, err := tls.DialWithDialer(dialer, "tcp", b.Addr(), b.tls("h2"))
	if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() {
		t.Errorf("%v, want a timeout", err)
	}
	if a, err := b.post(b.client(delivery.ProtocolHTTP3), "udp", enough); err != nil || a.StatusCode != 200 {
		t.Errorf("UDP beside it: %+v, %v", a, err)
	}
}

func TestRestartResetsEveryTCPConnection(t *testing.T) {
	b := start(t, nil)
	var readers []*bufio.Reader
	for range 3 {
		conn, r := b.rawHTTP1()
		if _, err := io.WriteString(conn, request("evt")); err != nil {
			t.Fatal(err)
		}
		if _, err := read(r); err != nil {
			t.Fatal(err)
		}
		readers = append(readers, r)
	}
	port := b.Port()
	b.Restart()
	for _, r := range readers {
		if _, err := r.ReadByte(); err == nil {
			t.Error("a connection outlived the restart")
		}
	}
	if a, err := b.post(b.client(delivery.ProtocolHTTP1), "after", enough); err != nil || a.StatusCode != 200 || b.Port() != port {
		t.Errorf("after the restart: %+v, %v", a, err)
	}
}
