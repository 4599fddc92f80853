package link

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// device is the name of the TUN device inside its namespace.
const device = "link0"

// Join makes a TUN device with addresses in the network namespace of this
// process, brings it up, and sends its descriptor to the parent over the socket
// that the process inherited as file descriptor fd. The first address has a /24
// network around it: that is what is reachable.
func Join(fd uintptr, addrs []netip.Addr) error {
	conn, err := unixConn(os.NewFile(fd, "parent"))
	if err != nil {
		return fmt.Errorf("join link: %w", err)
	}
	defer func() { _ = conn.Close() }()
	tun, err := openTUN()
	if err != nil {
		return fmt.Errorf("join link: %w", err)
	}
	defer func() { _ = tun.Close() }() // the parent has its own
	if err := configure(addrs); err != nil {
		return fmt.Errorf("join link: %w", err)
	}
	raw, err := tun.SyscallConn()
	if err != nil {
		return fmt.Errorf("join link: %w", err)
	}
	var sendErr error
	if err := raw.Control(func(fd uintptr) {
		_, _, sendErr = conn.WriteMsgUnix([]byte{1}, unix.UnixRights(int(fd)), nil) //nolint:gosec // a descriptor
	}); err != nil {
		return fmt.Errorf("join link: %w", err)
	}
	if sendErr != nil {
		return fmt.Errorf("join link: hand over the device: %w", sendErr)
	}
	return nil
}

// openTUN makes the device; it vanishes with its namespace, or with the last
// descriptor of it.
func openTUN() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	ifr, err := unix.NewIfreq(device)
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return nil, errors.Join(fmt.Errorf("make a TUN device: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "/dev/net/tun"), nil
}

// queueLen is the packets that the kernel keeps for the emulator; the emulator's
// own queue is the one that is meant to be full.
const queueLen = 20_000

// configure gives the device its addresses (the further ones as aliases) and
// brings it and loopback up.
func configure(addrs []netip.Addr) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	set := func(name, what string, request uint, fill func(*unix.Ifreq) error) error {
		ifr, err := unix.NewIfreq(name)
		if err == nil {
			err = fill(ifr)
		}
		if err == nil {
			err = unix.IoctlIfreq(fd, request, ifr)
		}
		if err != nil {
			return fmt.Errorf("%s of %s: %w", what, name, err)
		}
		return nil
	}
	number := func(v uint32) func(*unix.Ifreq) error {
		return func(ifr *unix.Ifreq) error { ifr.SetUint32(v); return nil }
	}
	up := func(ifr *unix.Ifreq) error { ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }
	errs := []error{
		set("lo", "state", unix.SIOCSIFFLAGS, up),
		set(device, "MTU", unix.SIOCSIFMTU, number(mtu)),
	}
	// Only the machine's own root may; without it the kernel drops what a burst
	// of more than 500 packets brings before the emulator has read it.
	if err := set(device, "queue", unix.SIOCSIFTXQLEN, number(queueLen)); !errors.Is(err, unix.EPERM) {
		errs = append(errs, err)
	}
	for i, addr := range addrs {
		name := device
		if i > 0 {
			name = fmt.Sprintf("%s:%d", device, i)
		}
		errs = append(errs,
			set(name, "address", unix.SIOCSIFADDR, func(ifr *unix.Ifreq) error { return ifr.SetInet4Addr(addr.AsSlice()) }),
			set(name, "network", unix.SIOCSIFNETMASK, func(ifr *unix.Ifreq) error { return ifr.SetInet4Addr([]byte{255, 255, 255, 0}) }),
		)
	}
	return errors.Join(append(errs, set(device, "state", unix.SIOCSIFFLAGS, up))...)
}

// Socket returns both ends of a socket: the parent keeps one for [Receive], and
// the child inherits the other.
func Socket() (parent, child *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket for the device: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "child"), os.NewFile(uintptr(fds[1]), "parent"), nil
}

// Receive waits for the descriptor that a child sends by [Join]. It closes the
// socket. A child that ended without sending one gives an error.
func Receive(socket *os.File) (*os.File, error) {
	conn, err := unixConn(socket)
	if err != nil {
		return nil, fmt.Errorf("receive device: %w", err)
	}
	defer func() { _ = conn.Close() }()
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return nil, fmt.Errorf("receive device: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("receive device: the child sent none: %w", errors.Join(err, syscall.ECONNRESET))
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("receive device: %w", errors.Join(err, syscall.EBADMSG))
	}
	unix.CloseOnExec(fds[0])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, fmt.Errorf("receive device: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "/dev/net/tun"), nil
}

// LargeBuffer gives a socket that probes the link as large a receive buffer as
// the process may have, so that a pause of the process loses nothing.
func LargeBuffer(c *net.UDPConn) error {
	const size = 16 << 20
	err := c.SetReadBuffer(size) // bounded by net.core.rmem_max
	raw, rawErr := c.SyscallConn()
	if rawErr != nil {
		return errors.Join(err, rawErr)
	}
	return errors.Join(err, raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, size) //nolint:gosec // a descriptor; only root's may
	}))
}

// unixConn takes a file over as a connection.
func unixConn(f *os.File) (*net.UnixConn, error) {
	defer func() { _ = f.Close() }()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, errors.New("not a Unix socket")
	}
	return conn, nil
}

// Congestion returns the congestion controls that TCP sockets of this process
// may choose.
func Congestion() []string {
	raw, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		return nil
	}
	var out []string
	for name := range strings.FieldsSeq(string(raw)) {
		if usable(name) {
			out = append(out, name)
		}
	}
	return out
}

// usable tries a congestion control on a socket: an unprivileged process may
// use only some of those that the kernel has.
func usable(name string) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name) == nil
}

// SetCongestion is for net.Dialer.Control: it chooses a socket's congestion
// control.
func SetCongestion(c syscall.RawConn, name string) error {
	var setErr error
	err := c.Control(func(fd uintptr) {
		setErr = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name) //nolint:gosec // a descriptor
	})
	if err = errors.Join(err, setErr); err != nil {
		return fmt.Errorf("congestion control %q: %w", name, err)
	}
	return nil
}
