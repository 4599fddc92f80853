//go:build real

package realtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/internal/testnet"
)

// role is set for a child: this binary, inside the node's namespace.
const role = "DISPATCHER_REALTEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "node":
		runNode(os.Stdin, os.Stdout)
	case "reckless":
		runReckless(os.Stdin, os.Stdout)
	default:
		m.Run()
	}
}

// The two networks:
//
//	node's namespace                          peer's namespace
//	  lo    127.0.0.1, ::1                      lo   93.184.216.0/24 and IPv6:
//	  node  172.31.255.1 ── veth ── .2 peer          receivers that policy allows
//	        fd00:77::1            ::2
//	  default routes by the peer: whatever the node sends, to anywhere, shows
var (
	gateways = []netip.Addr{
		netip.MustParseAddr("172.31.255.1"), netip.MustParseAddr("172.31.255.2"),
		netip.MustParseAddr("fd00:77::1"), netip.MustParseAddr("fd00:77::2"),
	}
	// markers end a capture: nothing else uses port 9.
	marker      = flow{Proto: "udp", To: netip.MustParseAddr("93.184.216.34"), Port: 9}
	markerLocal = flow{Proto: "udp", To: netip.MustParseAddr("127.0.0.1"), Port: 9}
)

// denied are addresses that policy denies, one at least of each rule and form.
var denied = parseAddrs(`
	127.0.0.1 127.8.8.8 10.1.2.3 172.16.5.5 192.168.1.1 100.64.0.1 169.254.169.254 168.63.129.16
	192.0.0.8 192.0.2.1 198.51.100.1 203.0.113.1 198.18.0.1 192.88.99.1 224.0.0.251 239.1.2.3
	240.0.0.1 255.255.255.255 0.0.0.0 0.1.2.3
	::1 :: fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1 2001::1 2001:2::1 2001:db8::1 3fff::1 5f00::1 100::1
	::ffff:10.1.2.3 ::10.1.2.3 ::ffff:0:a01:203 64:ff9b::a01:203 64:ff9b:1::a01:203 2002:a01:203::1
	2606:2800:220:1:0:5efe:a01:203`)

