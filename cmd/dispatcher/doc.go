// Command dispatcher is the one binary: a node (serve), a demonstration (demo),
// a client of a running node (subscribers, events, deliveries, dlq) and tools
// (receive). It holds no logic: flags, signals and exit statuses are mapped to
// package internal/cli.
package main
