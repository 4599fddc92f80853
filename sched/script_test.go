package sched

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/dispatcher-engine/dispatcher/delivery"
)

// TestTimelines plays the scripts in testdata/timelines: what is done to a
// scheduler, and what it then does, to the millisecond. The commits of these
// runs take no time, so that only decisions show. Rewrite with -rewrite.
//
//	config [rand=0.5] [window=N] [drain=D] [allowance=N] [sorted]  before anything else; sorted
//	             prints what happens at one instant in the order of names
//	subscriber N [ordering= concurrency= schedule= base= attempts= max-age= give-up=
//	             disable-after= disable-failures= rate= burst= priority=]
//	answers ID [N] a b c …   answers to the attempts of an event, the last one repeats
//	publish ID… [to=N,N] [key=K] [in=D]
//	wait D                   lets time pass
//	run D                    lets time pass and prints what was decided
//	pause N | resume N | url N URL | delete N | expunge ID | replay ID N
//	stop | start | crash     the process; crash loses what is not durable
//	clock D                  sets the wall clock forward or back
//	status N
//	starts                   attempts begun since it was asked last, by instant
//
// An answer is a status (503), a status with Retry-After (503@30, 503@now+90:
// a date), timeout, refused, dns, or one of these after a while (200~3s).
func TestTimelines(t *testing.T) {
	files, err := filepath.Glob("testdata/timelines/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &play{t: t, begin: time.Now(), answers: map[string][]string{}, events: map[string]*delivery.Event{}, rand: 0.5}
				datadriven.RunTestAny(mute{t}, file, func(_ testing.TB, d *datadriven.TestData) string { return p.do(d) })
			})
		})
	}
}

// mute drops what datadriven logs every ten seconds: virtual ones here.
type mute struct{ testing.TB }

// Logf does nothing.
func (mute) Logf(string, ...any) {}

// play is a script that is being played.
type play struct {
	t       *testing.T
	r       *rig
	begin   time.Time
	rand    float64
	shown   int // facts of the queue's log that were printed
	sorted  bool
	begun   int // attempts that starts has counted
	told    int // disable callbacks that were printed
	change  func(*Config)
	answers map[string][]string
	events  map[string]*delivery.Event
}

func (p *play) do(d *datadriven.TestData) string {
	if d.Cmd == "config" {
		return p.config(d)
	}
	if p.r == nil {
		p.open()
	}
	switch d.Cmd {
	case "subscriber":
		return p.subscriber(d)
	case "answers":
		p.answers[d.CmdArgs[0].Key] = keys(d.CmdArgs[1:])
	case "publish":
		return p.publish(d)
	case "run":
		settle(p.span(d.CmdArgs[0].Key))
		return p.news()
	case "wait":
		settle(p.span(d.CmdArgs[0].Key))
	case "pause", "resume", "url", "delete":
		p.record(d)
	case "expunge":
		p.r.q.mu.Lock()
		delete(p.r.q.state.events, p.events[d.CmdArgs[0].Key].Key)
		p.r.q.mu.Unlock()
	case "replay":
		p.replay(d)
	case "stop":
		p.r.stop()
		return p.news()
	case "start":
		p.r.reopen()
		synctest.Wait()
	case "crash":
		p.r.crash()
		synctest.Wait()
	case "clock":
		p.r.s.time.skew.Add(int64(p.span(d.CmdArgs[0].Key)))
	case "status":
		return p.status(d)
	case "starts":
		return p.starts()
	default:
		p.t.Fatalf("%s: unknown command %q", d.Pos, d.Cmd)
	}
	return ""
}

func (p *play) open() {
	p.r = newRig(p.t, func(c *Config) {
		c.Rand = func() float64 { return p.rand }
		if p.change != nil {
			p.change(c)
		}
	})
	p.r.q.delay, p.r.q.sync = 0, 0
	p.r.send.setAnswer(p.answer)
}

func (p *play) config(d *datadriven.TestData) string {
	opts := options(d)
	if v, ok := opts["rand"]; ok {
		p.rand, _ = strconv.ParseFloat(v, 64)
	}
	_, p.sorted = opts["sorted"]
	p.change = func(c *Config) {
		if v, ok := opts["window"]; ok {
			c.WindowRows, _ = strconv.Atoi(v)
		}
		if v, ok := opts["allowance"]; ok {
			c.StartAllowance = p.num(v)
		}
		if v, ok := opts["drain"]; ok {
			c.DrainFor = p.span(v)
		}
	}
	return ""
}

func options(d *datadriven.TestData) map[string]string {
	opts := map[string]string{}
	for _, a := range d.CmdArgs {
		opts[a.Key] = strings.Join(a.Vals, ",")
	}
	return opts
}

func keys(args []datadriven.CmdArg) []string {
	var out []string
	for _, a := range args {
		out = append(out, a.Key)
	}
	return out
}

func (p *play) span(s string) time.Duration {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil {
			p.t.Fatal(err)
		}
		return time.Duration(n) * 24 * time.Hour
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return d
}

