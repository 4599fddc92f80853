package transport

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/quic-go/quic-go"
	"golang.org/x/sys/unix"
)

// systemUDP is what quic-go needs of a socket for its fast paths: batches,
// segmentation offload, ECN. *net.UDPConn has it.
type systemUDP interface {
	quic.OOBCapablePacketConn
	net.Conn
	SetWriteBuffer(bytes int) error
}

// minInitial is the size of the smallest Initial that a server may answer (RFC
// 9000 section 14.1). A path that does not take it takes no QUIC.
const minInitial = 1200

// softUDP softens what the system says about a write. quic-go gives a connection
// up at almost any error, and with it every request on it; on a socket that
// thousands of peers share, some errors are about the moment, or about how a
// packet was handed over, and not about the path.
type softUDP struct {
	systemUDP
	// single holds the peers to which trains of packets cannot be sent. It is
	// asked only when there is a train to send.
	single *lru.Cache[netip.AddrPort, struct{}]
}

// softened wraps a system socket and leaves any other as it is.
func softened(conn net.PacketConn) net.PacketConn {
	sys, ok := conn.(systemUDP)
	if !ok {
		return conn
	}
	single, err := lru.New[netip.AddrPort, struct{}](1024)
	if err != nil {
		return conn // a constant size is valid
	}
	return &softUDP{systemUDP: sys, single: single}
}

// WriteMsgUDP implements quic.OOBCapablePacketConn.
func (c *softUDP) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if size := trainSize(oob); size > 0 && size < len(b) {
		return c.writeTrain(b, oob, size, addr)
	}
	n, oobn, err = c.systemUDP.WriteMsgUDP(b, oob, addr)
	switch {
	case err == nil:
	case errors.Is(err, syscall.ENOBUFS):
		// A full queue of ours is loss, and QUIC knows what to do about loss.
		return len(b), len(oob), nil
	case errors.Is(err, syscall.EMSGSIZE) && len(b) <= minInitial:
		// quic-go expects this of packets that probe for a larger size, and
		// would wait for an answer to a packet that was never sent.
		return n, oobn, fmt.Errorf("the path does not take packets of %d bytes, which QUIC needs", len(b))
	}
	return n, oobn, err
}

// writeTrain sends packets of one size in one go (UDP GSO), or one by one where
// that has failed before: drivers and kernels refuse it with EIO or EINVAL, and
// quic-go knows only the first.
func (c *softUDP) writeTrain(b, oob []byte, size int, addr *net.UDPAddr) (int, int, error) {
	to := addr.AddrPort()
	if !c.single.Contains(to) {
		n, oobn, err := c.systemUDP.WriteMsgUDP(b, oob, addr)
		if !errors.Is(err, syscall.EIO) && !errors.Is(err, syscall.EINVAL) {
			return n, oobn, err
		}
		c.single.Add(to, struct{}{})
	}
	oob = withoutTrain(oob)
	for rest := b; len(rest) > 0; {
		packet := rest[:min(size, len(rest))]
		rest = rest[len(packet):]
		if _, _, err := c.WriteMsgUDP(packet, oob, addr); err != nil {
			return 0, 0, err
		}
	}
	return len(b), len(oob), nil
}

// trainSize finds the size of the packets of a train in its control messages, 0
// if it is a single packet.
func trainSize(oob []byte) int {
	for len(oob) >= unix.SizeofCmsghdr {
		header, data, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return 0
		}
		if header.Level == unix.IPPROTO_UDP && header.Type == unix.UDP_SEGMENT && len(data) >= 2 {
			return int(binary.NativeEndian.Uint16(data))
		}
		oob = rest
	}
	return 0
}

// withoutTrain copies control messages but the one that makes a train.
func withoutTrain(oob []byte) []byte {
	var out []byte
	for len(oob) >= unix.SizeofCmsghdr {
		header, _, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return out
		}
		if header.Level != unix.IPPROTO_UDP || header.Type != unix.UDP_SEGMENT {
			out = append(out, oob[:len(oob)-len(rest)]...)
		}
		oob = rest
	}
	return out
}

// bufferSizes returns what the kernel has given.
func bufferSizes(conn net.PacketConn) (read, write int, ok bool) {
	sys, ok := conn.(syscall.Conn)
	if !ok {
		return 0, 0, false
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return 0, 0, false
	}
	var readErr, writeErr error
	err = raw.Control(func(fd uintptr) {
		read, readErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
		write, writeErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
	})
	return read, write, errors.Join(err, readErr, writeErr) == nil
}
