// Package bench measures the dispatcher, and says how far a figure can be
// trusted. `dispatcher bench` is its command line.
//
//	bench engine ─────► node, load generator, receiver: three processes
//	                    beside the floor: a bare HTTP client, same bodies
//	bench isolation ──► the same three processes, with and without what disturbs
//	bench idle ───────► a node with a million subscribers and nothing to do
//	bench storage ────► the store alone, beside bare synced commits
//	bench sched ──────► the scheduler alone, with a simulated sender
//	bench transports ─► h1, h2, h3 and auto over an emulated link
//	        │
//	        ▼
//	   report: Markdown (stdout), JSON, HTML with plots
//
// What it guarantees: a durable figure comes from a disk (a directory in memory
// is refused) with the disk's sync time of that moment beside it; what is
// compared was measured in the same run, side by side and in turns; every
// figure has its rounds' extremes; chance comes from a printed seed; and a run
// in which a promise of the dispatcher did not hold (a lost event, a wrong
// signature) fails, whatever its figures are.
//
// What it deliberately does not do: it tunes nothing, neither the machine nor
// the node, compares with no other product, and asserts no speed. Traffic stays
// on loopback, or in network namespaces that the run makes and that end with
// it.
//
// Sub-packages: stats (arithmetic), report (writing), host (the machine), worker
// (processes), load (generator and receiver), link (the emulated network).
package bench
