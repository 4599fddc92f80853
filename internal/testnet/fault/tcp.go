package fault

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// tcpConn is an accepted connection, below TLS. It can be looked at without
// reading, end in more than one way, and die without ending.
type tcpConn struct {
	*net.TCPConn
	br   *bufio.Reader // what was peeked at
	dead atomic.Bool
	once sync.Once
	over chan struct{} // closed by closeNow

	watch   sync.Once
	watched chan struct{} // closed when the peer has left
}

var _ connection = (*tcpConn)(nil)

func newTCPConn(c *net.TCPConn) *tcpConn {
	return &tcpConn{TCPConn: c, br: bufio.NewReaderSize(c, 4<<10), over: make(chan struct{}), watched: make(chan struct{})}
}

// left returns a channel that is closed when the peer has left. From then on
// what arrives is thrown away.
func (c *tcpConn) left() <-chan struct{} {
	c.watch.Do(func() {
		go func() { // untrack closes the connection and waits for it
			defer close(c.watched)
			_, _ = io.Copy(io.Discard, c.br) // until it ends
		}()
	})
	return c.watched
}

// Read implements net.Conn. A dead path delivers nothing, but the sockets below
// do: what comes is thrown away until the peer gives up.
func (c *tcpConn) Read(p []byte) (int, error) {
	n, err := c.br.Read(p)
	if !c.dead.Load() {
		return n, err
	}
	_, _ = io.Copy(io.Discard, c.br) // until the peer leaves or the server closes
	return 0, io.EOF
}

// Write implements net.Conn.
func (c *tcpConn) Write(p []byte) (int, error) {
	if c.dead.Load() {
		return len(p), nil
	}
	return c.TCPConn.Write(p)
}

// peek waits for the next byte and leaves it unread.
func (c *tcpConn) peek() bool {
	_, err := c.br.Peek(1)
	return err == nil && !c.dead.Load()
}

// swallow answers nothing until the peer leaves.
func (c *tcpConn) swallow() {
	c.dead.Store(true)
	_, _ = c.Read(nil) // ends with the connection
}

// die implements connection.
func (c *tcpConn) die() { c.dead.Store(true) }

// Close implements net.Conn for TLS and the rest; a dead connection stays open.
func (c *tcpConn) Close() error {
	if !c.dead.Load() {
		c.closeNow("fin", 0)
	}
	return nil
}

// closeNow implements connection. A FIN with unread bytes becomes a RST in the
// kernel, as it would for any server that does this.
func (c *tcpConn) closeNow(how string, _ uint64) {
	c.once.Do(func() {
		if how == "rst" {
			_ = c.SetLinger(0) // fails on a closed connection only
		}
		_ = c.TCPConn.Close() // the same
		close(c.over)
	})
}

// lastWords closes so that the peer can read what was written: what it still
// sends is read for a while, or its RST would overtake our bytes.
func (c *tcpConn) lastWords() {
	_ = c.CloseWrite() // fails on a closed connection only
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.Copy(io.Discard, c.br) // as far as it comes
	c.closeNow("fin", 0)
}

// acceptTCP accepts until the listener is closed.
func (s *Server) acceptTCP() {
	for {
		conn, err := s.tcp.Accept()
		if err != nil {
			return
		}
		if raw, ok := conn.(*net.TCPConn); ok {
			s.wg.Go(func() { s.serveTCP(newTCPConn(raw)) })
		}
	}
}

// serveTCP deals with one connection from its first byte to its end.
func (s *Server) serveTCP(c *tcpConn) {
	if !s.track(c) {
		c.closeNow("rst", 0)
		return
	}
	defer s.untrack(c)
	if _, ok := s.standing("stop-reading"); ok {
		_ = c.SetReadBuffer(4 << 10) // else megabytes fit into the kernel
	}
	if s.failEarly(c) {
		return
	}
	var conn net.Conn = c
	proto := delivery.ProtocolHTTP1
	if s.secure() {
		secure := tls.Server(c, s.tcpTLS())
		if secure.HandshakeContext(s.ctx) != nil {
			c.lastWords() // the alert
			return
		}
		conn = secure
		if secure.ConnectionState().NegotiatedProtocol == "h2" {
			proto = delivery.ProtocolHTTP2
		}
	}
	switch f, ok := s.decide(atHandshake, proto); {
	case ok:
		f.kind.hit(c, f) // each of them is the end of it
	case proto == delivery.ProtocolHTTP2:
		s.serveHTTP2(c, conn)
	default:
		s.serveHTTP1(c, conn)
	}
	if c.dead.Load() {
		c.swallow()
	}
}

// failEarly lets a connection fail before TLS, and reports whether it did.
func (s *Server) failEarly(c *tcpConn) bool {
	names := []string{"black-hole", "connection-refused"}
	if s.secure() {
		names = append(names, "tls-alert")
	}
	f, ok := s.decideEarly(atPacket, overTCP, names...)
	if !ok {
		return false
	}
	switch f.kind.Name {
	case "black-hole":
		c.swallow()
	case "connection-refused":
		c.closeNow("rst", 0)
	case "tls-alert":
		if c.peek() {
			// A fatal alert in a record of its own (RFC 8446 section 6).
			_, _ = c.Write([]byte{21, 3, 3, 0, 2, 2, byte(f.num("alert"))})
		}
		c.lastWords()
	}
	return true
}

// tcpTLS is what ALPN offers. HTTP/2 is left out when faults of HTTP/1.1 are
// armed and none that could happen on HTTP/2, so that every client meets them.
func (s *Server) tcpTLS() *tls.Config {
	faults := *s.armed.Load()
	onHTTP1 := func(a *armed) bool { return a.Applies(delivery.ProtocolHTTP1) }
	onHTTP2 := func(a *armed) bool { return a.Applies(delivery.ProtocolHTTP2) }
	if s.config.NoHTTP2 || slices.ContainsFunc(faults, onHTTP1) && !slices.ContainsFunc(faults, onHTTP2) {
		return s.tlsHTTP1
	}
	return s.tlsBoth
}

func (s *Server) track(c *tcpConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.conns[c] = struct{}{}
	s.tally.connected(overTCP)
	return true
}

func (s *Server) untrack(c *tcpConn) {
	c.closeNow("fin", 0)
	c.watch.Do(func() { close(c.watched) }) // unless somebody watches
	<-c.watched
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.tally.disconnected(overTCP)
}
