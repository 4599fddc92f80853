package link

import (
	"net/netip"
	"sync"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// Count is what one protocol did in one direction.
type Count struct {
	Packets    int64 `json:"packets"` // that were sent into the link
	Bytes      int64 `json:"bytes"`   // of those, IP headers included
	Lost       int64 `json:"lost"`
	Overflowed int64 `json:"overflowed"`
	Filtered   int64 `json:"filtered"` // by a rule
}

// Counts is what went over a link since the last Reset.
type Counts struct {
	TCPUp   Count `json:"tcp_up"` // from client to server
	TCPDown Count `json:"tcp_down"`
	UDPUp   Count `json:"udp_up"`
	UDPDown Count `json:"udp_down"`
	// TCPPorts is how many local ports the client opened a connection from (SYN),
	// UDPPorts from how many it began a QUIC connection (Initial).
	TCPPorts int `json:"tcp_ports"`
	UDPPorts int `json:"udp_ports"`
	// TimeWait is how many of those TCP ports the client closed first, and by FIN:
	// its kernel keeps each for a minute more (TIME_WAIT).
	TimeWait int `json:"time_wait"`
	// Late is how much later than it should have the emulator handed packets
	// over: what it adds to the delay that was asked for.
	Late stats.Latency `json:"late"`
}

// Bytes is everything that was sent into the link, both ways.
func (c Counts) Bytes() int64 {
	return c.TCPUp.Bytes + c.TCPDown.Bytes + c.UDPUp.Bytes + c.UDPDown.Bytes
}

// port is a local port of the client.
type port struct {
	proto byte
	addr  netip.Addr
	port  uint16
}

// counter collects Counts; both directions use it.
type counter struct {
	mu     sync.Mutex
	counts Counts
	ports  map[port]struct{}
	ends   map[port]closer // how TCP connections end
	late   []time.Duration
}

// closer is who closed a TCP connection.
type closer uint8

const (
	closedByClient closer = 1 // its FIN came first
	closedByServer closer = 2 // the server's did, or there was an RST
)

// maxLate bounds the sample of latenesses; beyond it every 16th is kept.
const maxLate = 1 << 16

func newCounter() *counter { return &counter{ports: map[port]struct{}{}, ends: map[port]closer{}} }

func (c *counter) saw(p packet, up bool, size int, f fate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var to *Count
	switch {
	case p.proto == protoTCP && up:
		to = &c.counts.TCPUp
	case p.proto == protoTCP:
		to = &c.counts.TCPDown
	case p.proto == protoUDP && up:
		to = &c.counts.UDPUp
	case p.proto == protoUDP:
		to = &c.counts.UDPDown
	default:
		return
	}
	to.Packets++
	to.Bytes += int64(size)
	switch f {
	case lost:
		to.Lost++
	case overflowed:
		to.Overflowed++
	case filtered:
		to.Filtered++
	}
	local := port{p.proto, p.src, p.sport}
	if !up {
		local = port{p.proto, p.dst, p.dport}
	}
	if up && p.opens {
		c.ports[local] = struct{}{}
		delete(c.ends, local)
	}
	switch {
	case p.resets:
		c.ends[local] = closedByServer
	case p.closes && c.ends[local] == 0 && up:
		c.ends[local] = closedByClient
	case p.closes && c.ends[local] == 0:
		c.ends[local] = closedByServer
	}
}

func (c *counter) delivered(late time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.late) < maxLate || late.Nanoseconds()%16 == 0 {
		c.late = append(c.late, max(0, late))
	}
}

// take returns the counts and begins anew.
func (c *counter) take() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.counts
	for p := range c.ports {
		if p.proto == protoTCP {
			out.TCPPorts++
		} else {
			out.UDPPorts++
		}
	}
	for _, by := range c.ends {
		if by == closedByClient {
			out.TimeWait++
		}
	}
	out.Late = stats.LatencyOf(c.late)
	c.counts, c.late = Counts{}, nil
	clear(c.ports)
	clear(c.ends)
	return out
}
