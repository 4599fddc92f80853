package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress tells people how far something has come: with a bar on a terminal, and
// with a line now and then anywhere else. What came of it is the command's to say.
type progress struct {
	w        io.Writer
	terminal bool
	done     string // what the thing does, in the past: "replayed"
	bar      *progressbar.ProgressBar
	total    int
	said     string
	next     time.Time // when the next line is due
}

// progressEvery is how often a line is written where there is no bar.
const progressEvery = 5 * time.Second

// newProgress tells on w, which is a terminal or not.
func newProgress(w io.Writer, done string, terminal bool) *progress {
	return &progress{w: w, done: done, terminal: terminal, next: time.Now().Add(progressEvery)}
}

// isTerminal reports whether somebody may be looking.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd())) //nolint:gosec // a file descriptor is a small number
}

// at tells that n of total are done.
func (p *progress) at(n, total int) {
	if total == 0 {
		return
	}
	if !p.terminal {
		p.line(fmt.Sprintf("%d of %d %s", n, total, p.done))
		return
	}
	if p.bar == nil || p.total != total {
		p.total = total
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription(p.done), progressbar.OptionShowCount(),
			progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish(), progressbar.OptionUseANSICodes(true))
	}
	_ = p.bar.Set(min(n, total)) // a terminal that takes no bar takes no complaint either
}

func (p *progress) line(text string) {
	if now := time.Now(); text != p.said && !now.Before(p.next) {
		fmt.Fprintln(p.w, text)
		p.said, p.next = text, now.Add(progressEvery)
	}
}

// say writes a line of its own, without the bar in it.
func (p *progress) say(format string, args ...any) {
	p.clear()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// clear takes the bar away.
func (p *progress) clear() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
