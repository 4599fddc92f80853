package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// WriteMarkdown writes the report without its plots. Tables are padded, so that
// they are read in a terminal as well.
func (r *Report) WriteMarkdown(w io.Writer) error {
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "# %s\n\n", r.Title)
	r.body(b, 2)
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write Markdown report: %w", err)
	}
	return nil
}

// WritePart writes the report without its title, with headings of the given
// level (1 = #) and below: a part of another document.
func (r *Report) WritePart(w io.Writer, level int) error {
	b := bufio.NewWriter(w)
	r.body(b, level)
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write Markdown report: %w", err)
	}
	return nil
}

func (r *Report) body(b *bufio.Writer, level int) {
	for _, f := range r.allFacts() {
		fmt.Fprintf(b, "- %s: %s\n", f.Name, f.Value)
	}
	for _, line := range r.Warnings {
		fmt.Fprintf(b, "\n> **Doubtful:** %s\n", line)
	}
	for _, line := range r.Failures {
		fmt.Fprintf(b, "\n> **FAILED:** %s\n", line)
	}
	for _, s := range r.Sections {
		fmt.Fprintf(b, "\n%s %s\n", strings.Repeat("#", level), s.Title)
		if s.Text != "" {
			fmt.Fprintf(b, "\n%s\n", s.Text)
		}
		for _, a := range s.Answers {
			fmt.Fprintf(b, "\n%s\n", strings.TrimSpace("**"+a.Question+"** "+a.Text))
			for i, point := range a.Points {
				if i == 0 {
					fmt.Fprintln(b)
				}
				fmt.Fprintf(b, "- %s\n", point)
			}
		}
		for _, t := range s.Tables {
			t.markdown(b, level+1)
		}
	}
}

// allFacts puts what every report has before its own facts.
func (r *Report) allFacts() []Fact {
	return append([]Fact{
		{"Command", "`" + r.Command + "`"},
		{"Started", fmt.Sprintf("%s, took %s", r.Started.UTC().Format(time.RFC3339), Duration(r.Took))},
		{"Seed", fmt.Sprint(r.Seed)},
	}, r.Facts...)
}

func (t *Table) markdown(b *bufio.Writer, level int) {
	if t.Title != "" {
		fmt.Fprintf(b, "\n%s %s\n", strings.Repeat("#", level), t.Title)
	}
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = max(3, utf8.RuneCountInString(escaped(c)))
	}
	for _, row := range t.Rows {
		for i, cell := range row[:min(len(row), len(widths))] {
			widths[i] = max(widths[i], utf8.RuneCountInString(escaped(cell)))
		}
	}
	fmt.Fprintln(b)
	t.line(b, t.Columns, widths)
	rule := make([]string, len(widths))
	for i, width := range widths {
		rule[i] = strings.Repeat("-", width)
		if i > 0 {
			rule[i] = rule[i][1:] + ":"
		}
	}
	fmt.Fprintf(b, "| %s |\n", strings.Join(rule, " | "))
	for _, row := range t.Rows {
		t.line(b, row, widths)
	}
	if t.Note != "" {
		fmt.Fprintf(b, "\n%s\n", t.Note)
	}
}

// line writes one row; cells beyond the columns are dropped, missing ones empty.
func (t *Table) line(b *bufio.Writer, cells []string, widths []int) {
	for i, width := range widths {
		text := ""
		if i < len(cells) {
			text = escaped(cells[i])
		}
		pad := strings.Repeat(" ", width-utf8.RuneCountInString(text))
		if i == 0 {
			fmt.Fprintf(b, "| %s%s ", text, pad)
		} else {
			fmt.Fprintf(b, "| %s%s ", pad, text)
		}
	}
	fmt.Fprintln(b, "|")
}

// escaped keeps a cell in its cell.
func escaped(cell string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(cell)
}
