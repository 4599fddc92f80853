package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/dispatcher-engine/dispatcher/bench/stats"
)

const (
	plotWidth  = 9 * vg.Inch
	plotHeight = 3.6 * vg.Inch
)

// hues is how many colours there are. What is drawn with one of them has a
// placeholder for a colour, which inlined exchanges for the page's: light and
// dark pages differ. They are told apart by people who see fewer of them (after
// Okabe and Ito).
const hues = 7

func placeholder(hue int) color.RGBA { return color.RGBA{0x01, 0x02, uint8(hue), 0xff} } //nolint:gosec // below 256

// gridColour is the placeholder of the grid.
var gridColour = color.RGBA{0x01, 0x03, 0x00, 0xff}

// colour is that of a series, by its hue or by its place.
func (l Line) colour(at int) color.RGBA {
	if l.Hue > 0 {
		at = l.Hue - 1
	}
	return placeholder(at%hues + 1)
}

// svg draws the plot.
func (p Plot) svg() (string, error) {
	canvas := plot.New()
	sans(canvas)
	canvas.Title.Text, canvas.X.Label.Text, canvas.Y.Label.Text = p.Title, p.X, p.Y
	canvas.BackgroundColor = color.Transparent
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = gridColour, gridColour
	canvas.Add(grid)
	canvas.Legend.Top = p.Kind != Steps // a distribution leaves its lower right corner free
	var err error
	if p.Kind == Bars {
		err = p.bars(canvas)
	} else {
		err = p.lines(canvas)
	}
	if err != nil {
		return "", fmt.Errorf("plot %q: %w", p.Title, err)
	}
	out := vgsvg.New(plotWidth, plotHeight)
	canvas.Draw(draw.New(out))
	var b bytes.Buffer
	if _, err := out.WriteTo(&b); err != nil {
		return "", fmt.Errorf("plot %q: %w", p.Title, err)
	}
	return inlined(b.Bytes()), nil
}

// sans sets every text in the sans-serif face.
func sans(p *plot.Plot) {
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	p.Title.Padding = vg.Points(6)
}

// inlined cuts the prologue of an SVG file, and names fonts that browsers have
// beside the one that the text was measured with.
func inlined(file []byte) string {
	if at := bytes.Index(file, []byte("<svg")); at > 0 {
		file = file[at:]
	}
	file = bytes.ReplaceAll(file, []byte("font-family:Liberation Sans"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif"))
	file = bytes.ReplaceAll(file, []byte("#000000"), []byte("currentColor"))
	file = bytes.ReplaceAll(file, []byte("#010300"), []byte("var(--grid)"))
	for hue := range hues {
		file = bytes.ReplaceAll(file, fmt.Appendf(nil, "#0102%02X", hue+1), fmt.Appendf(nil, "var(--hue%d)", hue+1))
	}
	return string(bytes.TrimSpace(file))
}

func (p Plot) lines(canvas *plot.Plot) error {
	lowest := math.Inf(1)
	for i, s := range p.Series {
		points := p.drawable(s.Points)
		if len(points) == 0 {
			continue
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return fmt.Errorf("series %q: %w", s.Name, err)
		}
		line.Color, line.Width = s.colour(i), vg.Points(1.7)
		if s.Dashed {
			line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		}
		if p.Kind == Steps {
			line.StepStyle = plotter.PostStep
		}
		canvas.Add(line)
		canvas.Legend.Add(s.Name, line)
		for _, at := range points {
			lowest = min(lowest, at.X)
		}
	}
	if p.Kind == Steps {
		canvas.Y.Min, canvas.Y.Max = 0, 1
	} else {
		canvas.Y.Min = min(0, canvas.Y.Min)
	}
	if p.LogX && !math.IsInf(lowest, 1) && canvas.X.Max > lowest {
		canvas.X.Scale = plot.LogScale{}
		canvas.X.Tick.Marker = plot.TickerFunc(decades)
	}
	if p.Kind == Lines {
		canvas.Y.Max += headroom * (canvas.Y.Max - canvas.Y.Min)
	}
	return nil
}

// headroom above what is drawn is for the legend.
const headroom = 0.15

// decades marks every 1, 2 … 9 of a decade and labels 1, 2 and 5, so that a
// range of less than one decade has labels, too.
func decades(low, high float64) []plot.Tick {
	var ticks []plot.Tick
	if low <= 0 || high <= low {
		return ticks
	}
	for unit := math.Pow(10, math.Floor(math.Log10(low))); unit <= high; unit *= 10 {
		for step := 1.0; step < 10; step++ {
			v := unit * step
			if v < low*(1-1e-9) || v > high*(1+1e-9) {
				continue
			}
			tick := plot.Tick{Value: v}
			if step == 1 || step == 2 || step == 5 {
				tick.Label = strconv.FormatFloat(v, 'g', -1, 64)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// drawable drops what cannot be drawn: infinities, and what has no logarithm.
func (p Plot) drawable(points []stats.Point) plotter.XYs {
	out := make(plotter.XYs, 0, len(points))
	for _, at := range points {
		if math.IsNaN(at.X+at.Y) || math.IsInf(at.X+at.Y, 0) || p.LogX && at.X <= 0 {
			continue
		}
		out = append(out, plotter.XY{X: at.X, Y: at.Y})
	}
	return out
}

func (p Plot) bars(canvas *plot.Plot) error {
	if len(p.Labels) == 0 || len(p.Series) == 0 {
		return nil
	}
	// A group takes three quarters of its label's share of the width.
	width := plotWidth * 0.66 / vg.Length(len(p.Labels)*len(p.Series))
	for i, s := range p.Series {
		values := make(plotter.Values, len(p.Labels))
		for k := range values {
			if k < len(s.Points) && !math.IsNaN(s.Points[k].Y) && !math.IsInf(s.Points[k].Y, 0) {
				values[k] = s.Points[k].Y
			}
		}
		bars, err := plotter.NewBarChart(values, width)
		if err != nil {
			return fmt.Errorf("series %q: %w", s.Name, err)
		}
		bars.Color, bars.LineStyle.Width = s.colour(i), 0
		bars.Offset = width * (vg.Length(i) - vg.Length(len(p.Series)-1)/2)
		canvas.Add(bars)
		canvas.Legend.Add(s.Name, bars)
	}
	canvas.NominalX(p.Labels...)
	canvas.X.Min, canvas.X.Max = -0.6, float64(len(p.Labels))-0.4
	canvas.Y.Min = min(0, canvas.Y.Min)
	canvas.Y.Max += headroom * (canvas.Y.Max - canvas.Y.Min)
	return nil
}
