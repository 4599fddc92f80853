package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/dispatcher-engine/dispatcher/bench/report"
)

// benchRender writes a report again from its JSON.
func (a *app) benchRender() *cobra.Command {
	var html, into, name string
	var short bool
	c := &cobra.Command{
		Use: "render REPORT.json", Short: "Write a report again from its JSON: Markdown, HTML, or a part of a document", Args: cobra.ExactArgs(1),
		Long: `render reads the JSON report of a run and writes it as Markdown to stdout, or as
HTML to a file. With --into it replaces the part of a Markdown document between
the lines

  <!-- bench:NAME -->
  <!-- /bench:NAME -->

by the report's short form. docs/benchmarks.md is kept up to date that way.`,
		Example: `  dispatcher bench render bench-reports/transports.json --short
  dispatcher bench render bench-reports/transports.json --into docs/benchmarks.md --name transports`,
	}
	c.Flags().StringVar(&html, "html", "", "write the HTML report to this file instead")
	c.Flags().StringVar(&into, "into", "", "replace the marked part of this Markdown document instead")
	c.Flags().StringVar(&name, "name", "transports", "name of the part, with --into")
	c.Flags().BoolVar(&short, "short", false, "the report's short form alone")
	c.MarkFlagsMutuallyExclusive("html", "into")
	c.RunE = func(_ *cobra.Command, args []string) (err error) {
		file, err := os.Open(filepath.Clean(args[0]))
		if err != nil {
			return fmt.Errorf("bench render: %w", err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		rep, err := report.Read(file)
		if err != nil {
			return fmt.Errorf("bench render %s: %w", args[0], err)
		}
		if short || into != "" {
			rep = rep.Short()
		}
		switch {
		case into != "":
			return renderInto(into, name, rep)
		case html != "":
			return writeWhole(html, rep.WriteHTML)
		default:
			return rep.WriteMarkdown(a.Out)
		}
	}
	return c
}

// renderInto replaces the marked part of a document. It fails before the
// document is touched.
func renderInto(path, name string, rep *report.Report) error {
	old, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return fmt.Errorf("bench render: %w", err)
	}
	open, end := []byte("<!-- bench:"+name+" -->\n"), []byte("<!-- /bench:"+name+" -->")
	before, rest, opened := bytes.Cut(old, open)
	_, after, ended := bytes.Cut(rest, end)
	if !opened || !ended {
		return fmt.Errorf("bench render: %s has no lines %q and %q around the part to replace", path, bytes.TrimSpace(open), end)
	}
	const level = 3 // below a document's own headings
	var part bytes.Buffer
	if err := rep.WritePart(&part, level); err != nil {
		return err
	}
	return writeWhole(path, func(w io.Writer) error {
		_, err := w.Write(bytes.Join([][]byte{before, open, []byte("\n"), part.Bytes(), []byte("\n"), end, after}, nil))
		return err
	})
}

// writeWhole replaces a file by what is written, or leaves it alone.
func writeWhole(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("bench render: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(file.Name()))
		}
	}()
	const readable = 0o644 // as any document
	err = cmp.Or(write(file), file.Chmod(readable), file.Close())
	if err != nil {
		return fmt.Errorf("bench render: %w", err)
	}
	return os.Rename(file.Name(), path)
}
