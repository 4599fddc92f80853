package fault

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// peerBench is a server and clients that share no code with the sender: those of
// the standard library and of quic-go, with a connection for each request.
type peerBench struct {
	*Server
	t  *testing.T
	ca *testnet.CA
}

func start(t *testing.T, change func(*Config), specs ...string) *peerBench {
	t.Helper()
	ca, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	config := Config{CA: ca, HTTP3: true}
	for _, spec := range specs {
		config.Faults = append(config.Faults, mustParse(spec))
	}
	if change != nil {
		change(&config)
	}
	s, err := Start(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if c := s.Tally().Counts(); c.TCPOpen != 0 || c.QUICOpen != 0 {
			t.Errorf("connections are left: %+v", c)
		}
	})
	return &peerBench{Server: s, t: t, ca: ca}
}

func (b *peerBench) tls(protocols ...string) *tls.Config {
	return &tls.Config{RootCAs: b.ca.Pool(), ServerName: "127.0.0.1", NextProtos: protocols, MinVersion: tls.VersionTLS12}
}

// client returns a client of one protocol; the test closes it.
func (b *peerBench) client(p delivery.Protocol) *http.Client {
	var rt http.RoundTripper
	if p == delivery.ProtocolHTTP3 {
		tr := &http3.Transport{DisableCompression: true, TLSClientConfig: b.tls("h3")}
		b.t.Cleanup(func() { _ = tr.Close() })
		rt = tr
	} else {
		tr := &http.Transport{TLSClientConfig: b.tls(), Protocols: new(http.Protocols), DisableCompression: true}
		tr.Protocols.SetHTTP1(p == delivery.ProtocolHTTP1)
		tr.Protocols.SetHTTP2(p == delivery.ProtocolHTTP2)
		b.t.Cleanup(tr.CloseIdleConnections)
		rt = tr
	}
	return &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// answer is what came back, body included.
type answer struct {
	*http.Response
	body    string
	bodyErr error
}

// post sends one POST and reads the answer for as long as limit.
func (b *peerBench) post(c *http.Client, id string, limit time.Duration, trace ...*httptrace.ClientTrace) (*answer, error) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	for _, tr := range trace {
		ctx = httptrace.WithClientTrace(ctx, tr)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL("", "/hook"), struct{ io.Reader }{strings.NewReader(`{"a":1}`)})
	if err != nil {
		b.t.Fatal(err)
	}
	req.ContentLength = 7
	req.Header.Set("Webhook-Id", id)
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, bodyErr := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return &answer{resp, string(body), bodyErr}, nil
}

const enough = 10 * time.Second

var everyProtocol = []delivery.Protocol{delivery.ProtocolHTTP1, delivery.ProtocolHTTP2, delivery.ProtocolHTTP3}

func TestAHealthyServerAnswersAndCounts(t *testing.T) {
	b := start(t, nil)
	for _, p := range everyProtocol {
		c := b.client(p)
		for range 2 {
			a, err := b.post(c, p.String(), enough)
			if err != nil || a.StatusCode != 200 || a.body != "ok" || a.ProtoMajor != int(p) {
				t.Fatalf("%v: %+v, %v", p, a, err)
			}
			if advertised := a.Header.Get("Alt-Svc") != ""; advertised == (p == delivery.ProtocolHTTP3) {
				t.Errorf("%v: Alt-Svc is %q", p, a.Header.Get("Alt-Svc"))
			}
		}
		if b.Tally().Runs(p.String()) != 2 || b.Tally().Bytes(p.String()) != 14 || b.Tally().Arrived(p.String()) != 2 {
			t.Errorf("%v: %d runs, %d bytes", p, b.Tally().Runs(p.String()), b.Tally().Bytes(p.String()))
		}
	}
	c := b.Tally().Counts()
	if c.Requests != 6 || c.Runs != 6 || c.SecondRuns != 3 || c.H1 != 2 || c.H2 != 2 || c.H3 != 2 || c.Bytes != 42 ||
		c.TCPConnections != 2 || c.QUICConnections != 1 || c.TCPOpen != 2 || c.QUICOpen != 1 || c.Lies != 0 || len(c.Faults) != 0 {
		t.Errorf("%+v", c)
	}
}

