//go:build unix

package transport

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// socketPeek asks a socket whether it has something to read. It is made once for a
// connection, so that asking allocates nothing; whoever holds the connection's slot
// asks.
type socketPeek struct {
	conn syscall.RawConn
	look func(fd uintptr)
	some bool
}

func newSocketPeek(conn syscall.RawConn) *socketPeek {
	p := &socketPeek{conn: conn}
	p.look = func(fd uintptr) {
		fds := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}} //nolint:gosec // a file descriptor
		n, err := unix.Poll(fds[:], 0)
		p.some = n != 0 || err != nil && err != unix.EINTR //nolint:errorlint // a bare errno
	}
	return p
}

// pending reports whether there is something to read, the connection's end
// included. It does not wait, and it can be asked while somebody else waits for the
// same.
func (p *socketPeek) pending() bool {
	p.some = true
	err := p.conn.Control(p.look)
	return err != nil || p.some
}
