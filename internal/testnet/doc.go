// Package testnet is the far side of a delivery: a certificate authority and
// receivers that speak HTTP/1.1, HTTP/2 and HTTP/3, answer as they are told and
// count what they see. The tests, the demo, the benchmarks and
// "dispatcher receive" share it.
//
//	            ┌─ TCP  listener ─ h1, h2 ─┐
//	Receiver ───┤                          ├─► Behaviour ─► answer
//	            └─ QUIC listener ─ h3 ─────┘        │
//	                                                └─► Tally: requests by protocol, duplicates,
//	                                                    bad signatures, connections, latencies
//
//	Proxy ◄── CONNECT, and on to wherever the test wants the target to lead
//
// A receiver keeps hashes of ids, never bodies, so that a long run stays small.
// It is not a server for production: its only purpose is to be sent to.
package testnet
