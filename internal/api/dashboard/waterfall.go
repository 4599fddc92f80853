package dashboard

import (
	"math"
	"strconv"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// maxDrawn is how many attempts are drawn; the table has all of them.
const maxDrawn = 40

// waterfall is a delivery's timeline: attempts drawn on one scale of
// milliseconds, the waits between them in words, and a table of everything.
//
//	#1  +0 s   ▒▒dns▓▓connect███tls░░░░░first byte░░  503
//	           ── waited 5 s ──
//	#2  +5 s   ░░░░first byte░░  200
type waterfall struct {
	Attempts []drawnAttempt
	Omitted  int // attempts before the drawn ones
	Scale    string
	Half     string
	Legend   []phase
	Entries  []entryRow
}

// drawnAttempt is one line of the drawing.
type drawnAttempt struct {
	Number   int
	Gap      string // the wait before it; "" = none worth a word
	Offset   string // since the delivery's first entry
	Total    string
	Verdict  string // status or cause
	Class    string
	Protocol string
	Label    string // all of it in words
	Segments []segment
	Reused   bool
	Fallback bool
}

// phase is a part of an attempt.
type phase struct{ Class, Name string }

var phases = []phase{
	{"dns", "DNS"}, {"connect", "TCP connect"}, {"tls", "TLS"}, {"quic", "QUIC handshake"}, {"wait", "waiting for the answer"}, {"rest", "other"},
}

// entryRow is a transition for the table.
type entryRow struct {
	At       time.Time
	State    string
	Reason   string
	Note     string
	Next     time.Time
	NextIn   string // from At to Next
	Attempt  *attemptRow
	SinceGap string
}

// attemptRow is an attempt for the table. The answer's body is left out: it may
// hold what was sent.
type attemptRow struct {
	Number    int
	Protocol  string
	Status    int
	Sent      string
	Cause     string
	Detail    string
	Remote    string
	Location  string
	RaceLoser string
	Reused    bool
	Fallback  bool
	Phases    []namedSpan
	Total     string
	BytesSent string
}

type namedSpan struct{ Name, Value string }

func newWaterfall(timeline []delivery.TimelineEntry) waterfall {
	w := waterfall{Legend: phases}
	var attempts []*delivery.Attempt
	for i := range timeline {
		w.Entries = append(w.Entries, newEntryRow(timeline, i))
		if a := timeline[i].Attempt; a != nil {
			attempts = append(attempts, a)
		}
	}
	var longest time.Duration
	w.Omitted = max(0, len(attempts)-maxDrawn)
	for _, a := range attempts[w.Omitted:] {
		longest = max(longest, length(a))
	}
	w.Scale, w.Half = span(longest), span(longest/2)
	for i, a := range attempts[w.Omitted:] {
		drawn := drawAttempt(a, longest)
		if len(timeline) > 0 {
			drawn.Offset = "+" + span(max(0, a.StartedAt.Sub(timeline[0].At)))
		}
		if i > 0 {
			before := attempts[w.Omitted+i-1]
			drawn.Gap = span(a.StartedAt.Sub(before.EndedAt))
		}
		w.Attempts = append(w.Attempts, drawn)
	}
	return w
}

// length is an attempt's duration, never zero: it is drawn.
func length(a *delivery.Attempt) time.Duration {
	return max(a.Result.Phases.Total, sumOf(a.Result.Phases), time.Microsecond)
}

func sumOf(p delivery.Phases) time.Duration { return p.DNS + p.Connect + p.TLS + p.QUIC + p.FirstByte }

// parts are an attempt's phases in the order of [phases].
func parts(a *delivery.Attempt) []time.Duration {
	p := a.Result.Phases
	return []time.Duration{p.DNS, p.Connect, p.TLS, p.QUIC, p.FirstByte, length(a) - sumOf(p)}
}

func drawAttempt(a *delivery.Attempt, longest time.Duration) drawnAttempt {
	out := drawnAttempt{
		Number: a.Number, Total: span(length(a)), Verdict: verdict(&a.Result), Class: classTone(a.Outcome.Class),
		Reused: a.Result.Reused, Fallback: a.Result.Fallback, Protocol: protocolName(a.Result.Protocol),
	}
	out.Label = "Attempt " + strconv.Itoa(a.Number) + ": " + out.Verdict + " after " + out.Total
	x := 0.0
	for i, d := range parts(a) {
		if d <= 0 {
			continue
		}
		width := 100 * float64(d) / float64(longest)
		label := phases[i].Name + " " + span(d)
		out.Segments = append(out.Segments, segment{
			X: coordinate2(x), Width: coordinate2(math.Max(width, 0.15)), Class: phases[i].Class, Label: label,
		})
		out.Label += ", " + label
		x += width
	}
	return out
}

// verdict is an attempt's end in a word or two.
func verdict(r *delivery.Result) string {
	if r.Status != 0 {
		return "HTTP " + strconv.Itoa(r.Status)
	}
	return words(r.Cause.String()) + ", " + r.Sent.String()
}

func classTone(c delivery.Class) string {
	switch c {
	case delivery.ClassDelivered:
		return "good"
	case delivery.ClassRejected, delivery.ClassGone, delivery.ClassBlocked:
		return "bad"
	case delivery.ClassInterrupted:
		return "calm"
	default:
		return "warn"
	}
}

var protocolNames = map[delivery.Protocol]string{
	delivery.ProtocolHTTP1: "HTTP/1.1", delivery.ProtocolHTTP2: "HTTP/2", delivery.ProtocolHTTP3: "HTTP/3",
}

func protocolName(p delivery.Protocol) string {
	if name, ok := protocolNames[p]; ok {
		return name
	}
	return "no connection"
}

func newEntryRow(timeline []delivery.TimelineEntry, i int) entryRow {
	e := &timeline[i]
	row := entryRow{At: e.At, State: e.State.String(), Reason: reasonName(e.Reason), Note: e.Note, Next: e.Next}
	if !e.Next.IsZero() {
		row.NextIn = span(e.Next.Sub(e.At))
	}
	if i > 0 {
		row.SinceGap = "+" + span(e.At.Sub(timeline[i-1].At))
	}
	if a := e.Attempt; a != nil {
		r := &a.Result
		row.Attempt = &attemptRow{
			Number: a.Number, Protocol: protocolName(r.Protocol), Status: r.Status, Detail: r.Detail, Remote: r.Remote,
			Location: r.Location, RaceLoser: r.RaceLoser, Reused: r.Reused, Fallback: r.Fallback, Total: span(length(a)),
			BytesSent: byteSize(r.BytesSent),
		}
		if r.Status == 0 {
			row.Attempt.Sent, row.Attempt.Cause = r.Sent.String(), words(r.Cause.String())
		}
		for i, d := range parts(a) {
			if d > 0 {
				row.Attempt.Phases = append(row.Attempt.Phases, namedSpan{phases[i].Name, span(d)})
			}
		}
	}
	return row
}
