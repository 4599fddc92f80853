package config

import (
	"strings"

	"github.com/spf13/pflag"
)

const configFlag = "config"

// BindFlags defines a flag for every setting: those that are set often are
// listed by --help, the others work as well. Secrets have none; theirs takes the
// name of a file. Give the parsed set to [Load].
func BindFlags(flags *pflag.FlagSet) {
	flags.String(configFlag, "", "configuration file (env DISPATCHER_CONFIG); every key of it is a flag as well: log.level is --log-level")
	for _, f := range Default().fields() {
		v := &flagValue{field: f}
		flag := flags.VarPF(v, f.flag(), "", f.usage())
		flag.Hidden = !f.common
		if f.value.kind() == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
}

// flagValue is a [pflag.Value] that checks its text at once and remembers it for
// Load, which applies it last.
type flagValue struct {
	field *field
	given []string
}

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

// Set implements pflag.Value. A list's flag may be given several times.
func (v *flagValue) Set(text string) error {
	given := append(v.given, text)
	if !v.field.value.isList() {
		given = []string{text}
	}
	if !v.field.secret() { // otherwise it is a file, which Load reads
		if err := v.field.value.set(given); err != nil {
			return err
		}
	}
	v.given = given
	return nil
}

// String implements pflag.Value; before Set it is the default that help shows.
func (v *flagValue) String() string {
	if v.field == nil || v.field.secret() { // pflag asks zero values, too
		return ""
	}
	return strings.Join(v.field.value.texts(), ",")
}

// Type implements pflag.Value.
func (v *flagValue) Type() string {
	if v.field.secret() {
		return "file"
	}
	return v.field.value.kind()
}

func (l *loader) flags(flags *pflag.FlagSet) {
	if flags == nil {
		return
	}
	for _, f := range l.fields {
		flag := flags.Lookup(f.flag())
		if flag == nil || !flag.Changed {
			continue
		}
		v, ok := flag.Value.(*flagValue)
		if !ok {
			continue // another flag of the same name
		}
		from := Origin{Source: FromFlag, Name: f.flag()}
		if f.secret() {
			l.applyFile(f, v.given[len(v.given)-1], from)
			continue
		}
		l.apply(f, v.given, from)
	}
}
