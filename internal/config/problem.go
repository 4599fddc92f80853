package config

import (
	"errors"
	"strconv"
	"strings"
)

// FieldError is one setting that cannot be used.
type FieldError struct {
	Field  string `json:"field"`            // path of the key, such as limits.in_flight
	Value  string `json:"value"`            // as it was given; *** for a secret
	Origin string `json:"origin,omitempty"` // where it was set
	Rule   string `json:"rule"`             // what is wrong
	Mend   string `json:"mend"`             // what to do
}

// Error implements error.
func (e *FieldError) Error() string {
	var b strings.Builder
	b.WriteString(e.Field)
	if e.Value != "" {
		b.WriteString(" = " + clip(e.Value))
	}
	if e.Origin != "" {
		b.WriteString(" (" + e.Origin + ")")
	}
	b.WriteString(": " + e.Rule)
	if e.Mend != "" {
		b.WriteString("; " + e.Mend)
	}
	return b.String()
}

// InvalidError is a configuration that cannot be used, with everything that is
// wrong with it.
type InvalidError struct {
	Problems []*FieldError // at least one
}

// Error implements error: one line for each problem.
func (e *InvalidError) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.Error()
	}
	return "invalid configuration:\n  " + strings.Join(lines, "\n  ")
}

// Unwrap lets errors.As find a single [FieldError].
func (e *InvalidError) Unwrap() []error {
	out := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		out[i] = p
	}
	return out
}

// ruleError is what a value's parser answers: what is wrong and how to mend it.
// Neither holds the value unless it is harmless.
type ruleError struct{ rule, mend string }

// Error implements error.
func (e *ruleError) Error() string { return e.rule + "; " + e.mend }

// about says which part of a value an error is about.
func about(part string, err error) error {
	if e, ok := errors.AsType[*ruleError](err); ok {
		return bad(strconv.Quote(clip(part))+" "+e.rule, e.mend)
	}
	return err
}

var errNoDirectory = errors.New("not a directory")

// bad makes a ruleError.
func bad(rule, mend string) error { return &ruleError{rule, mend} }

// clip keeps messages bounded whatever was given.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
