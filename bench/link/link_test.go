package link

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestLossHasItsRateAndItsBursts(t *testing.T) {
	const packets = 200_000
	for _, l := range []Loss{{}, {Rate: 0.02}, {Rate: 0.02, Burst: 5}, {Rate: 0.2, Burst: 3}, {Rate: 0.5, Burst: 1}} {
		model := newLosses(l, rand.New(rand.NewPCG(1, 2)))
		lost, bursts, before := 0, 0, false
		for range packets {
			now := model.lost()
			if now {
				lost++
				if !before {
					bursts++
				}
			}
			before = now
		}
		rate := float64(lost) / packets
		if math.Abs(rate-l.Rate) > 0.1*l.Rate+0.0005 {
			t.Errorf("%+v: %v lost", l, rate)
		}
		if l.Burst > 1 {
			if mean := float64(lost) / float64(bursts); math.Abs(mean-l.Burst) > 0.1*l.Burst {
				t.Errorf("%+v: bursts of %v", l, mean)
			}
		}
	}
}

func TestTheLineCarriesItsRateAndDropsWhatDoesNotFit(t *testing.T) {
	// 8 Mbit/s: a packet of 1000 bytes takes one millisecond; three may wait.
	s := newShaper(Shape{Delay: 10 * time.Millisecond, Bits: 8e6, Queue: 3000}, 1)
	for i := range 3 {
		at, f := s.admit(0, 1000)
		if want := time.Duration(i+11) * time.Millisecond; f != passed || at != want {
			t.Errorf("packet %d: %v %v, want %v", i, at, f, want)
		}
	}
	if _, f := s.admit(0, 1000); f != overflowed {
		t.Errorf("the fourth: %v", f)
	}
	// After a millisecond one has left, and one fits.
	if at, f := s.admit(time.Millisecond, 1000); f != passed || at != 14*time.Millisecond {
		t.Errorf("later: %v %v", at, f)
	}
	if _, f := s.admit(time.Millisecond, 1000); f != overflowed {
		t.Errorf("and no more: %v", f)
	}
	// An idle line starts at once.
	if at, f := s.admit(time.Second, 1000); f != passed || at != time.Second+11*time.Millisecond {
		t.Errorf("idle: %v %v", at, f)
	}
}

func TestJitterKeepsTheOrder(t *testing.T) {
	s := newShaper(Shape{Delay: 5 * time.Millisecond, Jitter: 20 * time.Millisecond}, 3)
	last, spread := time.Duration(0), map[time.Duration]bool{}
	for i := range 1000 {
		now := time.Duration(i) * time.Millisecond
		at, f := s.admit(now, 100)
		if f != passed || at < last || at < now+5*time.Millisecond || at > now+25*time.Millisecond {
			t.Fatalf("packet %d: %v after %v", i, at, last)
		}
		last = at
		spread[at-now] = true
	}
	if len(spread) < 100 {
		t.Error("there is no jitter")
	}
}

func TestTheSameSeedGivesTheSameFates(t *testing.T) {
	run := func(seed uint64) string {
		s := newShaper(Shape{Delay: time.Millisecond, Jitter: time.Millisecond, Loss: Loss{Rate: 0.3, Burst: 2}}, seed)
		var b strings.Builder
		for i := range 200 {
			at, f := s.admit(time.Duration(i)*time.Millisecond, 100)
			b.WriteString(at.String())
			b.WriteByte('0' + byte(f))
		}
		return b.String()
	}
	first, again, other := run(1), run(1), run(2)
	if first != again || first == other {
		t.Error("chance does not come from the seed")
	}
}

func TestAQueueHoldsARoundTripUnlessItIsGiven(t *testing.T) {
	if got := (Shape{Bits: 100e6, Delay: 25 * time.Millisecond}).QueueSize(); got != 625_000 {
		t.Errorf("%d", got)
	}
	if got := (Shape{Bits: 1e6}).QueueSize(); got != minQueue {
		t.Errorf("%d", got)
	}
	if got := (Shape{Queue: 7}).QueueSize(); got != 7 {
		t.Errorf("%d", got)
	}
}

