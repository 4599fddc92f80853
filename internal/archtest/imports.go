package archtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// box limits what one directory may import from this module. Directories
// without a box may import what the reserved table does not forbid.
type box struct {
	dir string
	// may lists the directories whose packages it may import.
	may []string
	// tests lists what its tests may import beyond that.
	tests []string
	why   string
}

const (
	whySibling = "the boxes on the diagram meet only in engine: declare the small interface that you consume"
	whyLeaf    = "everybody imports it, so it imports nobody"
)

// testKit is what a box's tests may share: scripted peers, real bodies, and
// the address policy that they have to satisfy.
var testKit = []string{"internal/testnet", "internal/payloads", "internal/netguard"}

var boxes = []box{
	{dir: "delivery", why: whyLeaf},
	{dir: "signing", why: whyLeaf},
	{dir: "ingress", may: []string{"delivery", "signing"}, tests: testKit, why: whySibling},
	{dir: "sched", may: []string{"delivery", "signing"}, tests: testKit, why: whySibling},
	{dir: "storage", may: []string{"delivery", "signing"}, tests: testKit, why: whySibling},
	{dir: "protoselect", may: []string{"delivery", "signing"}, tests: testKit, why: whySibling},
	{dir: "transport", may: []string{"delivery", "signing", "internal/netguard"}, tests: testKit, why: whySibling},
	{dir: "internal/netguard", why: "the address policy must be readable alone, without the code that it polices"},
	{dir: "internal/payloads", why: "test data depends on nothing that is tested with it"},
	{dir: "internal/testnet", may: []string{"delivery", "signing", "internal/payloads"}, why: "a peer that shares code with the sender agrees with its mistakes"},
}

// reserved limits who may import one directory of this module.
type reserved struct {
	dir string
	// by lists the directories that may import it.
	by []string
	// tests says that every test may import it, too.
	tests bool
	why   string
}

var reservations = []reserved{
	{dir: "cmd", why: "a command is an end, not a library"},
	{dir: "bench", by: []string{"cmd", "internal/cli"}, why: "nothing that ships depends on its own load generator"},
	{dir: "engine", by: []string{"cmd", "bench", "internal"}, why: "engine composes the boxes: one that knows it cannot be tested or replaced alone"},
	{dir: "internal/testnet", by: []string{"cmd", "internal/cli", "internal/demo", "bench"}, tests: true, why: "scripted receivers are for tests, benchmarks and the commands that offer them"},
	{dir: "internal/payloads", by: []string{"cmd", "internal/cli", "internal/demo", "bench", "internal/testnet"}, tests: true, why: "a megabyte of sample bodies is for the demo, tests and benchmarks"},
	{dir: "internal/archtest", why: "it looks at the tree, the tree does not look back"},
}

// Imports checks every import: within the module against the boxes and
// reservations, outside of it against the table of dependencies.
func Imports(t *Tree, deps []Dependency) []Violation {
	var out []Violation
	for _, p := range t.Packages {
		for _, f := range p.Files {
			for _, imported := range slices.Sorted(maps.Keys(f.Imports)) {
				what, why := "", ""
				if dir, ok := inModule(imported); ok {
					what, why = insider(p.Dir, f.Test, dir)
				} else if thirdParty(imported) {
					what, why = outsider(p.Dir, f.Test, imported, deps)
				}
				if what != "" {
					out = append(out, Violation{f.Path, t.find(f, imported), what, why})
				}
			}
		}
	}
	return out
}

// inModule returns the directory of an import path of this module.
func inModule(importPath string) (string, bool) {
	if importPath == Module {
		return ".", true
	}
	return strings.CutPrefix(importPath, Module+"/")
}

// thirdParty says whether an import path is outside the standard library: only
// there does the first element have a dot.
func thirdParty(importPath string) bool {
	first, _, _ := strings.Cut(importPath, "/")
	return strings.Contains(first, ".")
}

// insider judges an import within the module.
func insider(from string, test bool, dir string) (what, why string) {
	if from == dir {
		return "", "" // an external test of the package itself
	}
	for _, b := range boxes {
		if !under(from, b.dir) || under(dir, b.dir) {
			continue
		}
		may := b.may
		if test {
			may = slices.Concat(b.may, b.tests)
		}
		if !within(dir, may) {
			return fmt.Sprintf("%s imports %s", b.dir, dir), b.why
		}
	}
	for _, r := range reservations {
		if !under(dir, r.dir) || under(from, r.dir) || within(from, r.by) || (test && r.tests) {
			continue
		}
		return fmt.Sprintf("%s imports %s", from, dir), r.why
	}
	return "", ""
}

// outsider judges an import of another module.
func outsider(from string, test bool, importPath string, deps []Dependency) (what, why string) {
	d, ok := owner(importPath, deps)
	if !ok {
		return "imports " + importPath, "it has no row in " + DependenciesFile + ": say there why it is worth having, and where"
	}
	if within(from, d.Dirs) || (test && d.Tests) {
		return "", ""
	}
	return fmt.Sprintf("%s imports %s, allowed in %s", from, importPath, d.Where()), d.Why
}

// within says whether a directory lies in one of the given ones.
func within(dir string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return under(dir, d) })
}
