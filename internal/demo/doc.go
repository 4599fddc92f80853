// Package demo runs the dispatcher's main job on real input in front of a
// person: four receivers that behave differently, the real payloads, progress,
// and a table that says what arrived, over which protocol, and how fast.
//
//	payloads ─► HTTP API ─► node ─┬─► receiver "h3"       advertises HTTP/3 by Alt-Svc
//	                              ├─► receiver "tcp"      TCP only
//	                              ├─► receiver "dead-udp" advertises HTTP/3 where nobody answers
//	                              └─► receiver "flaky"    fails at first: 503, Retry-After: 1
//
// It judges by what the receivers saw, not by what the node says of itself.
package demo
