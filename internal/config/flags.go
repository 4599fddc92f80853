package config

import (
	"slices"
	"strings"
)

const configFlag = "config"

// Flags are the flags of a command that takes a configuration: one for each
// setting, and --config. This package parses no command line. Whoever does
// defines each of [Flags.All] with its parser, and then gives the Flags to [Load]:
//
//	for _, f := range flags.All() {
//		p := set.VarPF(f, f.Name, "", f.Usage)
//		p.Hidden = f.Hidden
//		if f.IsBoolFlag() {
//			p.NoOptDefVal = "true"
//		}
//	}
type Flags struct{ all []*Flag }

// NewFlags returns flags of which none is given.
func NewFlags() *Flags {
	fs := &Flags{all: []*Flag{{
		Name: configFlag, Usage: "configuration file (env DISPATCHER_CONFIG); every key of it is a flag as well: log.level is --log-level",
	}}}
	for _, f := range Default().fields() {
		fs.all = append(fs.all, &Flag{Name: f.flag(), Usage: f.usage(), Hidden: !f.common, field: f})
	}
	return fs
}

// All returns the flags in the order of the example.
func (fs *Flags) All() []*Flag { return slices.Clone(fs.all) }

// given returns the texts that a flag was given, nil if it was not.
func (fs *Flags) given(name string) []string {
	if fs == nil {
		return nil
	}
	i := slices.IndexFunc(fs.all, func(f *Flag) bool { return f.Name == name })
	if i < 0 {
		return nil
	}
	return fs.all[i].given
}

// Flag is one flag. It implements the value interfaces of package flag and of
// pflag, checks its text at once and remembers it for [Load], which applies it
// last.
type Flag struct {
	// Name is the flag's name without dashes.
	Name string
	// Usage is one line for help.
	Usage string
	// Hidden flags work but would drown the others in help.
	Hidden bool

	field *field // nil = --config
	given []string
}

// Set takes one occurrence of the flag. A list's flag may be given several times.
func (f *Flag) Set(text string) error {
	given := append(f.given, text)
	if f.field == nil || !f.field.value.isList() {
		given = []string{text}
	}
	if f.field != nil && !f.field.secret() { // a secret's text is a file, which Load reads
		if err := f.field.value.set(given); err != nil {
			return err
		}
	}
	f.given = given
	return nil
}

// String returns what was given, and before that the default, which help shows.
func (f *Flag) String() string {
	if f.field == nil || f.field.secret() {
		return strings.Join(f.given, "") // also of the zero Flag, which parsers ask
	}
	return strings.Join(f.field.value.texts(), ",")
}

// Type names the value in help.
func (f *Flag) Type() string {
	if f.field == nil || f.field.secret() {
		return "file"
	}
	return f.field.value.kind()
}

// IsBoolFlag reports whether the flag may stand without a value.
func (f *Flag) IsBoolFlag() bool { return f.Type() == "bool" }

// usage is the first sentence of a field's text in the form of help.
func (f *field) usage() string {
	text := f.summary()
	if len(text) > 1 && text[1] >= 'a' && text[1] <= 'z' { // not HTTP/3, DNS
		text = strings.ToLower(text[:1]) + text[1:]
	}
	if f.secret() {
		return "file that holds the " + text
	}
	return text
}

func (l *loader) flags(flags *Flags) {
	for _, f := range l.fields {
		given := flags.given(f.flag())
		if given == nil {
			continue
		}
		from := Origin{Source: FromFlag, Name: f.flag()}
		if f.secret() {
			l.applyFile(f, given[0], from)
			continue
		}
		l.apply(f, given, from)
	}
}
