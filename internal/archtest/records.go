package archtest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	whyRecord = "a record that lacks its reasons, or cannot be found, is not read"
	whyLink   = "a link into nowhere costs every reader the time that it saved the writer"
)

// sections every decision record has, in this order.
var sections = []string{"## Context", "## Decision", "## Consequences", "## Rejected"}

var recordName = regexp.MustCompile(`^([0-9]{4})-[a-z0-9-]+\.md$`)

// Records checks docs/adr: numbers without a gap, every section in its place,
// and a row for each record in the index.
func Records(root string) ([]Violation, error) {
	const dir = "docs/adr"
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return nil, err
	}
	index, err := os.ReadFile(filepath.Join(root, dir, "README.md"))
	if err != nil {
		return nil, err
	}
	var out []Violation
	report := func(name, what string) {
		out = append(out, Violation{path.Join(dir, name), 0, what, whyRecord})
	}
	next := 1
	for _, e := range entries {
		name := e.Name()
		m := recordName.FindStringSubmatch(name)
		switch {
		case name == "README.md":
			continue
		case m == nil:
			report(name, "is not called NNNN-what-was-decided.md")
			continue
		case m[1] != fmt.Sprintf("%04d", next):
			report(name, fmt.Sprintf("number %s, the next free one is %04d", m[1], next))
		}
		next++
		text, err := os.ReadFile(filepath.Join(root, dir, name))
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(string(text), "# "+m[1]+": ") {
			report(name, fmt.Sprintf("title does not start with %q", "# "+m[1]+": "))
		}
		if !hasSections(string(text)) {
			report(name, "lacks one of "+strings.Join(sections, ", ")+", in this order")
		}
		if !strings.Contains(string(index), "("+name+")") {
			report(name, "is not in the index")
		}
	}
	return out, nil
}

func hasSections(text string) bool {
	for _, s := range sections {
		_, after, ok := strings.Cut(text, "\n"+s+"\n")
		if !ok {
			return false
		}
		text = "\n" + after
	}
	return true
}

// link is the target of a Markdown link, without its title and fragment.
var link = regexp.MustCompile(`\]\(([^)\s#]+)[^)]*\)`)

// Links checks that what the Markdown files under root link to relatively is
// there. Addresses of the web are not looked at.
func Links(root string) ([]Violation, error) {
	var out []Violation
	err := filepath.WalkDir(root, func(name string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if skipped(root, name, entry.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		broken, err := brokenLinks(root, name)
		out = append(out, broken...)
		return err
	})
	return out, err
}

func brokenLinks(root, name string) ([]Violation, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	rel, err := filepath.Rel(root, name)
	if err != nil {
		return nil, err
	}
	var out []Violation
	fenced := false
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if fenced {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			if slices.ContainsFunc([]string{"http://", "https://", "mailto:"}, func(s string) bool { return strings.HasPrefix(m[1], s) }) {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), filepath.FromSlash(m[1]))); err != nil {
				out = append(out, Violation{filepath.ToSlash(rel), i + 1, "links to " + m[1] + ", which is not there", whyLink})
			}
		}
	}
	return out, nil
}
