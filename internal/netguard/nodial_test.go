package netguard

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// canary is a real TCP and a real UDP socket on loopback that must stay silent.
type canary struct {
	tcp     net.Listener
	udp     *net.UDPConn
	arrived chan string
	done    sync.WaitGroup
}

// newCanary listens; everything that arrives is put into arrived, which the
// readers never wait for.
func newCanary(t *testing.T) *canary {
	t.Helper()
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	c := &canary{tcp: tcp, udp: udp, arrived: make(chan string, 64)}
	c.done.Go(c.accept)
	c.done.Go(c.receive)
	t.Cleanup(func() {
		_, _ = tcp.Close(), udp.Close()
		c.done.Wait()
	})
	return c
}

func (c *canary) accept() {
	for {
		conn, err := c.tcp.Accept()
		if err != nil {
			return
		}
		line, _ := bufio.NewReader(conn).ReadString('\n')
		_ = conn.Close()
		c.arrived <- "tcp " + line
	}
}

func (c *canary) receive() {
	buf := make([]byte, 1500)
	for {
		n, err := c.udp.Read(buf)
		if err != nil {
			return
		}
		c.arrived <- "udp " + string(buf[:n])
	}
}

// onlyTheFence sends one line over each socket by plain means and requires these
// to be all that ever arrived. Both sockets deliver in order, so whatever had
// been sent before would stand in front.
func (c *canary) onlyTheFence(t *testing.T) {
	t.Helper()
	for _, address := range []net.Addr{c.tcp.Addr(), c.udp.LocalAddr()} {
		conn, err := net.Dial(address.Network(), address.String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "fence\n"); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if got := <-c.arrived; got != address.Network()+" fence\n" {
			t.Errorf("%q arrived", got)
		}
	}
}

// quicLike stands for a transport with one unconnected UDP socket: it resolves,
// checks, and only then sends the first packet.
type quicLike struct {
	guard  *Guard
	socket *net.UDPConn
	sent   []netip.AddrPort
}

func (q *quicLike) dial(ctx context.Context, host string, port uint16) error {
	targets, err := q.guard.ResolvePort(ctx, host, port)
	if err != nil {
		return err
	}
	return q.send(targets[0])
}

func (q *quicLike) send(target netip.AddrPort) error {
	if err := q.guard.CheckUDP(target); err != nil {
		return err
	}
	q.sent = append(q.sent, target)
	_, err := q.socket.WriteToUDPAddrPort([]byte("initial\n"), target)
	return err
}

func newQUICLike(t *testing.T, g *Guard) *quicLike {
	t.Helper()
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return &quicLike{guard: g, socket: socket}
}

func (c *canary) ports(t *testing.T) (tcp, udp uint16) {
	t.Helper()
	return netip.MustParseAddrPort(c.tcp.Addr().String()).Port(), netip.MustParseAddrPort(c.udp.LocalAddr().String()).Port()
}

// TestNothingReachesADeniedAddress runs every way to a listening address with
// the real dialer and the real sockets, under the policy that denies it.
func TestNothingReachesADeniedAddress(t *testing.T) {
	c := newCanary(t)
	tcpPort, udpPort := c.ports(t)
	hosts := map[string]Rule{
		"127.0.0.1": RuleLoopback, "::ffff:127.0.0.1": RuleLoopback, "::127.0.0.1": RuleLoopback, "0.0.0.0": RuleUnspecified,
		"::": RuleUnspecified, "::ffff:0.0.0.0": RuleUnspecified, "localhost": RuleLoopback, "127.1": RuleNumericHost,
		"0x7f000001": RuleNumericHost, "2130706433": RuleNumericHost, "loop.example": RuleLoopback,
		"mapped.example": RuleLoopback, "mixed.example": RuleLoopback, "zero.example": RuleUnspecified,
	}
	g := newGuard(t, Config{Resolver: resolver(map[string][]string{
		"loop.example.": {"127.0.0.1"}, "mapped.example.": {"::ffff:127.0.0.1"},
		"mixed.example.": {"93.184.216.34", "127.0.0.1"}, "zero.example.": {"0.0.0.0"},
	})})
	q := newQUICLike(t, g)
	for host, rule := range hosts {
		_, err := g.DialContext(t.Context(), "tcp", authority(host, tcpPort))
		wantDenied(t, err, rule)
		wantDenied(t, q.dial(t.Context(), host, udpPort), rule)
	}
	c.onlyTheFence(t)
	if len(q.sent) != 0 {
		t.Errorf("sent to %v", q.sent)
	}
}

