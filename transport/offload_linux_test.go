package transport

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// offloaded counts what leaves a real socket in trains and with ECN marks.
type offloaded struct {
	*net.UDPConn
	writes, trains, marked atomic.Int64
}

func (o *offloaded) WriteMsgUDP(b, oob []byte, addr *net.UDPAddr) (int, int, error) {
	o.writes.Add(1)
	if size := trainSize(oob); size > 0 && size < len(b) {
		o.trains.Add(1)
	}
	if hasTOS(oob) {
		o.marked.Add(1)
	}
	return o.UDPConn.WriteMsgUDP(b, oob, addr)
}

func hasTOS(oob []byte) bool {
	for len(oob) >= unix.SizeofCmsghdr {
		header, _, rest, err := unix.ParseOneSocketControlMessage(oob)
		if err != nil {
			return false
		}
		if header.Level == unix.IPPROTO_IP && header.Type == unix.IP_TOS {
			return true
		}
		oob = rest
	}
	return false
}

// TestQUICUsesWhatTheSocketOffers sends a body of many packets through the
// transport's own socket: wrapping it must not hide segmentation offload and ECN
// from quic-go, which would cost a system call for each packet.
func TestQUICUsesWhatTheSocketOffers(t *testing.T) {
	server := serveQUIC(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		ok200(w, r)
	}))
	var sock *offloaded
	b := setup(t, func(c *Config) {
		c.ListenUDP = func(network string, laddr *net.UDPAddr) (net.PacketConn, error) {
			udp, err := net.ListenUDP(network, laddr)
			sock = &offloaded{UDPConn: udp}
			return sock, err
		}
	})
	ctx := within(t, 20*time.Second)
	ep := endpoint(server.port)
	if _, err := b.quic(ctx, ep).RoundTrip(ctx, post(ep, strings.Repeat("b", 256<<10))); err != nil {
		t.Fatal(err)
	}
	raw, err := sock.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var noOffload error
	if err := raw.Control(func(fd uintptr) {
		_, noOffload = unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT)
	}); err != nil {
		t.Fatal(err)
	}
	if noOffload == nil && sock.trains.Load() == 0 {
		t.Errorf("%d writes, none of them a train of packets", sock.writes.Load())
	}
	if sock.marked.Load() == 0 {
		t.Errorf("%d writes, none of them with an ECN mark", sock.writes.Load())
	}
}
