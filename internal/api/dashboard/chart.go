package dashboard

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Size of a chart's drawing surface. The page stretches it.
const (
	chartWidth  = 240.0
	chartHeight = 48.0
)

// point is one value of a series.
type point struct {
	at    time.Time
	value float64
}

// spark is a small chart: SVG paths and what they say in words.
type spark struct {
	Line, Area string // path data; "" = nothing to draw
	Label      string
}

// newSpark draws a series over a window that ends at its last point, so that a
// young node's line begins where its life does. Both charts that share a scale
// get the same most; 0 = the series' own largest value.
func newSpark(series []point, window time.Duration, most float64, label string) spark {
	s := spark{Label: label}
	if len(series) < 2 {
		return s
	}
	for _, p := range series {
		most = math.Max(most, p.value)
	}
	if most <= 0 {
		most = 1
	}
	end := series[len(series)-1].at
	var line strings.Builder
	first, last := 0.0, 0.0
	for i, p := range series {
		x := chartWidth * (1 - float64(end.Sub(p.at))/float64(window))
		if x < 0 {
			continue
		}
		command := "L"
		if line.Len() == 0 {
			command, first = "M", x
		}
		line.WriteString(command + coordinate(x) + " " + coordinate(1+(chartHeight-2)*(1-p.value/most)))
		if i == len(series)-1 {
			last = x
		}
	}
	s.Line = line.String()
	s.Area = s.Line + "L" + coordinate(last) + " " + coordinate(chartHeight) + "L" + coordinate(first) + " " + coordinate(chartHeight) + "Z"
	return s
}

func coordinate(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) }

// segment is a part of a bar that is 100 wide.
type segment struct {
	X, Width string
	Class    string
	Label    string
}

// bar lays parts side by side. What is there stays visible, however small.
func bar(parts []share) []segment {
	total := 0.0
	for _, p := range parts {
		total += float64(p.N)
	}
	var out []segment
	x := 0.0
	for _, p := range parts {
		if p.N == 0 {
			continue
		}
		width := 100 * float64(p.N) / total
		out = append(out, segment{X: coordinate2(x), Width: coordinate2(math.Max(width, 0.4)), Class: p.Class, Label: p.Name + " " + p.Percent})
		x += width
	}
	return out
}

func coordinate2(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// share is one part of a whole.
type share struct {
	Name    string
	Class   string
	N       uint64
	Percent string
}

// percents fills in each part's percentage.
func percents(parts []share) []share {
	total := uint64(0)
	for _, p := range parts {
		total += p.N
	}
	for i := range parts {
		parts[i].Percent = percent(parts[i].N, total)
	}
	return parts
}

func percent(n, total uint64) string {
	if total == 0 {
		return "–"
	}
	p := 100 * float64(n) / float64(total)
	digits := 1
	if p == math.Trunc(p) {
		digits = 0
	}
	text := strconv.FormatFloat(p, 'f', digits, 64)
	if n < total && text == "100.0" {
		text = "99.9" // never say all while something is missing
	}
	return text + " %"
}