func TestAPlainServerSpeaksHTTP1(t *testing.T) {
	b := start(t, func(c *Config) { c.CA, c.HTTP3, c.Status = nil, false, 204 })
	a, err := b.post(b.client(delivery.ProtocolHTTP1), "plain", enough)
	if err != nil || a.StatusCode != 204 || !strings.HasPrefix(b.URL("h.test", "/x"), "http://h.test:") {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestStartRefusesWhatCannotWork(t *testing.T) {
	for want, config := range map[string]Config{
		"http3: needs":       {HTTP3: true},
		"status: 42":         {Status: 42},
		"a zero Fault":       {Faults: []Fault{{}}},
		"h3-reset is for h3": {Faults: []Fault{mustParse("h3-reset")}},
		"h2-reset is for h2": {Faults: []Fault{mustParse("h2-reset")}},
		"listen on tcp":      {Addr: "127.0.0.1:99999"},
	} {
		s, err := Start(config)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if s != nil {
			t.Errorf("%q: a server came back", want)
		}
	}
}

func TestSignaturesAreVerifiedAndRequestsReported(t *testing.T) {
	seen := make(chan testnet.Seen, 1)
	b := start(t, func(c *Config) {
		c.OnRequest = func(s testnet.Seen) { seen <- s }
		c.Verify = func(_ http.Header, body []byte) error {
			if string(body) != `{"a":1}` {
				return errors.New("another body")
			}
			return errors.New("no signature")
		}
	})
	for _, p := range everyProtocol {
		a, err := b.post(b.client(p), "evt", enough)
		if err != nil || a.StatusCode != 401 {
			t.Fatalf("%+v, %v", a, err)
		}
		s := <-seen
		if s.ID != "evt" || s.Protocol != p.String() || s.Status != 401 || s.Bytes != 7 || s.Signature == nil || s.Signature.Error() != "no signature" {
			t.Errorf("%+v", s)
		}
	}
}

func TestSetFaultsTakesEffectAtOnce(t *testing.T) {
	b := start(t, nil, "status:status=500")
	c := b.client(delivery.ProtocolHTTP2)
	if a, err := b.post(c, "one", enough); err != nil || a.StatusCode != 500 {
		t.Fatalf("%+v, %v", a, err)
	}
	if err := b.SetFaults(); err != nil {
		t.Fatal(err)
	}
	if a, err := b.post(c, "two", enough); err != nil || a.StatusCode != 200 {
		t.Fatalf("%+v, %v", a, err)
	}
	for _, f := range []Fault{{}, mustParse("closed-port")} {
		if err := b.SetFaults(f); err == nil {
			t.Errorf("%v was accepted", f)
		}
	}
	if b.Tally().Fired("status") != 1 || b.Tally().Counts().Faults["status"] != 1 {
		t.Errorf("%+v", b.Tally().Counts())
	}
}

// TestHandshakesFailAsTold looks at each from the outside, with crypto/tls.
func TestHandshakesFailAsTold(t *testing.T) {
	dial := func(b *peerBench) error {
		conn, err := tls.Dial("tcp", b.Addr(), b.tls("h2", "http/1.1"))
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	for spec, want := range map[string]string{
		"expired-certificate":    "expired",
		"wrong-name-certificate": "127.0.0.1",
		"wrong-alpn":             "no application protocol",
		"tls-alert":              "internal error",
		"tls-alert:alert=40":     "handshake failure",
		"connection-refused":     "reset",
	} {
		t.Run(spec, func(t *testing.T) {
			b := start(t, nil, once(spec))
			if err := dial(b); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			if err := dial(b); err != nil {
				t.Errorf("the second handshake: %v", err)
			}
		})
	}
}

// once lets a fault act a single time.
func once(spec string) string {
	if strings.Contains(spec, ":") {
		return spec + ",times=1"
	}
	return spec + ":times=1"
}

func TestAFaultOnOneSocketLeavesTheOtherAlone(t *testing.T) {
	b := start(t, nil, "wrong-alpn:over=udp", "expired-certificate:over=tcp")
	_, err := b.post(b.client(delivery.ProtocolHTTP3), "udp", enough)
	if te, ok := errors.AsType[*quic.TransportError](err); !ok || te.ErrorCode != 0x178 {
		t.Errorf("QUIC: %v, want 0x178", err)
	}
	if _, err := b.post(b.client(delivery.ProtocolHTTP1), "tcp", enough); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("TCP: %v", err)
	}
}

func TestAClosedPortIsClosed(t *testing.T) {
	b := start(t, nil, "closed-port")
	if _, err := net.Dial("tcp", b.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("TCP: %v", err)
	}
	udp, err := net.Dial("udp", b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	_ = udp.SetDeadline(time.Now().Add(enough))
	if _, err := udp.Write([]byte("anybody?")); err != nil {
		t.Fatal(err)
	}
	if _, err := udp.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("UDP: %v", err)
	}
	half := start(t, nil, "closed-port:over=udp")
	if a, err := half.post(half.client(delivery.ProtocolHTTP2), "tcp", enough); err != nil || a.StatusCode != 200 {
		t.Errorf("TCP beside a closed UDP port: %+v, %v", a, err)
	}
	other := start(t, nil, "closed-port:over=tcp")
	if a, err := other.post(other.client(delivery.ProtocolHTTP3), "udp", enough); err != nil || a.StatusCode != 200 {
		t.Errorf("UDP beside a closed TCP port: %+v, %v", a, err)
	}
}

// TestAnswersAreAsTold reads each answer with a client of the library.
func TestAnswersAreAsTold(t *testing.T) {
	cases := []struct {
		spec string
		ok   func(a *answer) bool
	}{
		{"redirect:status=307", func(a *answer) bool {
			return a.StatusCode == 307 && a.Header.Get("Location") == "https://redirect.invalid/"
		}},
		{"misdirected", func(a *answer) bool { return a.StatusCode == 421 }},
		{"too-early", func(a *answer) bool { return a.StatusCode == 425 }},
		{"retry-after:seconds=30,status=429", func(a *answer) bool { return a.StatusCode == 429 && a.Header.Get("Retry-After") == "30" }},
		{"alt-svc:form=clear", func(a *answer) bool { return a.Header.Get("Alt-Svc") == "clear" }},
		{"alt-svc:form=value,value=h3%3D%22:1%22", func(a *answer) bool { return a.Header.Get("Alt-Svc") == `h3=":1"` }},
		{"truncated-body", func(a *answer) bool { return a.StatusCode == 200 && a.bodyErr != nil && len(a.body) <= 10 }},
		{"endless-body", func(a *answer) bool { return len(a.body) == 1<<20 && a.bodyErr == nil }},
		{"header-flood:count=100", func(a *answer) bool { return a.Header.Get("X-Flood-99") != "" }},
		{"huge-header:size=10000", func(a *answer) bool { return len(a.Header.Get("X-Huge")) == 10000 }},
		{"drip-headers:interval=1ms", func(a *answer) bool { return a.StatusCode == 200 && a.body == "ok" }},
		{"1xx-storm:count=3", func(a *answer) bool { return a.StatusCode == 200 && a.body == "ok" }},
		{"status:status=204", func(a *answer) bool { return a.StatusCode == 204 && a.body == "" }},
		{"gzip-bomb:size=5000000", func(a *answer) bool {
			z, err := gzip.NewReader(strings.NewReader(a.body))
			if err != nil || len(a.body) > 20000 || a.Header.Get("Content-Encoding") != "gzip" {
				return false
			}
			n, err := io.Copy(io.Discard, z)
			return err == nil && n >= 5000000
		}},
	}
	for _, c := range cases {
		for _, p := range everyProtocol {
			t.Run(p.String()+"/"+c.spec, func(t *testing.T) {
				t.Parallel()
				b := start(t, nil, c.spec)
				a, err := b.post(b.client(p), "evt", enough)
				if err != nil {
					t.Fatal(err)
				}
				if !c.ok(a) {
					t.Errorf("%d %v, %d bytes of body, %v", a.StatusCode, a.Header, len(a.body), a.bodyErr)
				}
				if b.Tally().Arrived("evt") != 1 {
					t.Errorf("it arrived %d times", b.Tally().Arrived("evt"))
				}
			})
		}
	}
}

func TestInformationalAnswersAreCounted(t *testing.T) {
	for _, p := range everyProtocol {
		b := start(t, nil, "1xx-storm:count=4,status=103")
		n := 0
		trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
			if code == 103 {
				n++
			}
			return nil
		}}
		if a, err := b.post(b.client(p), "evt", enough, trace); err != nil || a.StatusCode != 200 || n != 4 {
			t.Errorf("%v: %d informational answers, %v", p, n, err)
		}
	}
}

