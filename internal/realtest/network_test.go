//go:build real

package realtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// namespace is a network of its own: interfaces, routes, sockets. It has no
// name, so nothing has to be removed: when the last descriptor of it is closed,
// at the latest with this process, however that ends, the kernel takes it and
// its interfaces down.
type namespace struct{ file *os.File }

func newNamespace(t *testing.T) namespace {
	t.Helper()
	var n namespace
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w; run it as root", err)
		}
		var err error
		n.file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.file.Close() })
	return n
}

// onThread runs f on a thread that ends with it, since what f does to the thread
// cannot be undone.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime then ends the thread
		done <- f()
	}()
	return <-done
}

// do runs f inside. Sockets that it opens and processes that it starts stay
// there.
func (n namespace) do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return f()
	})
}

// path is how other programs name it.
func (n namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd()) }

// ip runs commands of iproute2 inside, one a line.
func (n namespace) ip(t *testing.T, lines string) {
	t.Helper()
	err := n.do(func() error {
		for line := range strings.Lines(lines) {
			args := strings.Fields(line)
			if len(args) == 0 {
				continue
			}
			if out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", strings.TrimSpace(line), err, out)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// flow is what a capture counts packets by.
type flow struct {
	Proto string // tcp, udp, or arp and nd for a look-up of a neighbour
	To    netip.Addr
	Port  uint16
	From  netip.Addr // set where whoever counts wants to know, see capture.from
}

// capture counts the packets of a namespace, on all its interfaces, in and out.
// What a process there sends shows here before anybody could drop it.
type capture struct {
	file *os.File
	done chan struct{}
	from func(netip.Addr) bool // senders that are counted apart

	mu     sync.Mutex
	cond   *sync.Cond
	counts map[flow]int
	err    error
}

// capture begins to count; packets of senders that apart picks are counted by
// sender.
func (n namespace) capture(t *testing.T, apart func(netip.Addr) bool) *capture {
	t.Helper()
	c := &capture{from: apart, done: make(chan struct{}), counts: map[flow]int{}}
	c.cond = sync.NewCond(&c.mu)
	err := n.do(func() error {
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
		if err != nil {
			return fmt.Errorf("capture packets: %w", err)
		}
		c.file = os.NewFile(uintptr(fd), "capture")
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	})
	if err != nil {
		t.Fatal(err)
	}
	go c.run()
	t.Cleanup(func() {
		_ = c.file.Close()
		<-c.done
	})
	return c
}

func (c *capture) run() {
	defer close(c.done)
	buf := make([]byte, 1<<16)
	for {
		n, err := c.file.Read(buf)
		c.mu.Lock()
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				c.err = err
			}
			c.cond.Broadcast()
			c.mu.Unlock()
			return
		}
		if f, ok := parseFrame(buf[:n]); ok {
			if !c.from(f.From) {
				f.From = netip.Addr{}
			}
			c.counts[f]++
			c.cond.Broadcast()
		}
		c.mu.Unlock()
	}
}

// await waits for a packet of the flow: then everything that was sent before it
// on that interface has been counted.
func (c *capture) await(t *testing.T, f flow) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.counts[f] == 0 && c.err == nil {
		c.cond.Wait()
	}
	if c.err != nil {
		t.Fatalf("capture: %v", c.err)
	}
}

// take returns the counts and begins anew. A capture that lost packets proves
// nothing.
func (c *capture) take(t *testing.T) map[flow]int {
	t.Helper()
	stats, err := unix.GetsockoptTpacketStats(int(c.file.Fd()), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil || stats.Drops > 0 {
		t.Fatalf("capture: %d packets were lost, %v", stats.Drops, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	counts := c.counts
	c.counts = map[flow]int{}
	return counts
}

// parseFrame reads an Ethernet frame as far as a flow goes.
func parseFrame(b []byte) (flow, bool) {
	if len(b) < 14 {
		return flow{}, false
	}
	kind, b := binary.BigEndian.Uint16(b[12:]), b[14:]
	switch {
	case kind == unix.ETH_P_ARP && len(b) >= 28:
		return flow{Proto: "arp", To: netip.AddrFrom4([4]byte(b[24:28]))}, true
	case kind == unix.ETH_P_IP && len(b) >= 20:
		size := int(b[0]&15) * 4
		if len(b) < size {
			return flow{}, false
		}
		return transportFlow(b[9], netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])), b[size:])
	case kind == unix.ETH_P_IPV6 && len(b) >= 40:
		return transportFlow(b[6], netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])), b[40:])
	}
	return flow{}, false
}

func transportFlow(proto byte, from, to netip.Addr, b []byte) (flow, bool) {
	switch {
	case proto == unix.IPPROTO_TCP && len(b) >= 4:
		return flow{"tcp", to, binary.BigEndian.Uint16(b[2:]), from}, true
	case proto == unix.IPPROTO_UDP && len(b) >= 4:
		return flow{"udp", to, binary.BigEndian.Uint16(b[2:]), from}, true
	case proto == unix.IPPROTO_ICMPV6 && len(b) >= 24 && b[0] == 135: // neighbour solicitation
		return flow{Proto: "nd", To: netip.AddrFrom16([16]byte(b[8:24]))}, true
	}
	return flow{}, false
}
