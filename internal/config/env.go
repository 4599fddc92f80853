package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
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
