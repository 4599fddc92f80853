// Package worker runs the parts of a benchmark as processes of their own, so
// that the CPU time and memory of the node are the node's alone, and no garbage
// collector is shared with the load generator.
//
//	run (parent)                                        child: this program again
//	  Start ──────────── fork, exec ───────────────────► hidden sub-command
//	  Call(method, in) ─ {"id":1,"method":…} ─ stdin ──► Serve ─► Method
//	  out ◄──────────── {"id":1,"result":…} ─ stdout ───┘
//
// No child outlives its parent: one that serves calls ends when its standard
// input does, and on Linux the kernel kills every child whose parent died, even
// by SIGKILL. Children have a process group of their own, so Ctrl-C reaches the
// parent alone, which then stops them in order.
//
// It is deliberately no RPC system: calls are few, and what is measured happens
// inside of them, never across them.
package worker
