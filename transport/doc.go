// Package transport does one HTTP exchange: it makes and keeps connections over
// QUIC and TCP, writes a POST on one of them exactly once, and says afterwards
// what is known about it.
//
// # What it guarantees
//
//   - A request is written once. No layer below replays it: not net/http, whose
//     Transport replays after some resets and GOAWAYs, and not http3.Transport,
//     which resends after a refusal. Both are used through their single-connection
//     clients, under a pool of our own.
//   - Never early data (0-RTT). A connection is handed out when its handshake is
//     complete.
//   - Every failure is a *delivery.SendError, judged by one function, classify.
//     "Never sent" and "refused" are proofs; everything else is ambiguous.
//   - The lease is looked at immediately before the first byte leaves
//     (delivery.Request.Valid); without it, nothing is sent.
//   - Every address was judged by the policy right before its first packet, over
//     TCP and UDP alike, and it is the judged literal that is dialled. The
//     certificate is verified for the origin's name, whatever is dialled.
//   - Nothing is shared between routes (origin, TLS identity, egress): no
//     connection, no session ticket, no certificate.
//   - The caller's context bounds everything, the body of the answer included.
//   - Bounded: connections per route, requests per connection, idle connections,
//     session tickets, headers, informational answers, and what is kept and read
//     of a body. Whatever a peer sends.
//
// # The path of a request
//
//	Warm ──────────────────────────┐
//	                               ▼           slot = one stream of HTTP/2 or
//	DialTCP, DialQUIC ──► pool ──► Conn        HTTP/3, or all of HTTP/1.1
//	                       │ ▲      │
//	           waiters,    │ │      │ RoundTrip, once
//	           caps, LRU   │ │      ▼
//	                       │ │   exchange ── lease? ── first byte ── answer
//	              dial ◄───┘ │      │                                  │
//	     ┌─────────┴──────┐  │      ▼ wire: one of                     ▼
//	     ▼                ▼  │   ┌───────┬─────────┬────────┐     excerpt of
//	  dialtcp         dialquic│  │ http1 │  http2  │ http3  │     the body
//	  guard, race,   guard,   │  │ gate  │ net/http│ quic-go│        │
//	  proxy, TLS     race,    │  └───────┴─────────┴────────┘        ▼
//	     │           QUIC     │      │ no answer                 release
//	     └────────┬───────┘   │      ▼                              │
//	              └─ link ────┘   classify ──► SendError ───────────┘
//	                                           and the link's fate: keep, drain, drop
//
// # Was it sent?
//
//	never     not a byte of the request left, and none will. HTTP/1.1: nothing
//	          was written to the connection. HTTP/2 and HTTP/3: the header block
//	          was not encoded, which happens before a byte is written.
//	refused   the peer says, where the protocol defines it to mean that, that it
//	          did not process the request: REFUSED_STREAM, H3_REQUEST_REJECTED or
//	          H3_VERSION_FALLBACK on its stream, or a GOAWAY below its id.
//	ambiguous everything else: a reset with another code, a connection that was
//	          closed, even with the same codes, a deadline.
//	processed headers of an answer were seen. That is no failure: RoundTrip
//	          returns the answer, and a body that breaks off is a note on it.
//
// Two races decide whether "never" can be trusted, and both are closed. A stack's
// goroutine that is about to write when its caller gives up meets a sealed
// exchange (see exchange). And a request of HTTP/3 that the peer's GOAWAY
// excludes, which quic-go leaves hanging to its deadline, is found by a watch on
// the connection's own events (see goAwayWatch).
//
// # Connections
//
// A dial belongs to the pool and not to the caller who caused it: a caller who
// gives up takes nothing from those who wait for the same handshake, and what
// comes up stays warm. While it is not known what a route speaks, one handshake
// finds out for all; after that HTTP/1.1 gets connections up to the cap, and
// HTTP/2 and HTTP/3 share. Idle connections are closed by one timer for each
// class, which runs only while there are any. A path that dies after the
// handshake is noticed by packets that do not come (see stallTimer), not by the
// deadline.
//
// # What it deliberately does not do
//
//   - It does not choose between HTTP/3 and TCP, and remembers no alternative:
//     that is protoselect's. It does not fall back, retry or resend.
//   - It follows no redirect, keeps no cookie, asks for no compression, sends no
//     Expect, reads no HTTP_PROXY.
//   - It does not judge addresses (internal/netguard) or answers (delivery.Classify).
//   - It does not offer Encrypted Client Hello, and it does not follow a QUIC
//     server's preferred address.
package transport
