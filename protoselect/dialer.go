package protoselect

import (
	"context"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// Conn is a live connection with one slot (a stream of HTTP/2 and HTTP/3, the
// whole connection of HTTP/1.1) reserved for its holder. The holder either
// calls RoundTrip once, which uses the slot up, or Release, which gives it back
// unused; never both.
type Conn interface {
	delivery.RoundTripper
	// Release gives the unused slot back and leaves the connection warm.
	Release()
	// Reused reports whether the connection was up before this slot was asked
	// for: it is no news about the handshake.
	Reused() bool
	// RTT is the connection's smoothed round-trip time, 0 = unknown.
	RTT() time.Duration
}

// TCPOptions narrow a connection over TCP.
type TCPOptions struct {
	// Protocol is the only one acceptable: ProtocolHTTP1 or ProtocolHTTP2.
	// ProtocolNone = whichever ALPN gives.
	Protocol delivery.Protocol
	// Fresh asks for a connection that has not carried a request: the caller
	// has just seen a warm one fail.
	Fresh bool
}

// Want says which warm connection is asked for.
type Want struct {
	// HTTP3 asks for a QUIC connection to Alternative; otherwise TCP.
	HTTP3 bool
	// Alternative is the service that the connection must lead to: host and
	// port must be equal. Its hints do not matter.
	Alternative delivery.Alternative
	TCP         TCPOptions
}

// Dialer makes and keeps connections; package transport implements it. Every
// error is a *delivery.SendError; that of a failed dial has Sent = SentNever
// and, for QUIC, says in Broken what the failure means for the alternative.
// A dial never writes a request.
type Dialer interface {
	// Warm reserves a slot on a connection that is up. It does not block and
	// returns false when there is none with a free slot. A connection whose path
	// is suspect, or that is draining, is not warm.
	Warm(ep delivery.Endpoint, want Want) (Conn, bool)
	// DialTCP returns a connection over TCP with TLS (or plain, for http).
	DialTCP(ctx context.Context, ep delivery.Endpoint, opts TCPOptions) (Conn, error)
	// DialQUIC returns a connection whose QUIC handshake is complete. The
	// certificate is verified for the origin's name, whatever the alternative's.
	DialQUIC(ctx context.Context, ep delivery.Endpoint, alt delivery.Alternative) (Conn, error)
	// ProveQUIC is DialQUIC for an alternative that has not answered yet, or not
	// since its last trouble: the connection counts only once the peer has
	// spoken HTTP/3 on it. Until then it is nobody's, and not warm. Where a
	// handshake is followed by silence, Broken is BrokenAfterDeath.
	ProveQUIC(ctx context.Context, ep delivery.Endpoint, alt delivery.Alternative) (Conn, error)
}
