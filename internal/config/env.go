package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Names in the environment that begin like settings and are none: the file's
// own, and those of the commands that talk to a node.
var otherVariables = []string{EnvPrefix + "CONFIG", EnvPrefix + "ADDR"}

// Kubernetes sets these in every pod beside a service that is called dispatcher.
var serviceLinks = regexp.MustCompile(`^DISPATCHER_(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?)$`)

// environ applies the variables of the environment. An empty one counts as not
// set, as everywhere.
func (l *loader) environ(environ []string) {
	names := make(map[string]*field, len(l.fields))
	for _, f := range l.fields {
		names[f.env()] = f
	}
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		name, text, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, EnvPrefix) || text == "" {
			continue
		}
		from := Origin{Source: FromEnv, Name: name}
		if f := names[name]; f != nil {
			l.apply(f, []string{text}, from)
			continue
		}
		if f := names[strings.TrimSuffix(name, "_FILE")]; f != nil && f.secret() {
			l.applyFile(f, text, from)
			continue
		}
		if !slices.Contains(otherVariables, name) && !serviceLinks.MatchString(name) {
			path := strings.ToLower(strings.TrimPrefix(name, EnvPrefix))
			l.config.warnings = append(l.config.warnings, fmt.Sprintf("%s is in the environment and is no setting; %s", name, l.suggestEnv(path)))
		}
	}
}

func (l *loader) suggestEnv(path string) string {
	best, distance := "", 3
	for _, f := range l.fields {
		if d := editDistance(path, strings.ReplaceAll(f.path, ".", "_")); d < distance {
			best, distance = f.env(), d
		}
	}
	if best == "" {
		return "remove it if it is meant for this program"
	}
	return fmt.Sprintf("did you mean %s?", best)
}

// filePath returns the configuration file to read, "" for none.
func (*loader) filePath(o Options) string {
	if o.File != "" {
		return o.File
	}
	if o.Flags != nil {
		if f := o.Flags.Lookup(configFlag); f != nil && f.Changed {
			return f.Value.String()
		}
	}
	return lookup(o.Environ, EnvPrefix+"CONFIG")
}

// lookup returns the last value of a variable, as the system does.
func lookup(environ []string, name string) string {
	for _, entry := range slices.Backward(environ) {
		if key, text, ok := strings.Cut(entry, "="); ok && key == name {
			return text
		}
	}
	return ""
}

const configFlag = "config"

// BindFlags defines a flag for every setting: those that are set often are
// listed by --help, the others work as well. Secrets have none; theirs takes the
// name of a file. Give the parsed set to [Load].
func BindFlags(flags *pflag.FlagSet) {
	flags.String(configFlag, "", "configuration file (env DISPATCHER_CONFIG); every key of it is a flag as well: log.level is --log-level")
	for _, f := range Default().fields() {
		v := &flagValue{field: f}
		flag := flags.VarPF(v, f.flag(), "", v.usage())
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

func (v *flagValue) usage() string {
	text := v.field.summary()
	if v.field.secret() {
		return "file that holds: " + strings.ToLower(text[:1]) + text[1:]
	}
	return strings.ToLower(text[:1]) + text[1:]
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
