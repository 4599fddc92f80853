package report

import (
	"fmt"
	"html/template"
	"io"
)

// page is the whole file: style and plots are inside, there is no script.
var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"svg": func(p Plot) (template.HTML, error) {
		text, err := p.svg()
		return template.HTML(text), err //nolint:gosec // made by us: gonum escapes every text that it draws
	},
}).Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #1b1f24; background: #fff; }
h1 { font-size: 1.6em; } h2 { font-size: 1.25em; margin-top: 2em; border-bottom: 1px solid #d0d7de; } h3 { font-size: 1em; }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto; font-variant-numeric: tabular-nums; }
th, td { padding: .25em .7em; border-bottom: 1px solid #d8dee4; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { background: #f6f8fa; }
dl { display: grid; grid-template-columns: max-content auto; gap: .1em 1em; } dt { color: #57606a; } dd { margin: 0; overflow-wrap: anywhere; }
.warn { border-left: 4px solid #bf8700; background: #fff8c5; padding: .5em 1em; }
.fail { border-left: 4px solid #cf222e; background: #ffebe9; padding: .5em 1em; }
.note { color: #57606a; }
figure { margin: 1em 0; } svg { max-width: 100%; height: auto; }
</style>
</head>
<body>
<h1>{{.Title}}</h1>
<dl>
<dt>Command</dt><dd><code>{{.Command}}</code></dd>
<dt>Started</dt><dd>{{.Started.UTC.Format "2006-01-02T15:04:05Z"}}, took {{.TookText}}</dd>
<dt>Seed</dt><dd>{{.Seed}}</dd>
{{- range .Facts}}
<dt>{{.Name}}</dt><dd>{{.Value}}</dd>
{{- end}}
</dl>
{{- range .Warnings}}
<p class="warn">Doubtful: {{.}}</p>
{{- end}}
{{- range .Failures}}
<p class="fail">FAILED: {{.}}</p>
{{- end}}
{{- range .Sections}}
<h2>{{.Title}}</h2>
{{- if .Text}}
<p>{{.Text}}</p>
{{- end}}
{{- range .Tables}}
{{- if .Title}}
<h3>{{.Title}}</h3>
{{- end}}
<table>
<tr>{{range .Columns}}<th>{{.}}</th>{{end}}</tr>
{{- range .Rows}}
<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{- end}}
</table>
{{- if .Note}}
<p class="note">{{.Note}}</p>
{{- end}}
{{- end}}
{{- range .Plots}}
<figure>
{{svg .}}
</figure>
{{- end}}
{{- end}}
</body>
</html>
`))

// WriteHTML writes the report as one file that needs nothing else.
func (r *Report) WriteHTML(w io.Writer) error {
	data := struct {
		*Report
		TookText string
	}{r, Duration(r.Took)}
	if err := page.Execute(w, data); err != nil {
		return fmt.Errorf("write HTML report: %w", err)
	}
	return nil
}
