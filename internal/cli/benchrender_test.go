package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/bench/report"
)

func reportFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	file, err := os.Create(filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rep := report.Report{Title: "a run", Started: time.Unix(0, 0), Sections: []report.Section{
		{Title: "Result", Brief: true, Answers: []report.Answer{{Question: "So?", Text: "Yes."}}},
		{Title: "Details"},
	}}
	if err := rep.WriteJSON(file); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestAReportIsRenderedIntoItsPlaceInADocumentAndNowhereElse(t *testing.T) {
	run := reportFile(t)
	doc := filepath.Join(t.TempDir(), "doc.md")
	const before, after = "# Title\n\n<!-- bench:x -->\n", "<!-- /bench:x -->\n\n## Further\n"
	if err := os.WriteFile(doc, []byte(before+"old\n"+after), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second changes nothing
		if status, _, errs := runBench(t, "render", run, "--into", doc, "--name", "x"); status != ExitOK {
			t.Fatal(errs)
		}
	}
	got, err := os.ReadFile(filepath.Clean(doc))
	if err != nil {
		t.Fatal(err)
	}
	text := string(got)
	if !strings.HasPrefix(text, before) || !strings.HasSuffix(text, after) || strings.Contains(text, "old") ||
		strings.Count(text, "### Result\n\n**So?** Yes.") != 1 || strings.Contains(text, "Details") || strings.Contains(text, "# a run") {
		t.Errorf("%s", text)
	}
	status, _, errs := runBench(t, "render", run, "--into", doc, "--name", "other")
	if again, _ := os.ReadFile(filepath.Clean(doc)); status == ExitOK || !strings.Contains(errs, "<!-- bench:other -->") || string(again) != text {
		t.Errorf("status %d, %s", status, errs)
	}
	if left, _ := os.ReadDir(filepath.Dir(doc)); len(left) != 1 {
		t.Errorf("files were left behind: %v", left)
	}
}

func TestAReportIsRenderedAgain(t *testing.T) {
	run := reportFile(t)
	status, out, errs := runBench(t, "render", run)
	if status != ExitOK || !strings.Contains(out, "# a run") || !strings.Contains(out, "## Details") {
		t.Errorf("status %d, %s %s", status, out, errs)
	}
	if _, out, _ := runBench(t, "render", run, "--short"); strings.Contains(out, "Details") || !strings.Contains(out, "Yes.") {
		t.Errorf("%s", out)
	}
	page := filepath.Join(t.TempDir(), "page.html")
	if status, _, errs := runBench(t, "render", run, "--html", page); status != ExitOK {
		t.Errorf("%s", errs)
	}
	if html, err := os.ReadFile(filepath.Clean(page)); err != nil || !strings.Contains(string(html), "<h1>a run</h1>") {
		t.Errorf("%v %s", err, html)
	}
	for _, bad := range [][]string{{}, {"/nowhere"}, {run, "--into", "/nowhere/doc.md"}, {run, "--html", "/nowhere/page.html"}, {run, "--into", "a", "--html", "b"}} {
		if status, _, _ := runBench(t, append([]string{"render"}, bad...)...); status == ExitOK {
			t.Errorf("%v succeeded", bad)
		}
	}
	other := filepath.Join(t.TempDir(), "other.json")
	if err := os.WriteFile(other, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := runBench(t, "render", other); status == ExitOK || !strings.Contains(errs, "not a report") {
		t.Errorf("%s", errs)
	}
}
