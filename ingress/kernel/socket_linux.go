package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// identity is how a socket is recognised in the kernel's answer.
type identity struct {
	family, protocol uint8
	port             uint16
	inode            uint32 // of the socket, as fstat and sock_diag both show it
}

// Inspect asks the kernel about conn, a TCP listener or a UDP socket.
func Inspect(conn syscall.Conn) (Socket, error) {
	var id identity
	if err := control(conn, func(fd int) (err error) {
		id, err = identify(fd)
		return err
	}); err != nil {
		return Socket{}, fmt.Errorf("inspect socket: %w", err)
	}
	s, err := query(id)
	if err != nil {
		return Socket{}, fmt.Errorf("inspect socket on port %d: %w", id.port, err)
	}
	return s, nil
}

// Listen sets the backlog of conn, a TCP listener. Go asks for net.core.somaxconn
// and offers no other number; a second listen(2) on the same socket is allowed
// and replaces it.
func Listen(conn syscall.Conn, backlog int) error {
	if err := control(conn, func(fd int) error { return unix.Listen(fd, backlog) }); err != nil {
		return fmt.Errorf("set backlog: %w", err)
	}
	return nil
}

// control runs f on the file descriptor of conn.
func control(conn syscall.Conn, f func(fd int) error) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

func identify(fd int) (identity, error) {
	var id identity
	name, err := unix.Getsockname(fd)
	if err != nil {
		return id, fmt.Errorf("getsockname: %w", err)
	}
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		id.family, id.port = unix.AF_INET, uint16(name.Port) //nolint:gosec // a port
	case *unix.SockaddrInet6:
		id.family, id.port = unix.AF_INET6, uint16(name.Port) //nolint:gosec // a port
	default:
		return id, fmt.Errorf("%T: %w", name, ErrUnsupported)
	}
	kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return id, fmt.Errorf("SO_TYPE: %w", err)
	}
	id.protocol = unix.IPPROTO_TCP
	if kind == unix.SOCK_DGRAM {
		id.protocol = unix.IPPROTO_UDP
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return id, fmt.Errorf("fstat: %w", err)
	}
	id.inode = uint32(st.Ino) //nolint:gosec // sock_diag has 32 bits of it, too
	return id, nil
}

// replyTimeout bounds a read from the netlink socket. The kernel answers at
// once; only an answer lost to a full buffer would leave us waiting.
const replyTimeoutSeconds = 2

// query asks sock_diag for the sockets on id's port and picks out the one with
// its inode.
func query(id identity) (Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return Socket{}, fmt.Errorf("sock_diag: %w", err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing is buffered in it
	wait := unix.Timeval{Sec: replyTimeoutSeconds}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return Socket{}, fmt.Errorf("sock_diag: %w", err)
	}
	if err := unix.Sendto(fd, diagRequest(id), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return Socket{}, fmt.Errorf("sock_diag: send: %w", err)
	}
	buf := make([]byte, 32<<10)
	var found *Socket
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return Socket{}, fmt.Errorf("sock_diag: receive: %w", err)
		}
		s, done, err := parseDiag(buf[:n], id)
		if err != nil {
			return Socket{}, err
		}
		if s != nil {
			found = s
		}
		if !done {
			continue // the rest of the answer has to be read, or the kernel keeps it
		}
		if found == nil {
			return Socket{}, ErrNotFound
		}
		return *found, nil
	}
}

// Sizes and numbers of linux/netlink.h, linux/inet_diag.h and linux/sock_diag.h
// that package unix does not have.
const (
	netlinkHeader = 16
	diagRequestV2 = 56
	diagMessage   = 72
	diagSkMemInfo = 7 // INET_DIAG_SKMEMINFO
	memRmemAlloc  = 0 // SK_MEMINFO_RMEM_ALLOC
	memRcvbuf     = 1 // SK_MEMINFO_RCVBUF
	memDrops      = 8 // SK_MEMINFO_DROPS
	stateListen   = 10
	allStates     = 0xffffffff
)

var native = binary.NativeEndian

// diagRequest is a dump of one protocol and family, narrowed by the kernel to
// one local port.
func diagRequest(id identity) []byte {
	b := make([]byte, netlinkHeader+diagRequestV2)
	native.PutUint32(b[0:], uint32(len(b))) //nolint:gosec // a constant
	native.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	native.PutUint32(b[8:], 1) // sequence
	req := b[netlinkHeader:]
	req[0], req[1] = id.family, id.protocol
	req[2] = 1 << (diagSkMemInfo - 1)
	states := uint32(allStates)
	if id.protocol == unix.IPPROTO_TCP {
		states = 1 << stateListen
	}
	native.PutUint32(req[4:], states)
	binary.BigEndian.PutUint16(req[8:], id.port)
	return b
}

// errDiag: the kernel's answer is not what it should be.
var errDiag = errors.New("malformed sock_diag answer")

// parseDiag looks for id in one datagram of the answer. done says that nothing
// more follows.
func parseDiag(b []byte, id identity) (found *Socket, done bool, err error) {
	for len(b) > 0 {
		if len(b) < netlinkHeader {
			return found, false, errDiag
		}
		n := int(native.Uint32(b))
		if n < netlinkHeader || n > len(b) {
			return found, false, errDiag
		}
		body := b[netlinkHeader:n]
		switch native.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return found, true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return found, false, errDiag
			}
			code := -int32(native.Uint32(body)) //nolint:gosec // the kernel sends -errno
			return found, false, fmt.Errorf("sock_diag: %w", syscall.Errno(code))
		case unix.SOCK_DIAG_BY_FAMILY:
			if s := parseSocket(body, id); s != nil {
				found = s
			}
		}
		b = b[min((n+3)&^3, len(b)):]
	}
	return found, false, nil
}

// parseSocket reads one inet_diag_msg; nil if it is not about id.
func parseSocket(b []byte, id identity) *Socket {
	if len(b) < diagMessage || native.Uint32(b[68:]) != id.inode {
		return nil
	}
	if id.protocol == unix.IPPROTO_TCP {
		// Of a listener these are the accept queue and its limit.
		return &Socket{Queue: native.Uint32(b[56:]), Limit: native.Uint32(b[60:])}
	}
	s := &Socket{}
	for attrs := b[diagMessage:]; len(attrs) >= 4; {
		n := int(native.Uint16(attrs))
		if n < 4 || n > len(attrs) {
			break
		}
		if native.Uint16(attrs[2:]) == diagSkMemInfo {
			s.memory(attrs[4:n])
		}
		attrs = attrs[min((n+3)&^3, len(attrs)):]
	}
	return s
}

// memory takes what it needs of the array of SK_MEMINFO values.
func (s *Socket) memory(b []byte) {
	value := func(i int) uint32 {
		if len(b) < 4*(i+1) {
			return 0
		}
		return native.Uint32(b[4*i:])
	}
	s.Queue, s.Limit, s.Drops = value(memRmemAlloc), value(memRcvbuf), value(memDrops)
}
