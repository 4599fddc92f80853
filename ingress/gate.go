package ingress

import (
	"errors"
	"net"
	"net/netip"
	"sync"
)

// gate is a listener with limits. At the node's limit it stops accepting, so that
// connections wait in the kernel's queue, where they show; above the limit of one
// address it closes them at once.
type gate struct {
	net.Listener
	slots    chan struct{}
	clients  *clientCounts
	observer *Observer
	closed   chan struct{}
	once     sync.Once
}

func newGate(l net.Listener, conns int, clients *clientCounts, observer *Observer) *gate {
	return &gate{Listener: l, slots: make(chan struct{}, conns), clients: clients, observer: observer, closed: make(chan struct{})}
}

// Accept implements [net.Listener].
func (g *gate) Accept() (net.Conn, error) {
	select {
	case g.slots <- struct{}{}:
	case <-g.closed:
		return nil, net.ErrClosed
	}
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			<-g.slots
			return nil, err
		}
		client := addrPort(conn.RemoteAddr()).Addr()
		if !g.clients.enter(client) {
			_ = conn.Close()
			g.observer.connRefused(ConnClientLimit)
			continue
		}
		return &gatedConn{Conn: conn, leave: func() {
			g.clients.leave(client)
			<-g.slots
		}}, nil
	}
}

// Close implements [net.Listener].
func (g *gate) Close() error {
	g.once.Do(func() { close(g.closed) })
	return g.Listener.Close()
}

// gatedConn gives its place back when it is closed.
type gatedConn struct {
	net.Conn
	leave func()
	once  sync.Once
}

// Close implements [net.Conn].
func (c *gatedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.leave)
	return err
}

// CloseWrite lets net/http end its side first, so that a sender gets to read why
// its body was refused.
func (c *gatedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// clientCounts counts what each client address holds: its connections, TCP and
// QUIC together, or the bodies that it is sending.
type clientCounts struct {
	most   int
	exempt []netip.Prefix
	mu     sync.Mutex
	counts map[netip.Prefix]int // no zeros: as many entries as there are clients
}

func newClientCounts(most int, exempt []netip.Prefix) *clientCounts {
	return &clientCounts{most: most, exempt: exempt, counts: map[netip.Prefix]int{}}
}

// enter counts one more and reports whether it may stay; if so, leave has to
// follow.
func (c *clientCounts) enter(client netip.Addr) bool {
	key, counted := c.key(client)
	if !counted {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[key] >= c.most {
		return false
	}
	c.counts[key]++
	return true
}

func (c *clientCounts) leave(client netip.Addr) {
	key, counted := c.key(client)
	if !counted {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts[key]--; c.counts[key] <= 0 {
		delete(c.counts, key)
	}
}

// key is what counts as one client; false for a proxy, behind which all are.
func (c *clientCounts) key(client netip.Addr) (netip.Prefix, bool) {
	client = client.Unmap().WithZone("")
	if contains(c.exempt, client) {
		return netip.Prefix{}, false
	}
	return failureKeyOf("", client).prefix, true
}
