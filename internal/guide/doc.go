// Package guide holds the documentation to the program: what the guides tell a
// reader to type is typed, and what can be generated is generated.
//
//	README.md, docs/*.md ──Blocks──► fenced blocks, by their info string
//	                                   │
//	   sh              run, in order, in one shell and one directory per document
//	   sh background   the same, left running ("in another terminal")
//	   sh status=N     run, and it has to exit with N
//	   sh elsewhere    needs root, another machine or the internet: not run, but
//	                   its commands, flags and make targets have to exist
//	   yaml config     a configuration file: it has to load
//	   other           what a reader sees or pastes elsewhere; no shell
//
//	cli, config, api ──Reference──► docs/cli.md, configuration.md, api.md
//	                                (go generate writes them, a test compares)
//
// The dispatcher that the blocks call is this package's test binary, on ports
// that are free (see substitutions in the test): a real process with a real
// store. Documents that call curl or openssl are run by make test-real, all
// others by make test.
//
// Guarantee: a block that is called anything else fails the test, so no command
// hides under a name that nobody looks at.
//
// What it does not do: compare output. What a command prints in a guide is an
// example; that it works is what is checked.
package guide