func TestImpossibleShapesAreRefused(t *testing.T) {
	for _, bad := range []Shape{{Delay: -1}, {Jitter: time.Hour}, {Loss: Loss{Rate: 1}}, {Loss: Loss{Rate: 0.1, Burst: -1}}, {Bits: 1}, {Queue: -1}} {
		if bad.Validate() == nil {
			t.Errorf("%+v", bad)
		}
	}
	if err := (Shape{}).Validate(); err != nil {
		t.Error(err)
	}
}

// ipv4 makes a packet with a payload.
func ipv4(proto byte, src, dst string, sport, dport uint16, payload string) []byte {
	header := ipv4Header
	b := make([]byte, header, 100)
	b[0], b[9] = 0x45, proto
	copy(b[12:], netip.MustParseAddr(src).AsSlice())
	copy(b[16:], netip.MustParseAddr(dst).AsSlice())
	b = binary.BigEndian.AppendUint16(b, sport)
	b = binary.BigEndian.AppendUint16(b, dport)
	switch proto {
	case protoUDP:
		b = append(b, make([]byte, 4)...)
	case protoTCP:
		flags := byte(0x10) // ACK
		if payload == "SYN" {
			flags, payload = 2, ""
		}
		b = append(b, 0, 0, 0, 0, 0, 0, 0, 0, 5<<4, flags, 0, 0, 0, 0, 0, 0)
	}
	return append(b, payload...)
}

func TestPacketsAreReadAndRulesApplied(t *testing.T) {
	const a, b = "198.18.0.1", "198.18.0.2"
	cases := []struct {
		name    string
		raw     []byte
		ok      bool
		block   bool // by BlockUDP
		die     bool // by DieAfterHandshake
		payload bool
	}{
		{"TCP data", ipv4(protoTCP, a, b, 1000, 443, "x"), true, false, false, true},
		{"TCP ACK", ipv4(protoTCP, a, b, 1000, 443, ""), true, false, false, false},
		{"QUIC initial", ipv4(protoUDP, a, b, 1000, 443, "\xc3long"), true, true, false, true},
		{"QUIC short", ipv4(protoUDP, a, b, 1000, 443, "\x43short"), true, true, true, true},
		{"empty UDP", ipv4(protoUDP, a, b, 1000, 443, ""), true, true, false, false},
		{"ICMP", ipv4(1, a, b, 0, 0, ""), true, false, false, false},
		{"IPv6", append([]byte{0x60}, make([]byte, 60)...), false, false, false, false},
		{"cut off", ipv4(protoTCP, a, b, 1, 2, "")[:18], false, false, false, false},
		{"bad header length", append([]byte{0x42}, make([]byte, 60)...), false, false, false, false},
		{"options cut off", append([]byte{0x4f}, make([]byte, 30)...), false, false, false, false},
		{"empty", nil, false, false, false, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, ok := parse(c.raw)
			if ok != c.ok || BlockUDP.drops(p) != c.block || DieAfterHandshake.drops(p) != c.die || Open.drops(p) || p.hasPayload != c.payload {
				t.Errorf("%+v %v", p, ok)
			}
		})
	}
	if p, _ := parse(ipv4(protoTCP, a, b, 1000, 443, "")); p.src.String() != a || p.dst.String() != b || p.sport != 1000 || p.dport != 443 {
		t.Errorf("%+v", p)
	}
	for text, proto := range map[string]byte{"SYN": protoTCP, "\xc3": protoUDP} {
		if p, _ := parse(ipv4(proto, a, b, 1, 443, text)); !p.opens {
			t.Errorf("%q of %d opens no connection", text, proto)
		}
	}
	for text, proto := range map[string]byte{"x": protoTCP, "\xe3": protoUDP, "\x43": protoUDP} {
		if p, _ := parse(ipv4(proto, a, b, 1, 443, text)); p.opens {
			t.Errorf("%q of %d opens a connection", text, proto)
		}
	}
	fragment := ipv4(protoUDP, a, b, 1000, 443, "x")
	fragment[7] = 9
	if p, ok := parse(fragment); !ok || p.dport != 0 {
		t.Errorf("a fragment has ports: %+v", p)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(ipv4(protoTCP, "198.18.0.1", "198.18.0.2", 1, 2, "x"))
	f.Add(ipv4(protoUDP, "198.18.0.1", "198.18.0.2", 1, 2, "\x43"))
	f.Add([]byte{0x4f, 1, 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := parse(b); ok && (!p.src.Is4() || !p.dst.Is4()) {
			t.Errorf("%x: %+v", b, p)
		}
	})
}

