package archtest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// DependenciesFile is the table that explains every direct dependency. It is
// the one list of where a module may be imported: the imports are held against
// it, and so is go.mod.
const DependenciesFile = "docs/dependencies.md"

// Dependency is one row of the table.
type Dependency struct {
	// Module and Version as in go.mod.
	Module, Version string
	// Dirs are the directories whose packages may import it.
	Dirs []string
	// Tests says that any _test.go file may import it.
	Tests bool
	// Why it may be imported only there.
	Why string
	// Line of the row.
	Line int
}

// Where renders the places for a message.
func (d Dependency) Where() string {
	where := slices.Clone(d.Dirs)
	if d.Tests {
		where = append(where, "tests")
	}
	return cmp.Or(strings.Join(where, ", "), "no package")
}

// row is `module` | version | what for | where | why only there.
var row = regexp.MustCompile("^\\| `([^`]+)` \\| (v[^ |]+) \\| ([^|]+) \\| ([^|]+) \\| ([^|]+) \\|$")

// ReadDependencies parses the table of the tree at root. A line that looks like
// a row and is none is an error: it would silently allow or forbid nothing.
func ReadDependencies(root string) ([]Dependency, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(DependenciesFile)))
	if err != nil {
		return nil, err
	}
	var deps []Dependency
	for i, line := range strings.Split(string(text), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		d, err := parseRow(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", DependenciesFile, i+1, err)
		}
		d.Line = i + 1
		deps = append(deps, d)
	}
	if len(deps) == 0 {
		return nil, fmt.Errorf("%s: %w", DependenciesFile, errors.New("no rows"))
	}
	return deps, nil
}

func parseRow(line string) (Dependency, error) {
	m := row.FindStringSubmatch(line)
	if m == nil {
		return Dependency{}, errors.New("the row is not `module` | version | what for | where | why only there")
	}
	d := Dependency{Module: m[1], Version: m[2], Why: strings.TrimSpace(m[5])}
	for place := range strings.SplitSeq(m[4], ",") {
		place = strings.TrimSpace(place)
		dir, open := strings.CutPrefix(place, "`")
		dir, closed := strings.CutSuffix(dir, "`")
		switch {
		case place == "tests":
			d.Tests = true
		case open && closed && dir != "":
			d.Dirs = append(d.Dirs, dir)
		default:
			return Dependency{}, fmt.Errorf("place %q is neither `directory` nor tests", place)
		}
	}
	return d, nil
}

// owner returns the dependency whose module holds the import path: the one with
// the longest matching path, as for the go command.
func owner(importPath string, deps []Dependency) (Dependency, bool) {
	var best Dependency
	for _, d := range deps {
		if under(importPath, d.Module) && len(d.Module) > len(best.Module) {
			best = d
		}
	}
	return best, best.Module != ""
}

// Dependencies compares go.mod of the tree with the table: each direct
// requirement has a row with the same version, and each row is such a
// requirement.
func Dependencies(root string, deps []Dependency) ([]Violation, error) {
	direct, err := directRequirements(root)
	if err != nil {
		return nil, err
	}
	var out []Violation
	rows := map[string]Dependency{}
	for _, d := range deps {
		switch version, ok := direct[d.Module]; {
		case rows[d.Module].Line > 0:
			out = append(out, Violation{DependenciesFile, d.Line, d.Module + " has two rows", "which of them counts?"})
		case !ok:
			out = append(out, Violation{DependenciesFile, d.Line, d.Module + " is not required directly by go.mod", "a table that lists what is gone is not read"})
		case version != d.Version:
			out = append(out, Violation{DependenciesFile, d.Line, fmt.Sprintf("%s is %s in go.mod, %s here", d.Module, version, d.Version), "whoever raises a version looks at why it is there"})
		}
		rows[d.Module] = d
	}
	for module, version := range direct {
		if _, ok := rows[module]; !ok {
			out = append(out, Violation{"go.mod", 0, fmt.Sprintf("%s %s has no row in %s", module, version, DependenciesFile), "every dependency says what it is for and where it may be used"})
		}
	}
	slices.SortFunc(out, func(a, b Violation) int { return strings.Compare(a.String(), b.String()) })
	return out, nil
}

// directRequirements returns module and version of what go.mod requires without
// the mark "indirect".
func directRequirements(root string) (map[string]string, error) {
	cmd := exec.Command("go", "mod", "edit", "-json", filepath.Join(root, "go.mod"))
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("read go.mod: %w", err)
	}
	var mod struct {
		Require []struct {
			Path, Version string
			Indirect      bool
		}
	}
	if err := json.Unmarshal(text, &mod); err != nil {
		return nil, fmt.Errorf("read go.mod: %w", err)
	}
	direct := map[string]string{}
	for _, r := range mod.Require {
		if !r.Indirect {
			direct[r.Path] = r.Version
		}
	}
	return direct, nil
}
