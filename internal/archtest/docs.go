package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"unicode"
)

const whyDocumented = "a name that others may use says what it means, in which unit, and what can fail"

// plain methods mean what the interface says that asks for them.
var plain = []string{
	"Error", "Format", "Is", "Len", "Less", "LogValue", "MarshalJSON", "MarshalText", "Pop", "Push", "Read",
	"ServeHTTP", "String", "Swap", "UnmarshalJSON", "UnmarshalText", "Unwrap", "Write",
}

// Documented checks that every exported name has a comment: types, functions,
// methods of exported types, constants, variables, and the fields of a Config.
// The methods of an interface are covered by its own comment. Tests and
// commands export nothing.
func Documented(t *Tree) []Violation {
	var out []Violation
	for _, p := range t.Packages {
		if p.Name == "main" {
			continue
		}
		for _, f := range p.Files {
			if f.Test || f.Generated {
				continue
			}
			for _, decl := range f.syntax.Decls {
				for _, name := range undocumented(decl) {
					out = append(out, Violation{f.Path, t.line(name.at), fmt.Sprintf("exported %s has no comment", name.text), whyDocumented})
				}
			}
		}
	}
	return out
}

// missing is an exported name without a comment.
type missing struct {
	text string
	at   ast.Node
}

func undocumented(decl ast.Decl) []missing {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		return undocumentedFunc(d)
	case *ast.GenDecl:
		var out []missing
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				out = append(out, undocumentedType(d, s)...)
			case *ast.ValueSpec:
				out = append(out, undocumentedValue(d, s)...)
			}
		}
		return out
	}
	return nil
}

func undocumentedFunc(d *ast.FuncDecl) []missing {
	if !d.Name.IsExported() || d.Doc.Text() != "" {
		return nil
	}
	if d.Recv == nil {
		return []missing{{d.Name.Name, d}}
	}
	receiver := receiverName(d.Recv.List[0].Type)
	if !ast.IsExported(receiver) || slices.Contains(plain, d.Name.Name) {
		return nil
	}
	return []missing{{receiver + "." + d.Name.Name, d}}
}

// receiverName strips pointer and type parameters.
func receiverName(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.IndexListExpr:
		return receiverName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func undocumentedType(d *ast.GenDecl, s *ast.TypeSpec) []missing {
	if !s.Name.IsExported() {
		return nil
	}
	var out []missing
	// A comment above a group says what the group is, not what each type is.
	if s.Doc.Text() == "" && s.Comment.Text() == "" && (d.Lparen.IsValid() || d.Doc.Text() == "") {
		out = append(out, missing{s.Name.Name, s})
	}
	fields, ok := s.Type.(*ast.StructType)
	if !ok || !strings.HasSuffix(s.Name.Name, "Config") {
		return out
	}
	above := "" // the last comment; it may name the fields that follow it
	for _, field := range fields.Fields.List {
		if field.Doc.Text() != "" {
			above = field.Doc.Text()
			continue
		}
		if field.Comment.Text() != "" {
			continue
		}
		for _, name := range field.Names {
			if name.IsExported() && !names(above, name.Name) {
				out = append(out, missing{s.Name.Name + "." + name.Name, name})
			}
		}
	}
	return out
}

// names says whether a comment has the name as a word.
func names(comment, name string) bool {
	return slices.Contains(strings.FieldsFunc(comment, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}), name)
}

// undocumentedValue accepts the comment of a group for its members: a list of
// constants is often explained best as a list.
func undocumentedValue(d *ast.GenDecl, s *ast.ValueSpec) []missing {
	if d.Tok == token.IMPORT || d.Doc.Text() != "" || s.Doc.Text() != "" || s.Comment.Text() != "" {
		return nil
	}
	for _, name := range s.Names {
		if name.IsExported() {
			return []missing{{name.Name, s}}
		}
	}
	return nil
}
