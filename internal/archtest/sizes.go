package archtest

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// The limits of style. The hard ones bind each file and function, the
// percentile binds the product's code as a whole.
const (
	MaxFileLines     = 800
	MaxFunctionLines = 100
	P90FunctionLines = 40
)

const whySize = "what does not fit on a few screens is not reviewed, it is believed"

// Sizes checks the hard limits. In tests the lines of literals do not count
// for a function: a table is data.
func Sizes(t *Tree) []Violation {
	var out []Violation
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if f.Generated {
				continue
			}
			if f.Lines > MaxFileLines {
				out = append(out, Violation{f.Path, 0, fmt.Sprintf("%d lines, the limit is %d", f.Lines, MaxFileLines), whySize})
			}
			for _, fn := range functions(f) {
				if n := t.functionLines(f, fn); n > MaxFunctionLines {
					out = append(out, Violation{f.Path, t.line(fn), fmt.Sprintf("%s has %d lines, the limit is %d", fn.Name.Name, n, MaxFunctionLines), whySize})
				}
			}
		}
	}
	return out
}

func functions(f *File) []*ast.FuncDecl {
	var out []*ast.FuncDecl
	for _, decl := range f.syntax.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			out = append(out, fn)
		}
	}
	return out
}

func (t *Tree) functionLines(f *File, fn *ast.FuncDecl) int {
	n := t.lines(fn)
	if !f.Test {
		return n
	}
	ast.Inspect(fn, func(node ast.Node) bool {
		literal, ok := node.(*ast.CompositeLit)
		if ok {
			n -= t.lines(literal) - 1
		}
		return !ok // what is inside is counted already
	})
	return n
}

// Report sums up the sizes of the product's code: no tests, nothing generated.
type Report struct {
	Files, Functions int
	// MedianFile and P90Function are in lines.
	MedianFile, P90Function int
	// LongestFile and LongestFunction name the largest ones.
	LongestFile, LongestFunction string
}

// String renders the report in two lines.
func (r Report) String() string {
	return fmt.Sprintf("%d files, median %d lines, longest %s\n%d functions, p90 %d lines, longest %s",
		r.Files, r.MedianFile, r.LongestFile, r.Functions, r.P90Function, r.LongestFunction)
}

// Measure computes the report.
func Measure(t *Tree) Report {
	type sized struct {
		name  string
		lines int
	}
	var files, funcs []sized
	for _, p := range t.Packages {
		for _, f := range p.Files {
			if f.Test || f.Generated {
				continue
			}
			files = append(files, sized{f.Path, f.Lines})
			for _, fn := range functions(f) {
				funcs = append(funcs, sized{p.Dir + "." + fn.Name.Name, t.functionLines(f, fn)})
			}
		}
	}
	order := func(a, b sized) int {
		if a.lines != b.lines {
			return a.lines - b.lines
		}
		return strings.Compare(a.name, b.name)
	}
	slices.SortFunc(files, order)
	slices.SortFunc(funcs, order)
	r := Report{Files: len(files), Functions: len(funcs)}
	if len(files) > 0 {
		longest := files[len(files)-1]
		r.MedianFile = files[len(files)/2].lines
		r.LongestFile = fmt.Sprintf("%s (%d)", longest.name, longest.lines)
	}
	if len(funcs) > 0 {
		longest := funcs[len(funcs)-1]
		r.P90Function = funcs[len(funcs)*9/10].lines
		r.LongestFunction = fmt.Sprintf("%s (%d)", longest.name, longest.lines)
	}
	return r
}
