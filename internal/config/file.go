package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFile bounds a configuration file. The example has 20 KiB.
const maxFile = 256 << 10

// file applies a configuration file. It returns an error only if there is
// nothing to read settings from.
func (l *loader) file(path string) error {
	f, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	defer f.Close() //nolint:errcheck // read only
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return fmt.Errorf("configuration file: %w", err)
	}
	if len(raw) > maxFile {
		return fmt.Errorf("configuration file %s: larger than %v", path, ByteSize(maxFile))
	}
	if info, err := f.Stat(); err == nil && info.Mode().Perm()&0o077 != 0 {
		defer l.warnOpenFile(path, info.Mode().Perm())
	}
	y := &yamlFile{loader: l, name: path}
	y.read(raw)
	return nil
}

// warnOpenFile warns of a secret in a file that others can read.
func (l *loader) warnOpenFile(path string, mode os.FileMode) {
	for _, f := range l.fields {
		if f.secret() && l.config.origins[f.path].Source == FromFile && f.shown() != "" {
			l.config.warnings = append(l.config.warnings, fmt.Sprintf(
				"%s holds %s and has mode %04o, so others can read it; run chmod 600 on it, or use %s_file", path, f.path, mode, f.path))
		}
	}
}

// yamlFile walks a YAML document along the table of fields. It reads the tree
// and not into a struct, so that every message has its line, and scalars keep
// their spelling: 007 and 1_000 are not quietly other numbers.
type yamlFile struct {
	*loader
	name string
}

func (y *yamlFile) at(n ast.Node) Origin {
	o := Origin{Source: FromFile, Name: y.name, Line: 1}
	if t := n.GetToken(); t != nil && t.Position != nil {
		o.Line = t.Position.Line
	}
	return o
}

func (y *yamlFile) read(raw []byte) {
	tree, err := parseYAML(raw)
	if err != nil {
		y.syntax(err)
		return
	}
	var body ast.Node
	for _, doc := range tree.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.DirectiveType {
			continue
		}
		if body != nil {
			y.problem(&FieldError{Field: "file", Origin: y.at(doc.Body).String(), Rule: "has more than one document", Mend: "keep the first and remove the others"})
			return
		}
		body = doc.Body
	}
	if body != nil {
		y.mapping("", body)
	}
}

// parseYAML turns a panic of the parser into an error: the file is a person's
// work in progress, and may be anything.
func parseYAML(raw []byte) (tree *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("not YAML")
		}
	}()
	return parser.ParseBytes(bytes.TrimPrefix(raw, []byte("\ufeff")), 0) // editors write that mark
}

// syntax reports a file that is not YAML, without the lines around the fault:
// one of them may hold a secret.
func (y *yamlFile) syntax(err error) {
	p := &FieldError{Field: "file", Origin: y.name, Rule: "is not YAML", Mend: "check indentation and quotes"}
	if e, ok := errors.AsType[yaml.Error](err); ok {
		p.Rule = "is not YAML: " + e.GetMessage()
		if t := e.GetToken(); t != nil && t.Position != nil {
			p.Origin = Origin{FromFile, y.name, t.Position.Line}.String()
		}
	}
	y.problem(p)
}

// mapping walks the keys of the file or of a section.
func (y *yamlFile) mapping(section string, n ast.Node) {
	var entries []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		entries = n.Values
	case *ast.MappingValueNode:
		entries = []*ast.MappingValueNode{n}
	case *ast.NullNode:
		return // a section whose keys are all commented out
	default:
		y.unsupported(section, n, "is not a section with keys", "write key: value lines, indented below it")
		return
	}
	for _, entry := range entries {
		y.entry(section, entry)
	}
}

func (y *yamlFile) entry(section string, entry *ast.MappingValueNode) {
	key, ok := entry.Key.(*ast.StringNode)
	if !ok {
		y.unsupported(section, entry.Key, "has a key that is no name", "write plain keys")
		return
	}
	path := key.Value
	if section != "" {
		path = section + "." + path
	}
	if f := y.byPath[path]; f != nil {
		y.field(f, entry.Value, y.at(entry.Key))
		return
	}
	if f := y.byPath[strings.TrimSuffix(path, "_file")]; f != nil && f.secret() && strings.HasSuffix(path, "_file") {
		if text, ok := y.scalar(path, entry.Value); ok {
			y.applyFile(f, text, y.at(entry.Key))
		}
		return
	}
	if _, ok := sections[path]; ok && section == "" {
		y.mapping(path, entry.Value)
		return
	}
	y.problem(&FieldError{Field: path, Origin: y.at(entry.Key).String(), Rule: "unknown key", Mend: y.suggest(path)})
}

func (y *yamlFile) field(f *field, n ast.Node, from Origin) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		if text, ok := y.scalar(f.path, n); ok {
			y.apply(f, []string{text}, from)
		}
		return
	}
	texts := make([]string, 0, len(seq.Values))
	for _, item := range seq.Values {
		text, ok := y.scalar(f.path, item)
		if !ok {
			return
		}
		texts = append(texts, text)
	}
	if !f.value.isList() {
		y.refuse(f.path, "", from, bad("takes one value, not a list", "write "+f.key()+": VALUE"))
		return
	}
	y.apply(f, texts, from)
}

// scalar returns the text of a node as it is written.
func (y *yamlFile) scalar(path string, n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	case *ast.LiteralNode:
		return strings.TrimSuffix(n.Value.Value, "\n"), true
	case *ast.NullNode:
		y.unsupported(path, n, "has no value", `give it one, remove the key, or write "" if empty is meant`)
	default:
		y.unsupported(path, n, "is not a plain value", "write a text, a number, true or false")
	}
	return "", false
}

func (y *yamlFile) unsupported(path string, n ast.Node, rule, mend string) {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		rule, mend = "uses an anchor, an alias or a merge key, which are not read here", "write the value out"
	case *ast.TagNode:
		rule, mend = "has a type tag, which is not read here", "write the value alone"
	}
	if path == "" {
		path = "file"
	}
	y.problem(&FieldError{Field: path, Origin: y.at(n).String(), Rule: rule, Mend: mend})
}
