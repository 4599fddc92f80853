package fault

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// Relay is a path between a sender and a receiver that can be told to die. It
// listens on TCP and UDP with one port number and forwards both to the target's.
// Unlike the faults of a [Server] it works with any receiver, and in the middle
// of anything. Close it.
type Relay struct {
	target string
	tcp    net.Listener
	udp    *net.UDPConn
	wg     sync.WaitGroup

	dropTCP, dropUDP atomic.Bool
	limit            atomic.Int64
	forwarded        atomic.Int64
	dropped          atomic.Int64

	mu     sync.Mutex
	closed bool
	tcps   map[net.Conn]struct{}
	udps   map[string]*net.UDPConn // by the client's address
}

// NewRelay listens on a free port of 127.0.0.1 and forwards to target.
func NewRelay(target string) (*Relay, error) {
	r := &Relay{target: target, tcps: map[net.Conn]struct{}{}, udps: map[string]*net.UDPConn{}}
	const tries = 16
	var err error
	for range tries {
		if r.tcp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("relay: listen on tcp: %w", err)
		}
		var addr *net.UDPAddr
		if addr, err = net.ResolveUDPAddr("udp", r.tcp.Addr().String()); err == nil {
			r.udp, err = net.ListenUDP("udp", addr)
		}
		if err == nil {
			r.wg.Go(r.acceptTCP)
			r.wg.Go(r.readUDP)
			return r, nil
		}
		_ = r.tcp.Close()
	}
	return nil, fmt.Errorf("relay: listen on udp: %w", err)
}

// Addr returns the address of its ports.
func (r *Relay) Addr() string { return r.tcp.Addr().String() }

// Port returns the number of its ports.
func (r *Relay) Port() int {
	addr, ok := r.tcp.Addr().(*net.TCPAddr)
	if !ok {
		return 0
	}
	return addr.Port
}

// DropUDP swallows datagrams in both directions from now on, or lets them pass.
func (r *Relay) DropUDP(drop bool) { r.dropUDP.Store(drop) }

// DropTCP swallows what TCP carries in both directions from now on, on new
// connections as well, or lets it pass. A connection that has lost bytes is of
// no use any more.
func (r *Relay) DropTCP(drop bool) { r.dropTCP.Store(drop) }

// LimitUDP swallows datagrams above that size, as a path does whose MTU is
// smaller and which does not say so; 0 lifts that.
func (r *Relay) LimitUDP(size int) { r.limit.Store(int64(size)) }

// Datagrams returns how many were forwarded and swallowed, both directions
// together.
func (r *Relay) Datagrams() (forwarded, dropped int64) {
	return r.forwarded.Load(), r.dropped.Load()
}

// pass counts a datagram and says whether it goes on.
func (r *Relay) pass(n int) bool {
	limit := r.limit.Load()
	if r.dropUDP.Load() || limit > 0 && int64(n) > limit {
		r.dropped.Add(1)
		return false
	}
	r.forwarded.Add(1)
	return true
}

func (r *Relay) readUDP() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := r.udp.ReadFromUDP(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || !r.pass(n) {
			continue
		}
		if up := r.upstream(from); up != nil {
			_, _ = up.Write(buf[:n]) // a datagram may be lost
		}
	}
}

// upstream returns the socket that stands for a client towards the target.
func (r *Relay) upstream(from *net.UDPAddr) *net.UDPConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := from.String()
	if up := r.udps[key]; up != nil || r.closed {
		return up
	}
	conn, err := net.Dial("udp", r.target)
	if err != nil {
		return nil
	}
	up, ok := conn.(*net.UDPConn)
	if !ok {
		return nil
	}
	r.udps[key] = up
	r.wg.Go(func() { r.back(up, from) })
	return up
}

func (r *Relay) back(up *net.UDPConn, to *net.UDPAddr) {
	buf := make([]byte, 64<<10)
	for {
		n, err := up.Read(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil && r.pass(n) {
			_, _ = r.udp.WriteToUDP(buf[:n], to) // a datagram may be lost
		}
	}
}

func (r *Relay) acceptTCP() {
	for {
		conn, err := r.tcp.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.carry(conn) })
	}
}

// carry copies in both directions until one side has ended.
func (r *Relay) carry(conn net.Conn) {
	defer conn.Close()
	up, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer up.Close()
	if !r.keep(conn, up) {
		return
	}
	defer r.let(conn, up)
	var both sync.WaitGroup
	both.Go(func() { r.copy(up, conn) })
	both.Go(func() { r.copy(conn, up) })
	both.Wait()
}

// copy ends with the source, and then ends the destination, unless the path is
// dead: then nobody hears of it.
func (r *Relay) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !r.dropTCP.Load() {
			if _, writeErr := to.Write(buf[:n]); writeErr != nil {
				_, _ = io.Copy(io.Discard, from) // until it ends, too
				return
			}
		}
		if err != nil {
			if half, ok := to.(interface{ CloseWrite() error }); ok && !r.dropTCP.Load() {
				_ = half.CloseWrite() // fails on a closed connection only
			}
			return
		}
	}
}

func (r *Relay) keep(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		if r.closed {
			return false
		}
		r.tcps[c] = struct{}{}
	}
	return true
}

func (r *Relay) let(conns ...net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		delete(r.tcps, c)
	}
}

// Close ends everything that goes through it and waits for all goroutines. It is
// idempotent.
func (r *Relay) Close() error {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil
	}
	r.closed = true
	for c := range r.tcps {
		_ = c.Close()
	}
	for _, up := range r.udps {
		_ = up.Close()
	}
	r.mu.Unlock()
	err := errors.Join(r.tcp.Close(), r.udp.Close())
	r.wg.Wait()
	return err
}