func TestRetryAfterFormsAreWhatTheySay(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, form := range retryAfterForms {
		wait, ok := delivery.ParseRetryAfter(retryAfter(form, 90, now), "", now)
		want, valid := 90*time.Second, true
		switch form {
		case "zero":
			want = 0
		case "huge":
			want = delivery.MaxRetryAfter
		case "past-date", "negative", "float", "plus", "exponent", "words", "empty":
			want, valid = 0, false
		}
		if wait != want || ok != valid {
			t.Errorf("%s: %q means %v, %v, want %v", form, retryAfter(form, 90, now), wait, ok, want)
		}
	}
	for _, form := range altSvcForms {
		if v := altSvc(form, 443); strings.ContainsAny(v, "\r\n") {
			t.Errorf("%s: %q", form, v)
		}
	}
}

func TestCloseIsIdempotentAndFreesHungRequests(t *testing.T) {
	b := start(t, nil, "hang")
	done := make(chan error, len(everyProtocol))
	for _, p := range everyProtocol {
		c := b.client(p)
		go func() {
			_, err := b.post(c, p.String(), enough)
			done <- err
		}()
		eventually(t, p.String()+" hangs", func() bool { return b.Tally().Runs(p.String()) == 1 })
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	for range everyProtocol {
		if err := <-done; err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a hung request ended with %v", err)
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(enough); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("still not so: %s", what)
		}
	}
}

func TestBombIsSmall(t *testing.T) {
	if p := bomb(64 << 20); len(p) > 128<<10 || !bytes.HasPrefix(p, []byte{0x1f, 0x8b}) {
		t.Errorf("%d bytes", len(p))
	}
	if len(bomb(0)) != 0 {
		t.Error("a bomb of nothing")
	}
}
