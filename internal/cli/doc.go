// Package cli is the command line: one file per command group, each a thin
// layer that parses flags, calls the engine (serve, demo), a running node's API
// (subscribers, events, deliveries …) or a tool (receive, sign, doctor), and
// prints a table for people or JSON for scripts.
//
//	main ─► Run(ctx, args, streams) ─► cobra ─┬─ serve, demo ──► node ──► engine
//	                                          ├─ subscribers… ─► client ─► HTTP API
//	                                          └─ receive … ────► testnet
//
// Data goes to stdout, logs and progress to stderr. Exit statuses: 0 done, 1
// the command failed, 2 the command line or configuration is wrong, 3 a running
// node could not be reached or refused the token, 4 what was asked for does not
// exist.
package cli
