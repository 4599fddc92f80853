package kernel

import "errors"

// ErrNotFound: the kernel does not list this socket, because it was closed.
var ErrNotFound = errors.New("socket is not listed by the kernel")

// Socket is the state of one listening socket.
type Socket struct {
	// Queue is how much waits to be read: finished handshakes in the accept queue
	// of a TCP listener, bytes in the receive buffer of a UDP socket.
	Queue uint32
	// Limit is the most that may wait: the backlog after the kernel's own cap
	// (net.core.somaxconn), or the size of the receive buffer.
	Limit uint32
	// Drops are datagrams dropped at this UDP socket since it was opened. The
	// kernel keeps no such figure for a TCP listener; see [Counters].
	Drops uint32
}
