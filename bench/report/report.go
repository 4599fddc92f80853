package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

// Report is the result of one run.
type Report struct {
	// Title names the benchmark.
	Title string `json:"title"`
	// Command is the command line that repeats the run, seed included.
	Command string `json:"command"`
	// Seed is what chance was drawn from.
	Seed uint64 `json:"seed"`
	// Started is when the run began, Took how long it lasted.
	Started time.Time     `json:"started"`
	Took    time.Duration `json:"took_ns"`
	// Facts describe the machine and the setting, in the order of printing.
	Facts []Fact `json:"facts"`
	// Warnings say what makes the figures doubtful.
	Warnings []string `json:"warnings,omitempty"`
	// Failures are promises that did not hold in the run.
	Failures []string `json:"failures,omitempty"`
	// Sections are the results.
	Sections []Section `json:"sections"`
	// Data holds the raw figures; JSON only.
	Data any `json:"data,omitempty"`
}

// Fact is one line about the setting.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Section is a part of a report.
type Section struct {
	Title   string   `json:"title"`
	Text    string   `json:"text,omitempty"` // one paragraph: what was measured, and how
	Answers []Answer `json:"answers,omitempty"`
	Tables  []Table  `json:"tables,omitempty"`
	Plots   []Plot   `json:"plots,omitempty"`
	// Brief says that the section belongs to the report's short form.
	Brief bool `json:"brief,omitempty"`
}

// Answer is what the figures say to a question that people have.
type Answer struct {
	Question string   `json:"question"`
	Text     string   `json:"text,omitempty"`
	Points   []string `json:"points,omitempty"` // one line each
}

// Table is a table of cells that are text already. The first column is set
// left, the others right.
type Table struct {
	Title   string     `json:"title,omitempty"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
	Note    string     `json:"note,omitempty"`
}

// PlotKind is how a plot connects its points.
type PlotKind string

// Kinds of plots.
const (
	Lines PlotKind = "lines" // through the points
	Steps PlotKind = "steps" // a cumulative distribution
	Bars  PlotKind = "bars"  // one group per label, Y only
)

// Plot is a diagram.
type Plot struct {
	Title  string   `json:"title"`
	X      string   `json:"x"`
	Y      string   `json:"y"`
	Kind   PlotKind `json:"kind"`
	LogX   bool     `json:"log_x,omitempty"`
	Labels []string `json:"labels,omitempty"` // with Bars: one for each point of a series
	Series []Line   `json:"series"`
}

// Line is one series of a plot.
type Line struct {
	Name   string        `json:"name"`
	Points []stats.Point `json:"points"`
	// Hue numbers the colour, from 1, so that a thing has the same one in all
	// plots; 0 = by the place in the plot.
	Hue    int  `json:"hue,omitempty"`
	Dashed bool `json:"dashed,omitempty"`
}

// WriteJSON writes the whole report.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return fmt.Errorf("write JSON report: %w", err)
	}
	return nil
}

// Read reads a report that WriteJSON wrote; its Data stays as it is in the file.
func Read(from io.Reader) (*Report, error) {
	var raw json.RawMessage
	r := &Report{Data: &raw}
	if err := json.NewDecoder(from).Decode(r); err != nil {
		return nil, fmt.Errorf("read JSON report: %w", err)
	}
	if r.Title == "" || len(r.Sections) == 0 {
		return nil, errors.New("read JSON report: it has no title or no sections: not a report of dispatcher bench")
	}
	return r, nil
}

// Short returns the report with the sections of its short form alone; all of
// them if it has no short form.
func (r *Report) Short() *Report {
	out := *r
	out.Sections = nil
	for _, s := range r.Sections {
		if s.Brief {
			out.Sections = append(out.Sections, s)
		}
	}
	if len(out.Sections) == 0 {
		out.Sections = r.Sections
	}
	return &out
}

// Number formats a figure with three significant digits, and large ones with
// separators: 0.0123, 1.23, 12.3, 123, 12,345.
func Number(v float64) string {
	switch abs := max(v, -v); {
	case abs >= 1000:
		return separated(strconv.FormatFloat(v, 'f', 0, 64))
	case abs >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case abs >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case abs >= 1, abs == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}

// separated puts a comma before every third digit from the right.
func separated(digits string) string {
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	out := make([]byte, 0, len(digits)+len(digits)/3)
	for i := range len(digits) {
		if i > 0 && (len(digits)-i)%3 == 0 {
			out = append(out, ',')
		}
		out = append(out, digits[i])
	}
	return sign + string(out)
}

// Range formats a median with its extremes; a single round has none.
func Range(s stats.Spread) string {
	if s.N == 0 {
		return "-"
	}
	if s.N == 1 {
		return Number(s.Median)
	}
	return Number(s.Median) + " [" + Number(s.Min) + " … " + Number(s.Max) + "]"
}

// Percent formats a ratio as a percentage.
func Percent(ratio float64) string { return Number(100*ratio) + " %" }

// Bytes formats a size in MiB or KiB.
func Bytes(n int64) string {
	switch {
	case n >= 1<<30:
		return Number(float64(n)/(1<<30)) + " GiB"
	case n >= 1<<20:
		return Number(float64(n)/(1<<20)) + " MiB"
	case n >= 1<<10:
		return Number(float64(n)/(1<<10)) + " KiB"
	default:
		return strconv.FormatInt(n, 10) + " B"
	}
}

// Duration formats a duration with three significant digits.
func Duration(d time.Duration) string {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second).String()
	case d >= time.Second:
		return Number(d.Seconds()) + " s"
	case d >= time.Millisecond:
		return Number(stats.Millis(d)) + " ms"
	default:
		return Number(float64(d)/1000) + " µs"
	}
}
