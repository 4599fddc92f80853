package transport

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"time"
)

// rawConn is the TCP connection under everything. It knows when the protocol
// stack has let go of the connection, which is how an end of the connection is
// noticed without asking, and how many bytes came from the peer, which tells a
// slow answer from a dead path.
type rawConn struct {
	net.Conn
	received atomic.Int64
	onClose  atomic.Pointer[func()]
	closed   atomic.Bool
	// dry makes reads end at what was read before. It is the reader's.
	dry bool
}

// errDry is a temporary error, which TLS does not keep.
var errDry net.Error = dryError{}

type dryError struct{}

func (dryError) Error() string   { return "nothing more was read" }
func (dryError) Timeout() bool   { return true }
func (dryError) Temporary() bool { return true }

// Read implements net.Conn.
func (c *rawConn) Read(p []byte) (int, error) {
	if c.dry {
		return 0, errDry
	}
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

// Close implements net.Conn. The stacks call it when the peer has closed, when a
// read or write has failed, and when they are told to.
func (c *rawConn) Close() error {
	err := c.Conn.Close()
	if !c.closed.Swap(true) {
		if f := c.onClose.Load(); f != nil {
			(*f)()
		}
	}
	return err
}

// whenClosed sets what to call, once; at once if it has been closed already.
func (c *rawConn) whenClosed(f func()) {
	c.onClose.Store(&f)
	if c.closed.Load() {
		f() // a second call does no harm
	}
}

// lastAlert returns the TLS alert of the peer that has ended a connection, nil if
// it was something else. The stacks do not always pass it on, but a connection
// keeps it. It does not wait, and it ends what is left of the connection.
func lastAlert(conn net.Conn) error {
	secure, ok := conn.(*tls.Conn)
	if !ok {
		return nil
	}
	_ = secure.SetReadDeadline(time.Unix(1, 0))
	if _, err := secure.Read(make([]byte, 1)); isAlert(err) {
		return err
	}
	return nil
}
