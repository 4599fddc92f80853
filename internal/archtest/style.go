package archtest

import (
	"go/ast"
	"regexp"
	"slices"
	"strings"
)

const (
	whySleep     = "a sleep is a guess about another goroutine: use a synctest bubble, where it is exact, or wait for a named moment"
	whySkip      = "a skipped test is a promise nobody checks: give it what it needs, or a build tag of its own"
	whyInterface = "any says the same in three letters"
	whyRand      = "math/rand/v2 has better sources and no global seed"
	whyLeftOver  = "what is missing belongs into an issue; what is shipped is finished"
)

var leftOver = regexp.MustCompile(`\b(TODO|FIXME|HACK)\b`)

// Style checks for what must not appear in any file.
func Style(t *Tree) []Violation {
	var out []Violation
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if f.Generated {
				continue
			}
			out = append(out, t.style(f, p.inBubble(f))...)
		}
	}
	return out
}

// inBubble guesses whether a test file's code runs in a synctest bubble: it makes
// one itself, or it has no tests of its own and serves those of a package that
// makes them.
func (p *Package) inBubble(f *File) bool {
	const bubble = "testing/synctest"
	if _, ok := f.Imports[bubble]; ok {
		return true
	}
	for _, fn := range functions(f) {
		if fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
			return false
		}
	}
	return slices.ContainsFunc(p.Files, func(other *File) bool {
		_, ok := other.Imports[bubble]
		return ok
	})
}

func (t *Tree) style(f *File, bubble bool) []Violation {
	var out []Violation
	report := func(node ast.Node, what, why string) {
		out = append(out, Violation{f.Path, t.line(node), what, why})
	}
	if at := t.find(f, "math/rand"); at > 0 {
		out = append(out, Violation{f.Path, at, "imports math/rand", whyRand})
	}
	for _, group := range f.syntax.Comments {
		for _, c := range group.List {
			if word := leftOver.FindString(c.Text); word != "" {
				report(c, word+" in a comment", whyLeftOver)
			}
		}
	}
	ast.Inspect(f.syntax, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.InterfaceType:
			if n.Methods.NumFields() == 0 {
				report(n, "interface{}", whyInterface)
			}
		case *ast.CallExpr:
			switch {
			case f.Test && !bubble && f.calls(n, "time", "Sleep"):
				report(n, "time.Sleep outside of a synctest bubble", whySleep)
			case skips(n):
				report(n, "skips a test", whySkip)
			}
		}
		return true
	})
	return out
}

// calls says whether a call is to a function of an imported package.
func (f *File) calls(call *ast.CallExpr, importPath, function string) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || sel.Sel.Name != function {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	name, imported := f.Imports[importPath]
	return ok && imported && id.Name == name
}

// skips recognises t.Skip and its kin by the names that a test's parameter
// has by custom.
func skips(call *ast.CallExpr) bool {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
		return false
	}
	id, ok := sel.X.(*ast.Ident)
	return ok && slices.Contains([]string{"t", "b", "f", "tb"}, id.Name)
}
