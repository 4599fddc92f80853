package sched

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

// decisions are the files whose functions decide something. What they decide
// follows from their arguments alone: time and random numbers are among them.
var decisions = []string{"ladder.go", "breaker.go", "order.go", "lanes.go", "room.go"}

// mayImport is what a decision can be made with.
var mayImport = []string{"cmp", "math", "math/bits", "strconv", "time", "github.com/dispatcher-engine/dispatcher/delivery"}

// impure are functions of these packages whose result is no function of their
// arguments, and types whose methods could reach state that others share.
var (
	impure  = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
	sharing = []string{"Scheduler", "actor", "dispatcher", "loader", "registry", "retryClock", "timepiece", "share", "tenant"}
)

func TestDecisionsArePure(t *testing.T) {
	for _, name := range decisions {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range file.Imports {
			if path, _ := strconv.Unquote(i.Path.Value); !slices.Contains(mayImport, path) {
				t.Errorf("%s imports %s: a decision needs its arguments alone", name, path)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(impure, n.Sel.Name) {
					t.Errorf("%s: time.%s: pass the time as an argument", fset.Position(n.Pos()), n.Sel.Name)
				}
			case *ast.Ident:
				if slices.Contains(sharing, n.Name) {
					t.Errorf("%s: %s: a decision must not reach shared state", fset.Position(n.Pos()), n.Name)
				}
			case *ast.GenDecl:
				if n.Tok == token.VAR {
					t.Errorf("%s: a variable of the package", fset.Position(n.Pos()))
				}
			case *ast.GoStmt, *ast.SendStmt, *ast.SelectStmt:
				t.Errorf("%s: a decision waits for nobody", fset.Position(n.Pos()))
			case *ast.FuncDecl:
				return n.Name.Name != "init" || !fails(t, name)
			}
			return true
		})
	}
}

func fails(t *testing.T, name string) bool {
	t.Errorf("%s has an init function", name)
	return true
}
