package transport

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawTCP is a TCP server under a script.
type rawTCP struct {
	port  int
	conns atomic.Int64
	// whole counts requests that arrived to their last byte.
	whole atomic.Int64
}

// serveRawTCP runs script for each connection; number counts from 1. With
// protocols it does TLS first.
func serveRawTCP(t *testing.T, script func(s *rawTCP, conn net.Conn, number int64), protocols ...string) *rawTCP {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawTCP{port: portOf(ln.Addr())}
	var tasks tasks
	stop := make(chan struct{})
	serve := func(conn net.Conn) {
		defer conn.Close()
		number := s.conns.Add(1)
		tasks.run(func() { // ends the script with the test
			<-stop
			conn.Close()
		})
		if len(protocols) > 0 {
			secure := tls.Server(conn, &tls.Config{
				Certificates: []tls.Certificate{testCA().issue(originName)}, NextProtos: protocols,
			})
			if secure.Handshake() != nil {
				return
			}
			conn = secure
		}
		script(s, conn, number)
	}
	tasks.run(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			tasks.run(func() { serve(conn) })
		}
	})
	t.Cleanup(func() {
		close(stop)
		_ = ln.Close()
		<-tasks.none()
	})
	return s
}

// readHTTP1 reads one whole request.
func (s *rawTCP) readHTTP1(r *bufio.Reader) bool {
	req, err := http.ReadRequest(r)
	if err != nil {
		return false
	}
	if n, err := io.Copy(io.Discard, req.Body); err != nil || n != req.ContentLength {
		return false
	}
	s.whole.Add(1)
	return true
}

// http2Peer is one HTTP/2 connection at frame level.
type http2Peer struct {
	*http2.Framer
	writing sync.Mutex // for scripts that answer later
	server  *rawTCP
	conn    net.Conn
}

// http2Script answers each request that has arrived whole.
type http2Script func(p *http2Peer, stream uint32)

func serveRawHTTP2(t *testing.T, script http2Script, settings ...http2.Setting) *rawTCP {
	return serveRawTCP(t, func(s *rawTCP, conn net.Conn, _ int64) {
		preface := make([]byte, len(http2.ClientPreface))
		if _, err := io.ReadFull(conn, preface); err != nil {
			return
		}
		p := &http2Peer{Framer: http2.NewFramer(conn, conn), server: s, conn: conn}
		p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		_ = p.WriteSettings(settings...)
		p.run(script)
	}, protoHTTP2)
}

func (p *http2Peer) run(script http2Script) {
	for {
		f, err := p.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				p.writing.Lock()
				_ = p.WriteSettingsAck()
				p.writing.Unlock()
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = p.WritePing(true, f.Data)
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				p.server.whole.Add(1)
				script(p, f.StreamID)
			}
		}
	}
}

// answer sends a HEADERS frame; fields alternate names and values.
func (p *http2Peer) answer(stream uint32, end bool, fields ...string) {
	p.writing.Lock()
	defer p.writing.Unlock()
	var block strings.Builder
	enc := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	_ = p.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: []byte(block.String()), EndStream: end, EndHeaders: true,
	})
}
