package transport

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// relay is a UDP path to a peer that can be cut.
type relay struct {
	port    int
	cut     atomic.Bool
	forward atomic.Int64 // packets towards the peer
}

func newRelay(t *testing.T, peerPort int) *relay {
	t.Helper()
	listen := func() *net.UDPConn {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	front, back := listen(), listen()
	r := &relay{port: portOf(front.LocalAddr())}
	peer := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: peerPort}
	var client atomic.Pointer[net.UDPAddr]
	var wg sync.WaitGroup
	copyAll := func(from, to *net.UDPConn, dest func(*net.UDPAddr) *net.UDPAddr) {
		buf := make([]byte, 64<<10)
		for {
			n, addr, err := from.ReadFromUDP(buf)
			if err != nil {
				return
			}
			if d := dest(addr); d != nil && !r.cut.Load() {
				_, _ = to.WriteToUDP(buf[:n], d)
			}
		}
	}
	wg.Go(func() {
		copyAll(front, back, func(from *net.UDPAddr) *net.UDPAddr {
			client.Store(from)
			r.forward.Add(1)
			return peer
		})
	})
	wg.Go(func() { copyAll(back, front, func(*net.UDPAddr) *net.UDPAddr { return client.Load() }) })
	t.Cleanup(func() {
		front.Close()
		back.Close()
		wg.Wait()
	})
	return r
}
