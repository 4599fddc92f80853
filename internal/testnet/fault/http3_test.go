package fault

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
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/quic-go/quicvarint"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// quicClient is a QUIC connection with quic-go's HTTP/3 client on it, which does
// not send a request twice.
type quicClient struct {
	b    *peerBench
	conn *quic.Conn
	http *http3.ClientConn
}

func (b *peerBench) dialQUIC() (*quic.Conn, error) {
	ctx, cancel := context.WithTimeout(b.t.Context(), enough)
	defer cancel()
	return quic.DialAddr(ctx, b.Addr(), b.tls("h3"), &quic.Config{HandshakeIdleTimeout: 2 * time.Second})
}

func (b *peerBench) quic() *quicClient {
	b.t.Helper()
	conn, err := b.dialQUIC()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.CloseWithError(0x100, "") })
	tr := &http3.Transport{}
	return &quicClient{b: b, conn: conn, http: tr.NewClientConn(conn)}
}

func (c *quicClient) post(id string, size int, limit time.Duration) (*answer, error) {
	c.b.t.Helper()
	ctx, cancel := context.WithTimeout(c.b.t.Context(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.b.URL("", "/"), bytes.NewReader(make([]byte, size)))
	if err != nil {
		c.b.t.Fatal(err)
	}
	req.Header.Set("Webhook-Id", id)
	resp, err := c.http.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, bodyErr := io.ReadAll(resp.Body)
	return &answer{resp, string(body), bodyErr}, nil
}

func TestQUICStreamsAreResetAsTold(t *testing.T) {
	for spec, runs := range map[string]int{
		"h3-reset:code=0x10b,when=before": 0, "h3-reset:code=0x10b,when=after": 1, "h3-reset:code=0x102": 1,
		"h3-reset:code=0x110,when=before": 0, "h3-reset:code=0x10c": 1, "h3-reset:code=0x3fffffffffffffff": 1,
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			b := start(t, nil, spec+",times=1")
			c := b.quic()
			_, err := c.post("evt", 100, enough)
			se, ok := errors.AsType[*quic.StreamError](err)
			if want := mustParse(spec).num("code"); !ok || uint64(se.ErrorCode) != want || !se.Remote {
				t.Errorf("%v, want a reset with %#x", err, want)
			}
			if n := b.Tally().Runs("evt"); n != runs {
				t.Errorf("the handler ran %d times, want %d", n, runs)
			}
			if lied := b.Tally().Lies("evt") > 0; lied != (spec == "h3-reset:code=0x10b,when=after") {
				t.Errorf("lied: %v", lied)
			}
			if a, err := c.post("next", 1, enough); err != nil || a.body != "ok" {
				t.Errorf("the stream beside it: %+v, %v", a, err)
			}
		})
	}
}

func TestQUICConnectionsAreClosedAsTold(t *testing.T) {
	for spec, runs := range map[string]int{
		"h3-close:code=0x100,when=before": 0, "h3-close:code=0x102,when=after": 1, "h3-close:code=H3_EXCESSIVE_LOAD": 1,
		"h3-close:code=0x10b": 1, "h3-close:code=0x110,when=handshake": 0,
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			b := start(t, nil, spec)
			c := b.quic()
			_, err := c.post("evt", 100, enough)
			app, ok := errors.AsType[*quic.ApplicationError](err)
			if want := mustParse(spec).num("code"); !ok || uint64(app.ErrorCode) != want || !app.Remote {
				t.Errorf("%v, want a close with %#x", err, want)
			}
			if n := b.Tally().Runs("evt"); n != runs {
				t.Errorf("the handler ran %d times, want %d", n, runs)
			}
		})
	}
}

// goAways reads the server's control stream and returns the ids of its GOAWAY
// frames.
func goAways(t *testing.T, conn *quic.Conn) <-chan uint64 {
	t.Helper()
	ids := make(chan uint64, 4)
	go func() {
		defer close(ids)
		str, err := conn.AcceptUniStream(context.Background())
		if err != nil {
			return
		}
		r := bufio.NewReader(str)
		if kind, err := quicvarint.Read(r); err != nil || kind != 0 {
			return
		}
		for {
			kind, err := quicvarint.Read(r)
			if err != nil {
				return
			}
			length, _ := quicvarint.Read(r)
			payload := make([]byte, length)
			if _, err := io.ReadFull(r, payload); err != nil {
				return
			}
			if kind == frameGoAway {
				id, _, _ := quicvarint.Parse(payload)
				ids <- id
			}
		}
	}()
	return ids
}