// TestTheLastCheckHoldsAlone takes the checks in front away: whoever forgets to
// resolve through the guard is stopped between socket and connect, or before the
// first packet.
func TestTheLastCheckHoldsAlone(t *testing.T) {
	c := newCanary(t)
	var heard denials
	g := newGuard(t, Config{Observer: heard.observer()})
	dialer := net.Dialer{ControlContext: g.DialControl}
	for _, address := range []net.Addr{c.tcp.Addr(), c.udp.LocalAddr()} {
		_, err := dialer.DialContext(t.Context(), address.Network(), address.String())
		wantDenied(t, err, RuleLoopback)
	}
	q := newQUICLike(t, g)
	wantDenied(t, q.send(netip.MustParseAddrPort(c.udp.LocalAddr().String())), RuleLoopback)
	c.onlyTheFence(t)
	if heard.count(StageTCP, RuleLoopback) != 1 || heard.count(StageUDP, RuleLoopback) != 2 {
		t.Errorf("%+v", heard.list)
	}
}

// TestAnAllowedAddressIsReached is the counterpart that keeps the tests above
// honest: the same means do arrive where the policy allows it.
func TestAnAllowedAddressIsReached(t *testing.T) {
	c := newCanary(t)
	tcpPort, udpPort := c.ports(t)
	g := newGuard(t, Config{
		AllowPrivate: prefixes("127.0.0.1/32"), Resolver: resolver(map[string][]string{"loop.example.": {"::ffff:127.0.0.1"}}),
	})
	for _, host := range []string{"loop.example", "localhost", "127.0.0.1", "::ffff:127.0.0.1"} {
		conn, err := g.DialContext(t.Context(), "tcp", authority(host, tcpPort))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, host+"\n"); err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if got := <-c.arrived; got != "tcp "+host+"\n" {
			t.Errorf("%q arrived", got)
		}
		if err := newQUICLike(t, g).dial(t.Context(), host, udpPort); err != nil {
			t.Fatal(err)
		}
		if got := <-c.arrived; got != "udp initial\n" {
			t.Errorf("%q arrived", got)
		}
	}
}

// TestADifferentSecondAnswerIsNotDialled is rebinding on real sockets: the name
// is allowed once, and its next answer is where the canary sits.
func TestADifferentSecondAnswerIsNotDialled(t *testing.T) {
	c := newCanary(t)
	tcpPort, udpPort := c.ports(t)
	script := func() *fakeResolver {
		return resolver(nil).then("h.example.", "93.184.216.34").then("h.example.", "127.0.0.1")
	}
	dialer := &recordingDialer{}
	g := newGuard(t, Config{Resolver: script(), Dialer: dialer})
	for range 3 {
		if conn, err := g.DialContext(t.Context(), "tcp", authority("h.example", tcpPort)); err == nil {
			t.Fatalf("connected to %v", conn.RemoteAddr())
		}
	}
	if got := dialer.dials(); len(got) != 1 || got[0] != authority("93.184.216.34", tcpPort) {
		t.Errorf("dialled %v", got)
	}

	g = newGuard(t, Config{Resolver: script()})
	first, err := g.ResolvePort(t.Context(), "h.example", udpPort)
	if err != nil || len(first) != 1 || first[0].Addr() != netip.MustParseAddr("93.184.216.34") {
		t.Fatalf("%v, %v", first, err)
	}
	q := newQUICLike(t, g)
	wantDenied(t, q.dial(t.Context(), "h.example", udpPort), RuleLoopback)
	if len(q.sent) != 0 {
		t.Errorf("sent to %v", q.sent)
	}
	c.onlyTheFence(t)
}
