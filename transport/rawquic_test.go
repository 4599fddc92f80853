package transport

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/quicvarint"
)

// rawPeer is a QUIC server that speaks just enough HTTP/3 to be believed, and
// lets a script do what no library would.
type rawPeer struct {
	port  int
	conns atomic.Int64
	live  atomic.Int64
	// whole counts requests that arrived to their last byte.
	whole atomic.Int64
}

// rawConn3 is one connection of it.
type rawConn3 struct {
	*quic.Conn
	peer    *rawPeer
	control *quic.SendStream
}

// goAway sends a GOAWAY frame.
func (c *rawConn3) goAway(id uint64) {
	frame := quicvarint.Append(nil, 0x7)
	frame = quicvarint.Append(frame, uint64(quicvarint.Len(id)))
	_, _ = c.control.Write(quicvarint.Append(frame, id))
}

// ok answers 200 without a body, after the whole request has been read.
func (c *rawConn3) ok(s *quic.Stream) {
	c.readAll(s)
	_, _ = s.Write(headers200)
	_ = s.Close()
}

func (c *rawConn3) readAll(s *quic.Stream) {
	if _, err := io.ReadAll(s); err == nil {
		c.peer.whole.Add(1)
	}
}

// headers200 is a HEADERS frame with ":status: 200" out of QPACK's static table.
var headers200 = []byte{0x01, 0x03, 0x00, 0x00, 0xd9}

type rawOption func(*quic.Transport, *tls.Config, *quic.Config)

// serveRaw runs script for each request stream, in a goroutine of its own.
func serveRaw(t *testing.T, script func(c *rawConn3, s *quic.Stream), options ...rawOption) *rawPeer {
	t.Helper()
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	p := &rawPeer{port: portOf(udp.LocalAddr())}
	tr := &quic.Transport{Conn: udp}
	tlsConfig := &tls.Config{Certificates: []tls.Certificate{testCA().issue(originName)}, NextProtos: []string{protoHTTP3}}
	cfg := &quic.Config{}
	for _, o := range options {
		o(tr, tlsConfig, cfg)
	}
	ln, err := tr.Listen(tlsConfig, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var tasks tasks
	tasks.run(func() {
		for {
			conn, err := ln.Accept(context.Background())
			if err != nil {
				return
			}
			tasks.run(func() { p.serve(conn, script, &tasks) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		_ = tr.Close()
		_ = udp.Close()
		<-tasks.none()
	})
	return p
}

func (p *rawPeer) serve(conn *quic.Conn, script func(*rawConn3, *quic.Stream), tasks *tasks) {
	p.conns.Add(1)
	p.live.Add(1)
	defer p.live.Add(-1)
	control, err := conn.OpenUniStream()
	if err != nil {
		return
	}
	_, _ = control.Write([]byte{0x00, 0x04, 0x00}) // control stream, empty SETTINGS
	c := &rawConn3{Conn: conn, peer: p, control: control}
	for {
		s, err := conn.AcceptStream(context.Background())
		if err != nil {
			return
		}
		tasks.run(func() { script(c, s) })
	}
}
