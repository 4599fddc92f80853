package link

import (
	"encoding/binary"
	"net/netip"
)

// Protocol numbers of IPv4.
const (
	protoTCP = 6
	protoUDP = 17
)

// packet is what the emulator reads out of an IPv4 packet.
type packet struct {
	proto      byte
	src, dst   netip.Addr
	sport      uint16
	dport      uint16
	shortQUIC  bool // UDP, and its payload looks like a QUIC packet with a short header
	opens      bool // TCP SYN without ACK, or a QUIC Initial packet
	closes     bool // TCP FIN
	resets     bool // TCP RST
	hasPayload bool // UDP or TCP that carries data
}

const (
	ipv4Header = 20
	udpHeader  = 8
	tcpHeader  = 20
)

// parse reads an IPv4 packet. Anything else, and what is cut off, is not ok.
// Fragments but the first have no ports.
func parse(b []byte) (p packet, ok bool) {
	if len(b) < ipv4Header || b[0]>>4 != 4 {
		return p, false
	}
	head := int(b[0]&0x0f) * 4
	if head < ipv4Header || len(b) < head {
		return p, false
	}
	p.proto = b[9]
	p.src, _ = netip.AddrFromSlice(b[12:16])
	p.dst, _ = netip.AddrFromSlice(b[16:20])
	if binary.BigEndian.Uint16(b[6:8])&0x1fff != 0 {
		return p, true
	}
	rest := b[head:]
	switch {
	case p.proto == protoUDP && len(rest) >= udpHeader:
		p.hasPayload = len(rest) > udpHeader
		// RFC 9000 section 17: the first bit is 1 in a long header, the second
		// ("fixed") is 1 in both; the next two are a long packet's type, 0 = Initial.
		p.shortQUIC = p.hasPayload && rest[udpHeader]&0xc0 == 0x40
		p.opens = p.hasPayload && rest[udpHeader]&0xf0 == 0xc0
	case p.proto == protoTCP && len(rest) >= tcpHeader:
		p.hasPayload = len(rest) > int(rest[12]>>4)*4
		const fin, syn, rst, ack = 1, 2, 4, 16
		p.opens = rest[13]&(syn|ack|fin) == syn
		p.closes, p.resets = rest[13]&fin != 0, rest[13]&rst != 0
	default:
		return p, true
	}
	p.sport, p.dport = binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:])
	return p, true
}

// Rule is how the link treats a server's address.
type Rule uint8

// Rules.
const (
	// Open lets everything pass.
	Open Rule = 0
	// BlockUDP drops UDP in silence, as many firewalls do.
	BlockUDP Rule = 1
	// DieAfterHandshake drops QUIC packets with a short header: the handshake
	// completes, and what follows is swallowed.
	DieAfterHandshake Rule = 2
)

// drops says whether a rule drops a packet.
func (r Rule) drops(p packet) bool {
	switch r {
	case BlockUDP:
		return p.proto == protoUDP
	case DieAfterHandshake:
		return p.shortQUIC
	default:
		return false
	}
}
