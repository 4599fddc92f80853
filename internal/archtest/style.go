package archtest

import (
	"go/ast"
	"regexp"
	"slices"
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
			out = append(out, t.style(f)...)
		}
	}
	return out
}

func (t *Tree) style(f *File) []Violation {
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
	_, bubble := f.Imports["testing/synctest"]
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
