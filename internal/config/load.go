package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Source is the kind of place a value came from; the later ones win.
type Source uint8

// Sources, in their order.
const (
	FromDefault Source = iota
	FromFile
	FromEnv
	FromFlag
)

// Origin is where a value was set.
type Origin struct {
	Source Source
	Name   string // file, variable or flag
	Line   int    // with FromFile
}

// String returns the place for people.
func (o Origin) String() string {
	switch o.Source {
	case FromFile:
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case FromEnv:
		return "env " + o.Name
	case FromFlag:
		return "flag --" + o.Name
	default:
		return "default"
	}
}

// Options say what to load from.
type Options struct {
	// File is the configuration file; "" = what the flag --config or
	// DISPATCHER_CONFIG names, else none.
	File string
	// Environ is the environment in the form of [os.Environ]. Default: none.
	Environ []string
	// Flags are parsed flags that [BindFlags] has defined. Default: none.
	Flags *pflag.FlagSet
}

// Load returns the configuration. Its error is an *[InvalidError] with all that
// is wrong, or says that the file cannot be read.
func Load(o Options) (*Config, error) {
	c := Default()
	c.origins = make(map[string]Origin)
	l := &loader{config: c, byPath: make(map[string]*field), failed: make(map[string]bool)}
	for _, f := range c.fields() {
		l.fields = append(l.fields, f)
		l.byPath[f.path] = f
	}
	if path := l.filePath(o); path != "" {
		if err := l.file(path); err != nil {
			return nil, err
		}
	}
	l.environ(o.Environ)
	l.flags(o.Flags)
	l.validate()
	if len(l.problems) > 0 {
		return nil, &InvalidError{l.problems}
	}
	c.warn()
	return c, nil
}

// loader fills a Config and collects what is wrong.
type loader struct {
	config   *Config
	fields   []*field
	byPath   map[string]*field
	problems []*FieldError
	failed   map[string]bool // paths that have a problem
}

func (l *loader) problem(p *FieldError) {
	l.problems = append(l.problems, p)
	l.failed[p.Field] = true
}

// apply sets a field from one source.
func (l *loader) apply(f *field, texts []string, from Origin) {
	if err := f.value.set(texts); err != nil {
		shown := strings.Join(texts, ",")
		if f.secret() {
			shown = mask
		}
		l.refuse(f.path, shown, from, err)
		return
	}
	delete(l.failed, f.path)
	l.config.origins[f.path] = from
}

func (l *loader) refuse(path, shown string, from Origin, err error) {
	p := &FieldError{Field: path, Value: shown, Origin: from.String(), Rule: err.Error()}
	if r, ok := errors.AsType[*ruleError](err); ok {
		p.Rule, p.Mend = r.rule, r.mend
	}
	l.problem(p)
}

// applyFile sets a secret from the file that holds it.
func (l *loader) applyFile(f *field, name string, from Origin) {
	text, err := readSecret(name)
	if err != nil {
		l.refuse(f.path+"_file", name, from, err)
		return
	}
	l.apply(f, []string{text}, from)
}

// maxSecretFile is more than any token or URL has.
const maxSecretFile = 64 << 10

// readSecret returns what a file holds, without the line end that editors add.
func readSecret(name string) (string, error) {
	f, err := os.Open(name) //nolint:gosec // the operator names it
	if err != nil {
		return "", bad("cannot be read: "+reasonOf(err), "check the path and its permissions")
	}
	defer f.Close() //nolint:errcheck // read only
	raw, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	switch {
	case err != nil:
		return "", bad("cannot be read: "+reasonOf(err), "name a file")
	case len(raw) > maxSecretFile:
		return "", bad("is larger than any secret", "name the file that holds the secret alone")
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(raw), "\n"), "\r")
	if text == "" {
		return "", bad("is empty", "put the secret into it")
	}
	return text, nil
}

// reasonOf returns the cause of a file error without the path, which the message
// names already.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err.Error()
	}
	return err.Error()
}

// Warnings are what is allowed and probably not meant, one line each.
func (c *Config) Warnings() []string { return slices.Clone(c.warnings) }

// Origin returns where a setting was set; path is as in the file.
func (c *Config) Origin(path string) Origin { return c.origins[path] }
