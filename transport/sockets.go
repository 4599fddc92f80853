package transport

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"github.com/quic-go/quic-go"
)

// connIDLength is what tells the connections on one socket apart. Eight random
// bytes do not collide among a few thousand.
const connIDLength = 8

// sockets holds the UDP sockets: one for each source address and family, shared
// by all peers. They are opened at the first dial and stay open.
type sockets struct {
	cfg *Config

	mu     sync.Mutex
	closed bool
	open   map[socketKey]*socket
}

type socketKey struct {
	source netip.Addr // invalid = the system's choice
	v6     bool
}

// socket is one UDP socket with quic-go's transport on it.
type socket struct {
	conn      net.PacketConn
	transport *quic.Transport
}

func newSockets(cfg *Config) *sockets {
	// quic-go reports small UDP buffers on the process's standard log, once; we
	// report them with sizes on ours.
	_ = os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true")
	return &sockets{cfg: cfg, open: map[socketKey]*socket{}}
}

// get returns the socket for a target, and opens it if need be.
func (s *sockets) get(egress Egress, to netip.Addr) (*socket, error) {
	key := socketKey{source: egress.source(to), v6: to.Is6()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	if sock := s.open[key]; sock != nil {
		return sock, nil
	}
	network, laddr := "udp4", &net.UDPAddr{}
	if key.v6 {
		network = "udp6"
	}
	if key.source.IsValid() {
		laddr.IP = key.source.AsSlice()
	}
	conn, err := s.cfg.ListenUDP(network, laddr)
	if err != nil {
		return nil, fmt.Errorf("open UDP socket: %w", err)
	}
	conn = softened(conn)
	s.growBuffers(conn)
	sock := &socket{conn: conn, transport: &quic.Transport{Conn: conn, ConnectionIDLength: connIDLength}}
	s.open[key] = sock
	return sock, nil
}

// udpBuffer is asked for in both directions. All peers share one socket, and
// what the kernel drops for lack of space looks like loss on every path.
const udpBuffer = 7 << 20

func (s *sockets) growBuffers(conn net.PacketConn) {
	buffered, ok := conn.(interface {
		SetReadBuffer(bytes int) error
		SetWriteBuffer(bytes int) error
	})
	if !ok {
		return
	}
	// Most systems do not fail but give less, so it is the result that counts.
	_, _ = buffered.SetReadBuffer(udpBuffer), buffered.SetWriteBuffer(udpBuffer)
	if read, write, ok := bufferSizes(conn); ok && min(read, write) < udpBuffer {
		s.cfg.Logger.Warn("udp buffers are smaller than asked for",
			"wanted_bytes", udpBuffer, "read_bytes", read, "write_bytes", write)
	}
}

// lost drops a socket that quic-go has given up, so that the next dial opens a
// new one.
func (s *sockets) lost(sock *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, other := range s.open {
		if other == sock && !s.closed {
			delete(s.open, key)
			_ = sock.conn.Close()
			s.cfg.Logger.Warn("udp socket was lost", "local", sock.conn.LocalAddr().String())
		}
	}
}

func (s *sockets) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// close ends all sockets. Their connections have been closed before, each with
// its CONNECTION_CLOSE on the wire.
func (s *sockets) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for key, sock := range s.open {
		_ = sock.transport.Close()
		_ = sock.conn.Close()
		delete(s.open, key)
	}
}
