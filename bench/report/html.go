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
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --faint: #57606a; --rule: #d8dee4; --head: #f6f8fa; --grid: #e4e8ec;
  --warn: #fff8c5; --warn-edge: #bf8700; --fail: #ffebe9; --fail-edge: #cf222e; --say: #eef6ff; --say-edge: #0969da;
  --hue1: #0072b2; --hue2: #d55e00; --hue3: #009e73; --hue4: #b0568c; --hue5: #b87a00; --hue6: #3a93c4; --hue7: #444; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6edf3; --paper: #0d1117; --faint: #9aa4ae; --rule: #30363d; --head: #161b22; --grid: #262c34;
  --warn: #2b2411; --warn-edge: #d29922; --fail: #3a1618; --fail-edge: #f85149; --say: #10233a; --say-edge: #4493f8;
  --hue1: #58b0e8; --hue2: #ff8a3d; --hue3: #2fc99a; --hue4: #e69ac8; --hue5: #f0b429; --hue6: #9fd4f5; --hue7: #ccc; }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72em; margin: 2em auto; padding: 0 1em; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.6em; } h2 { font-size: 1.25em; margin-top: 2.2em; border-bottom: 1px solid var(--rule); } h3 { font-size: 1em; }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto; font-variant-numeric: tabular-nums; }
th, td { padding: .25em .7em; border-bottom: 1px solid var(--rule); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { background: var(--head); }
tr:hover td { background: var(--head); }
dl { display: grid; grid-template-columns: max-content auto; gap: .1em 1em; } dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
.warn { border-left: 4px solid var(--warn-edge); background: var(--warn); padding: .5em 1em; }
.fail { border-left: 4px solid var(--fail-edge); background: var(--fail); padding: .5em 1em; }
.say { border-left: 4px solid var(--say-edge); background: var(--say); padding: .5em 1em; margin: .7em 0; }
.say b { display: block; } .say ul { margin: .2em 0; padding-left: 1.3em; }
.note { color: var(--faint); }
nav a { margin-right: 1em; white-space: nowrap; } a { color: var(--say-edge); }
figure { margin: 1em 0; } svg { max-width: 100%; height: auto; } svg text { fill: currentColor; }
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
<nav>
{{- range $at, $s := .Sections}}
<a href="#s{{$at}}">{{$s.Title}}</a>
{{- end}}
</nav>
{{- range $at, $s := .Sections}}
<h2 id="s{{$at}}">{{.Title}}</h2>
{{- if .Text}}
<p>{{.Text}}</p>
{{- end}}
{{- range .Answers}}
<div class="say"><b>{{.Question}}</b> {{.Text}}
{{- if .Points}}
<ul>
{{- range .Points}}
<li>{{.}}</li>
{{- end}}
</ul>
{{- end}}
</div>
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
