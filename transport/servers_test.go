package transport

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// tcpServer serves HTTP over TLS on a loopback port.
type tcpServer struct {
	port  int
	conns atomic.Int64 // accepted
	live  atomic.Int64
}

type serverOption func(*http.Server)

func http1Only(s *http.Server) {
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP1(true)
}

func serveTLS(t *testing.T, h http.Handler, options ...serverOption) *tcpServer {
	return serveOn(t, h, true, options...)
}

func servePlain(t *testing.T, h http.Handler, options ...serverOption) *tcpServer {
	return serveOn(t, h, false, options...)
}

func serveOn(t *testing.T, h http.Handler, secure bool, options ...serverOption) *tcpServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &tcpServer{port: portOf(ln.Addr())}
	srv := &http.Server{
		Handler:   h,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{testCA().issue(originName)}, NextProtos: []string{protoHTTP2, protoHTTP1}},
		ErrorLog:  log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, st http.ConnState) {
			switch st {
			case http.StateNew:
				s.conns.Add(1)
				s.live.Add(1)
			case http.StateClosed, http.StateHijacked:
				s.live.Add(-1)
			}
		},
	}
	for _, o := range options {
		o(srv)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if secure {
			_ = srv.ServeTLS(ln, "", "")
		} else {
			_ = srv.Serve(ln)
		}
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return s
}

// quicServer serves HTTP/3 on a loopback port.
type quicServer struct {
	port  int
	conns atomic.Int64
	live  atomic.Int64
	srv   *http3.Server
	early atomic.Int64 // connections that used 0-RTT
}

type quicOption func(*tls.Config, *quic.Config, *http3.Server)

func serveQUIC(t *testing.T, h http.Handler, options ...quicOption) *quicServer {
	t.Helper()
	return serveQUICOn(t, 0, h, options...)
}

func serveQUICOn(t *testing.T, port int, h http.Handler, options ...quicOption) *quicServer {
	t.Helper()
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		t.Fatal(err)
	}
	s := &quicServer{port: portOf(udp.LocalAddr())}
	tlsConfig := &tls.Config{Certificates: []tls.Certificate{testCA().issue(originName)}, NextProtos: []string{protoHTTP3}}
	cfg := &quic.Config{Allow0RTT: true}
	s.srv = &http3.Server{Handler: h, ConnContext: func(ctx context.Context, c *quic.Conn) context.Context {
		s.conns.Add(1)
		s.live.Add(1)
		context.AfterFunc(c.Context(), func() { s.live.Add(-1) })
		if c.ConnectionState().Used0RTT {
			s.early.Add(1)
		}
		return ctx
	}}
	for _, o := range options {
		o(tlsConfig, cfg, s.srv)
	}
	tr := &quic.Transport{Conn: udp}
	ln, err := tr.ListenEarly(tlsConfig, cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.srv.ServeListener(ln)
	}()
	t.Cleanup(func() {
		_ = s.srv.Close()
		<-done
		_ = ln.Close()
		_ = tr.Close()
		_ = udp.Close()
	})
	return s
}
