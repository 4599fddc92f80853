package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rewrite regenerates the goldens; read the diff as a change of layout.
var rewrite = flag.Bool("rewrite", false, "rewrite the golden files")

func sample() *Report {
	return &Report{
		Title: "bench sample", Command: "dispatcher bench sample --seed 7", Seed: 7,
		Started: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), Took: 95 * time.Second,
		Facts:    []Fact{{"Machine", "2 of 4 cores <fast>"}},
		Warnings: []string{"the machine was busy: load 3.1"},
		Failures: []string{"2 events were lost"},
		Sections: []Section{{
			Title: "Throughput", Text: "Deliveries a second.",
			Tables: []Table{{
				Title: "Rounds", Columns: []string{"workload", "rate", "x | y"},
				Rows: [][]string{{"drain", "12,345", "0.62"}, {"späte", Range(stats.Spread{Median: 1, Min: 0.5, Max: 20, N: 3})}, {"a", "b", "c", "dropped"}},
				Note: "The floor is a bare client.",
			}},
			Plots: []Plot{
				{Title: "Latency", X: "ms", Y: "share", Kind: Steps, LogX: true, Series: []Line{
					{Name: "node & floor", Points: []stats.Point{{X: 0, Y: 0.1}, {X: 1, Y: 0.5}, {X: 10, Y: 1}}},
					{Name: "nothing"},
				}},
				{Title: "Rates", X: "", Y: "1/s", Kind: Bars, Labels: []string{"drain", "fan-out"}, Series: []Line{
					{Name: "node", Points: []stats.Point{{Y: 5}, {Y: math.NaN()}}}, {Name: "floor", Points: []stats.Point{{Y: 9}}},
				}},
				{Title: "Arrivals", X: "s", Y: "1/s", Kind: Lines, Series: []Line{{Name: "node", Points: []stats.Point{{X: 0, Y: 3}, {X: 1, Y: 4}}}}},
				{Title: "Empty", Kind: Lines},
			},
		}},
		Data: map[string]int{"raw": 1},
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(path, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; run with -rewrite and read the diff. Got:\n%s", name, got)
	}
}

func TestMarkdownLooksLikeItsGolden(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteMarkdown(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "sample.md", b.Bytes())
}

func TestJSONLooksLikeItsGolden(t *testing.T) {
	r := sample()
	r.Sections[0].Plots[1].Series[0].Points[1].Y = 0 // JSON has no NaN
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "sample.json", b.Bytes())
	var back Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.Seed != 7 {
		t.Errorf("%v %+v", err, back)
	}
}

// svgElement matches a drawing; the goldens hold the page, not gonum's pen.
var svgElement = regexp.MustCompile(`(?s)<svg.*?</svg>`)

func TestHTMLLooksLikeItsGoldenAndNeedsNothingElse(t *testing.T) {
	var b bytes.Buffer
	if err := sample().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	golden(t, "sample.html", svgElement.ReplaceAll(b.Bytes(), []byte("<svg/>")))
	if n := len(svgElement.FindAll(b.Bytes(), -1)); n != 4 {
		t.Errorf("%d drawings, want 4", n)
	}
	// Namespaces are names, not addresses that anybody fetches.
	text := regexp.MustCompile(`xmlns(:xlink)?="[^"]*"`).ReplaceAllString(b.String(), "")
	for _, foreign := range []string{"http://", "https://", "<script", "src=", "@import", "url("} {
		if strings.Contains(text, foreign) {
			t.Errorf("the page contains %q", foreign)
		}
	}
}

func TestDrawingsAreWellFormedWhateverTheNumbers(t *testing.T) {
	plots := sample().Sections[0].Plots
	plots = append(plots,
		Plot{Title: "one point <&>", Kind: Lines, LogX: true, Series: []Line{{Name: "a", Points: []stats.Point{{X: 3, Y: 3}}}}},
		Plot{Title: "infinite", Kind: Steps, Series: []Line{{Name: "a", Points: []stats.Point{{X: math.Inf(1), Y: 1}, {X: 1, Y: math.NaN()}}}}},
		Plot{Title: "no labels", Kind: Bars, Series: []Line{{Name: "a", Points: nil}}},
	)
	for _, p := range plots {
		text, err := p.svg()
		if err != nil {
			t.Errorf("%s: %v", p.Title, err)
			continue
		}
		for dec := xml.NewDecoder(strings.NewReader(text)); ; {
			_, err := dec.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Errorf("%s: %v", p.Title, err)
				break
			}
		}
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%s: a coordinate is no number", p.Title)
		}
	}
}

