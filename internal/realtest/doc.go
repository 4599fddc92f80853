// Package realtest holds the project's work against peers that other people
// wrote: the servers that receivers stand behind, the libraries that providers
// publish for them, a browser, and the store through which nodes share state.
//
// Our own tests agree with our own reading of a protocol text. These tests find
// out whether anybody else reads it so.
//
//	scripts/test-real ── installs, starts ──► nginx, ngtcp2, Redis, Node.js …
//	        │                                        ▲
//	        └── go test -tags real ──► TestReal… ────┘
//	            (peers' addresses in the environment)
//
//	TestRealNetNS ──► two network namespaces joined by a wire: a node in one, as
//	    a child process, receivers in the other, and packets counted in both
//
// Guarantee: a test without its peer fails; it never skips. The tests carry the
// build tag real, so an ordinary `go test ./...` needs none of the peers.
//
// The package deliberately has no code of its own: what is tested is imported,
// and starting and stopping peers is the script's work. Tests of one package
// against a peer may also stand in that package; the script finds them by tag.
package realtest