func (p *play) num(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *play) subscriber(d *datadriven.TestData) string {
	opts := options(d)
	p.r.sub(delivery.SubscriberNum(p.num(d.CmdArgs[0].Key)), func(s *delivery.Subscriber) {
		for name, v := range opts {
			switch name {
			case "ordering":
				s.Ordering, _ = delivery.ParseOrdering(v)
			case "concurrency":
				s.Concurrency = p.num(v)
			case "schedule":
				s.Retry.Schedule = []time.Duration{}
				for step := range strings.SplitSeq(v, ",") {
					s.Retry.Schedule = append(s.Retry.Schedule, p.span(step))
				}
			case "base":
				s.Retry.Base = p.span(v)
			case "attempts":
				s.Retry.Attempts = p.num(v)
			case "max-age":
				s.Retry.MaxAge = p.span(v)
			case "give-up":
				s.GiveUpAfter = p.num(v)
			case "disable-after":
				s.DisableAfter = p.span(v)
			case "disable-failures":
				s.DisableAfterFailures = p.num(v)
			case "rate":
				s.RateLimit.PerSecond, _ = strconv.ParseFloat(v, 64)
			case "burst":
				s.RateLimit.Burst = p.num(v)
			case "priority":
				s.Priority, _ = delivery.ParsePriority(v)
			}
		}
	})
	return ""
}

func (p *play) publish(d *datadriven.TestData) string {
	opts := options(d)
	to := []delivery.SubscriberNum{1}
	if v, ok := opts["to"]; ok {
		to = nil
		for n := range strings.SplitSeq(v, ",") {
			to = append(to, delivery.SubscriberNum(p.num(n)))
		}
	}
	var facts []*delivery.Published
	for _, a := range d.CmdArgs {
		if len(a.Vals) > 0 {
			continue
		}
		e := p.r.event(a.Key, func(e *delivery.Event) {
			e.OrderingKey = opts["key"]
			if v, ok := opts["in"]; ok {
				e.DeliverAt = time.Now().Add(p.span(v))
			}
		})
		p.events[a.Key] = e
		facts = append(facts, p.r.fact(e, to...))
	}
	if err := p.r.q.publish(facts...); err != nil {
		p.t.Fatal(err)
	}
	synctest.Wait()
	return ""
}

// answer plays an event's answers.
func (p *play) answer(c call) delivery.Result {
	p.r.mu.Lock()
	script := p.answers[c.id]
	if len(script) == 0 {
		script = p.answers["any"]
	}
	p.r.mu.Unlock()
	if len(script) == 0 {
		return status(200)
	}
	what, after, waits := strings.Cut(script[min(c.nth, len(script))-1], "~")
	result := p.result(what)
	if waits {
		return hang(c, p.span(after), result)
	}
	return result
}

func (p *play) result(what string) delivery.Result {
	switch what {
	case "timeout":
		return timeout()
	case "refused":
		return delivery.Result{Sent: delivery.SentNever, Cause: delivery.CauseConnect}
	case "dns":
		return delivery.Result{Sent: delivery.SentNever, Cause: delivery.CauseDNS}
	}
	code, after, has := strings.Cut(what, "@")
	if !has {
		return status(p.num(code))
	}
	if ahead, ok := strings.CutPrefix(after, "now+"); ok {
		after = time.Now().UTC().Add(time.Duration(p.num(ahead)) * time.Second).Format("Mon, 02 Jan 2006 15:04:05 GMT")
	}
	return retryAfter(p.num(code), after)
}

func (p *play) record(d *datadriven.TestData) {
	num := delivery.SubscriberNum(p.num(d.CmdArgs[0].Key))
	p.r.dir.change(num, func(s *delivery.Subscriber) {
		switch d.Cmd {
		case "pause":
			s.Status = delivery.SubscriberPaused
		case "resume":
			s.Status = delivery.SubscriberActive
		case "url":
			s.URL = d.CmdArgs[1].Key
		case "delete":
			s.Status = delivery.SubscriberDeleted
		}
	})
	if d.Cmd == "delete" {
		p.r.s.Forget(num)
	} else {
		p.r.s.Kick(num)
	}
	synctest.Wait()
}

func (p *play) replay(d *datadriven.TestData) {
	e, num := p.events[d.CmdArgs[0].Key], delivery.SubscriberNum(p.num(d.CmdArgs[1].Key))
	s, _ := p.r.dir.Subscriber(num)
	p.r.q.mu.Lock()
	f := &delivery.Replayed{
		Lease: p.r.q.lease, At: time.Now(), Event: e.Key, Subscriber: num, Lane: s.Lane(e),
		Key: s.KeyFor(e.OrderingKey), Attempts: p.r.q.state.attempts[ref{e.Key, num}],
	}
	p.r.q.mu.Unlock()
	done := make(chan error, 1)
	p.r.q.Commit([]delivery.Fact{f}, func(err error) { done <- err })
	if err := <-done; err != nil {
		p.t.Fatal(err)
	}
	p.r.s.Kick(num)
	synctest.Wait()
}

