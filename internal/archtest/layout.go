package archtest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// topLevel is the whole list of what may be there: a directory here is a box on
// the architecture diagram, or one of the few that every repository has.
var topLevel = []string{
	".ci", "bench", "cmd", "delivery", "deploy", "docs", "engine", "ingress", "internal", "protoselect",
	"sched", "scripts", "signing", "storage", "tools", "transport",
}

// foreign directories belong to version control and its hosts.
var foreign = []string{".git", ".github"}

// vague names say nothing about what belongs inside, so everything ends there.
var vague = []string{"util", "utils", "common", "helper", "helpers", "manager", "managers", "model", "models", "misc"}

const (
	whyTopLevel = "the top level is the architecture diagram: a new box needs a record under docs/adr that says why no present one is its home"
	whyVague    = "name a package after what it provides"
	whyDocGo    = "doc.go is where a reader starts: purpose, guarantee, what it does not do"
)

// TopLevel checks that every directory at root is on the list. Directories that
// .gitignore names as /dir/ are products, not source.
func TopLevel(root string) ([]Violation, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	ignored, err := ignoredDirs(root)
	if err != nil {
		return nil, err
	}
	var out []Violation
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() || slices.Contains(foreign, name) || slices.Contains(ignored, name) {
			continue
		}
		if !slices.Contains(topLevel, name) {
			out = append(out, Violation{name, 0, "unknown top-level directory", whyTopLevel})
		}
	}
	return out, nil
}

func ignoredDirs(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	if err != nil {
		return nil, err
	}
	dirs := []string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if inner, ok := strings.CutPrefix(line, "/"); ok {
			if dir, ok := strings.CutSuffix(inner, "/"); ok {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs, nil
}

// Names checks that no package is called by a vague name, neither by its
// directory nor by its clause.
func Names(t *Tree) []Violation {
	var out []Violation
	for _, p := range t.Packages {
		for _, name := range []string{path.Base(p.Dir), p.Name} {
			if slices.Contains(vague, name) {
				out = append(out, Violation{p.Dir, 0, fmt.Sprintf("package is called %q", name), whyVague})
				break
			}
		}
	}
	return out
}

// PackageDocs checks that each package has a doc.go with its comment, and no
// second comment that godoc would append from elsewhere.
func PackageDocs(t *Tree) []Violation {
	var out []Violation
	for _, p := range t.Packages {
		found := false
		for _, f := range p.Files {
			text := f.syntax.Doc.Text()
			switch {
			case path.Base(f.Path) == "doc.go":
				found = true
				if want := opening(p); !strings.HasPrefix(text, want) {
					out = append(out, Violation{f.Path, t.line(f.syntax.Name), fmt.Sprintf("package comment does not start with %q", want), whyDocGo})
				}
			case text != "" && !f.Generated:
				out = append(out, Violation{f.Path, t.line(f.syntax.Doc), "package comment outside of doc.go", whyDocGo})
			}
		}
		if !found {
			out = append(out, Violation{p.Dir, 0, "package has no doc.go", whyDocGo})
		}
	}
	return out
}

// opening is how the comment of a package begins.
func opening(p *Package) string {
	if p.Name == "main" {
		return "Command " + path.Base(p.Dir) + " "
	}
	return "Package " + p.Name + " "
}
