package fault

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frameClient speaks HTTP/2 in frames, so that what the server sends is seen as
// it is.
type frameClient struct {
	*http2.Framer
	t    *testing.T
	conn *tls.Conn
}

func (b *peerBench) frames() *frameClient {
	b.t.Helper()
	conn, err := tls.Dial("tcp", b.Addr(), b.tls("h2"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(enough))
	c := &frameClient{Framer: http2.NewFramer(conn, conn), t: b.t, conn: conn}
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	c.MaxHeaderListSize = 16 << 20
	_, _ = io.WriteString(conn, http2.ClientPreface)
	_ = c.WriteSettings() // the peer may have closed
	return c
}

// post opens a stream with a body of size bytes.
func (c *frameClient) post(stream uint32, id string, size int) {
	c.t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: "/"},
		{Name: ":authority", Value: "h.test"}, {Name: "webhook-id", Value: id},
	} {
		if err := enc.WriteField(f); err != nil {
			c.t.Fatal(err)
		}
	}
	// The peer may have closed; then the next read says so.
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true})
	_ = c.WriteData(stream, true, make([]byte, size))
}

// next reads a line about the next frame that is not the connection's own.
func (c *frameClient) next() string {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return "end"
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if v, ok := f.Value(http2.SettingMaxConcurrentStreams); ok {
				return fmt.Sprintf("limit %d", v)
			}
		case *http2.WindowUpdateFrame:
		case *http2.MetaHeadersFrame:
			return fmt.Sprintf("%d head %s", f.StreamID, f.PseudoValue("status"))
		case *http2.DataFrame:
			return fmt.Sprintf("%d data %q %v", f.StreamID, f.Data(), f.StreamEnded())
		case *http2.RSTStreamFrame:
			return fmt.Sprintf("%d reset %v", f.StreamID, f.ErrCode)
		case *http2.GoAwayFrame:
			return fmt.Sprintf("goaway %d %v", f.LastStreamID, f.ErrCode)
		}
	}
}

func (c *frameClient) want(lines ...string) {
	c.t.Helper()
	for i, want := range lines {
		if got := c.next(); got != want {
			c.t.Fatalf("frame %d is %q, want %q", i, got, want)
		}
	}
}

func TestHTTP2FramesAreAsTold(t *testing.T) {
	ok := []string{"1 head 200", `1 data "ok" false`, `1 data "" true`}
	cases := []struct {
		spec string
		want []string
		runs int
	}{
		{"h2-reset:code=REFUSED_STREAM,when=before", []string{"1 reset REFUSED_STREAM"}, 0},
		{"h2-reset:code=11", []string{"1 reset ENHANCE_YOUR_CALM"}, 1},
		{"h2-goaway:last=below,when=before", []string{"goaway 0 NO_ERROR"}, 0},
		{"h2-goaway:last=at,code=INTERNAL_ERROR,then=close", []string{"goaway 1 INTERNAL_ERROR", "end"}, 1},
		{"h2-goaway:last=above,then=answer", append([]string{"goaway 2147483647 NO_ERROR"}, ok...), 1},
		{"h2-goaway:last=at,when=idle", append(ok[:3:3], "goaway 1 NO_ERROR"), 1},
		{"tcp-close:when=before", []string{"end"}, 0},
		{"tcp-close:how=rst", []string{"end"}, 1},
		{"tcp-close:when=idle", append(ok[:3:3], "end"), 1},
		{"tcp-close:when=handshake", []string{"end"}, 0},
		{"restart", []string{"end"}, 1},
		{"reset-after-headers:code=8", []string{"1 head 200", `1 data "begun" false`, "1 reset CANCEL"}, 1},
		{"early-answer", append(ok[:3:3], "1 reset NO_ERROR"), 1},
		{"noise:form=empty", []string{`1 data "" true`}, 1},
		{"noise:form=no-status", []string{"1 head "}, 1},
		{"noise:form=bytes", []string{"end"}, 1}, // the client's own framer refuses it
		{"1xx-storm:count=2,status=100", append([]string{"1 head 100", "1 head 100"}, ok...), 1},
		{"header-flood:count=2000,size=100", ok, 1}, // continued over many frames
	}
	for _, c := range cases {
		t.Run(c.spec, func(t *testing.T) {
			t.Parallel()
			b := start(t, nil, c.spec)
			client := b.frames()
			client.post(1, "evt", 100)
			client.want(c.want...)
			eventually(t, "the handler ran as often as it should", func() bool { return b.Tally().Runs("evt") == c.runs })
		})
	}
}

func TestHTTP2StreamLimitIsAnnouncedAndKept(t *testing.T) {
	b := start(t, nil, "stream-limit:limit=1")
	c := b.frames()
	c.want("limit 1")
	c.post(1, "first", 1)
	eventually(t, "the first hangs", func() bool { return b.Tally().Runs("first") == 1 })
	c.post(3, "second", 1)
	c.want("3 reset REFUSED_STREAM")
	if err := c.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
		t.Fatal(err)
	}
	if err := b.SetFaults(); err != nil {
		t.Fatal(err)
	}
	c.post(5, "third", 1)
	c.want("5 head 200")
	if b.Tally().Runs("second") != 0 {
		t.Error("a refused request ran")
	}
}

// TestHTTP2ServerObeysFlowControl: it sends no more than it may, and one stream
// that is not read does not starve the others.
func TestHTTP2ServerObeysFlowControl(t *testing.T) {
	b := start(t, nil, "endless-body:times=1")
	c := b.frames()
	c.post(1, "endless", 1)
	c.want("1 head 200")
	for got := 0; got < 65535; {
		f, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := f.(*http2.DataFrame); ok {
			if got += len(f.Data()); got > 65535 {
				t.Fatalf("%d bytes came, 65535 were allowed", got)
			}
		}
	}
	if err := c.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
		t.Fatal(err)
	}
	if err := c.WriteWindowUpdate(0, 65535); err != nil {
		t.Fatal(err)
	}
	c.post(3, "next", 1)
	c.want("3 head 200", `3 data "ok" false`)
}

func TestHTTP2UnreadBodyStopsItsSenderAlone(t *testing.T) {
	b := start(t, nil, "stop-reading:times=1")
	c := b.frames()
	c.post(1, "unread", 16<<10)
	eventually(t, "it hangs", func() bool { return b.Tally().Fired("stop-reading") == 1 })
	if err := c.WriteRSTStream(1, http2.ErrCodeCancel); err != nil {
		t.Fatal(err)
	}
	// All of the connection's credit comes back, or these would not fit.
	for i := range 8 {
		c.post(uint32(3+2*i), fmt.Sprint(i), 16<<10)
		for !strings.HasSuffix(c.next(), "true") {
		}
	}
	if n := b.Tally().Bytes("unread"); n != 0 {
		t.Errorf("%d bytes were read", n)
	}
}

func TestHTTP2PathDeathIsSilent(t *testing.T) {
	b := start(t, nil, "path-death")
	c := b.frames()
	c.post(1, "evt", 1)
	eventually(t, "the handler ran", func() bool { return b.Tally().Runs("evt") == 1 })
	_ = c.conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if got := c.next(); got != "end" { // of patience: nothing came
		t.Errorf("the dead path carried %q", got)
	}
	c.post(3, "later", 1)
	if b.Tally().Counts().TCPOpen != 1 {
		t.Error("the connection was closed")
	}
	if b.Tally().Arrived("later") != 0 {
		t.Error("a request went over the dead path")
	}
}