func (p *play) status(d *datadriven.TestData) string {
	st, err := p.r.s.Status(delivery.SubscriberNum(p.num(d.CmdArgs[0].Key)))
	if err != nil {
		p.t.Fatal(err)
	}
	out := fmt.Sprintf("breaker %s, in flight %d, ready %d, waiting for %s", st.Health.Breaker, st.InFlight, st.Ready, st.Waiting)
	if !st.Until.IsZero() {
		out += " until " + p.at(st.Until)
	}
	if !st.NextDue.IsZero() {
		out += ", next due " + p.at(st.NextDue)
	}
	return out
}

// at is a time since the script began.
func (p *play) at(t time.Time) string { return t.Sub(p.begin).Round(time.Millisecond).String() }

// starts counts attempts by the instant they began.
func (p *play) starts() string {
	var out strings.Builder
	calls := p.r.send.sent()
	for p.begun < len(calls) {
		at, n := calls[p.begun].at, 0
		for ; p.begun < len(calls) && calls[p.begun].at.Equal(at); p.begun++ {
			n++
		}
		fmt.Fprintf(&out, "%s: %d\n", p.at(at), n)
	}
	return out.String()
}

// printed is one line, or an outcome with what followed from it.
type printed struct {
	at   time.Time
	id   string
	text string
}

// news prints the facts since it was asked last.
func (p *play) news() string {
	var lines []printed
	p.r.q.mu.Lock()
	ids := map[delivery.EventKey]string{}
	for id, e := range p.events {
		ids[e.Key] = id
	}
	for ; p.shown < len(p.r.q.log); p.shown++ {
		switch f := p.r.q.log[p.shown].fact.(type) {
		case *delivery.Moved:
			lines = append(lines, printed{f.At, ids[f.Row.Event], p.moved(f, ids)})
		case *delivery.HealthChanged:
			lines[len(lines)-1].text += fmt.Sprintf("  subscriber %d: %s\n", f.Subscriber, p.health(f.Health))
		}
	}
	p.r.q.mu.Unlock()
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	for ; p.told < len(p.r.disabled); p.told++ {
		d := p.r.disabled[p.told]
		lines = append(lines, printed{d.At, "~", fmt.Sprintf("%s subscriber %d is to be disabled: %s\n", p.at(d.At), d.Subscriber, d.Reason)})
	}
	if p.sorted {
		slices.SortStableFunc(lines, func(a, b printed) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.id, b.id)) })
	}
	var out strings.Builder
	for _, l := range lines {
		out.WriteString(l.text)
	}
	return out.String()
}

func (p *play) moved(f *delivery.Moved, ids map[delivery.EventKey]string) string {
	out := &strings.Builder{}
	fmt.Fprintf(out, "%s %s to %d:", p.at(f.At), ids[f.Row.Event], f.Row.Subscriber)
	if f.Prior != nil {
		fmt.Fprintf(out, " attempt %d %s;", f.Prior.Number, f.Prior.Outcome.Reason)
	}
	if a := f.Attempt; a != nil {
		fmt.Fprintf(out, " attempt %d", a.Number)
		if !a.StartedAt.Equal(a.EndedAt) {
			fmt.Fprintf(out, " since %s", p.at(a.StartedAt))
		}
		if a.Result.Status != 0 {
			fmt.Fprintf(out, " %d", a.Result.Status)
		}
		fmt.Fprintf(out, " %s;", a.Outcome.Reason)
	}
	next := [...]string{delivery.NextDelivered: "delivered", delivery.NextRetry: "again", delivery.NextDead: "dead", delivery.NextCanceled: "canceled", delivery.NextParked: "parked"}
	fmt.Fprintf(out, " %s", next[f.Next])
	if f.Next == delivery.NextRetry {
		fmt.Fprintf(out, " at %s", p.at(f.Due))
	}
	if f.Reason != delivery.ReasonDelivered && (f.Attempt == nil || f.Reason != f.Attempt.Outcome.Reason) {
		fmt.Fprintf(out, " (%s)", f.Reason)
	}
	if f.Block {
		out.WriteString(", blocks its key")
	}
	if f.Unblock {
		out.WriteString(", unblocks its key")
	}
	if f.Note != "" {
		note := f.Note
		for key, id := range ids {
			note = strings.ReplaceAll(note, key.String(), id)
		}
		fmt.Fprintf(out, " [%s]", note)
	}
	out.WriteByte('\n')
	return out.String()
}

func (p *play) health(h delivery.Health) string {
	out := fmt.Sprintf("%s, %d failed in a row", h.Breaker, h.Consecutive)
	if h.Breaker == delivery.BreakerOpen {
		out += fmt.Sprintf(", opening %d until %s", h.Opens, p.at(h.OpenUntil))
	}
	if !h.FailingSince.IsZero() {
		out += ", failing since " + p.at(h.FailingSince)
	}
	return out
}
