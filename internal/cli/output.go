package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// object is a JSON object of an answer; the API's names are the only schema
// that the command line needs.
type object map[string]any

// list is a page of an answer.
type list struct {
	Data       []object `json:"data"`
	NextCursor string   `json:"next_cursor"`
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// str returns a field as text: "" for null or absent, lists joined by commas.
func (o object) str(name string) string {
	switch v := o[name].(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = fmt.Sprint(x)
		}
		return strings.Join(parts, ",")
	case float64:
		return fmt.Sprintf("%g", v)
	case map[string]any:
		text, err := json.Marshal(v)
		if err != nil {
			return fmt.Sprint(v)
		}
		return string(text)
	default:
		return fmt.Sprint(v)
	}
}

// num returns a field as a whole number, 0 if it is absent or none.
func (o object) num(name string) int {
	v, _ := o[name].(float64)
	return int(v)
}

// column is one column of a table.
type column struct {
	title string
	value func(object) string
}

func field(title, name string) column {
	return column{title, func(o object) string { return o.str(name) }}
}

// short shows the first 12 characters of a hash: enough to tell two apart.
func short(title, name string) column {
	return column{title, func(o object) string { return o.str(name)[:min(12, len(o.str(name)))] }}
}

// since shows a time field as an age.
func since(title, name string, now time.Time) column {
	return column{title, func(o object) string {
		at, err := time.Parse(time.RFC3339Nano, o.str(name))
		if err != nil {
			return ""
		}
		return age(now.Sub(at))
	}}
}

func age(d time.Duration) string {
	suffix := " ago"
	if d < 0 {
		d, suffix = -d, " from now"
	}
	switch {
	case d < time.Minute:
		return d.Round(time.Second).String() + suffix
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes())) + suffix
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours())) + suffix
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24)) + suffix
}

func printTable(w io.Writer, rows []object, columns ...column) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	fmt.Fprintln(t, strings.Join(titles, "\t"))
	for _, row := range rows {
		cells := make([]string, len(columns))
		for i, c := range columns {
			if cells[i] = c.value(row); cells[i] == "" {
				cells[i] = "-"
			}
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// printFields prints one object, a field a line, in the order given; fields
// that are absent are left out.
func printFields(w io.Writer, o object, names ...string) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, name := range names {
		if v := o.str(name); v != "" {
			fmt.Fprintf(t, "%s\t%s\n", strings.ReplaceAll(name, "_", " "), v)
		}
	}
	return t.Flush()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
