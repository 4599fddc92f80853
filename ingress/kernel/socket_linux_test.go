package kernel

import (
	"errors"
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

func listenTCP(t *testing.T, addr string) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.(*net.TCPListener)
}

// knock starts handshakes with a listener without waiting for them.
func knock(t *testing.T, l *net.TCPListener, count int) {
	t.Helper()
	addr := l.Addr().(*net.TCPAddr)
	for range count {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Close(fd) })
		to := &unix.SockaddrInet4{Port: addr.Port, Addr: [4]byte(addr.IP.To4())}
		if err := unix.Connect(fd, to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
			t.Fatal(err)
		}
	}
}

// A backlog of 1 holds two connections: the kernel compares with "more than".
// Nobody accepts, so every further handshake must show in the counters.
func TestOverflowOfTheAcceptQueueIsSeen(t *testing.T) {
	l := listenTCP(t, "127.0.0.1:0")
	if err := Listen(l, 1); err != nil {
		t.Fatal(err)
	}
	before, err := ReadCounters()
	if err != nil {
		t.Fatal(err)
	}
	knock(t, l, 10)

	s, err := Inspect(l)
	if err != nil {
		t.Fatal(err)
	}
	if s.Limit != 1 || s.Queue != 2 {
		t.Errorf("accept queue %d of %d, want 2 of 1", s.Queue, s.Limit)
	}
	after, err := ReadCounters()
	if err != nil {
		t.Fatal(err)
	}
	// Other processes can only add to these.
	if moved := after.Sub(before); moved.ListenOverflows < 8 || moved.ListenDrops < 8 {
		t.Errorf("10 knocks at a backlog of 1: overflows +%d, drops +%d, want at least 8 of each",
			moved.ListenOverflows, moved.ListenDrops)
	}
}

func TestBacklogIsWhatWasAskedFor(t *testing.T) {
	l := listenTCP(t, "127.0.0.1:0")
	for _, backlog := range []int{1, 7, 64} {
		if err := Listen(l, backlog); err != nil {
			t.Fatal(err)
		}
		s, err := Inspect(l)
		if err != nil || int(s.Limit) != backlog || s.Queue != 0 {
			t.Errorf("backlog %d: got %+v, %v", backlog, s, err)
		}
	}
}

func TestSocketIsToldFromItsNeighbours(t *testing.T) {
	one, two := listenTCP(t, "127.0.0.1:0"), listenTCP(t, "127.0.0.2:0")
	// The same port on another address is another socket.
	same := listenTCP(t, fmt.Sprintf("127.0.0.3:%d", one.Addr().(*net.TCPAddr).Port))
	for i, l := range []*net.TCPListener{one, two, same} {
		if err := Listen(l, 11+i); err != nil {
			t.Fatal(err)
		}
	}
	for i, l := range []*net.TCPListener{one, two, same} {
		if s, err := Inspect(l); err != nil || int(s.Limit) != 11+i {
			t.Errorf("%v: got %+v, %v, want limit %d", l.Addr(), s, err, 11+i)
		}
	}
}

func TestDroppedDatagramsAreSeen(t *testing.T) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	before, err := ReadCounters()
	if err != nil {
		t.Fatal(err)
	}
	out, err := net.DialUDP("udp4", nil, conn.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for range 100 {
		if _, err := out.Write(make([]byte, 1200)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Inspect(conn)
	if err != nil {
		t.Fatal(err)
	}
	if s.Drops < 50 || s.Queue == 0 || s.Limit == 0 {
		t.Errorf("100 datagrams of 1200 bytes into 4 KiB: got %+v", s)
	}
	after, err := ReadCounters()
	if err != nil {
		t.Fatal(err)
	}
	if moved := after.Sub(before); moved.UDPRcvbufErrors < uint64(s.Drops) {
		t.Errorf("the socket dropped %d, the namespace only %d", s.Drops, moved.UDPRcvbufErrors)
	}
}

func TestIPv6SocketsAreFound(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if s, err := Inspect(l.(*net.TCPListener)); err != nil || s.Limit == 0 {
		t.Errorf("tcp: got %+v, %v", s, err)
	}
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv6loopback})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if s, err := Inspect(u); err != nil || s.Limit == 0 {
		t.Errorf("udp: got %+v, %v", s, err)
	}
}

func TestClosedSocketIsAnError(t *testing.T) {
	l := listenTCP(t, "127.0.0.1:0")
	_ = l.Close()
	if _, err := Inspect(l); err == nil {
		t.Error("no error for a closed socket")
	}
	if err := Listen(l, 1); err == nil {
		t.Error("no error for the backlog of a closed socket")
	}
}

func FuzzParseDiag(f *testing.F) {
	id := identity{family: unix.AF_INET, protocol: unix.IPPROTO_UDP, inode: 77}
	message := make([]byte, netlinkHeader+diagMessage+4+36)
	native.PutUint32(message, uint32(len(message)))
	native.PutUint16(message[4:], unix.SOCK_DIAG_BY_FAMILY)
	native.PutUint32(message[netlinkHeader+68:], id.inode)
	native.PutUint16(message[netlinkHeader+diagMessage:], 40)
	native.PutUint16(message[netlinkHeader+diagMessage+2:], diagSkMemInfo)
	native.PutUint32(message[netlinkHeader+diagMessage+4+4*memDrops:], 9)
	f.Add(message)
	f.Add([]byte{16, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{20, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, done, err := parseDiag(b, id)
		if done && err != nil {
			t.Error("done, and an error")
		}
	})
	if s, _, err := parseDiag(message, id); err != nil || s == nil || s.Drops != 9 {
		f.Errorf("the seed is not understood: %+v, %v", s, err)
	}
}
