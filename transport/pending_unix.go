//go:build unix

package transport

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// pending reports whether a socket has something to read, its end included. It
// does not wait, and it can be asked while somebody else waits for the same.
func pending(conn syscall.RawConn) bool {
	something := true
	err := conn.Control(func(fd uintptr) {
		var p [1]byte
		_, _, err := unix.Recvfrom(int(fd), p[:], unix.MSG_PEEK|unix.MSG_DONTWAIT) //nolint:gosec // a file descriptor
		something = err != unix.EAGAIN && err != unix.EINTR                        //nolint:errorlint // a bare errno
	})
	return err != nil || something
}
