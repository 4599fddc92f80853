package fault

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

func fillRandom(p []byte) { _, _ = rand.Read(p) } // never fails

// Our connection ids: a mark that tells them from a client's random ones, the
// generation, and what makes them unique.
const (
	idLength = 12
	idMark   = 0xfa017fed
)

// taggedIDs makes connection ids of a generation.
type taggedIDs uint16

// GenerateConnectionID implements quic.ConnectionIDGenerator.
func (t taggedIDs) GenerateConnectionID() (quic.ConnectionID, error) {
	id := make([]byte, idLength)
	fillRandom(id)
	binary.BigEndian.PutUint32(id, idMark)
	binary.BigEndian.PutUint16(id[4:], uint16(t))
	return quic.ConnectionIDFromBytes(id), nil
}

// ConnectionIDLen implements quic.ConnectionIDGenerator.
func (taggedIDs) ConnectionIDLen() int { return idLength }

// packetHead is what every version of QUIC shows of a packet (RFC 8999), and
// whether version 1 calls it an Initial (RFC 9000 section 17.2.2).
type packetHead struct {
	long, initial bool
	to, from      []byte // connection ids; from in long headers only
}

func parseHead(p []byte) (packetHead, bool) {
	if len(p) == 0 {
		return packetHead{}, false
	}
	if p[0]&0x80 == 0 {
		if len(p) < 1+idLength {
			return packetHead{}, false
		}
		return packetHead{to: p[1 : 1+idLength]}, true
	}
	if len(p) < 7 {
		return packetHead{}, false
	}
	h := packetHead{long: true, initial: p[0]&0x30 == 0 && binary.BigEndian.Uint32(p[1:]) == 1}
	rest := p[5:]
	var ok bool
	if h.to, rest, ok = cutID(rest); !ok {
		return packetHead{}, false
	}
	h.from, _, ok = cutID(rest)
	return h, ok
}

func cutID(p []byte) (id, rest []byte, ok bool) {
	if len(p) == 0 || len(p) < 1+int(p[0]) {
		return nil, nil, false
	}
	n := 1 + int(p[0])
	return p[1:n], p[n:], true
}

// generation returns the number that one of our ids carries.
func (h packetHead) generation() (uint16, bool) {
	if len(h.to) != idLength || binary.BigEndian.Uint32(h.to) != idMark {
		return 0, false
	}
	return binary.BigEndian.Uint16(h.to[4:]), true
}

// versionNegotiation answers that only versions nobody speaks will do (RFC 9000
// section 17.2.1; the pattern is reserved by section 15).
func (h packetHead) versionNegotiation() []byte {
	p := []byte{0x80 | 0x40, 0, 0, 0, 0}
	p = append(append(p, byte(len(h.from))), h.from...)
	p = append(append(p, byte(len(h.to))), h.to...)
	return append(p, 0x1a, 0x2a, 0x3a, 0x4a, 0x5a, 0x6a, 0x7a, 0x8a)
}

// pipe is a generation's view of the socket.
type pipe struct {
	socket *net.UDPConn
	in     chan packet

	mu       sync.Mutex
	isCut    bool
	deadline chan struct{} // closed when a read deadline has passed
	passed   bool
}

var _ net.PacketConn = (*pipe)(nil)

func newPipe(socket *net.UDPConn) *pipe {
	return &pipe{socket: socket, in: make(chan packet, 1024), deadline: make(chan struct{})}
}

// deliver hands a packet over; a full queue loses it, as a socket's does.
func (p *pipe) deliver(pkt packet) {
	select {
	case p.in <- pkt:
	default:
	}
}

// cut lets nothing out any more.
func (p *pipe) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
}

// ReadFrom implements net.PacketConn.
func (p *pipe) ReadFrom(b []byte) (int, net.Addr, error) {
	p.mu.Lock()
	deadline := p.deadline
	p.mu.Unlock()
	select {
	case pkt := <-p.in:
		return copy(b, pkt.data), pkt.from, nil
	case <-deadline:
		return 0, nil, os.ErrDeadlineExceeded
	}
}

// WriteTo implements net.PacketConn.
func (p *pipe) WriteTo(b []byte, to net.Addr) (int, error) {
	p.mu.Lock()
	isCut := p.isCut
	p.mu.Unlock()
	if isCut {
		return len(b), nil
	}
	n, err := p.socket.WriteTo(b, to)
	if errors.Is(err, net.ErrClosed) {
		return len(b), nil // the server is closing; a datagram is lost
	}
	return n, err
}

// Close implements net.PacketConn. The socket is the hub's.
func (p *pipe) Close() error { return p.SetReadDeadline(time.Unix(1, 0)) }

// LocalAddr implements net.PacketConn.
func (p *pipe) LocalAddr() net.Addr { return p.socket.LocalAddr() }

// SetDeadline implements net.PacketConn.
func (p *pipe) SetDeadline(t time.Time) error { return p.SetReadDeadline(t) }

// SetReadDeadline implements net.PacketConn. quic-go sets one in the past to end
// its reader, and lifts it afterwards; no other is needed.
func (p *pipe) SetReadDeadline(t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch past := !t.IsZero() && !t.After(time.Now()); {
	case past && !p.passed:
		close(p.deadline)
		p.passed = true
	case !past && p.passed:
		p.deadline, p.passed = make(chan struct{}), false
	}
	return nil
}

// SetWriteDeadline implements net.PacketConn; a write does not wait.
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }

// SetReadBuffer grows the socket's, which quic-go asks for.
func (p *pipe) SetReadBuffer(n int) error {
	_ = p.socket.SetReadBuffer(n) // the system's limit is good enough here
	return nil
}

// SetWriteBuffer is the same in the other direction.
func (p *pipe) SetWriteBuffer(n int) error {
	_ = p.socket.SetWriteBuffer(n) // the system's limit is good enough here
	return nil
}
