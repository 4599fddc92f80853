package guide

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Block is one fenced block of a document.
type Block struct {
	Line int    // of its first line of text
	Info string // what follows the fence: "sh background"
	Text string // without the fence's indentation
}

// Document is a Markdown file with its blocks.
type Document struct {
	Path   string // from the repository's root, with slashes
	Text   string
	Blocks []Block
}

// Shell reports whether the block is for a shell.
func (b Block) Shell() bool { return b.Info == "sh" || strings.HasPrefix(b.Info, "sh ") }

// Runs reports whether the block is run, and with which exit status it ends.
func (b Block) Runs() (status int, runs bool) {
	if !b.Shell() || b.Info == "sh elsewhere" {
		return 0, false
	}
	if s, ok := strings.CutPrefix(b.Info, "sh status="); ok {
		status, _ = strconv.Atoi(s)
	}
	return status, true
}

// Background reports whether the block is left running.
func (b Block) Background() bool { return b.Info == "sh background" }

var (
	fence = regexp.MustCompile("^( *)```(.*)$")
	// known are the info strings that a block may have. Others would be commands
	// that nobody runs, or a slip.
	known = regexp.MustCompile(`^(|sh|sh background|sh elsewhere|sh status=[1-9][0-9]?|yaml|yaml config|json|js|go|python|promql|mermaid|text)$`)
)

// Read reads the document at path below root.
func Read(root, path string) (*Document, error) {
	raw, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
	if err != nil {
		return nil, err
	}
	d := &Document{Path: path, Text: string(raw)}
	if d.Blocks, err = blocks(d.Text); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// Documents reads the README and every guide, sorted by name.
func Documents(root string) ([]*Document, error) {
	names, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		return nil, err
	}
	paths := []string{"README.md", "CONTRIBUTING.md"}
	for _, n := range names {
		paths = append(paths, "docs/"+filepath.Base(n))
	}
	slices.Sort(paths)
	docs := make([]*Document, 0, len(paths))
	for _, p := range paths {
		d, err := Read(root, p)
		if err != nil {
			return nil, err
		}
		docs = append(docs, d)
	}
	return docs, nil
}

// blocks finds the fenced blocks of a text. A fence may be indented, as inside of
// a list; the text of its block is then indented at least as far.
func blocks(text string) ([]Block, error) {
	var out []Block
	var open *Block
	indent := ""
	for i, line := range strings.Split(text, "\n") {
		m := fence.FindStringSubmatch(line)
		switch {
		case open == nil && m != nil:
			if !known.MatchString(m[2]) {
				return nil, fmt.Errorf("line %d: no block may be called %q; see the package comment of internal/guide", i+1, m[2])
			}
			open, indent = &Block{Line: i + 2, Info: m[2]}, m[1]
		case open != nil && m != nil && m[1] == indent && m[2] == "":
			out = append(out, *open)
			open = nil
		case open != nil:
			open.Text += strings.TrimPrefix(line, indent) + "\n"
		}
	}
	if open != nil {
		return nil, fmt.Errorf("line %d: the block does not end", open.Line)
	}
	return out, nil
}
