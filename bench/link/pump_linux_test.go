package link

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dispatcher-engine/dispatcher/bench/host"
)

// wire is a stand-in for a TUN device: a socket that keeps packets apart. It
// needs no privilege.
func wire(t *testing.T) (device, far *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	device, far = os.NewFile(uintptr(fds[0]), "device"), os.NewFile(uintptr(fds[1]), "far")
	t.Cleanup(func() { _ = far.Close() })
	return device, far
}

const (
	clientAddr = "198.18.0.1"
	serverAddr = "198.18.0.2"
)

func TestALinkDelaysCountsAndFilters(t *testing.T) {
	clientDevice, client := wire(t)
	serverDevice, server := wire(t)
	l := New(clientDevice, serverDevice)
	defer l.Close()
	rules := map[netip.Addr]Rule{netip.MustParseAddr(serverAddr): BlockUDP}
	const delay = 20 * time.Millisecond
	if err := l.Set(Shape{Delay: delay}, Shape{}, rules, 1); err != nil {
		t.Fatal(err)
	}
	sent := host.Now()
	for i := range 3 {
		write(t, client, ipv4(protoUDP, clientAddr, serverAddr, 5000, 443, "blocked"))
		write(t, client, ipv4(protoTCP, clientAddr, serverAddr, uint16(4000+i), 443, fmt.Sprint(i)))
	}
	for range 2 { // the second is a retransmission
		write(t, client, ipv4(protoTCP, clientAddr, serverAddr, 4000, 443, "SYN"))
	}
	write(t, client, []byte("no packet"))
	buffer := make([]byte, 2000)
	for i := range 3 {
		n, err := server.Read(buffer)
		if err != nil || string(buffer[n-1:n]) != fmt.Sprint(i) {
			t.Fatalf("packet %d: %q %v", i, buffer[:n], err)
		}
		if i == 0 && host.Now()-sent < delay {
			t.Errorf("it arrived after %v", host.Now()-sent)
		}
	}
	write(t, server, ipv4(protoTCP, serverAddr, clientAddr, 443, 4000, "answer"))
	if _, err := client.Read(buffer); err != nil {
		t.Fatal(err)
	}
	c := l.Take()
	if c.TCPUp.Packets != 5 || c.TCPDown.Packets != 1 || c.UDPUp.Filtered != 3 || c.TCPPorts != 1 || c.UDPPorts != 0 || c.Bytes() == 0 {
		t.Errorf("%+v", c)
	}
	if c := l.Take(); c.TCPUp.Packets != 0 || c.TCPPorts != 0 {
		t.Errorf("counts did not begin anew: %+v", c)
	}
	if err := l.Set(Shape{Delay: -1}, Shape{}, nil, 1); err == nil {
		t.Error("an impossible shape was set")
	}
}

func write(t *testing.T, to *os.File, packet []byte) {
	t.Helper()
	if _, err := to.Write(packet); err != nil {
		t.Fatal(err)
	}
}

func TestAClosedLinkDropsWhatIsOnItsWay(t *testing.T) {
	clientDevice, client := wire(t)
	serverDevice, _ := wire(t)
	l := New(clientDevice, serverDevice)
	if err := l.Set(Shape{Delay: 5 * time.Millisecond, Loss: Loss{Rate: 0.5}}, Shape{}, nil, 1); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		write(t, client, ipv4(protoTCP, clientAddr, serverAddr, 1, 443, "x"))
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestAChildThatSendsNoDeviceIsAnError(t *testing.T) {
	parent, child, err := Socket()
	if err != nil {
		t.Fatal(err)
	}
	_ = child.Close()
	if f, err := Receive(parent); err == nil {
		_ = f.Close()
		t.Error("a device came from nowhere")
	}
	plain, err := os.CreateTemp(t.TempDir(), "x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Receive(plain); err == nil {
		t.Error("a file was taken for a socket")
	}
}
