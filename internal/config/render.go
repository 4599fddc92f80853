package config

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Setting is one setting as config print shows it.
type Setting struct {
	Path   string   `json:"path"`
	Values []string `json:"values"` // one, unless it is a list; *** for a secret
	List   bool     `json:"list,omitempty"`
	Origin string   `json:"origin"`
	Live   bool     `json:"live"` // SIGHUP takes it over; else it needs a restart
}

// Settings returns every setting with the place it was set at. Secrets are
// masked.
func (c *Config) Settings() []Setting {
	fields := c.fields()
	out := make([]Setting, len(fields))
	for i, f := range fields {
		out[i] = Setting{f.path, f.display(), f.value.isList(), c.origins[f.path].String(), f.live}
	}
	return out
}

// Print writes every setting as YAML, with the place it was set at as a
// comment, and "live" where a running node takes it over on SIGHUP. Secrets are masked, so what it writes is to be read, not to be used.
func (c *Config) Print(w io.Writer) error {
	b := bufio.NewWriter(w)
	section := ""
	for _, f := range c.fields() {
		indent := ""
		if s := f.section(); s != "" {
			indent = "  "
			if s != section {
				fmt.Fprintf(b, "%s:\n", s)
				section = s
			}
		}
		line := indent + f.key() + ": " + yamlTexts(f.display(), f.value.isList())
		fmt.Fprintf(b, "%-48s # %v%s\n", line, c.origins[f.path], map[bool]string{true: ", live"}[f.live])
	}
	return b.Flush()
}

// Example writes a configuration file with every setting: what it does, its
// names elsewhere, and, commented out, its default.
func Example(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprint(b, exampleHead)
	section := ""
	for _, f := range Default().fields() {
		indent := ""
		if s := f.section(); s != "" {
			indent = "  "
			if s != section {
				fmt.Fprintln(b)
				writeComment(b, "", sections[s])
				fmt.Fprintf(b, "%s:\n", s)
				section = s
			}
		} else {
			fmt.Fprintln(b)
		}
		writeComment(b, indent, f.doc)
		writeComment(b, indent, f.env()+", --"+f.flag()+map[bool]string{true: "; live"}[f.live])
		fmt.Fprintf(b, "%s#%s: %s\n", indent, f.key(), yamlTexts(f.value.texts(), f.value.isList()))
	}
	return b.Flush()
}

const exampleHead = `# Configuration of dispatcher. Every setting is here, commented out, with its
# default; uncomment what you want to change.
#
# Flags win over the environment, that over this file. Unknown keys are errors.
# Durations: 500ms, 15s, 5m, 24h, 7d. Sizes: 64KiB, 25MiB, 1GiB. Lists: [a, b],
# in a variable or a flag a,b. A secret may be given as the name of a file that
# holds it: api_token_file, DISPATCHER_API_TOKEN_FILE.
#
# Settings marked "live" are taken over by a running node on SIGHUP, the others at its
# next start.
#
# dispatcher config check says whether a file is right, dispatcher config print
# what is in force and where each value comes from.
`

func writeComment(b *bufio.Writer, indent, text string) {
	for line := range strings.SplitSeq(text, "\n") {
		fmt.Fprintf(b, "%s# %s\n", indent, line)
	}
}

// plain are texts that need no quotes in YAML, wherever they stand.
var plain = regexp.MustCompile(`^[A-Za-z0-9_./][A-Za-z0-9_./%+=-]*(:[A-Za-z0-9_./%+=-]+)*$`)

func yamlTexts(texts []string, isList bool) string {
	quoted := make([]string, len(texts))
	for i, t := range texts {
		quoted[i] = t
		if !plain.MatchString(t) {
			quoted[i] = strconv.Quote(t)
		}
	}
	if isList {
		return "[" + strings.Join(quoted, ", ") + "]"
	}
	return quoted[0]
}
