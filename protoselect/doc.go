// Package protoselect decides how a request travels: over HTTP/3 where that
// works and is wanted, over TCP where it does not or is not. It remembers per
// route which HTTP/3 alternatives an origin has (Alt-Svc, RFC 7838; DNS HTTPS
// records, RFC 9460) and what became of them, races connections when it is not
// sure, and writes the request once, on the winner.
//
// # Guarantee
//
// A request is handed to a connection once. It is handed to a second one, once,
// only with proof that the first did not process it: not a byte was sent, the
// peer refused it as unprocessed, 421 over HTTP/3, or 425. An ambiguous failure
// is the attempt's failure. Connections race; requests never do. No request
// serves as a probe: what a probe does is a handshake.
//
// A dead UDP path costs a delivery at most one stagger, and the next one starts
// over TCP. What passes a handshake and then swallows what follows costs nothing
// but the stagger either, as long as it has not answered yet, and one attempt if
// it stops after it had worked: until an alternative has answered, and again
// after each trouble, a handshake counts only with a proof that the path carries
// more (Dialer.ProveQUIC).
//
// A burst stays on HTTP/3: as many connections as it fills are dialled at once, up
// to the dialer's cap, and beyond that a delivery waits for a stream for as long as
// TCP has to wait in a race. The first burst to an alternative waits one round trip
// longer, for the proof.
//
// # States
//
// Every alternative of a route (host, UDP port) has a state. Time alone moves
// it from Broken to HalfOpen and, when its advert runs out, to Unknown.
//
//	              advert                     HEADERS over HTTP/3
//	  Unknown ───────────────► Advertised ──────────────────────► Confirmed
//	     ▲                      │  ▲   ▲                            │  ▲
//	     │ expiry, clear, 421   │  │   └─ handshake ─┐              │  │ answer
//	     └── (from any state)   │  │                 │  stall, death│  │
//	                            │  │              Suspect ◄─────────┘──┘
//	    HTTP/3 failed and TCP   │  │ handshake       │
//	    worked within 30 s      ▼  │                 │ second death, timeout …
//	                  Broken(n, until) ◄─────────────┘
//	                     │      ▲
//	        until passed ▼      │ probe failed: n+1
//	                    HalfOpen
//
//	state       a delivery does
//	Unknown     TCP; the HTTPS record is asked for (at most 50 ms, once)
//	Advertised  warm HTTP/3, or warm TCP and a background handshake; cold: race
//	Confirmed   warm HTTP/3, else race with stagger
//	Suspect     warm TCP and a background handshake; cold: race, stagger 0
//	Broken      TCP
//	HalfOpen    TCP and one background handshake; HTTP/3 once that succeeded
//	Disabled    TCP: mode, pin, subscriber, egress or scheme say so
//
// Brokenness outlives adverts: a header that is repeated with every answer does
// not clear it. A completed handshake ends the backoff but not the count of
// breakages, because a path that swallows large packets lets handshakes pass;
// the count ends when answers have come for as long as the last backoff lasted.
//
// # Order of alternatives
//
// Confirmed before Advertised before Suspect; then Alt-Svc before HTTPS records
// (the origin said one over verified TLS, DNS is not authenticated); then the
// order of the header or SvcPriority; then port, then host.
//
// # Parts
//
//	    Do(ctx, endpoint, policy, request)
//	                 │
//	machine ◄── decide ──► plan            pure: events, time ─► plans, reports
//	   ▲             │
//	   │    warm? ───┼──► race ─► QUIC leg (one per alternative)
//	   │             │       └──► TCP leg (after the stagger)
//	   │             ▼
//	   └─ events ─ exchange (one write) ─► answer
//	   │
//	lookups (HTTPS records: single flight, cached)
//
// # What it does not do
//
// It opens no connection itself (Dialer), vets no address, verifies no
// certificate, and decides nothing about retries of an attempt. HTTPS records
// never steer TCP elsewhere, and Encrypted ClientHello parameters in them are
// ignored.
package protoselect