func TestALogarithmicAxisHasLabelsInsideOneDecade(t *testing.T) {
	labels := func(low, high float64) string {
		var out []string
		for _, tick := range decades(low, high) {
			if tick.Label != "" {
				out = append(out, tick.Label)
			}
		}
		return strings.Join(out, " ")
	}
	for _, c := range []struct {
		low, high float64
		want      string
	}{{110, 600, "200 500"}, {0.5, 20, "0.5 1 2 5 10 20"}, {1, 1000, "1 2 5 10 20 50 100 200 500 1000"}, {0, 5, ""}, {3, 3, ""}} {
		if got := labels(c.low, c.high); got != c.want {
			t.Errorf("%v to %v: %q, want %q", c.low, c.high, got, c.want)
		}
	}
}

func TestFiguresHaveThreeDigits(t *testing.T) {
	cases := []struct{ got, want string }{
		{Number(0), "0.00"}, {Number(0.012345), "0.0123"}, {Number(1.2345), "1.23"}, {Number(12.345), "12.3"},
		{Number(123.45), "123"}, {Number(1234.5), "1,234"}, {Number(-1234567), "-1,234,567"},
		{Range(stats.Spread{}), "-"}, {Range(stats.Spread{Median: 2, Min: 2, Max: 2, N: 1}), "2.00"},
		{Range(stats.Spread{Median: 2, Min: 1, Max: 3, N: 3}), "2.00 [1.00 … 3.00]"},
		{Percent(0.5), "50.0 %"},
		{Bytes(12), "12 B"}, {Bytes(2048), "2.00 KiB"}, {Bytes(5 << 20), "5.00 MiB"}, {Bytes(3 << 30), "3.00 GiB"},
		{Duration(1500 * time.Nanosecond), "1.50 µs"}, {Duration(12 * time.Millisecond), "12.0 ms"},
		{Duration(2 * time.Second), "2.00 s"}, {Duration(90 * time.Second), "1m30s"},
	}
	for _, c := range cases {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
}

func TestAReportIsReadAgainAndShortened(t *testing.T) {
	r := sample()
	r.Sections[0].Plots = nil // JSON has no NaN
	r.Sections = append(r.Sections, Section{Title: "In short", Brief: true, Answers: []Answer{{Question: "Why?", Text: "Because."}, {Question: "How?", Points: []string{"so", "or so"}}}})
	var b, again, short bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	back, err := Read(&b)
	if err != nil || len(back.Sections) != 2 {
		t.Fatalf("%v %+v", err, back)
	}
	if err := back.WriteJSON(&again); err != nil || again.String() != text {
		t.Errorf("%v, written again:\n%s", err, again.String())
	}
	if err := back.Short().WritePart(&short, 3); err != nil {
		t.Fatal(err)
	}
	if got := short.String(); !strings.Contains(got, "### In short\n\n**Why?** Because.\n\n**How?**\n\n- so\n- or so\n") || strings.Contains(got, "Throughput") || strings.Contains(got, "# bench sample") {
		t.Errorf("%s", got)
	}
	if got := sample().Short(); len(got.Sections) != 1 {
		t.Errorf("a report without a short form has %d sections in it", len(got.Sections))
	}
	for _, bad := range []string{"", "{}", "[]", `{"title":"x"}`} {
		if _, err := Read(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestAThingHasOneColourWhateverItsPlaceAndThePageChoosesIt(t *testing.T) {
	points := []stats.Point{{X: 1, Y: 1}, {X: 2, Y: 2}}
	text, err := Plot{Title: "p", Kind: Lines, Series: []Line{{Name: "a", Points: points, Hue: 4, Dashed: true}}}.svg()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"var(--hue4)", "var(--grid)", "currentColor", "stroke-dasharray"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	if fixed := regexp.MustCompile(`#[0-9A-Fa-f]{6}`).FindString(text); fixed != "" {
		t.Errorf("%s is the same on a dark page", fixed)
	}
}
