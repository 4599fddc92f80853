// Package fault is a receiver that fails on purpose: over HTTP/1.1, HTTP/2 and
// HTTP/3, at each moment at which a real one can, and with an account of what it
// did. Tests, benchmarks and "dispatcher receive --fault" share it.
//
// # Guarantee
//
// A fault is produced for real, on a socket, by frames and packets, and never by
// a stub of the sender. The list is closed: [Kinds] names every fault with its
// parameters, and each carries the cases whose outcome the design fixes, so that
// a test walks the list instead of repeating it. What the handler did is counted
// before the fault acts: [Tally.Runs] of a request id is exact at any time.
//
// # When a fault acts
//
//	          ┌ packet ──── hello ──── handshake ─┐ one decision for a connection
//	client ───┤                                   ├──────────────► decide
//	          └ reuse ───── request ────── idle ──┘ one for a request
//
//	 UDP socket ─► hub ─► generation (quic.Transport) ─► h3 ─┐
//	               │ swallows, refuses, negotiates            ├─► exchange ─► fault, or
//	               │ versions, forgets a generation           │               the healthy answer
//	 TCP socket ─► conn ─► TLS ─► h2 (frames), h1 ────────────┘                   │
//	                                                                            Tally
//
// "before" is when the headers of a request are in and its handler has not run,
// "after" when the body was read and the handler has run, "idle" when the answer
// has been sent. The whole of HTTP/2 and HTTP/3 is written by hand on frames,
// since servers that obey their protocol do not fail as is wanted here.
//
// # What it does not do
//
// It routes nothing, keeps no body and limits nobody: it is a test's peer, and
// no server for production. Nor does it judge the sender; the cases do.
package fault
