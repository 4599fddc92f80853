package dashboard

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/engine"
)

// page is what every page has.
type page struct {
	Title   string
	Section string // which entry of the navigation is current
	Version string
	Visitor *visitor // nil before the login
	Flash   *flash
}

// newPage fills in what the frame of a page shows.
func (d *Dashboard) newPage(v *visitor, section, title string) page {
	return page{Title: title, Section: section, Version: d.node.Version(), Visitor: v, Flash: v.told()}
}

// parsePages parses each page with the frame and the shared parts.
func (d *Dashboard) parsePages() (map[string]*template.Template, error) {
	shared, err := template.New("").Funcs(d.functions()).ParseFS(embedded, "templates/_*.html")
	if err != nil {
		return nil, fmt.Errorf("dashboard templates: %w", err)
	}
	names, err := fs.Glob(embedded, "templates/[a-z]*.html")
	if err != nil {
		return nil, fmt.Errorf("dashboard templates: %w", err)
	}
	pages := map[string]*template.Template{}
	for _, name := range names {
		own, err := shared.Clone()
		if err == nil {
			_, err = own.ParseFS(embedded, name)
		}
		if err != nil {
			return nil, fmt.Errorf("dashboard templates: %w", err)
		}
		pages[strings.TrimPrefix(name, "templates/")] = own
	}
	return pages, nil
}

// functions are what templates may call. They return plain text: the escaping is
// the template's.
func (d *Dashboard) functions() template.FuncMap {
	return template.FuncMap{
		"asset": d.assets.path, "link": link, "ago": ago, "stamp": stamp, "count": grouped[int], "count64": grouped[int64], "countU": grouped[uint64], "races": func(won, lost uint64) uint64 { return won + lost },
		"bytes": byteSize, "span": span, "words": words, "tone": tone, "reasonHelp": reasonHelp, "list": strings.Join,
	}
}

// render writes a page, or with a name of the form "file#block" a part of one.
// Nothing is sent before all of it is made.
func (d *Dashboard) render(w http.ResponseWriter, _ *http.Request, status int, name string, data any) {
	file, block, partial := strings.Cut(name, "#")
	if !partial {
		block = "frame"
	}
	var out bytes.Buffer
	if err := d.pages[file].ExecuteTemplate(&out, block, data); err != nil {
		d.logger.Error("dashboard_page_failed", "page", name, "error", err.Error())
		http.Error(w, "the page could not be made; the node's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = out.WriteTo(w)
}

// trouble is what error.html shows.
type trouble struct {
	page
	Detail string
	Fields []engine.FieldError
}

func (d *Dashboard) refuse(w http.ResponseWriter, r *http.Request, v *visitor, status int, title, detail string) {
	t := trouble{page: page{Title: title, Version: d.node.Version(), Visitor: v}, Detail: detail}
	d.render(w, r, status, "error.html", t)
}

// fail translates an engine's error into a page. What it does not know stays in
// the log.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, v *visitor, err error) {
	status, title, detail, fields := d.explain(err)
	t := trouble{page: page{Title: title, Version: d.node.Version(), Visitor: v}, Detail: detail, Fields: fields}
	d.render(w, r, status, "error.html", t)
}

func (d *Dashboard) explain(err error) (status int, title, detail string, fields []engine.FieldError) {
	if e, ok := errors.AsType[*engine.InvalidError](err); ok {
		return http.StatusUnprocessableEntity, "This cannot be accepted", "", e.Fields
	}
	if e, ok := errors.AsType[*engine.ConflictError](err); ok {
		return http.StatusConflict, "This contradicts what is stored", e.Rule + ": " + e.Hint, nil
	}
	if e, ok := errors.AsType[*engine.UnavailableError](err); ok {
		return http.StatusServiceUnavailable, "The node cannot do this now", e.Reason + ". Nothing was changed; try again in a moment.", nil
	}
	if errors.Is(err, engine.ErrNotFound) || errors.Is(err, delivery.ErrBadID) {
		return http.StatusNotFound, "Nothing here", err.Error(), nil
	}
	d.logger.Error("dashboard_request_failed", "error", err.Error())
	return http.StatusInternalServerError, "The node could not do this", "Its log says why.", nil
}

func (d *Dashboard) nothingHere(w http.ResponseWriter, r *http.Request, v *visitor) {
	d.refuse(w, r, v, http.StatusNotFound, "No such page", "The address may be mistyped, or the page has moved.")
}

// link joins parts to a path below the root, each one escaped.
func link(parts ...string) string {
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return Root + strings.Join(parts, "/")
}

// query adds the values that are set to a path.
func query(path string, pairs ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// stamp writes an instant for a time element; "" for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// ago says how long something is past, or in how long it comes.
func ago(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	d := time.Since(t)
	switch {
	case d < -time.Second:
		return "in " + span(-d)
	case d < time.Second:
		return "now"
	}
	return span(d) + " ago"
}

// span writes a duration with the two figures that matter.
func span(d time.Duration) string {
	day := 24 * time.Hour
	switch {
	case d <= 0:
		return "0 ms"
	case d < time.Millisecond:
		return strconv.FormatInt(d.Microseconds(), 10) + " µs"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(d.Microseconds())/1000, 'f', 1, 64) + " ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < time.Hour:
		return two(int(d.Minutes()), "min", int(d.Seconds())%60, "s")
	case d < day:
		return two(int(d.Hours()), "h", int(d.Minutes())%60, "min")
	default:
		return two(int(d/day), "d", int(d.Hours())%24, "h")
	}
}

func two(n int, unit string, rest int, restUnit string) string {
	out := strconv.Itoa(n) + " " + unit
	if rest > 0 {
		out += " " + strconv.Itoa(rest) + " " + restUnit
	}
	return out
}

// grouped writes a number with thin spaces between thousands.
func grouped[T int | int64 | uint64](n T) string {
	digits := fmt.Sprint(n)
	var out strings.Builder
	for i, c := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			out.WriteRune('\u202f')
		}
		out.WriteRune(c)
	}
	return out.String()
}

// byteSize writes a size in powers of 1024.
func byteSize(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + " B"
	}
	size, unit := float64(n)/1024, 0
	for size >= 1024 && unit < 3 {
		size, unit = size/1024, unit+1
	}
	return strconv.FormatFloat(size, 'f', 1, 64) + " " + [...]string{"KiB", "MiB", "GiB", "TiB"}[unit]
}

// words makes a wire name readable.
func words(name string) string { return strings.ReplaceAll(name, "_", " ") }