func TestWhoClosesFirstIsCounted(t *testing.T) {
	const client, server = "198.18.0.1", "198.18.0.2"
	c := newCounter()
	send := func(up bool, local uint16, flags byte) {
		raw := ipv4(protoTCP, client, server, local, 443, "")
		if !up {
			raw = ipv4(protoTCP, server, client, 443, local, "")
		}
		raw[ipv4Header+13] = flags
		p, ok := parse(raw)
		if !ok {
			t.Fatal("not parsed")
		}
		c.saw(p, up, len(raw), passed)
	}
	const fin, syn, rst, ack = 1, 2, 4, 16
	for local := uint16(1); local <= 4; local++ {
		send(true, local, syn)
	}
	send(true, 1, fin|ack) // the client, and the server after it
	send(false, 1, fin|ack)
	send(false, 2, fin|ack) // the server
	send(true, 2, fin|ack)
	send(true, 3, fin|ack) // the client, but what came after that was refused
	send(false, 3, ack)
	send(true, 3, rst)
	if got := c.take(); got.TCPPorts != 4 || got.TimeWait != 1 {
		t.Errorf("%+v", got)
	}
	if got := c.take(); got.TimeWait != 0 {
		t.Errorf("counts did not begin anew: %+v", got)
	}
}

// TestTheEmulatorDoesWhatItWasAsked probes a direction as `bench transports`
// probes the link, on a clock of its own: nothing here depends on a machine.
func TestTheEmulatorDoesWhatItWasAsked(t *testing.T) {
	for _, s := range []Shape{
		{Delay: 25 * time.Millisecond, Bits: 100e6},
		{Delay: 100 * time.Millisecond, Bits: 100e6, Loss: Loss{Rate: 0.02}},
		{Delay: 25 * time.Millisecond, Bits: 100e6, Loss: Loss{Rate: 0.02, Burst: 5}},
		{Delay: 50 * time.Millisecond, Bits: 5e6, Queue: 64 << 10, Jitter: 5 * time.Millisecond},
		{Delay: time.Millisecond, Loss: Loss{Rate: 0.1}},
	} {
		const size, probes, burstProbes = 60, 40_000, 400_000
		n := probes
		if s.Loss.Burst > 1 {
			n = burstProbes // losses in bursts are so much more uncertain
		}
		link, missing, travelled := newShaper(s, 7), 0, 0.0
		for i := range n {
			now := time.Duration(i) * 10 * time.Millisecond
			at, f := link.admit(now, size)
			if f == passed {
				travelled += (at - now).Seconds()
			} else {
				missing++
			}
		}
		delay, want := travelled/float64(n-missing), (s.Delay + s.Jitter/2).Seconds()
		if math.Abs(delay/want-1) > 0.02 {
			t.Errorf("%+v: %v s on the way", s, delay)
		}
		if loss := float64(missing) / float64(n); math.Abs(loss-s.Loss.Rate) > 0.003 {
			t.Errorf("%+v: %v lost", s, loss)
		}
		if s.Bits > 0 {
			s.Loss, s.Jitter = Loss{}, 0
			flood(t, s)
		}
	}
}

// flood sends twice the line's rate and looks at what comes out when.
func flood(t *testing.T, s Shape) {
	t.Helper()
	const size = 1228
	link, arrived := newShaper(s, 7), 0
	every := time.Duration(size * 8 / (2 * s.Bits) * float64(time.Second))
	var stopped, first, last time.Duration
	for stopped < 10*time.Second {
		stopped += every
		at, f := link.admit(stopped, size)
		if f != passed {
			continue
		}
		if arrived == 0 {
			first = at
		}
		arrived++
		last = at
	}
	carried := float64(arrived-1) * size * 8
	if rate := carried / (last - first).Seconds(); math.Abs(rate/s.Bits-1) > 0.03 {
		t.Errorf("%+v: %v bits a second", s, rate)
	}
	if queue := (carried - s.Bits*stopped.Seconds()) / 8; math.Abs(queue/float64(s.QueueSize())-1) > 0.1 {
		t.Errorf("%+v: a queue of %v bytes", s, queue)
	}
}
