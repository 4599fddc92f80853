// Package payloads embeds 120 real GitHub webhook bodies as input for the demo,
// for tests and for benchmarks.
//
// Invented JSON flatters a dispatcher: it is small, regular and ASCII. These
// bodies are what a provider really sends, from 1 KB to 32 KB with a median of
// 9 KB, so sizes, compression and re-encoding bugs show up as they would in
// production.
//
//	github/EVENT.ACTION.N.json ──embed──► GitHub() ──► []Payload, sorted by name
//
// Guarantee: the bytes are exactly the files' bytes, the order is the same in
// every process, and the set does not change between runs of one build.
//
// It deliberately does not parse, validate or sign the bodies, and it carries
// no delivery headers: an event's id and signature belong to the caller.
//
// The bodies come from the npm package @octokit/webhooks-examples 7.6.1; its
// MIT licence stands beside them in github/LICENSE.
package payloads
