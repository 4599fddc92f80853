// Package report writes what a benchmark found: JSON for programs, Markdown for
// a terminal or an issue, and one HTML file with plots that needs nothing else,
// neither a network nor a script.
//
//	Report{facts, warnings, sections{text, tables, plots}, data}
//	   ├─► WriteJSON      everything, the raw figures (Data) included
//	   ├─► WriteMarkdown  facts, warnings and tables
//	   └─► WriteHTML      the same, and the plots as inline SVG
//
// The same report always gives the same bytes, so that goldens hold the layout
// and two runs can be compared with diff. It computes nothing: what is printed
// is what it was given.
package report
