package guide

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// foreign are commands that a Debian system does not have from the start.
var foreign = regexp.MustCompile(`\b(curl|openssl|jq)\b`)

// Needs reports whether running the document takes more than a shell.
func (d *Document) Needs() bool {
	return slices.ContainsFunc(d.Blocks, func(b Block) bool {
		_, runs := b.Runs()
		return runs && foreign.MatchString(b.Text)
	})
}

// Script returns one shell script that runs the document's blocks in order, ""
// when there is nothing to run. What a block exports, the next one has. Before
// each block it says on stderr where it is. A block in the background is waited
// for until it says that it serves.
func (d *Document) Script() string {
	var b strings.Builder
	for _, block := range d.Blocks {
		status, runs := block.Runs()
		if !runs {
			continue
		}
		fmt.Fprintf(&b, "echo '== %s:%d' >&2\n", d.Path, block.Line)
		switch {
		case block.Background():
			fmt.Fprintf(&b, ": >background.%[2]d.log\n(\n%[1]s) >background.%[2]d.log 2>&1 &\nawait background.%[2]d.log $!\n", block.Text, block.Line)
		case status != 0:
			fmt.Fprintf(&b, "status=0\n(\n%s) || status=$?\n[ \"$status\" = %d ] || { echo \"status $status, want %[2]d\" >&2; exit 1; }\n", block.Text, status)
		default:
			b.WriteString(block.Text)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return prologue + b.String()
}

// prologue ends the script at the first command that fails.
const prologue = `set -eu
await() {
  n=0
  until grep -qE 'msg=ready|receiving on' "$1"; do
    n=$((n + 1))
    if [ $n -gt 200 ] || ! kill -0 "$2" 2>/dev/null; then cat "$1" >&2; exit 1; fi
    sleep 0.1
  done
}
`

// Command is one command of a block: its words, without redirections.
type Command struct {
	Line  int
	Words []string
}

// Commands splits a block into its commands. It knows quotes, comments,
// continued lines, and what stands between commands; what is substituted or
// expanded stays as it is.
func (b Block) Commands() []Command {
	var out []Command
	line := b.Line
	text := strings.ReplaceAll(b.Text, "\\\n", "  ")
	for l := range strings.SplitSeq(text, "\n") {
		for _, words := range split(l) {
			out = append(out, Command{line, words})
		}
		line++
	}
	return out
}

func split(line string) [][]string {
	var out [][]string
	var words []string
	word, quote, started := "", rune(0), false
	endWord := func() {
		if started {
			words = append(words, word)
		}
		word, started = "", false
	}
	end := func() {
		endWord()
		if len(words) > 0 {
			out = append(out, words)
		}
		words = nil
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word += string(r)
		case r == '\'' || r == '"':
			quote, started = r, true
		case r == '#' && !started:
			end()
			return out
		case r == ' ' || r == '\t':
			endWord()
		case r == '|' || r == ';' || r == '&':
			end()
		default:
			word, started = word+string(r), true
		}
	}
	end()
	return out
}

// Of returns the arguments that a command gives to the named program, which may
// stand behind others: sudo, docker run IMAGE, kubectl exec POD --.
func (c Command) Of(program string) (args []string, ok bool) {
	for i, w := range c.Words {
		if path.Base(w) != program {
			continue
		}
		if i > 0 && !leads(c.Words[:i]) {
			continue
		}
		args := slices.Clone(c.Words[i+1:])
		if at := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, ">") || strings.HasPrefix(a, "2>") || a == "<" }); at >= 0 {
			args = args[:at]
		}
		return args, true
	}
	return nil, false
}

var assignment = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*=`)

// leads reports whether what stands before a word makes it a command.
func leads(before []string) bool {
	last := before[len(before)-1]
	return assignment.MatchString(last) || slices.Contains([]string{"sudo", "exec", "--", "nohup", "time"}, last) ||
		(before[0] == "sudo" && len(before) > 2 && before[1] == "-u")
}