func TestHTTP3GoAwayNamesTheStreamThatWasMeant(t *testing.T) {
	for spec, want := range map[string]uint64{
		"h3-goaway:id=below,when=before,after=1": 0, "h3-goaway:id=at,when=before,after=1": 4, "h3-goaway:id=above,then=answer,after=1": 8,
		"h3-goaway:id=above,when=idle,after=1": 8,
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			b := start(t, nil, spec)
			conn, err := b.dialQUIC()
			if err != nil {
				t.Fatal(err)
			}
			ids := goAways(t, conn)
			var last *quic.Stream
			for range 2 { // streams 0 and 4, by hand: a library would act on the frame
				if last, err = conn.OpenStreamSync(t.Context()); err != nil {
					t.Fatal(err)
				}
				// A HEADERS frame with ":method: POST" out of the static table.
				if _, err := last.Write([]byte{0x01, 0x03, 0x00, 0x00, 0xd4}); err != nil {
					t.Fatal(err)
				}
				_ = last.Close()
				_ = last.SetReadDeadline(time.Now().Add(enough))
				if last.StreamID() == 0 {
					if _, err := io.ReadAll(last); err != nil {
						t.Fatal(err)
					}
				}
			}
			if id := <-ids; id != want {
				t.Errorf("GOAWAY %d, want %d", id, want)
			}
			if strings.Contains(spec, "above") {
				if _, err := io.ReadAll(last); err != nil {
					t.Errorf("the stream below the id: %v", err)
				}
			}
			_ = conn.CloseWithError(0x100, "")
			for range ids {
			}
		})
	}
}

func TestQUICHandshakesFailAsTold(t *testing.T) {
	isTransport := func(code quic.TransportErrorCode, remote bool) func(error) bool {
		return func(err error) bool {
			te, ok := errors.AsType[*quic.TransportError](err)
			return ok && te.ErrorCode == code && te.Remote == remote
		}
	}
	isSilence := func(err error) bool { // which of its timeouts is first depends on the machine
		ne, ok := errors.AsType[net.Error](err)
		return ok && ne.Timeout()
	}
	isVersion := func(err error) bool { _, ok := errors.AsType[*quic.VersionNegotiationError](err); return ok }
	for spec, is := range map[string]func(error) bool{
		"wrong-alpn": isTransport(0x178, true), "tls-alert": isTransport(0x150, true), "tls-alert:alert=40": isTransport(0x128, true),
		"connection-refused": isTransport(quic.ConnectionRefused, true), "version-negotiation": isVersion, "black-hole": isSilence,
		"expired-certificate": isTransport(0x12a, false), "wrong-name-certificate": isTransport(0x12a, false),
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			b := start(t, nil, once(spec))
			conn, err := b.dialQUIC()
			if err == nil {
				_ = conn.CloseWithError(0x100, "")
			}
			if !is(err) {
				t.Errorf("%T: %v", err, err)
			}
			if a, err := b.quic().post("next", 1, enough); err != nil || a.body != "ok" {
				t.Errorf("the second connection: %+v, %v", a, err)
			}
		})
	}
}

func TestAClientCertificateIsMissedAfterTheHandshake(t *testing.T) {
	b := start(t, nil, "client-certificate")
	conn, err := b.dialQUIC()
	if err != nil { // it may be told before the dial returns
		t.Log(err)
		return
	}
	<-conn.Context().Done()
	if te, ok := errors.AsType[*quic.TransportError](context.Cause(conn.Context())); !ok || te.ErrorCode != 0x174 {
		t.Errorf("%v, want certificate_required", context.Cause(conn.Context()))
	}
}

