package link

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childRole makes the test binary one end of a link in a namespace of its own.
const childRole = "LINK_TEST_CHILD"

func TestMain(m *testing.M) {
	switch os.Getenv(childRole) {
	case "client":
		os.Exit(clientEnd())
	case "server":
		os.Exit(serverEnd())
	}
	goleak.VerifyTestMain(m)
}

func report(err error) int {
	if err != nil {
		_, _ = os.Stdout.WriteString("error: " + err.Error() + "\n")
		return 1
	}
	return 0
}

// serverEnd echoes one line of TCP and every UDP datagram until its input ends.
func serverEnd() int {
	if err := Join(3, []netip.Addr{netip.MustParseAddr(serverAddr), netip.MustParseAddr("198.18.0.3")}); err != nil {
		return report(err)
	}
	tcp, err := net.Listen("tcp", "198.18.0.3:7")
	if err != nil {
		return report(err)
	}
	udp, err := net.ListenPacket("udp", serverAddr+":7")
	if err != nil {
		return report(err)
	}
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	go func() {
		b := make([]byte, 100)
		for {
			n, from, err := udp.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = udp.WriteTo(b[:n], from)
		}
	}()
	_, _ = os.Stdout.WriteString("ready\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// clientEnd times one round trip of each kind and prints them in µs.
func clientEnd() int {
	if err := Join(3, []netip.Addr{netip.MustParseAddr(clientAddr)}); err != nil {
		return report(err)
	}
	var out []string
	for _, network := range []string{"tcp", "udp"} {
		addr := map[string]string{"tcp": "198.18.0.3:7", "udp": serverAddr + ":7"}[network]
		c, err := net.Dial(network, addr)
		if err != nil {
			return report(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		start := time.Now()
		if _, err := c.Write([]byte("hello")); err != nil {
			return report(err)
		}
		b := make([]byte, 5)
		if _, err := io.ReadFull(c, b); err != nil {
			return report(err)
		}
		out = append(out, strconv.FormatInt(time.Since(start).Microseconds(), 10))
		_ = c.Close()
	}
	_, _ = os.Stdout.WriteString(strings.Join(out, " ") + "\n")
	return 0
}

type end struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    io.Reader
	device *os.File
}

// startEnd starts a child in a namespace; it returns an error where that is not
// permitted.
func startEnd(t *testing.T, role string) (*end, error) {
	t.Helper()
	parent, child, err := Socket()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"="+role)
	cmd.ExtraFiles = []*os.File{child}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	e := &end{cmd: cmd}
	if e.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if e.out, err = cmd.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	err = cmd.Start()
	_ = child.Close()
	if err != nil {
		_ = parent.Close()
		return nil, err
	}
	t.Cleanup(func() { _ = e.in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if e.device, err = Receive(parent); err != nil {
		said, _ := io.ReadAll(e.out)
		return nil, errors.Join(err, errors.New(string(said)))
	}
	return e, nil
}

// TestRealTCPAndUDPCrossTheLink needs to be allowed to make network namespaces.
// Both vanish with their processes.
func TestRealTCPAndUDPCrossTheLink(t *testing.T) {
	server, err := startEnd(t, "server")
	if err != nil {
		t.Logf("nothing tested: no network namespaces here: %v", err)
		return
	}
	client, err := startEnd(t, "client")
	if err != nil {
		t.Fatal(err)
	}
	l := New(client.device, server.device)
	defer l.Close()
	const delay = 20 * time.Millisecond
	if err := l.Set(Shape{Delay: delay}, Shape{Delay: delay}, nil, 1); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 6)
	if _, err := io.ReadFull(server.out, line); err != nil || string(line) != "ready\n" {
		t.Fatalf("%q %v", line, err)
	}
	text, err := io.ReadAll(client.out)
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		t.Fatalf("the client said %q", text)
	}
	for i, field := range fields {
		us, err := strconv.Atoi(field)
		if err != nil || time.Duration(us)*time.Microsecond < 2*delay {
			t.Errorf("round trip %d took %s µs, less than the link's", i, field)
		}
	}
	c := l.Take()
	if c.TCPUp.Packets < 3 || c.UDPUp.Packets != 1 || c.UDPDown.Packets != 1 || c.TCPPorts != 1 {
		t.Errorf("%+v", c)
	}
	t.Logf("TCP %s µs, UDP %s µs for %v; handed over late: %+v", fields[0], fields[1], 2*delay, c.Late)
}

func TestCongestionControlsAreListedAndSet(t *testing.T) {
	names := Congestion()
	if len(names) == 0 {
		t.Fatal("none")
	}
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return SetCongestion(c, names[0]) }}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	d.Control = func(_, _ string, c syscall.RawConn) error { return SetCongestion(c, "nonsense") }
	if _, err := d.DialContext(t.Context(), "tcp", l.Addr().String()); err == nil {
		t.Error("a congestion control that is none was set")
	}
}