func parseAddrs(text string) (out []netip.Addr) {
	for s := range strings.FieldsSeq(text) {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// Receivers in the peer's namespace, each on port 443 of an address of its own.
const (
	controlHost  = "hook.example"
	sixHost      = "six.example"
	redirectHost = "redirect.example"
	rebindHost   = "rebind.example"
	hintHost     = "hints.example"
	targetHost   = "target.example"
	insideHost   = "inside.example" // resolves to 10.1.2.3
)

var receivers = map[string]string{
	controlHost: "93.184.216.34", sixHost: "2606:2800:220:1::34", redirectHost: "93.184.216.35", rebindHost: "93.184.216.36",
	hintHost: "93.184.216.37", targetHost: "93.184.216.38", "evil-0.example": "93.184.216.40", "evil-1.example": "93.184.216.41",
	"evil-2.example": "93.184.216.42",
}

// advertised are the Alt-Svc headers of the evil ones. Their hosts are on the
// node's allowlist, so that the address policy alone stands between; an address
// never is.
var advertised = map[string]string{
	"evil-0.example": `h3="inside.example:443"`, "evil-1.example": `h3="mapped.example:443"`,
	"evil-2.example": `h3="10.1.2.3:443", h3="[::1]:443"`,
}

// brief is what a child is told.
type brief struct {
	CA     []byte
	Denied []netip.Addr
}

// outcome is what it answers.
type outcome struct {
	Failures []string
	Refused  map[netip.Addr]string // by the reckless child: what the kernel said
}

// Nothing leaves for an address that policy denies: by no spelling, DNS answer,
// second DNS answer, redirect, alternative service or hint, over TCP or UDP.
// A child that asks nobody shows that each of these addresses could have been
// reached from there.
func TestRealNetNSNoPacketLeavesForADeniedAddress(t *testing.T) {
	node, peer := newNamespace(t), newNamespace(t)
	connect(t, node, peer)
	ca, err := testnet.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	tallies := serve(t, peer, ca)
	captures := []*capture{node.capture(t, isReceiver), peer.capture(t, isReceiver)}

	said := node.child(t, "node", brief{CA: ca.PEM(), Denied: denied})
	for _, f := range said.Failures {
		t.Error(f)
	}
	settle(t, node, captures)
	for i, c := range captures {
		counts := c.take(t)
		for f, n := range counts {
			if leaked(f) {
				t.Errorf("capture %d: %d packets left: %s to %s port %d", i, n, f.Proto, f.To, f.Port)
			}
		}
		for _, proto := range []string{"tcp", "udp"} {
			if counts[flow{Proto: proto, To: netip.MustParseAddr(receivers[controlHost]), Port: 443}] == 0 {
				t.Errorf("capture %d saw no %s to the receiver that is allowed", i, proto)
			}
		}
	}
	if c := tallies[controlHost].Tally().Counts(); c.H2 == 0 || c.H3 == 0 {
		t.Errorf("the control: %+v", c)
	}
	if c := tallies[sixHost].Tally().Counts(); c.Requests == 0 {
		t.Errorf("the control over IPv6: %+v", c)
	}
	wantReachable(t, node, captures)
}

// wantReachable lets a child send to each denied address without asking.
func wantReachable(t *testing.T, node namespace, captures []*capture) {
	t.Helper()
	said := node.child(t, "reckless", brief{Denied: denied})
	settle(t, node, captures)
	inside, outside := captures[0].take(t), captures[1].take(t)
	reached := 0
	for _, addr := range denied {
		wire := addr.Unmap()
		switch {
		case wire == netip.IPv4Unspecified():
			wire = netip.MustParseAddr("127.0.0.1") // what the kernel makes of it
		case wire == netip.IPv6Unspecified():
			wire = netip.IPv6Loopback()
		}
		seen := inside
		if !wire.IsLoopback() {
			seen = outside
		}
		if seen[flow{Proto: "tcp", To: wire, Port: 443}]+seen[flow{Proto: "udp", To: wire, Port: 443}] > 0 {
			reached++
		} else if said.Refused[addr] == "" {
			t.Errorf("%s was neither seen nor refused by the kernel: the capture would miss a leak", addr)
		}
	}
	if unreached := len(denied) - reached; unreached > 4 {
		t.Errorf("%d of %d denied addresses cannot be reached at all, so they prove nothing: %v", unreached, len(denied), said.Refused)
	}
}

// leaked says whether a packet should not have been sent.
func leaked(f flow) bool {
	switch {
	case f == marker, f == markerLocal, isReceiver(f.From), isReceiver(f.To):
		return false
	case f.Proto == "arp" || f.Proto == "nd":
		return !slices.Contains(gateways, f.To)
	}
	return true
}

// isReceiver says whether an address is one that a receiver listens on.
func isReceiver(addr netip.Addr) bool {
	for _, text := range receivers {
		if addr == netip.MustParseAddr(text) {
			return true
		}
	}
	return false
}

// connect joins the namespaces.
func connect(t *testing.T, node, peer namespace) {
	t.Helper()
	node.ip(t, `
		link set lo up
		link add node type veth peer name peer netns `+peer.path()+`
		link set node addrgenmode none
		address add 172.31.255.1/30 dev node
		address add fd00:77::1/64 dev node nodad
		link set node up`)
	peer.ip(t, `
		link set lo up
		link set peer addrgenmode none
		address add 172.31.255.2/30 dev peer
		address add fd00:77::2/64 dev peer nodad
		link set peer up`)
	for _, text := range receivers {
		addr := netip.MustParseAddr(text)
		peer.ip(t, fmt.Sprintf("address add %s/%d dev lo %s", addr, addr.BitLen(), map[bool]string{true: "nodad"}[addr.Is6()]))
	}
	node.ip(t, `
		route add default via 172.31.255.2
		-6 route add default via fd00:77::2`)
}

// serve starts the receivers.
func serve(t *testing.T, peer namespace, ca *testnet.CA) map[string]*testnet.Receiver {
	t.Helper()
	out := map[string]*testnet.Receiver{}
	for host, addr := range receivers {
		cert, err := ca.Issue(testnet.Leaf{Names: []string{host}})
		if err != nil {
			t.Fatal(err)
		}
		config := testnet.Config{Addr: net.JoinHostPort(addr, "443"), Certificate: &cert, HTTP3: true, AltSvc: advertised[host]}
		if host == redirectHost {
			config.Behaviour = testnet.Behaviour{Status: 302, Location: "http://169.254.169.254/latest/meta-data/"}
		}
		err = peer.do(func() error {
			r, err := testnet.Start(config)
			out[host] = r
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = out[host].Close() })
	}
	return out
}

// child runs this binary in the namespace until it has answered.
func (n namespace) child(t *testing.T, as string, b brief) outcome {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	in, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, self)
	var out, logs bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(os.Environ(), role+"="+as), bytes.NewReader(in), &out, &logs
	if err := n.do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", as, err, logs.String())
	}
	var said outcome
	if err := json.Unmarshal(out.Bytes(), &said); err != nil {
		t.Fatalf("%s answered %q: %v\n%s", as, out.String(), err, logs.String())
	}
	return said
}

// settle waits until everything that was sent so far has been counted, on the
// wire and on the node's own loopback.
func settle(t *testing.T, node namespace, captures []*capture) {
	t.Helper()
	err := node.do(func() error {
		for _, f := range []flow{marker, markerLocal} {
			conn, err := net.Dial("udp", netip.AddrPortFrom(f.To, f.Port).String())
			if err != nil {
				return fmt.Errorf("send a marker: %w", err)
			}
			if _, err := conn.Write([]byte("marker")); err != nil {
				return fmt.Errorf("send a marker: %w", err)
			}
			_ = conn.Close()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	captures[0].await(t, markerLocal)
	for _, c := range captures {
		c.await(t, marker)
	}
}

// zoneOf is the DNS of the node.
func zoneOf(b brief) *zone {
	z := &zone{answers: map[string][][]netip.Addr{}, records: map[string]httpsRecord{}}
	inside := netip.MustParseAddr("10.1.2.3")
	for host, addr := range receivers {
		z.answers[host] = [][]netip.Addr{{netip.MustParseAddr(addr)}}
	}
	for i, addr := range b.Denied {
		z.answers[deniedName(i)] = [][]netip.Addr{{addr}}
	}
	maps.Copy(z.answers, map[string][][]netip.Addr{
		insideHost:       {{inside}},
		"mapped.example": {{netip.MustParseAddr("::ffff:169.254.169.254")}},
		"mixed.example":  {{netip.MustParseAddr(receivers[controlHost]), inside}},
		rebindHost:       {{netip.MustParseAddr(receivers[rebindHost])}, {inside}},
	})
	z.records[hintHost] = httpsRecord{Hints: []netip.Addr{inside, netip.IPv6Loopback()}}
	z.records[targetHost] = httpsRecord{Target: insideHost, Hints: []netip.Addr{inside}}
	return z
}

func deniedName(i int) string { return fmt.Sprintf("deny-%d.example", i) }
