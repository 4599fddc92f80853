package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dispatcher-engine/dispatcher/delivery"
	"github.com/dispatcher-engine/dispatcher/internal/testnet/fault"
	"github.com/dispatcher-engine/dispatcher/protoselect"
)

// matrixRow is one line of the fault matrix as a node meets it: a receiver of
// its own and a subscriber that has to use the row's protocol.
type matrixRow struct {
	*bundle
	t    *testing.T
	row  fault.Row
	peer *fault.Server
	sub  string
}

// TestFaultMatrixOnTheTimelineAndInTheSelector sends one event into every fault
// of the list, over every protocol that has it, and holds three things against
// the design: how often the handler ran in that attempt, what the delivery's
// timeline says of it, and what the selector makes of the alternative. A fault
// bites once, so what is proven not to have been processed is delivered by the
// attempt's second write.
func TestFaultMatrixOnTheTimelineAndInTheSelector(t *testing.T) {
	b := setup(t, func(c *Config) {
		c.Guard.Resolver = names{sequenceHost: {netip.MustParseAddr("127.0.0.1")}}
	})
	rows := make(chan int)
	matrix := fault.Matrix()
	var wg sync.WaitGroup
	for range matrixParallel { // they wait more than they work
		wg.Go(func() {
			for i := range rows {
				t.Run(matrix[i].String(), func(t *testing.T) { b.meet(t, matrix[i], fmt.Sprintf("row-%d", i)) })
			}
		})
	}
	for i, row := range matrix {
		if i%matrixStride == 0 && row.Fault.Kind().Name != "stream-limit" { // needs two requests: the transport's own test
			rows <- i
		}
	}
	close(rows)
	wg.Wait()
}

func (b *bundle) meet(t *testing.T, row fault.Row, sub string) {
	config := fault.Config{CA: b.ca, Names: []string{sequenceHost}, HTTP3: true}
	if row.Fault.Kind().Standing {
		config.Faults = []fault.Fault{row.Fault}
	}
	peer, err := fault.Start(config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := peer.Close(); err != nil {
			t.Error(err)
		}
	}()
	own := *b
	own.t = t // subtests end on their own
	m := &matrixRow{bundle: &own, t: t, row: row, peer: peer, sub: sub}
	limit := 30 * time.Second // of what something other than the deadline ends
	if row.Want.Deadline {
		limit = matrixDeadline
	}
	m.subscribeRow(sub, row.Protocol.String(), limit)
	if row.Protocol == delivery.ProtocolHTTP3 { // it has to learn of it, over a TCP that works
		m.subscribeRow("prime-"+sub, "tcp", limit)
		m.delivered(m.publishTo("prime-"+sub), "prime-"+sub)
	}
	if !row.Fault.Kind().Standing {
		once, err := fault.ParseFault(onceOnly(row.Fault.String()))
		if err != nil {
			t.Fatal(err)
		}
		if err := peer.SetFaults(once); err != nil {
			t.Fatal(err)
		}
	}
	for range row.Fault.Warmup() {
		m.delivered(m.publishTo(sub), sub)
	}
	m.judge()
}

func onceOnly(spec string) string {
	switch {
	case strings.Contains(spec, "times="):
		return spec
	case strings.Contains(spec, ":"):
		return spec + ",times=1"
	}
	return spec + ":times=1"
}

func (m *matrixRow) subscribeRow(id string, policy string, limit time.Duration) {
	m.subscribeURL(id, fmt.Sprintf("https://%s:%d/hook", sequenceHost, m.peer.Port()), func(in *SubscriberInput) {
		in.Protocol, in.Timeout = &policy, &limit
	})
}

// judge sends the event that meets the fault.
func (m *matrixRow) judge() {
	r := m.publishSized(max(m.row.Want.Body, 100))
	attempt := m.attempted(r, m.sub)
	m.judgeTimeline(r, attempt)
	m.judgeResult(attempt.Result)
	m.judgeRuns(r, attempt.Result)
	if m.row.Protocol == delivery.ProtocolHTTP3 {
		m.judgeState(attempt.Result)
	}
}

// judgeTimeline holds the entry of the attempt, and the one that follows from it
// in the same commit.
func (m *matrixRow) judgeTimeline(r Receipt, attempt *delivery.Attempt) {
	_, timeline := m.delivery(r, m.sub)
	var states []delivery.State
	for _, entry := range timeline {
		states = append(states, entry.State)
	}
	next := map[delivery.Class]delivery.State{
		delivery.ClassDelivered: delivery.StateDelivered, delivery.ClassRejected: delivery.StateDead, delivery.ClassGone: delivery.StateDead,
	}
	want, final := next[attempt.Outcome.Class]
	if !final {
		want = delivery.StateRetrying
	}
	n := len(states)
	if n < 2 || states[n-2] != delivery.StateAttempted || states[n-1] != want || timeline[n-2].Attempt.Number != 1 {
		m.t.Errorf("the timeline is %v after the outcome %v", states, attempt.Outcome)
	}
	if waits := n > 0 && !timeline[n-1].Next.IsZero(); waits == final {
		m.t.Errorf("next attempt %v after the outcome %v", timeline[n-1].Next, attempt.Outcome)
	}
	res, came := attempt.Result, m.row.Want.Pool != fault.FateNone
	if came && !m.row.Want.Early && res.Protocol != m.row.Protocol {
		m.t.Errorf("the protocol is %v", res.Protocol)
	}
	if res.Status == 0 && (res.Detail == "" || res.Cause == delivery.CauseNone) {
		m.t.Errorf("a failure without a cause: %+v", res)
	}
	if res.Phases.Total <= 0 || res.Status != 0 && (res.Phases.FirstByte <= 0 || res.Remote == "") {
		m.t.Errorf("phases %+v, remote %q", res.Phases, res.Remote)
	}
}

