package fault

import (
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/quic-go/quic-go"
)

// hub owns the UDP socket and hands its packets to a generation: the state of a
// server between two losses of it. To the sender a new generation is the same
// port with its memory gone; to this process the port was never free.
//
// Connection ids carry their generation's number, so that packets of a forgotten
// one can be told from those of a new connection.
type hub struct {
	s      *Server
	socket *net.UDPConn
	key    quic.StatelessResetKey // of all generations: what makes a reset believable

	mu      sync.Mutex
	number  uint16
	current *generation
	silent  map[uint16]bool   // generations whose packets are not answered
	recent  map[string]packet // the last packet to each connection id, for a reset
	initial map[string]bool   // first packets seen, and whether they are dropped
}

// packet is a datagram from a peer.
type packet struct {
	data []byte
	from net.Addr
}

// generation is one life of the QUIC server.
type generation struct {
	number    uint16
	pipe      *pipe
	transport *quic.Transport
	listener  *quic.Listener
}

// bounds of what a flood could make the hub remember.
const maxRemembered = 4096

func newHub(s *Server, socket *net.UDPConn) *hub {
	h := &hub{
		s: s, socket: socket, silent: map[uint16]bool{}, recent: map[string]packet{}, initial: map[string]bool{},
	}
	fillRandom(h.key[:])
	return h
}

// run begins the first generation.
func (h *hub) run() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var err error
	if h.current, err = h.start(0); err != nil {
		return err
	}
	h.s.wg.Go(h.read)
	return nil
}

// start makes a generation and serves its connections.
func (h *hub) start(number uint16) (*generation, error) {
	g := &generation{number: number, pipe: newPipe(h.socket)}
	g.transport = &quic.Transport{
		Conn: g.pipe, ConnectionIDGenerator: taggedIDs(number), StatelessResetKey: &h.key,
	}
	var err error
	config := &quic.Config{GetConfigForClient: h.s.quicConfig}
	if g.listener, err = g.transport.Listen(h.s.tlsConfig(overUDP, "h3"), config); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on quic: %w", err), g.transport.Close())
	}
	h.s.wg.Go(func() { h.s.acceptQUIC(g.listener) })
	return g, nil
}

// read hands packets over until the socket is closed.
func (h *hub) read() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := h.socket.ReadFrom(buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // an ICMP message about an earlier packet
		}
		h.route(packet{append([]byte(nil), buf[:n]...), from})
	}
}

// route decides about one packet.
func (h *hub) route(p packet) {
	head, ok := parseHead(p.data)
	if !ok {
		return
	}
	number, ours := head.generation()
	if !ours {
		// The first packets of a connection, or a version we do not know.
		if !head.initial || !h.refuses(head, p.from) {
			h.now().pipe.deliver(p)
		}
		return
	}
	h.mu.Lock()
	g := h.current
	switch {
	case number == g.number:
		if !head.long {
			h.rememberLocked(head, p)
		}
	case h.silent[number] || head.long:
		g = nil
	}
	h.mu.Unlock()
	if g != nil {
		g.pipe.deliver(p)
	}
}

func (h *hub) now() *generation {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.current
}

func (h *hub) rememberLocked(head packetHead, p packet) {
	if len(h.recent) >= maxRemembered {
		clear(h.recent)
	}
	h.recent[string(head.to)] = p
}

// refuses decides about a connection at its first packet, and keeps to it for
// the packets that repeat it.
func (h *hub) refuses(head packetHead, from net.Addr) bool {
	id := string(head.to)
	h.mu.Lock()
	verdict, known := h.initial[id]
	h.mu.Unlock()
	if known {
		return verdict
	}
	f, dropped := h.s.decideEarly(atPacket, overUDP, "black-hole", "version-negotiation", "connection-refused", "tls-alert")
	if dropped {
		h.send(head.reply(f), from)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.initial) >= maxRemembered {
		clear(h.initial)
	}
	h.initial[id] = dropped
	return dropped
}

// reply is what the first packet of a connection gets instead of a handshake;
// nil = nothing.
func (h packetHead) reply(f Fault) []byte {
	code := uint64(quicConnectionRefused)
	switch f.kind.Name {
	case "black-hole":
		return nil
	case "version-negotiation":
		return h.versionNegotiation()
	case "tls-alert":
		code = quicCryptoError + f.num("alert")&0xff
	}
	packet, err := h.refusal(code)
	if err != nil {
		return nil // silence is a failure, too
	}
	return packet
}

func (h *hub) send(p []byte, to net.Addr) {
	if p != nil {
		_, _ = h.socket.WriteTo(p, to) // like any datagram, it may be lost
	}
}

// forget begins a new generation. The old one's connections are gone without a
// packet; tell says that their peers get a stateless reset, which is an answer
// to the last packet that each of them sent.
func (h *hub) forget(tell bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.current
	if h.s.ctx.Err() != nil {
		return
	}
	next, err := h.start(h.number + 1)
	if err != nil {
		return // only when the process cannot go on in any case
	}
	h.number++
	h.current = next
	h.silent[old.number] = !tell
	old.pipe.cut()
	for _, p := range h.recent {
		if tell {
			next.pipe.deliver(prompt(p))
		}
	}
	clear(h.recent)
	h.s.wg.Go(func() { old.end() })
}

// prompt repeats a packet as the network may, long enough for an answer: one as
// short as a reset itself gets none (RFC 9000 section 10.3.3).
func prompt(p packet) packet {
	data := make([]byte, max(len(p.data), 64))
	fillRandom(data[copy(data, p.data):])
	return packet{data, p.from}
}

func (g *generation) end() {
	_ = g.listener.Close()  // returns nil only
	_ = g.transport.Close() // closes no socket, so it cannot fail
}

// close ends the socket and all generations.
func (h *hub) close() error {
	if g := h.now(); g != nil {
		g.end()
	}
	return h.socket.Close()
}
