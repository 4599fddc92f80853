package config

import (
	"slices"
	"strings"
)

// EnvPrefix begins the names of the environment variables that are settings.
const EnvPrefix = "DISPATCHER_"

// field is one setting: everything that is known about it but its value.
type field struct {
	path  string // in the file: section.key
	doc   string // for the commented example; the first sentence is the help of the flag
	value value
	// shown renders a value that must not be seen as it is; nil = as it is.
	shown func() string
	// live: a running node takes a new value over on SIGHUP; the others need a restart.
	// How each is taken over is in internal/cli.
	live bool
	// common flags are listed by --help; the others work as well.
	common bool
}

// secret reports whether the value must not be seen, nor be a flag.
func (f *field) secret() bool { return f.shown != nil }

// env returns the name of the environment variable: log.level is
// DISPATCHER_LOG_LEVEL.
func (f *field) env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(f.path, ".", "_"))
}

// flag returns the name of the flag: log.level is --log-level. A secret's flag
// takes the name of a file that holds it.
func (f *field) flag() string {
	name := strings.NewReplacer(".", "-", "_", "-").Replace(f.path)
	if f.secret() {
		return name + "-file"
	}
	return name
}

// display returns the texts of the value as they may be shown.
func (f *field) display() []string {
	if f.shown != nil {
		return []string{f.shown()}
	}
	return f.value.texts()
}

// section returns the part of the path before the key, "" at the top.
func (f *field) section() string {
	i := strings.LastIndexByte(f.path, '.')
	return f.path[:max(i, 0)]
}

// key returns the last part of the path.
func (f *field) key() string { return f.path[strings.LastIndexByte(f.path, '.')+1:] }

// summary is the first sentence of the text.
func (f *field) summary() string {
	text, _, _ := strings.Cut(strings.ReplaceAll(f.doc, "\n", " "), ". ")
	return strings.TrimSuffix(text, ".")
}

// fields is the table of settings of c, in the order of the example.
func (c *Config) fields() []*field {
	return slices.Concat(
		c.nodeFields(), c.policyFields(), c.logFields(), c.limitFields(), c.connectionFields(), c.retryFields(),
		c.storageFields(), c.egressFields(), c.ingressFields(), c.ingressPolicyFields(), c.telemetryFields(), c.qlogFields(),
	)
}

// sections are the sections and what they are about, in the order of the
// example.
var sections = map[string]string{
	"log":         "What is logged, to stderr.",
	"api":         "The API's own bounds.",
	"dashboard":   "The pages under /ui/ of the API's address.",
	"limits":      "How much is in flight and in memory.",
	"connections": "Connections to receivers.",
	"timeouts":    "How long an attempt and its connection may take.",
	"breaker":     "When deliveries to a failing subscriber pause.",
	"operations":  "Events that the dispatcher publishes about itself.",
	"retention":   "How long what is finished is kept. What is pending is kept as long as it is\npending.",
	"storage":     "The store on disk.",
	"egress":      "How requests leave.",
	"resolver":    "Who answers for names.",
	"redis":       "A Redis that nodes share rate limits and protocol memory through.",
	"ingress":     "The edge receiver: webhooks that arrive from providers.",
	"telemetry":   "OpenTelemetry spans, from publish to attempt.",
	"qlog":        "Traces of QUIC connections, for looking into a failure.",
}