// judgeResult holds what the attempt came to: an answer, a second write that was
// safe, or the class of the failure.
func (m *matrixRow) judgeResult(res delivery.Result) {
	want := m.row.Want
	resent := res.Fallback && res.Status == 200
	failed := func(sent delivery.Sent) bool {
		switch sent {
		case delivery.SentRefused:
			// Both writes can have met the same GOAWAY, or its reset and then it.
			return resent || res.Fallback && res.Status == 0 && res.Sent == delivery.SentRefused
		case delivery.SentNever:
			return resent || res.Status == 0 && res.Sent == delivery.SentNever
		default:
			return res.Status == 0 && res.Sent == sent && !res.Fallback
		}
	}
	var ok bool
	switch {
	case want.Pool == fault.FateNone:
		ok = res.Status == 0 && res.Sent == delivery.SentNever
	case want.Status == 425:
		ok = resent
	case want.Status != 0:
		ok = res.Status == want.Status && !res.Fallback || want.Overtakes && failed(want.Overtaken)
	default:
		ok = failed(want.Sent) || want.Early && failed(delivery.SentNever)
	}
	if !ok {
		m.t.Errorf("status %d, sent %v, fallback %v (%v: %s), want %+v", res.Status, res.Sent, res.Fallback, res.Cause, res.Detail, want)
	}
}

// judgeRuns: exactly once where the first write is proven not to have been
// processed, at most once otherwise; once more where the peer lied.
func (m *matrixRow) judgeRuns(r Receipt, res delivery.Result) {
	want := m.row.Want
	tally := m.peer.Tally()
	runs, most := tally.Runs(r.ID), want.Runs
	resent := res.Fallback && res.Status != 0
	if resent {
		most++
	}
	if runs > most && !want.Early || runs > 1+min(tally.Lies(r.ID), 1) {
		m.t.Errorf("the handler ran %d times, want %d; the peer lied %d times", runs, most, tally.Lies(r.ID))
	}
	if resent && runs != most && !want.Early {
		m.t.Errorf("the handler ran %d times after a safe second write, want %d", runs, most)
	}
}

// replaced are the Alt-Svc headers that take the advert back or put one in its
// place which policy does not use.
var replaced = []string{"clear", "clear-lower-than-h3", "literal-host", "many", "other-host", "other-port"}

// judgeState: what an answer, or a failure's class, makes of the alternative.
// TCP worked a moment ago, so a failure that says something breaks it; one that
// had answered is suspect first.
func (m *matrixRow) judgeState(res delivery.Result) {
	want := m.row.Want
	trusted := m.row.Fault.Warmup() > 0
	var allowed []protoselect.State
	kind, params, _ := strings.Cut(m.row.Fault.String(), ":form=")
	switch {
	case kind == "alt-svc" && slices.Contains(replaced, params), want.Status == 421:
		allowed = []protoselect.State{protoselect.StateUnknown}
	case res.Status != 0:
		allowed = []protoselect.State{protoselect.StateConfirmed}
	case want.BrokenOpen || want.Early || want.Deadline || want.Status != 0:
		allowed = []protoselect.State{protoselect.StateAdvertised, protoselect.StateConfirmed, protoselect.StateSuspect, protoselect.StateBroken}
	case want.Broken == delivery.BrokenNot && trusted:
		allowed = []protoselect.State{protoselect.StateConfirmed}
	case want.Broken == delivery.BrokenNot:
		allowed = []protoselect.State{protoselect.StateAdvertised}
	case want.Broken == delivery.BrokenAfterDeath && trusted:
		allowed = []protoselect.State{protoselect.StateSuspect}
	default:
		allowed = []protoselect.State{protoselect.StateBroken}
	}
	// The memory hears of an outcome before the timeline does.
	if got := m.alternative(); !slices.Contains(allowed, got) {
		m.t.Errorf("the alternative is %v, want one of %v", got, allowed)
	}
}

// publishSized publishes an event whose payload has at least so many bytes.
func (m *matrixRow) publishSized(size int) Receipt {
	m.t.Helper()
	payload := []byte(`"` + strings.Repeat("x", size) + `"`)
	r, err := m.Publish(m.t.Context(), "t", EventInput{Topic: "order.created", Payload: payload, Subscribers: []string{m.sub}})
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

// alternative is the selector's row of the receiver's own HTTP/3 port.
func (m *matrixRow) alternative() protoselect.State {
	rows, _, err := m.Protocol(m.t.Context(), fmt.Sprintf("%s:%d", sequenceHost, m.peer.Port()))
	if err != nil || len(rows) != 1 {
		m.t.Fatalf("%+v, %v", rows, err)
	}
	for _, a := range rows[0].Alternatives {
		return a.State
	}
	return protoselect.StateUnknown
}