// TestServerForgetsQUICConnections: with a reset the peer knows, without one it
// does not, and in both cases the port goes on working.
func TestServerForgetsQUICConnections(t *testing.T) {
	for spec, told := range map[string]bool{
		"stateless-reset:when=before": true, "stateless-reset:when=after": true, "stateless-reset:when=idle": true,
		"restart:when=after": false, "path-death:when=before": false, "path-death:when=handshake": false, "path-death:when=idle": false,
	} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			b := start(t, nil, spec+",times=1")
			c := b.quic()
			limit := enough
			if !told {
				limit = 500 * time.Millisecond
			}
			a, err := c.post("evt", 100, limit)
			idle := strings.Contains(spec, "idle")
			if idle != (err == nil) || idle && a.body != "ok" {
				t.Fatalf("%+v, %v", a, err)
			}
			if told {
				<-c.conn.Context().Done()
				if _, ok := errors.AsType[*quic.StatelessResetError](context.Cause(c.conn.Context())); !ok {
					t.Errorf("%v, want a stateless reset", context.Cause(c.conn.Context()))
				}
			} else {
				eventually(t, "it has acted", func() bool { return b.Tally().Fired(mustParse(spec).kind.Name) > 0 })
				if _, err := c.post("lost", 100, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("over a forgotten connection: %v", err)
				}
			}
			if b.Tally().Arrived("lost") != 0 {
				t.Error("a request arrived over a forgotten connection")
			}
			if a, err := b.quic().post("next", 1, enough); err != nil || a.body != "ok" {
				t.Errorf("a new connection: %+v, %v", a, err)
			}
		})
	}
}

func TestHTTP3StreamLimitHoldsUntilTheFirstHasEnded(t *testing.T) {
	b := start(t, nil, "stream-limit:limit=1,times=1")
	c := b.quic()
	if _, err := c.post("first", 1, 200*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) || b.Tally().Runs("first") != 1 {
		t.Fatalf("%v, and it ran %d times", err, b.Tally().Runs("first"))
	}
	for _, id := range []string{"second", "third"} {
		if a, err := c.post(id, 1, enough); err != nil || a.body != "ok" {
			t.Fatalf("%s: %+v, %v", id, a, err)
		}
	}
}

