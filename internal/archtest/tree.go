package archtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Module is the import path of the module whose tree is checked.
const Module = "github.com/dispatcher-engine/dispatcher"

// Tree is a parsed source tree.
type Tree struct {
	// Root is the directory that was loaded.
	Root string
	// Packages holds the directories with Go files, sorted by path.
	Packages []*Package
	fset     *token.FileSet
}

// Package is one directory of Go files. The external tests (package x_test)
// belong to the directory's package.
type Package struct {
	// Dir is the slash-separated path below the root; "." for the root itself.
	Dir string
	// Name is the package clause's name without the suffix _test.
	Name string
	// Files is sorted by name.
	Files []*File
}

// File is one parsed file.
type File struct {
	// Path is the slash-separated path below the root.
	Path string
	// Test says that the name ends in _test.go.
	Test bool
	// Generated says that the file carries the standard "Code generated" line.
	Generated bool
	// Lines is the number of lines.
	Lines int
	// Imports maps each import path to the name that it has in this file.
	Imports map[string]string
	syntax  *ast.File
}

// Violation is one broken rule at one place.
type Violation struct {
	// Path is the file or directory, slash-separated and relative to the root.
	Path string
	// Line is 1-based; 0 where the violation has no line.
	Line int
	// What is broken, and Why the rule exists.
	What, Why string
}

// String renders the violation as path:line: what (why).
func (v Violation) String() string {
	where := v.Path
	if v.Line > 0 {
		where += ":" + strconv.Itoa(v.Line)
	}
	return fmt.Sprintf("%s: %s (%s)", where, v.What, v.Why)
}

// skipped says which directories hold no source of this module: hidden ones,
// fixtures, build products and other modules.
func skipped(root, dir, name string) bool {
	if dir == root {
		return false
	}
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return true
	}
	if slices.Contains([]string{"testdata", "vendor", "node_modules", "bin"}, name) {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

// Load parses every Go file below root. It fails on the first file that does
// not parse: a tree that is half seen must not pass.
func Load(root string) (*Tree, error) {
	t := &Tree{Root: root, fset: token.NewFileSet()}
	packages := map[string]*Package{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if skipped(root, name, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		return t.add(packages, name)
	})
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", root, err)
	}
	if len(t.Packages) == 0 {
		return nil, fmt.Errorf("load %s: %w", root, errors.New("no Go files"))
	}
	slices.SortFunc(t.Packages, func(a, b *Package) int { return strings.Compare(a.Dir, b.Dir) })
	return t, nil
}

func (t *Tree) add(packages map[string]*Package, name string) error {
	rel, err := filepath.Rel(t.Root, name)
	if err != nil {
		return err
	}
	rel = filepath.ToSlash(rel)
	syntax, err := parser.ParseFile(t.fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := &File{
		Path:      rel,
		Test:      strings.HasSuffix(rel, "_test.go"),
		Generated: ast.IsGenerated(syntax),
		Lines:     t.fset.File(syntax.FileStart).LineCount(),
		Imports:   map[string]string{},
		syntax:    syntax,
	}
	for _, spec := range syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		f.Imports[p] = importName(spec, p)
	}
	dir := path.Dir(rel)
	p := packages[dir]
	if p == nil {
		p = &Package{Dir: dir, Name: strings.TrimSuffix(syntax.Name.Name, "_test")}
		packages[dir] = p
		t.Packages = append(t.Packages, p)
	}
	p.Files = append(p.Files, f)
	return nil
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// importName is the name by which the file knows the import. Without types it
// is a guess for packages named unlike their path; the rules ask only for
// packages of the standard library, where the guess is right.
func importName(spec *ast.ImportSpec, importPath string) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	base := path.Base(importPath)
	if majorVersion.MatchString(base) {
		base = path.Base(path.Dir(importPath))
	}
	return base
}

func (t *Tree) line(node ast.Node) int {
	return t.fset.Position(node.Pos()).Line
}

// lines is the number of lines from the node's first to its last.
func (t *Tree) lines(node ast.Node) int {
	return t.fset.Position(node.End()).Line - t.line(node) + 1
}

// find returns the first place of an import in a file.
func (t *Tree) find(f *File, importPath string) int {
	for _, spec := range f.syntax.Imports {
		if spec.Path.Value == strconv.Quote(importPath) {
			return t.line(spec)
		}
	}
	return 0
}

// under says whether a slash-separated path is dir or lies below it.
func under(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, dir+"/")
}
