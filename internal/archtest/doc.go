// Package archtest holds the repository to its own rules: who may import whom,
// what must be documented, how large a file or function may grow, and what may
// not appear at all.
//
// A rule that only stands in a guide is a wish. Here each one is a function
// over the parsed source that returns violations, every violation says where,
// what and why, and `go test ./...` fails on the first of them.
//
//	source tree ──Load──► Tree{packages, files, syntax}
//	                        │
//	                        ├─ imports   boxes, leaves, fences, test-only modules
//	                        ├─ layout    top-level directories, package names, doc.go
//	                        ├─ docs      every exported name is documented
//	                        ├─ sizes     files, functions, percentiles
//	                        └─ style     sleeps, skips, old idioms, left-overs
//	go.mod, docs/dependencies.md ─────── every direct dependency is explained
//	docs/adr, *.md ───────────────────── decisions have reasons, links a target
//
// Guarantee: every rule is proven able to fail. Each has a tree of bad source
// under testdata, and a test that demands exactly the violations that its
// comments announce.
//
// It works on syntax alone: build tags and operating systems do not hide files
// from it, and packages that do not compile are still checked. It deliberately
// does not repeat what the compiler, go vet or the linters see with types.
package archtest