func TestHTTP3UnreadBodyStopsAndEarlyAnswerDoesNotWait(t *testing.T) {
	b := start(t, nil, "stop-reading:times=1")
	c := b.quic()
	if _, err := c.post("evt", 1<<20, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	early := start(t, nil, "early-answer")
	if a, err := early.quic().post("evt", 1<<20, enough); err != nil || a.body != "ok" {
		t.Errorf("%+v, %v", a, err)
	}
	if n := early.Tally().Bytes("evt"); n != 0 {
		t.Errorf("%d bytes were read", n)
	}
}

func TestHTTP3NoiseIsNoAnswer(t *testing.T) {
	for _, form := range []string{"bytes", "no-status", "empty"} {
		b := start(t, nil, "noise:form="+form)
		if a, err := b.quic().post("evt", 1, enough); err == nil {
			t.Errorf("%s: %+v", form, a)
		}
		if b.Tally().Runs("evt") != 1 {
			t.Errorf("%s: %d runs", form, b.Tally().Runs("evt"))
		}
	}
}

func TestABadHeaderBlockEndsItsStreamAlone(t *testing.T) {
	b := start(t, nil)
	c := b.quic()
	for _, raw := range [][]byte{
		{0x00, 0x01, 'x'},                          // DATA first
		{0x01, 0x03, 0x00, 0x00, 0xff},             // an index that does not end
		{0x01, 0x05, 0x00},                         // shorter than it says
		{0x01, 0xbf, 0xff, 0xff, 0xff},             // longer than is taken
		{0x21, 0x40, 0x00, 0x01, 0x02, 0x00, 0x00}, // grease, then an empty head
	} {
		str, err := c.conn.OpenStreamSync(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = str.Write(raw)
		_ = str.Close()
		_ = str.SetReadDeadline(time.Now().Add(enough))
		if _, err := io.ReadAll(str); errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%x: no end", raw)
		}
	}
	if a, err := c.post("next", 1, enough); err != nil || a.body != "ok" {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestRelayCarriesUntilItIsTold(t *testing.T) {
	b := start(t, nil)
	relay, err := NewRelay(b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	through := &peerBench{Server: &Server{config: b.config, tally: b.tally, addr: relay.Addr(), port: relay.Port()}, t: t, ca: b.ca}
	for _, p := range everyProtocol {
		if a, err := through.post(through.client(p), p.String(), enough); err != nil || a.body != "ok" {
			t.Fatalf("%v: %+v, %v", p, a, err)
		}
	}
	c := through.quic()
	if _, err := c.post("first", 1, enough); err != nil {
		t.Fatal(err)
	}
	relay.LimitUDP(600)
	if _, err := c.post("large", 32<<10, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("above the limit: %v", err)
	}
	relay.LimitUDP(0)
	relay.DropUDP(true)
	before, _ := relay.Datagrams()
	if _, err := c.post("lost", 1, 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("over a dead path: %v", err)
	}
	if after, dropped := relay.Datagrams(); after != before || dropped == 0 {
		t.Errorf("%d datagrams passed, %d were dropped", after-before, dropped)
	}
	relay.DropTCP(true)
	if _, err := through.post(through.client(delivery.ProtocolHTTP2), "tcp", 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("TCP over a dead path: %v", err)
	}
	relay.DropTCP(false)
	relay.DropUDP(false)
	for _, p := range everyProtocol {
		if a, err := through.post(through.client(p), "again"+p.String(), enough); err != nil || a.body != "ok" {
			t.Errorf("%v after the path came back: %+v, %v", p, a, err)
		}
	}
	if b.Tally().Arrived("lost")+b.Tally().Runs("large")+b.Tally().Arrived("tcp") != 0 {
		t.Error("something passed the dead path")
	}
	if err := errors.Join(relay.Close(), relay.Close()); err != nil {
		t.Error(err)
	}
}

// TestInitialKeysAreThoseOfTheSpecification: the example of RFC 9001 appendix A.1.
func TestInitialKeysAreThoseOfTheSpecification(t *testing.T) {
	keys, err := serverInitialKeys([]byte{0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%x %x %x", keys.key, keys.iv, keys.mask)
	if want := "cf3a5331653c364c88f0f379b6067e37 0ac1493ca1905853b0bba03e c206b8d9b9f0f37644430b490eeaa314"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestPacketHeadsAreTakenApart(t *testing.T) {
	id, _ := taggedIDs(7).GenerateConnectionID()
	short := append([]byte{0x41}, id.Bytes()...)
	h, ok := parseHead(short)
	if n, ours := h.generation(); !ok || h.long || !ours || n != 7 {
		t.Errorf("%+v, %v", h, ok)
	}
	long := []byte{0xc3, 0, 0, 0, 1, 4, 1, 2, 3, 4, 2, 8, 9, 0, 0}
	h, ok = parseHead(long)
	if _, ours := h.generation(); !ok || !h.initial || ours || !bytes.Equal(h.to, []byte{1, 2, 3, 4}) || !bytes.Equal(h.from, []byte{8, 9}) {
		t.Errorf("%+v, %v", h, ok)
	}
	vn, ok := parseHead(h.versionNegotiation())
	if !ok || vn.initial || !bytes.Equal(vn.to, h.from) || !bytes.Equal(vn.from, h.to) {
		t.Errorf("%+v, %v", vn, ok)
	}
}

func FuzzParseHead(f *testing.F) {
	f.Add([]byte{0xc3, 0, 0, 0, 1, 4, 1, 2, 3, 4, 2, 8, 9, 0, 0})
	f.Add([]byte{0x41, 1, 2, 3})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		h, ok := parseHead(p)
		if !ok {
			return
		}
		if len(h.to)+len(h.from) > len(p) {
			t.Fatalf("ids out of nowhere: %+v", h)
		}
		h.generation()
		if vn, ok := parseHead(h.versionNegotiation()); h.long && (!ok || !bytes.Equal(vn.to, h.from)) {
			t.Fatalf("%+v answered with %+v", h, vn)
		}
	})
}
